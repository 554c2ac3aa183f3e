//! The executions of this process: at most one per entry, and where others of the same key wait for it.

use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::entry::{EntryId, Fingerprint, Nonce};

/// Shards, so that arrivals of different keys on different cores seldom meet at one lock.
const SHARDS: usize = 64;

type Shard = Mutex<HashMap<EntryId, Arc<Flight>>>;

/// The executions of this process.
#[derive(Debug)]
pub(super) struct Flights {
    shards: Arc<[Shard]>,
}

/// One execution of this process, from its arrival until its outcome is recorded.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) id: EntryId,
    /// One for the whole flight: whatever it writes, it writes under this.
    pub(super) nonce: Nonce,
    pub(super) fingerprint: Fingerprint,
    /// Whether the entry is claimed under this fingerprint. Before, the key may turn out to be another request's.
    pub(super) claimed: AtomicBool,
    /// Whether a mark is held that the watchdog must keep alive.
    pub(super) marked: AtomicBool,
    finished: AtomicBool,
    landing: Notify,
}

/// What joining found.
#[derive(Debug)]
pub(super) enum Joined {
    /// Nobody is on it: the caller is. The flight ends when this is dropped.
    Leading(Leading),
    /// Somebody is.
    Following(Arc<Flight>),
}

/// The one who flies. Dropping it ends the flight and wakes those who wait.
#[derive(Debug)]
pub(super) struct Leading {
    flight: Arc<Flight>,
    shards: Arc<[Shard]>,
}

impl Flights {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// Takes the lead for `id`, or finds who has it.
    pub(super) fn join(&self, id: EntryId, fingerprint: &Fingerprint) -> Joined {
        match lock(&self.shards, id).entry(id) {
            hash_map::Entry::Occupied(entry) => Joined::Following(Arc::clone(entry.get())),
            hash_map::Entry::Vacant(entry) => {
                let flight = Arc::new(Flight {
                    id,
                    nonce: Nonce::random(),
                    fingerprint: *fingerprint,
                    claimed: AtomicBool::new(false),
                    marked: AtomicBool::new(false),
                    finished: AtomicBool::new(false),
                    landing: Notify::new(),
                });
                entry.insert(Arc::clone(&flight));
                Joined::Leading(Leading { flight, shards: Arc::clone(&self.shards) })
            }
        }
    }

    /// All flights now.
    pub(super) fn all(&self) -> Vec<Arc<Flight>> {
        let mut flights = Vec::new();
        for shard in &*self.shards {
            flights.extend(shard.lock().unwrap_or_else(PoisonError::into_inner).values().cloned());
        }
        flights
    }
}

impl Flight {
    /// Waits for the flight to end.
    pub(super) async fn landed(&self) {
        let landing = self.landing.notified();
        tokio::pin!(landing);
        // Registered before the flag is read, so that no wake-up falls in between.
        landing.as_mut().enable();
        if !self.finished.load(Ordering::Acquire) {
            landing.await;
        }
    }
}

impl std::ops::Deref for Leading {
    type Target = Flight;

    fn deref(&self) -> &Flight {
        &self.flight
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        lock(&self.shards, self.flight.id).remove(&self.flight.id);
        self.flight.finished.store(true, Ordering::Release);
        self.flight.landing.notify_waiters();
    }
}

fn lock(shards: &[Shard], id: EntryId) -> MutexGuard<'_, HashMap<EntryId, Arc<Flight>>> {
    // The id is a digest: any of its bytes spreads evenly.
    shards[usize::from(id.0[0]) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::entry::fingerprint::SecretId;

    const PRINT: Fingerprint = Fingerprint { version: 1, secret: SecretId([0; 4]), digest: [0; 32] };

    #[tokio::test]
    async fn one_leads_others_follow_and_are_woken_at_its_end() {
        let flights = Flights::new();
        let Joined::Leading(lead) = flights.join(EntryId([1; 32]), &PRINT) else { panic!("nobody led before") };
        let Joined::Following(followed) = flights.join(EntryId([1; 32]), &PRINT) else { panic!("two lead") };
        assert!(matches!(flights.join(EntryId([2; 32]), &PRINT), Joined::Leading(_)));
        let waiter = tokio::spawn(async move { followed.landed().await });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(lead);
        waiter.await.unwrap();
        assert!(matches!(flights.join(EntryId([1; 32]), &PRINT), Joined::Leading(_)));
    }

    #[tokio::test]
    async fn whoever_looks_after_the_end_does_not_wait() {
        let flights = Flights::new();
        let Joined::Leading(lead) = flights.join(EntryId([1; 32]), &PRINT) else { panic!("nobody led before") };
        let Joined::Following(followed) = flights.join(EntryId([1; 32]), &PRINT) else { panic!("two lead") };
        drop(lead);
        followed.landed().now_or_never().expect("it has landed");
    }
}
