//! The queue door of a whole gateway: from a message in a queue to its effect.

mod brokers;
mod chains;
mod crashes;
#[cfg(feature = "redis-streams")]
mod foreign;
mod handler;
#[cfg(feature = "redis-streams")]
mod losses;
mod order;
mod process;
pub(crate) mod queue;
mod results;
mod storm;
mod trouble;
mod world;

use std::time::Duration;

use oncegate::clock;

/// Longest wait of a test for anything: machines that test are busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until `holds`, and fails with the last `shown` if it never does.
#[track_caller]
fn eventually<S: std::fmt::Debug>(
    what: &str,
    mut look: impl AsyncFnMut() -> S,
    holds: impl Fn(&S) -> bool,
) -> impl Future<Output = S> {
    let at = std::panic::Location::caller();
    async move {
        let deadline = clock::now() + PATIENCE;
        loop {
            let seen = look().await;
            if holds(&seen) {
                return seen;
            }
            assert!(clock::now() < deadline, "{at}: never: {what}; at last {seen:?}");
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
}
