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
    let asked = Arc::new((Arc::clone(store), Mutex::new(None::<(Instant, bool)>)));
    Arc::new(move || {
        let asked = Arc::clone(&asked);
        Box::pin(async move {
            let (store, last) = &*asked;
            let mut last = last.lock().await;
            match *last {
                Some((at, is_writable)) if at.elapsed() < GOOD_FOR => is_writable,
                _ => {
                    let is_writable = store.ping().await.is_ok();
                    *last = Some((clock::now(), is_writable));
                    is_writable
                }
            }
        })
    })
}
