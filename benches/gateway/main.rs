//! Measures the gateway against real servers on the loopback interface: see benches/README.md.

#![expect(clippy::unwrap_used, reason = "a benchmark that can't go on fails")]

mod database;
mod groups;
mod load;
mod peers;
#[expect(dead_code, reason = "the tests use all of it")]
mod private;
mod report;
mod servers;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum as _};
use groups::Group;

/// The gateway's: what is compared shall differ in what it does, not in what it allocates with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the gateway, and prints ratios.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    peer: Option<Peer>,
    #[command(flatten)]
    options: Options,
    /// What cargo adds when it benches. Without it, as under `cargo test`, nothing is measured.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What is measured, and for how long.
#[derive(Debug, clap::Args)]
struct Options {
    /// Seconds of a contender's turn.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Turns of each contender.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Connections, where it is not one.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Only these groups.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Group>,
    /// Another build of the gateway.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_oncegate"))]
    gateway: PathBuf,
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
    let Cli { peer, options, bench } = Cli::parse();
    match peer {
        Some(Peer::Upstream { port }) => peers::upstream(port),
        Some(Peer::Proxy { port, upstream }) => peers::proxy(port, upstream),
        None if bench => measure(&options),
        None => println!("nothing is measured: use cargo bench --bench gateway"),
    }
}

fn measure(options: &Options) {
    let cores = std::thread::available_parallelism().unwrap();
    println!("{cores} cores, {} rounds of {} s, {} connections", options.rounds, options.seconds, options.connections);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for group in Group::value_variants() {
        if options.only.is_empty() || options.only.contains(group) {
            runtime.block_on(group.run(options));
        }
    }
}
