//! Securing an entry: the mark first, since it is fast, then the durable claim, since it decides.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use super::arrive::{Arrival, PROCESSING_RETRY, Reason, Verdict};
use super::context;
use super::flights::Flight;
use super::ledger::{self, Claim, FromState, Guarded, Release, Released, To, Transition};
use super::marks::{Mark, MarkState, Reserved};
use super::policy::OnUnknown;
use super::settle::{Question, Settled, asked_lately};
use crate::clock::Timestamp;
use crate::committer::CommitError;
use crate::entry::{Admission, Answer, Comparison, Entry, InstanceId, Nonce, State, StoredResponse, admit};

/// What securing came to.
pub(super) enum Secured {
    /// The row carries my nonce: I may execute.
    Won(Claimed),
    /// The row carries my nonce, but the mark says that the request completed before: the database lost a
    /// commit (a failover to a replica that lacked it). I may not execute; the entry is to be held.
    CommitLost(Claimed),
    /// I may not.
    Told(Verdict),
}

/// What the row says once it is mine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claimed {
    /// Number of the attempt.
    pub(super) number: u32,
    /// Whose lease vouches for it.
    pub(super) instance: InstanceId,
    /// The nonce of the claim that created the row: the events' ids derive from it.
    pub(super) origin: Nonce,
}

/// What the mark says.
enum Hint {
    /// Nothing that the ledger need not be asked for.
    Ask,
    /// It is done, the answer is in the ledger.
    AskForAnswer,
    /// All there is to say.
    Told(Verdict),
}

/// Claims in a row that find their entry gone or moved by somebody else. More means a storm of settling on
/// one key; its client may come again.
const CLAIM_TRIES: u32 = 8;

impl Engine {
    /// What this process and the marks know of a request, without a question to the ledger; `None` where only the
    /// ledger can tell. Claims nothing.
    pub async fn recall(&self, arrival: &Arrival) -> Option<Verdict> {
        if let Some(verdict) = self.known(arrival) {
            return Some(verdict);
        }
        let mark = self.marks.get(arrival.id).await.ok()??;
        match self.read_hint(arrival, mark) {
            Hint::Told(verdict) => Some(verdict),
            Hint::Ask | Hint::AskForAnswer => None,
        }
    }

    pub(super) async fn secure(&self, arrival: &Arrival, flight: &Flight) -> Secured {
        let expected = match self.hint(arrival, flight).await {
            Hint::Told(verdict) => return Secured::Told(verdict),
            Hint::AskForAnswer => true,
            Hint::Ask => false,
        };
        let secured = match self.claim(arrival, flight).await {
            Ok(Secured::Won(claimed)) if expected && claimed.number == 1 => Secured::CommitLost(claimed),
            Ok(secured) => secured,
            Err(CommitError::Overloaded) => Secured::Told(Verdict::Unavailable(Reason::Overload)),
            Err(error @ (CommitError::NotWritten(_) | CommitError::Unclear(_))) => {
                tracing::warn!(entry = ?arrival.id, %error, "claim was not recorded");
                Secured::Told(Verdict::Unavailable(Reason::Store))
            }
        };
        match secured {
            Secured::Won(_) | Secured::CommitLost(_) => flight.claimed.store(true, Ordering::Release),
            Secured::Told(_) => {
                flight.marked.store(false, Ordering::Relaxed);
                self.align_mark(arrival.id, flight.nonce, None).await;
            }
        }
        secured
    }

    /// Reserves the mark, or takes the hint of whoever has it. A completed one tells a mismatch as well; one
    /// in progress does not, since its request may come to nothing and leave the key to another.
    async fn hint(&self, arrival: &Arrival, flight: &Flight) -> Hint {
        let mark = Mark { nonce: flight.nonce, fingerprint: arrival.fingerprint, state: MarkState::InProgress };
        match self.marks.reserve(arrival.id, &mark, self.options.mark_ttl).await {
            Ok(Reserved::Acquired) => {
                flight.marked.store(true, Ordering::Relaxed);
                Hint::Ask
            }
            Ok(Reserved::Existing(mark)) => self.read_hint(arrival, mark),
            Err(error) => {
                tracing::debug!(entry = ?arrival.id, %error, "no mark: the ledger decides alone");
                Hint::Ask
            }
        }
    }

    fn read_hint(&self, arrival: &Arrival, mark: Mark) -> Hint {
        let MarkState::Completed { expires, response } = mark.state else {
            return match self.compare(arrival, &mark.fingerprint) {
                Comparison::Same => Hint::Told(Verdict::InProgress { retry_after: PROCESSING_RETRY }),
                Comparison::Differs | Comparison::Incomparable => Hint::Ask,
            };
        };
        if expires <= self.database_now() {
            return Hint::Ask;
        }
        let Some(Ok(response)) = response.map(StoredResponse::decode) else { return Hint::AskForAnswer };
        let state = State::Completed { answer: Answer::Response(Arc::new(response)), expires, tombstone_ms: None };
        let unknown_here = Timestamp(0);
        let entry = Entry {
            id: arrival.id,
            nonce: mark.nonce,
            origin: mark.nonce,
            attempt: 1,
            fingerprint: mark.fingerprint,
            state,
            started_at: unknown_here,
            changed_at: unknown_here,
        };
        match self.verdict(&entry, arrival, self.database_now()) {
            Some(verdict) => {
                self.cache.keep(Arc::new(entry));
                Hint::Told(verdict)
            }
            None => Hint::Ask,
        }
    }

    async fn claim(&self, arrival: &Arrival, flight: &Flight) -> Result<Secured, CommitError> {
        for _ in 0..CLAIM_TRIES {
            let instance = self.ownership.id();
            let claim = Claim {
                id: arrival.id,
                identity: arrival.identity.clone(),
                nonce: flight.nonce,
                instance,
                fingerprint: arrival.fingerprint,
                route: arrival.policy.route.clone(),
                context: Some(context::encode(arrival)),
            };
            let secured = match self.committer.claim(claim).await? {
                (ledger::Claimed::Won, _) => Some(Secured::Won(Claimed { number: 1, instance, origin: flight.nonce })),
                (ledger::Claimed::Existing(entry), now) => self.act_on(arrival, flight, *entry, now).await?,
                (ledger::Claimed::Busy, _) => {
                    Some(Secured::Told(Verdict::InProgress { retry_after: PROCESSING_RETRY }))
                }
                (ledger::Claimed::NotAlive, _) => Some(Secured::Told(Verdict::Unavailable(Reason::Lease))),
                (ledger::Claimed::Vanished, _) => None,
                (ledger::Claimed::Unreadable, _) => Some(Secured::Told(Verdict::Unavailable(Reason::Incomparable))),
                (ledger::Claimed::Sealed, _) => Some(Secured::Told(Verdict::Unavailable(Reason::Sealed))),
            };
            if let Some(secured) = secured {
                return Ok(secured);
            }
        }
        Err(CommitError::NotWritten("the entry kept changing under the claim".to_owned()))
    }

    /// Acts on the admission of a request whose key has an entry; `None`: the entry moved, claim again.
    async fn act_on(
        &self,
        arrival: &Arrival,
        flight: &Flight,
        entry: Entry,
        now: Timestamp,
    ) -> Result<Option<Secured>, CommitError> {
        match admit(&entry, self.compare(arrival, &entry.fingerprint), now) {
            Admission::Held { nonce, .. } => self.act_on_held(arrival, flight, &entry, nonce, now).await,
            Admission::Forgotten { nonce } => {
                self.cache.forget(arrival.id);
                self.committer.release(Release { id: arrival.id, nonce, of: Released::Forgotten }).await?;
                Ok(None)
            }
            Admission::Replay { .. }
            | Admission::NotKept { .. }
            | Admission::Expired
            | Admission::InProgress
            | Admission::Mismatch
            | Admission::Incomparable => {
                let verdict = self.verdict(&entry, arrival, now);
                self.cache.keep(Arc::new(entry));
                Ok(verdict.map(Secured::Told))
            }
        }
    }

    async fn act_on_held(
        &self,
        arrival: &Arrival,
        flight: &Flight,
        entry: &Entry,
        nonce: Nonce,
        now: Timestamp,
    ) -> Result<Option<Secured>, CommitError> {
        match &arrival.policy.on_unknown {
            OnUnknown::Hold => Ok(self.verdict(entry, arrival, now).map(Secured::Told)),
            OnUnknown::Forward => {
                let instance = self.ownership.id();
                let to = To::InProgress { nonce: flight.nonce, instance };
                let again = Transition { id: arrival.id, nonce, from: FromState::Unknown, to };
                Ok(match self.committer.transition(again).await? {
                    (Guarded::Done, _) => {
                        let (number, origin) = (entry.attempt + 1, entry.origin);
                        Some(Secured::Won(Claimed { number, instance, origin }))
                    }
                    (Guarded::Fenced, _) => None,
                })
            }
            OnUnknown::Lookup(lookup) if asked_lately(entry, lookup, now) => {
                Ok(self.verdict(entry, arrival, now).map(Secured::Told))
            }
            OnUnknown::Lookup(lookup) => {
                let question = Question {
                    entry,
                    identity: &arrival.identity,
                    kind: arrival.kind,
                    seed: Some(&arrival.seed),
                    policy: &arrival.policy,
                    lookup,
                };
                Ok(match self.look_up(question, now).await? {
                    Settled::Completed(entry) => self.verdict(&entry, arrival, now).map(Secured::Told),
                    Settled::Released | Settled::Moved => None,
                    Settled::Still { retry_after } => Some(Secured::Told(Verdict::Held { retry_after })),
                })
            }
        }
    }
}
