//! An arriving request: from its key to what it is told.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Engine;
use super::execute::{Attempt, Executed, Execution, Told};
use super::flights::{Flight, Joined};
use super::policy::{KeyKind, Policy};
use super::waiters::{Seat, Waiters};
use crate::chance;
use crate::clock::{self, Instant, Timestamp};
use crate::entry::fingerprint::{Comparison, Fingerprint, Meaning};
use crate::entry::{Admission, Entry, EntryId, Identity, ResolvedKey, Scope, StoredResponse, admit};
use crate::outbox::seed::Seed;

/// A request with a key.
#[derive(Debug)]
pub struct Arrival {
    /// Kind, owner and key.
    pub identity: Identity,
    /// The digest of `identity`.
    pub id: EntryId,
    /// What the request means.
    pub meaning: Meaning,
    /// The meaning under the first secret.
    pub fingerprint: Fingerprint,
    /// Where the key came from.
    pub kind: KeyKind,
    /// What its events will need of it. Empty where nothing is announced.
    pub seed: Arc<Seed>,
    /// What the route wants.
    pub policy: Arc<Policy>,
    /// How long to wait for another request of the same key; zero: not at all.
    pub wait: Duration,
}

/// What an arriving request is told.
#[derive(Debug)]
pub enum Arrived<A> {
    /// It was executed by this very request; this is what came of it.
    Executed {
        /// The execution's answer.
        answer: A,
        /// What is on record.
        recorded: Recorded,
    },
    /// It was not.
    Told(Verdict),
}

/// What is on record of an execution when its caller is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// Completed; the answer is kept until then.
    Completed(Timestamp),
    /// Not executed: the same key may run again.
    Released,
    /// Unknown: held until settled.
    Unknown,
    /// Nothing yet: the answer is still being streamed.
    Streaming,
    /// Nothing: the store did not take it in time, or somebody else has settled the entry. It stays guarded.
    Nothing,
}

/// What a request that was not executed is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The first answer.
    Replay {
        /// As stored.
        response: Arc<StoredResponse>,
        /// Until when it is kept.
        expires: Timestamp,
    },
    /// It happened, but its answer was not kept.
    NotKept {
        /// The first answer's status.
        status: u16,
        /// Until when even this is kept.
        expires: Timestamp,
    },
    /// It happened longer ago than answers are kept.
    Expired,
    /// Another request of the same key is being executed.
    InProgress {
        /// When to ask again.
        retry_after: Duration,
    },
    /// The key belongs to another request.
    Mismatch,
    /// Nobody knows whether it happened.
    Held {
        /// When to ask again.
        retry_after: Duration,
    },
    /// Nothing was done.
    Unavailable(Reason),
}

/// Why nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The store can't be asked, or does not say whether a claim was written.
    Store,
    /// Too many requests wait to be recorded.
    Overload,
    /// This process's lease is not held.
    Lease,
    /// The stored fingerprint can't be compared here.
    Incomparable,
    /// The stored answer is sealed under a key that is not here.
    Sealed,
}

/// When to ask again about a request that is being executed: most take less than a second.
pub(super) const PROCESSING_RETRY: Duration = Duration::from_secs(1);

impl Engine {
    /// Admits a request and acts on it: executes it with `run` if its key is new, else says what became of
    /// the first one.
    ///
    /// - The claim is durable before `run` is called, and its outcome is recorded before this returns.
    /// - `run` is called at most once, in a task of its own: dropping this future cancels nothing.
    /// - At most one execution of a key runs at any time, in all gateways on the same store.
    pub async fn arrive<A, F, R>(self: &Arc<Self>, arrival: Arrival, run: F) -> Arrived<A>
    where
        A: Send + 'static,
        F: FnOnce(Attempt) -> R + Send + 'static,
        R: Future<Output = Executed<A>> + Send + 'static,
    {
        let arrival = Arc::new(arrival);
        let mut waiting = Waiting::new(arrival.wait);
        let mut run = run;
        loop {
            if let Some(verdict) = self.known(&arrival) {
                return Arrived::Told(verdict);
            }
            match self.flights.join(arrival.id, &arrival.fingerprint) {
                Joined::Following(flight) => {
                    let verdict = self.about_flight(&arrival, &flight);
                    if !(matches!(verdict, Verdict::InProgress { .. })
                        && waiting.for_landing(&self.waiters, &flight).await)
                    {
                        return Arrived::Told(verdict);
                    }
                }
                Joined::Leading(flight) => {
                    let (tell, told) = oneshot::channel();
                    let execution =
                        Execution { engine: Arc::clone(self), arrival: Arc::clone(&arrival), flight, run, tell };
                    self.tasks.spawn(execution.fly());
                    match told.await {
                        Ok(Told::Arrived(arrived)) => return arrived,
                        Ok(Told::Elsewhere(back)) => {
                            // Not as a guard: that would hold a reference to `back`, and `F` need not be `Sync`.
                            if !waiting.for_another_look(&self.waiters, arrival.id).await {
                                return Arrived::Told(Verdict::InProgress { retry_after: PROCESSING_RETRY });
                            }
                            run = back;
                        }
                        // The task panicked. Its guard has left word; what the client may do is ask again.
                        Err(_) => return Arrived::Told(Verdict::Held { retry_after: PROCESSING_RETRY }),
                    }
                }
            }
        }
    }

    /// A request with a key, as it arrives. The door adds the seed of its events, where there are some.
    #[must_use]
    pub fn arrival(
        &self,
        policy: &Arc<Policy>,
        scope: Scope,
        key: &ResolvedKey,
        meaning: Meaning,
        wait: Duration,
    ) -> Arrival {
        let identity = Identity { namespace: policy.namespace.clone(), scope, key: key.key.clone() };
        Arrival {
            id: identity.id(),
            identity,
            fingerprint: self.secrets.fingerprint(&meaning),
            meaning,
            kind: if key.business { KeyKind::Business } else { KeyKind::Header },
            seed: Arc::default(),
            policy: Arc::clone(policy),
            wait,
        }
    }

    /// What the ledger (or the cache) knows of a key, without claiming it: for routes that only replay, and
    /// for questions about a key. `None`: nothing.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn peek(&self, arrival: &Arrival) -> Result<Option<Verdict>, super::StoreError> {
        if let Some(verdict) = self.known(arrival) {
            return Ok(Some(verdict));
        }
        let (entry, now) = self.ledger.read(arrival.id).await?;
        Ok(entry.and_then(|entry| self.verdict(&entry, arrival, now)))
    }

    /// The entry of a key, as the ledger has it.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn entry(&self, id: EntryId) -> Result<Option<Entry>, super::StoreError> {
        Ok(self.ledger.read(id).await?.0)
    }

    /// What the cache knows.
    pub(super) fn known(&self, arrival: &Arrival) -> Option<Verdict> {
        let entry = self.cache.get(arrival.id)?;
        let verdict = self.verdict(&entry, arrival, self.database_now());
        if matches!(verdict, None | Some(Verdict::Expired)) {
            // Its time is over by our idea of the database's clock; the database itself shall say so.
            self.cache.forget(arrival.id);
            return None;
        }
        verdict
    }

    /// What an entry means for a request, where nothing need be done; `None`: its time is over.
    pub(super) fn verdict(&self, entry: &Entry, arrival: &Arrival, now: Timestamp) -> Option<Verdict> {
        match admit(entry, self.compare(arrival, &entry.fingerprint), now) {
            Admission::Replay { response, expires } => Some(Verdict::Replay { response, expires }),
            Admission::NotKept { status, expires } => Some(Verdict::NotKept { status, expires }),
            Admission::Expired => Some(Verdict::Expired),
            Admission::InProgress => Some(Verdict::InProgress { retry_after: PROCESSING_RETRY }),
            Admission::Mismatch => Some(Verdict::Mismatch),
            Admission::Held { next_lookup, .. } => Some(Verdict::Held { retry_after: held_retry(next_lookup, now) }),
            Admission::Forgotten { .. } => None,
            Admission::Incomparable => Some(Verdict::Unavailable(Reason::Incomparable)),
        }
    }

    /// What a request is told while another of its key flies. A flight that has no claim yet proves nothing:
    /// the key may be this request's, and the one that flies the mismatch.
    pub(super) fn about_flight(&self, arrival: &Arrival, flight: &Flight) -> Verdict {
        let is_claimed = flight.claimed.load(Ordering::Acquire);
        match self.compare(arrival, &flight.fingerprint) {
            Comparison::Same => Verdict::InProgress { retry_after: PROCESSING_RETRY },
            Comparison::Differs | Comparison::Incomparable if !is_claimed => {
                Verdict::InProgress { retry_after: PROCESSING_RETRY }
            }
            Comparison::Differs => Verdict::Mismatch,
            Comparison::Incomparable => Verdict::Unavailable(Reason::Incomparable),
        }
    }

    pub(super) fn compare(&self, arrival: &Arrival, stored: &Fingerprint) -> Comparison {
        let mine = &arrival.fingerprint;
        if (mine.version, mine.secret) == (stored.version, stored.secret) {
            return if mine.digest == stored.digest { Comparison::Same } else { Comparison::Differs };
        }
        self.secrets.compare(&arrival.meaning, stored)
    }
}

/// When to ask again about an Unknown entry: after its next lookup, or in a minute or so. The jitter keeps
/// clients that were told at once from coming back at once.
pub(super) fn held_retry(next_lookup: Option<Timestamp>, now: Timestamp) -> Duration {
    match next_lookup {
        Some(due) => due.since(now).max(Duration::from_secs(1)),
        None => Duration::from_millis(45_000 + chance::between(0..30_000)),
    }
}

/// How long and how often a request still waits for another one. Holds no connection.
struct Waiting<'e> {
    until: Option<Instant>,
    look_again: Duration,
    /// Kept from the first wait to the last, so that nobody who waits loses it to a newcomer.
    seat: Option<Seat<'e>>,
}

/// The pause before another gateway's execution is looked at again; doubles up to the second one.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const SLOWEST_LOOK: Duration = Duration::from_secs(1);

impl<'e> Waiting<'e> {
    fn new(wait: Duration) -> Self {
        Self { until: (!wait.is_zero()).then(|| clock::now() + wait), look_again: FIRST_LOOK, seat: None }
    }

    /// Waits for an execution of this process to end; `false` if it is not to be waited for any longer.
    async fn for_landing(&mut self, waiters: &'e Waiters, flight: &Flight) -> bool {
        let Some(until) = self.sit_down(waiters, flight.id) else { return false };
        tokio::time::timeout_at(until, flight.landed()).await.is_ok()
    }

    /// Waits a moment for an execution of another process; `false` if it is not to be waited for any longer.
    async fn for_another_look(&mut self, waiters: &'e Waiters, id: EntryId) -> bool {
        let Some(until) = self.sit_down(waiters, id) else { return false };
        let look_at = clock::now() + self.look_again.mul_f64(chance::between(0.8..1.2));
        self.look_again = (self.look_again * 2).min(SLOWEST_LOOK);
        tokio::time::sleep_until(look_at.min(until)).await;
        look_at < until
    }

    /// Takes a seat among the bounded waiters, and tells until when; `None` if no time is left, or no seat.
    fn sit_down(&mut self, waiters: &'e Waiters, id: EntryId) -> Option<Instant> {
        let until = self.until.filter(|until| *until > clock::now())?;
        if self.seat.is_none() {
            self.seat = Some(waiters.seat(id)?);
        }
        Some(until)
    }
}
