//! Measures the gateway against real servers on the loopback interface: see benches/README.md.

#![expect(clippy::unwrap_used, reason = "a benchmark that can't go on fails")]

#[path = "../shared/arguments.rs"]
mod arguments;
mod database;
mod groups;
mod load;
mod peers;
#[expect(dead_code, reason = "the tests use all of it")]
mod private;
mod report;
mod servers;

use std::path::PathBuf;

use arguments::Arguments;
use clap::Subcommand;
use groups::Group;

type Options = Arguments<Group, More>;

/// What else this benchmark wants to know.
#[derive(Debug, clap::Args)]
struct More {
    /// Connections, where it is not one.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Another build of the gateway.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_oncegate"))]
    gateway: PathBuf,
    #[command(subcommand)]
    peer: Option<Peer>,
}

/// A peer of the gateway, in a process of its own.
#[derive(Debug, Subcommand)]
enum Peer {
    #[command(hide = true)]
    Upstream { port: u16 },
    #[command(hide = true)]
    Proxy { port: u16, upstream: u16 },
}

fn main() {
    let options = Options::read();
    match options.more.peer {
        Some(Peer::Upstream { port }) => peers::upstream(port),
        Some(Peer::Proxy { port, upstream }) => peers::proxy(port, upstream),
        None => options.measure(Group::run),
    }
}
