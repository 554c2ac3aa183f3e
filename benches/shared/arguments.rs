//! What every benchmark is told on its command line, and how its groups are run.

use std::fmt::Debug;

use clap::{Args, Parser, ValueEnum};

/// The gateway's: what is compared shall differ in what it does, not in what it allocates with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is measured, and for how long: groups `G`, and what else the benchmark wants to know.
///
/// Contenders take turns, and ratios are printed: see benches/README.md.
#[derive(Debug, Parser)]
pub(crate) struct Arguments<G: Groups, M: Args + Debug> {
    /// Seconds of a contender's turn, where it is not a number of something.
    #[arg(long, default_value_t = 4)]
    pub(crate) seconds: u64,
    /// Turns of each contender.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Only these groups.
    #[arg(long, value_delimiter = ',')]
    only: Vec<G>,
    #[command(flatten)]
    pub(crate) more: M,
    /// What cargo adds when it benches. Without it, as under `cargo test`, nothing is measured.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Groups of contenders.
pub(crate) trait Groups: ValueEnum + Copy + Debug + PartialEq + Send + Sync + 'static {}

impl<G: ValueEnum + Copy + Debug + PartialEq + Send + Sync + 'static> Groups for G {}

impl<G: Groups, M: Args + Debug> Arguments<G, M> {
    /// What the command line says.
    pub(crate) fn read() -> Self {
        Self::parse()
    }

    /// Runs each wanted group by `run`.
    pub(crate) fn measure(&self, run: impl AsyncFn(G, &Self)) {
        let Self { seconds, rounds, only, more, bench } = self;
        if !bench {
            return println!("nothing is measured: use cargo bench");
        }
        let cores = std::thread::available_parallelism().unwrap();
        println!("{cores} cores, {rounds} rounds of {seconds} s, {more:?}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for group in G::value_variants() {
            if only.is_empty() || only.contains(group) {
                runtime.block_on(run(*group, self));
            }
        }
    }
}
