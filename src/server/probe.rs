//! What readiness asks of the store, for whoever asks however often.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::clock::{self, Instant};
use crate::http::endpoints::Probe;
use crate::storage::Store;

/// How long an answer is good for: anybody may ask for readiness, and must not keep the store from its work.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// Whether `store` takes writes: asked of it once a second at most, whoever waits gets the same answer.
pub(super) fn store(store: &Arc<Store>) -> Probe {
    let store = Arc::clone(store);
    shared(move || {
        let store = Arc::clone(&store);
        async move { store.ping().await.is_ok() }
    })
}

fn shared<A: Future<Output = bool> + Send>(ask: impl Fn() -> A + Send + Sync + 'static) -> Probe {
    let asked = Arc::new((ask, Mutex::new(None::<(Instant, bool)>)));
    Arc::new(move || {
        let asked = Arc::clone(&asked);
        Box::pin(async move {
            let (ask, last) = &*asked;
            let mut last = last.lock().await;
            match *last {
                Some((at, is_writable)) if at.elapsed() < GOOD_FOR => is_writable,
                _ => {
                    let is_writable = ask().await;
                    *last = Some((clock::now(), is_writable));
                    is_writable
                }
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn all_who_ask_at_once_get_the_answer_to_one_question() {
        let questions = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&questions);
        let probe = shared(move || {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::task::yield_now().await;
                number == 0
            }
        });
        assert!(join_all((0..100).map(|_| probe())).await.iter().all(|is_writable| *is_writable));
        assert_eq!(questions.load(Ordering::Relaxed), 1);
    }
}
