//! The HTTP contract of a whole gateway, from client to upstream and database.

mod client;
mod gateway;
pub(crate) mod upstream;

mod bad_input;
mod bodies;
mod browsers;
mod callers;
mod concurrency;
mod console;
mod docs;
mod events;
mod fingerprint;
mod forwarding;
mod issuer;
mod jwt;
mod key_sets;
mod keys;
mod operators;
mod outcomes;
mod overload;
mod problems;
mod replay;
mod retention;
mod routing;
mod sealing;
mod secrecy;
mod settling;
mod stopping;
mod tokens;
mod transports;

use std::time::Duration;

/// Longest wait of a test for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// Fails where something does not come to an end.
#[track_caller]
fn in_time<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let at = std::panic::Location::caller();
    async move { tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain at {at}")) }
}

/// Asks until the answer is what is waited for.
async fn eventually<T, F: Future<Output = T>>(mut ask: impl FnMut() -> F, done: impl Fn(&T) -> bool) -> T {
    let asking = async {
        loop {
            let answer = ask().await;
            if done(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(asking).await
}
