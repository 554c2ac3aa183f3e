//! Measures the relay against real servers on the loopback interface: see benches/README.md.

#![expect(clippy::unwrap_used, reason = "a benchmark that can't go on fails")]

#[path = "../shared/arguments.rs"]
mod arguments;
mod backlog;
mod brokers;
#[expect(dead_code, reason = "the gateway's benchmark uses all of it")]
#[path = "../gateway/database.rs"]
mod database;
mod distance;
mod ground;
mod groups;
mod latency;
#[expect(dead_code, reason = "the gateway's benchmark uses all of it")]
#[path = "../gateway/load.rs"]
mod load;
mod one_by_one;
#[expect(dead_code, reason = "the gateway's benchmark uses all of it")]
#[path = "../gateway/peers.rs"]
mod peers;
#[expect(dead_code, reason = "the tests use all of it")]
#[path = "../gateway/private.rs"]
mod private;
mod relaying;
#[expect(dead_code, reason = "the gateway's benchmark uses all of it")]
#[path = "../gateway/report.rs"]
mod report;
mod requests;
#[expect(dead_code, reason = "the gateway's benchmark uses all of it")]
#[path = "../gateway/servers.rs"]
mod servers;

use std::path::PathBuf;

use arguments::Arguments;
use clap::Subcommand;
use groups::Group;

type Options = Arguments<Group, More>;

/// What else this benchmark wants to know.
#[derive(Debug, clap::Args)]
struct More {
    /// Events of a relay's turn.
    #[arg(long, default_value_t = 20_000)]
    events: u32,
    /// Events of the backlog that drains in flat memory.
    #[arg(long, default_value_t = 1_000_000)]
    backlog: u32,
    /// Connections to the gateway.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Another build of the gateway.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_oncegate"))]
    gateway: PathBuf,
    #[command(subcommand)]
    peer: Option<Peer>,
}

/// What stands around it, in a process of its own.
#[derive(Debug, Subcommand)]
enum Peer {
    #[command(hide = true)]
    Upstream { port: u16 },
}

fn main() {
    let options = Options::read();
    match options.more.peer {
        Some(Peer::Upstream { port }) => peers::upstream(port),
        None => options.measure(Group::run),
    }
}
