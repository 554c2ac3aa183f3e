//! Measures what it costs to handle each message once: see benches/README.md.

#![expect(clippy::unwrap_used, reason = "a benchmark that can't go on fails")]

#[path = "../shared/arguments.rs"]
mod arguments;
#[expect(dead_code, reason = "the gateway's benchmark uses all of it")]
#[path = "../gateway/database.rs"]
mod database;
mod ground;
mod groups;
mod handling;
#[expect(dead_code, reason = "the gateway's benchmark uses all of it")]
#[path = "../gateway/load.rs"]
mod load;
#[expect(dead_code, reason = "the tests use all of it")]
mod private;
#[expect(dead_code, reason = "the gateway's benchmark uses all of it")]
#[path = "../gateway/report.rs"]
mod report;

use arguments::Arguments;
use groups::Group;

type Options = Arguments<Group, More>;

/// What else this benchmark wants to know.
#[derive(Debug, clap::Args)]
struct More {
    /// Messages that are handled at a time, each on a connection.
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// Messages of a batch.
    #[arg(long, default_value_t = 64)]
    batch: usize,
}

fn main() {
    Options::read().measure(Group::run);
}
