//! Deliveries that stop while their subscription is paused, and go on when it is resumed.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::outbox::relay::Relay;

/// Whether a subscription is paused. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Pause(Arc<watch::Sender<bool>>);

impl Default for Pause {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Pause {
    /// Pauses it, or lets it go on.
    pub(super) fn set(&self, is_paused: bool) {
        self.0.send_replace(is_paused);
    }

    /// Waits until it is so.
    async fn is(&self, paused: bool) {
        // Its sender is here: it can't be gone.
        drop(self.0.subscribe().wait_for(|is_paused| *is_paused == paused).await);
    }
}

/// Runs relays that `make` makes until `stop`, one after the other: each until a pause, when it finishes what is under
/// way, gives back the rest uncounted, and lets its lanes go, as at a stop.
pub(super) async fn relay(make: impl Fn() -> Relay, pause: Pause, stop: CancellationToken) {
    while stop.run_until_cancelled(pause.is(false)).await.is_some() {
        let until = stop.child_token();
        let running = make().run(until.clone());
        tokio::pin!(running);
        tokio::select! {
            () = &mut running => return,
            () = pause.is(true) => {
                until.cancel();
                running.await;
            }
        }
    }
}
