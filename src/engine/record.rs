//! Recording what an execution came to, under its nonce.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use super::arrive::{Arrival, Recorded};
use super::execute::{Attempt, Late};
use super::flights::Leading;
use super::ledger::{FromState, Guarded, Release, Released, To, Transition};
use super::secure::Claimed;
use super::{Engine, settle};
use crate::chance;
use crate::clock::{self, Instant, Timestamp, millis};
use crate::committer::CommitError;
use crate::entry::{Answer, Entry, Nonce, Outcome, State, StoredResponse};
use crate::outbox::event::NewEvent;

/// A claimed entry and the duty to record its outcome. Dropped without one (a panic, a cancelled task), it
/// leaves word for the sweep.
pub(super) struct Tenure {
    engine: Arc<Engine>,
    arrival: Arc<Arrival>,
    nonce: Nonce,
    claimed: Claimed,
    dispatched: Arc<AtomicBool>,
    /// Taken when the outcome is on record: from then on others may find the entry as it is.
    flight: Option<Leading>,
    /// The entry as it was recorded, where that is as completed.
    completed: OnceLock<Arc<Entry>>,
}

/// A claim whose task ended without an outcome. It keeps its flight, so that the key stays guarded here.
#[derive(Debug)]
pub(super) struct Abandoned {
    arrival: Arc<Arrival>,
    flight: Leading,
    claimed: Claimed,
    dispatched: Arc<AtomicBool>,
}

/// The longest pause between two tries to record an outcome.
const SLOWEST_TRY: Duration = Duration::from_secs(2);

/// How long recording takes before it counts as slow. Below, an earlier try's time makes no difference to anybody.
const SLOW: Duration = Duration::from_secs(1);

impl Tenure {
    pub(super) fn new(engine: Arc<Engine>, arrival: Arc<Arrival>, flight: Leading, claimed: Claimed) -> Self {
        Self {
            engine,
            arrival,
            nonce: flight.nonce,
            claimed,
            dispatched: Arc::default(),
            flight: Some(flight),
            completed: OnceLock::new(),
        }
    }

    /// A claim that was left behind, taken up again.
    pub(super) fn resume(engine: Arc<Engine>, left: Abandoned) -> Self {
        let Abandoned { arrival, flight, claimed, dispatched } = left;
        Self {
            engine,
            arrival,
            nonce: flight.nonce,
            claimed,
            dispatched,
            flight: Some(flight),
            completed: OnceLock::new(),
        }
    }

    pub(super) fn attempt(&self) -> Attempt {
        Attempt {
            id: self.arrival.id,
            nonce: self.nonce,
            number: self.claimed.number,
            dispatched: Arc::clone(&self.dispatched),
            origin: self.claimed.origin,
            instance: self.claimed.instance,
            engine: Arc::clone(&self.engine),
            arrival: Arc::clone(&self.arrival),
        }
    }

    /// What an execution that ended without a word came to: before the first byte, nothing happened.
    pub(super) fn outcome_of_silence(&self) -> Outcome {
        if self.dispatched.load(Ordering::Acquire) { Outcome::Unknown } else { Outcome::NotExecuted }
    }

    /// Records `outcome`, then calls `tell`; if the store does not take it in time, `tell` is called first,
    /// and recording goes on while the process lives.
    pub(super) async fn conclude(mut self, outcome: Outcome, tell: impl FnOnce(Recorded)) {
        self.record_and_land(&outcome, tell).await;
    }

    /// Records Unknown and listens on; a late answer completes the entry if nobody else has settled it.
    pub(super) async fn conclude_later(mut self, late: Late, tell: impl FnOnce(Recorded)) {
        // Each holds a connection to an upstream that hangs, and there are other upstreams.
        let Ok(_place) = Arc::clone(&self.engine.late).try_acquire_owned() else {
            drop(late);
            metrics::counter!("oncegate_late_answers_not_awaited_total").increment(1);
            return self.record_and_land(&Outcome::Unknown, tell).await;
        };
        // In a task of its own, so that the exchange goes on while Unknown is being recorded.
        let late = tokio::spawn(tokio::time::timeout(self.engine.options.late_window, late));
        self.record_and_land(&Outcome::Unknown, tell).await;
        // A process that shuts down does not wait for what may never come: the outcome is on record.
        match self.engine.draining.run_until_cancelled(late).await {
            Some(Ok(Ok(outcome @ (Outcome::Completed(_) | Outcome::NotExecuted)))) => {
                self.record_until_done(&outcome).await;
                self.align_mark().await;
            }
            // Nothing new; or not in time; or it panicked, and nobody knows.
            Some(Ok(Ok(Outcome::Unknown) | Err(_)) | Err(_)) | None => {}
        }
    }

    /// Holds an entry whose first completion the database lost: executed before, answer unknown.
    pub(super) async fn conclude_lost(self, tell: impl FnOnce(Recorded)) {
        tracing::error!(entry = ?self.arrival.id, "the ledger lost a completed entry that its mark remembers: held as unknown");
        metrics::counter!("oncegate_lost_commits_total").increment(1);
        self.dispatched.store(true, Ordering::Release);
        self.conclude(Outcome::Unknown, tell).await;
    }

    /// Reads what a transaction that we can't see did to the row, and lets that alone decide. If the store
    /// does not tell in time, the caller is answered first.
    pub(super) async fn conclude_from_row(mut self, tell: impl FnOnce(Recorded)) {
        let (entry, untold) = self.within_patience(self.read_until_told(), tell).await;
        let tell = |recorded| untold.map_or((), |tell| tell(recorded));
        match entry {
            Some(entry) if entry.nonce == self.nonce => {
                if let State::Completed { expires, .. } = entry.state {
                    // What that transaction announced, nobody here can see.
                    self.engine.on_events.committed();
                    self.engine.cache.keep(Arc::new(entry));
                    self.land(Recorded::Completed(expires), tell).await;
                    return;
                }
                // Not committed, and all its effects were in that transaction. If it commits after all, the
                // release waits for its row lock and then finds the entry completed.
                self.record_and_land(&Outcome::NotExecuted, tell).await;
            }
            Some(_) | None => self.land(Recorded::Nothing, tell).await,
        }
    }

    async fn record_and_land<T: FnOnce(Recorded)>(&mut self, outcome: &Outcome, tell: T) {
        let (recorded, untold) = self.record(outcome, tell).await;
        self.land(recorded, |recorded| untold.map_or((), |tell| tell(recorded))).await;
    }

    /// Gives `tell` back if the caller is still to be told.
    async fn record<T: FnOnce(Recorded)>(&self, outcome: &Outcome, tell: T) -> (Recorded, Option<T>) {
        self.within_patience(self.record_until_done(outcome), tell).await
    }

    /// Waits for `work`, and if that takes too long tells the caller meanwhile that nothing is on record.
    /// Gives `tell` back if the caller is still to be told.
    async fn within_patience<R, T>(&self, work: impl Future<Output = R>, tell: T) -> (R, Option<T>)
    where
        T: FnOnce(Recorded),
    {
        tokio::pin!(work);
        match tokio::time::timeout(self.engine.options.record_patience, &mut work).await {
            Ok(done) => (done, Some(tell)),
            Err(_) => {
                tracing::error!(entry = ?self.arrival.id, "outcome can't be recorded yet: the caller is answered without");
                tell(Recorded::Nothing);
                (work.await, None)
            }
        }
    }

    async fn record_until_done(&self, outcome: &Outcome) -> Recorded {
        let mut pause = Duration::from_millis(50);
        let events = self.events_of(outcome);
        let begun = clock::now();
        loop {
            match self.try_record(outcome, &events, begun).await {
                Ok(recorded) => return recorded,
                Err(error) if self.engine.committer.is_closed() => {
                    tracing::error!(entry = ?self.arrival.id, %error, "outcome was not recorded before this process stopped writing");
                    return Recorded::Nothing;
                }
                Err(error) => {
                    tracing::warn!(entry = ?self.arrival.id, %error, "outcome was not recorded, trying again")
                }
            }
            tokio::time::sleep(pause.mul_f64(chance::between(0.5..1.0))).await;
            pause = (pause * 2).min(SLOWEST_TRY);
        }
    }

    fn events_of(&self, outcome: &Outcome) -> Arc<[NewEvent]> {
        match outcome {
            Outcome::Completed(answer) => self.attempt().events(answer),
            Outcome::NotExecuted | Outcome::Unknown => Arc::default(),
        }
    }

    async fn try_record(
        &self,
        outcome: &Outcome,
        events: &Arc<[NewEvent]>,
        begun: Instant,
    ) -> Result<Recorded, CommitError> {
        match outcome {
            Outcome::Completed(answer) => self.try_complete(answer, events, begun).await,
            Outcome::NotExecuted if self.claimed.number == 1 => self.try_release().await,
            // After an Unknown attempt the entry stays Unknown, whatever a later one was refused with.
            Outcome::NotExecuted | Outcome::Unknown => self.try_hold().await,
        }
    }

    async fn try_complete(
        &self,
        answer: &Answer,
        events: &Arc<[NewEvent]>,
        begun: Instant,
    ) -> Result<Recorded, CommitError> {
        let policy = &self.arrival.policy;
        let tombstone = policy.tombstones.of(self.arrival.kind);
        let to = To::Completed {
            nonce: self.nonce,
            answer: answer.clone(),
            retention: policy.retention,
            tombstone,
            events: Arc::clone(events),
        };
        match self.transition(FromState::Unfinished, to).await? {
            (Guarded::Done, now) => {
                if !events.is_empty() {
                    self.engine.on_events.committed();
                }
                let expires = self.expiry(now.after(policy.retention), begun).await;
                let state = State::Completed { answer: answer.clone(), expires, tombstone_ms: tombstone.map(millis) };
                let entry = self.completed.get_or_init(|| Arc::new(self.entry(state, now)));
                self.engine.cache.keep(Arc::clone(entry));
                Ok(Recorded::Completed(expires))
            }
            (Guarded::Fenced, _) => {
                self.keep_evidence(answer).await;
                Ok(Recorded::Nothing)
            }
        }
    }

    /// When the answer that was recorded expires: at `told`, unless recording took long. Then an earlier try may have
    /// been written whose end nobody heard of, and what is said, cached and marked must not outlive the row.
    async fn expiry(&self, told: Timestamp, begun: Instant) -> Timestamp {
        if begun.elapsed() < SLOW {
            return told;
        }
        match self.engine.ledger.read(self.arrival.id).await {
            Ok((Some(Entry { state: State::Completed { expires, .. }, .. }), _)) => expires,
            // By as much as it can be wrong.
            Ok(_) | Err(_) => Timestamp(told.0.saturating_sub(millis(begun.elapsed()))),
        }
    }

    async fn try_release(&self) -> Result<Recorded, CommitError> {
        let release = Release { id: self.arrival.id, nonce: self.nonce, of: Released::FirstAttempt };
        match self.engine.committer.release(release).await? {
            (Guarded::Done, _) => Ok(Recorded::Released),
            (Guarded::Fenced, _) => Ok(Recorded::Nothing),
        }
    }

    async fn try_hold(&self) -> Result<Recorded, CommitError> {
        let next_lookup = settle::first_look(&self.arrival.policy);
        // Fenced: the rescuer was first, or somebody has settled it. Either way it is no longer ours to hold.
        self.transition(FromState::InProgress, To::Unknown { next_lookup, lookups: 0 }).await?;
        metrics::counter!("oncegate_unknown_total", "route" => self.arrival.policy.route.to_string()).increment(1);
        Ok(Recorded::Unknown)
    }

    async fn transition(&self, from: FromState, to: To) -> Result<(Guarded, Timestamp), CommitError> {
        let transition = Transition { id: self.arrival.id, nonce: self.nonce, from, to };
        self.engine.committer.transition(transition).await
    }

    /// Somebody else has settled the entry: what the upstream really said is kept for a person.
    async fn keep_evidence(&self, answer: &Answer) {
        tracing::error!(entry = ?self.arrival.id, status = answer.status(), "late answer: the entry was settled otherwise before");
        metrics::counter!("oncegate_fenced_completions_total").increment(1);
        let evidence = match answer {
            Answer::Response(response) => response.encode(),
            Answer::StatusOnly(status) => StoredResponse {
                status: http::StatusCode::from_u16(*status).unwrap_or_default(),
                headers: http::HeaderMap::new(),
                body: bytes::Bytes::new(),
            }
            .encode(),
        };
        if let Err(error) = self.engine.ledger.keep_evidence(self.arrival.id, self.claimed.origin, evidence).await {
            tracing::error!(entry = ?self.arrival.id, %error, "late answer could not be kept as evidence");
        }
    }

    async fn read_until_told(&self) -> Option<Entry> {
        let mut pause = Duration::from_millis(50);
        loop {
            match self.engine.ledger.read(self.arrival.id).await {
                Ok((entry, _)) => return entry,
                Err(_) if self.engine.committer.is_closed() => return None,
                Err(error) => tracing::warn!(entry = ?self.arrival.id, %error, "row could not be read, trying again"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SLOWEST_TRY);
        }
    }

    /// Ends the flight, brings the mark in line with the record and tells the caller, who must not meet its
    /// own flight or mark when it comes again. Completed: the cache answers for both, so nobody waits for the
    /// mark. Else the key may be free, and a mark left over would say that it is taken.
    async fn land(&mut self, recorded: Recorded, tell: impl FnOnce(Recorded)) {
        let flight = self.flight.take();
        if matches!(recorded, Recorded::Completed(_)) {
            drop(flight);
            tell(recorded);
            self.align_mark().await;
        } else {
            self.align_mark().await;
            drop(flight);
            tell(recorded);
        }
    }

    async fn align_mark(&self) {
        self.engine.align_mark(self.arrival.id, self.nonce, self.completed.get().map(|entry| &**entry)).await;
    }

    fn entry(&self, state: State, now: Timestamp) -> Entry {
        Entry {
            id: self.arrival.id,
            nonce: self.nonce,
            origin: self.claimed.origin,
            attempt: self.claimed.number,
            fingerprint: self.arrival.fingerprint,
            state,
            started_at: now,
            changed_at: now,
        }
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        let Some(flight) = self.flight.take() else { return };
        let left = Abandoned {
            arrival: Arc::clone(&self.arrival),
            flight,
            claimed: self.claimed,
            dispatched: Arc::clone(&self.dispatched),
        };
        tracing::error!(entry = ?left.arrival.id, "execution ended without an outcome");
        self.engine.abandoned.lock().unwrap_or_else(PoisonError::into_inner).push(left);
    }
}
