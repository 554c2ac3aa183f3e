//! The demo's consumer of events: a ledger clerk who writes down what the embedded queue brings.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::broker::embedded::{Messages, Stored};

/// How often it looks: so that an onlooker need not wait.
const EVERY: Duration = Duration::from_millis(100);

/// Messages read at once.
const AT_ONCE: u32 = 100;

/// What has arrived so far, a line each. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrived(Arc<Mutex<Vec<String>>>);

impl Arrived {
    /// All lines.
    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the queue until it is dropped.
    pub(super) async fn follow(self, queue: Arc<dyn Messages>, name: &str) {
        let mut after = 0;
        loop {
            match queue.tail(name, None, after, AT_ONCE).await {
                Ok(messages) => {
                    after = messages.last().map_or(after, |last| last.position);
                    let lines = messages.iter().map(line);
                    self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(lines);
                }
                Err(error) => tracing::warn!(%error, "the demo's queue could not be read"),
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}

fn line(stored: &Stored) -> String {
    let message = &stored.message;
    format!("{} {} {}", message.topic, message.id, String::from_utf8_lossy(&message.data))
}
