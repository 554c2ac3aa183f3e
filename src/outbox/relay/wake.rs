//! How a relay learns of new events sooner than by polling.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::outbox::store::{Outbox, Woken};

/// How often this process tells the others at most: a commit that carries events costs them nothing, however many
/// there are.
const TELL_EVERY: Duration = Duration::from_millis(20);

/// Wakes one queue's relays, here and in other processes. Cheap to clone and to call.
#[derive(Debug, Clone, Default)]
pub struct Wake {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    here: Notify,
    elsewhere: Notify,
    /// Whether this process's relay holds every lane, so that nobody else has to be told.
    is_alone: AtomicBool,
}

impl Wake {
    /// A transaction with events of the queue has been committed. Call it after the commit, never before.
    pub fn committed(&self) {
        self.shared.here.notify_one();
        if !self.shared.is_alone.load(Ordering::Relaxed) {
            self.shared.elsewhere.notify_one();
        }
    }

    /// Another process has said so.
    pub fn told(&self) {
        self.shared.here.notify_one();
    }

    /// Waits until somebody has called [`Self::committed`] or [`Self::told`] since the last wait.
    pub(super) async fn woken(&self) {
        self.shared.here.notified().await;
    }

    /// Whether every lane is held here.
    pub(super) fn set_alone(&self, is_alone: bool) {
        self.shared.is_alone.store(is_alone, Ordering::Relaxed);
    }

    /// Tells the other processes of commits here, at most once in a while, for ever.
    pub(super) async fn tell_others(&self, outbox: &dyn Outbox, queue: &str) {
        loop {
            self.shared.elsewhere.notified().await;
            if let Err(error) = outbox.notify(queue).await {
                // They poll.
                tracing::debug!(queue, %error, "other relays were not woken");
            }
            tokio::time::sleep(TELL_EVERY).await;
        }
    }
}

/// The wakes of a process's queues, by name. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Wakes {
    queues: Arc<Mutex<HashMap<Box<str>, Wake>>>,
}

impl Wakes {
    /// The wake of `queue`, always the same one.
    #[must_use]
    pub fn of(&self, queue: &str) -> Wake {
        self.queues().entry(queue.into()).or_default().clone()
    }

    /// Passes on what other processes tell, for ever; ends at once where the database can't tell.
    pub async fn listen(&self, outbox: &dyn Outbox) {
        let wakes = self.clone();
        outbox.listen(Box::new(move |woken| wakes.told(&woken))).await;
    }

    fn told(&self, woken: &Woken) {
        let queues = self.queues();
        match woken {
            Woken::Queue(queue) => queues.get(queue).into_iter().for_each(Wake::told),
            Woken::Any => queues.values().for_each(Wake::told),
        }
    }

    fn queues(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, Wake>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
