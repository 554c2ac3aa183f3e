//! The `oncegate` binary.
//!
//! Exit codes: 0 done; 1 it could not be done; 2 the command line or the configuration is wrong; 3 done, but not for all.

mod cli;

use std::process::ExitCode;

/// Batches of small, short-lived allocations on several threads are what this allocator is good at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
