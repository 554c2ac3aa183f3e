//! `oncegate demo`.

use clap::Args;

use super::Failure;

#[derive(Debug, Args)]
pub(super) struct Demo {}

impl Demo {
    pub(super) fn run(self) -> Result<(), Failure> {
        Err(Failure::Failed("x".to_owned()))
    }
}
