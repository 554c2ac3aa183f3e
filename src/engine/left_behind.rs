//! Claims whose execution ended without a word, or never began: what they came to is recorded by the process
//! that made them, since only it can know.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::ledger::{FromState, Guarded, Release, Released, To, Transition};
use super::record::Tenure;
use super::{Engine, StoreError};
use crate::clock;
use crate::entry::{EntryId, Nonce};

impl Engine {
    /// Records the outcome of executions that ended without one (a panic). Each in a task of its own: one
    /// that the store does not take must not keep the sweep from the others, and cancelling the sweep must
    /// not lose one. Waits until each is recorded, or its patience is over.
    pub(super) async fn resume_abandoned(self: &Arc<Self>) {
        let left = std::mem::take(&mut *self.abandoned.lock().unwrap_or_else(PoisonError::into_inner));
        let mut told = Vec::new();
        for left in left {
            let (tell, recorded) = oneshot::channel();
            let tenure = Tenure::resume(Arc::clone(self), left);
            let outcome = tenure.outcome_of_silence();
            self.tasks.spawn(tenure.conclude(outcome, |recorded| tell.send(recorded).unwrap_or(())));
            told.push(recorded);
        }
        futures_util::future::join_all(told).await;
    }

    /// Releases entries in progress under this instance that no flight of this process stands for: claims
    /// whose commit was unclear and whose caller was told that nothing was done. They never ran.
    ///
    /// Only claims of at least `age` are looked at: a younger one may have a flight that began after the
    /// flights were counted. Zero is for an instance that can claim no more.
    pub(super) async fn sweep_own(&self, age: Duration) -> Result<(), StoreError> {
        let begun = clock::now();
        // Before the queries: a flight that ends in between has recorded its outcome itself.
        let flying: HashSet<Nonce> = self.flights.all().iter().map(|flight| flight.nonce).collect();
        let (instance, limit) = (self.ownership.id(), self.options.sweep_limit);
        let mut after = None;
        loop {
            let rows = self.ledger.in_progress(instance, age, after, limit).await?;
            if !age.is_zero() && begun.elapsed() >= age {
                // This process stood still in between: "old" may be younger than the count of the flights.
                return Ok(());
            }
            for row in rows.iter().filter(|row| !flying.contains(&row.nonce)) {
                self.release_unflown(row.id, row.nonce).await;
            }
            // As many as one statement takes may be executions that go on: what is left behind comes after them.
            match rows.last() {
                Some(last) if rows.len() as u64 == u64::from(limit) => after = Some(*last),
                Some(_) | None => return Ok(()),
            }
        }
    }

    async fn release_unflown(&self, id: EntryId, nonce: Nonce) {
        tracing::warn!(entry = ?id, "claim without an execution is released");
        let release = Release { id, nonce, of: Released::FirstAttempt };
        let released = self.committer.release(release).await;
        if matches!(released, Ok((Guarded::Fenced, _))) {
            // A second attempt that never ran: the first one's outcome still is unknown.
            let to = To::Unknown { next_lookup: Some(Duration::ZERO), lookups: 0 };
            let hold = Transition { id, nonce, from: FromState::InProgress, to };
            // What is not recorded now is found by the next sweep.
            drop(self.committer.transition(hold).await);
        }
    }
}
