//! Moves batches between the queue and the ledger.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::queue::{CommitError, Flush, Job, Limits, Queue, Reply};
use crate::clock::Timestamp;
use crate::engine::ledger::{Claim, Claimed, Guarded, Ledger, Release, StoreError, Transition};

/// The front of the ledger: each call is written in a batch with whatever else is waiting, and gets its own
/// result.
///
/// A caller that is dropped loses nothing: what it submitted is written all the same.
#[derive(Clone)]
pub struct Committer {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue<oneshot::Sender<Reply>>>,
    wake: Notify,
    ledger: Arc<dyn Ledger>,
}

impl fmt::Debug for Committer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committer").finish_non_exhaustive()
    }
}

impl Committer {
    /// A committer in front of `ledger`. Nothing is written before a [`Self::run`] runs.
    #[must_use]
    pub fn new(ledger: Arc<dyn Ledger>, limits: Limits) -> Self {
        Self { shared: Arc::new(Shared { queue: Mutex::new(Queue::new(limits)), wake: Notify::new(), ledger }) }
    }

    /// One writer: applies one batch after the other until `stop` and nothing is left to write. More than
    /// one may run; each holds one connection while it applies.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            while self.step().await {}
            tokio::select! {
                () = self.shared.wake.notified() => {}
                () = stop.cancelled() => break,
            }
        }
        while self.step().await {}
    }

    /// Applies one batch and tells those who wait for it; `false` if there was nothing to write.
    pub async fn step(&self) -> bool {
        let Some(Flush { id, batch, delay }) = self.queue().next_flush() else { return false };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        metrics::histogram!("oncegate_flush_batch_size")
            .record(f64::from(u32::try_from(batch.len()).unwrap_or(u32::MAX)));
        // A writer that died of a bug would leave every later request waiting for ever. What a panic left behind
        // is not known, so the batch is tried again, as after an unclear commit.
        let applied = AssertUnwindSafe(self.shared.ledger.apply(&batch)).catch_unwind().await;
        let result = applied.unwrap_or_else(|_| Err(StoreError::CommitUnknown("the store panicked".to_owned())));
        // Freed before the queue takes the jobs apart, so that it need not copy them.
        drop(batch);
        if let Err(error) = &result {
            tracing::warn!(%error, "batch was not applied");
        }
        for (waiter, reply) in self.queue().finished(id, result) {
            // A caller that has gone needs no reply.
            drop(waiter.send(reply));
        }
        true
    }

    /// Claims an entry.
    ///
    /// # Errors
    /// If it could not be written, or nobody knows.
    pub async fn claim(&self, claim: Claim) -> Result<(Claimed, Timestamp), CommitError> {
        match self.submit(Job::Claim(claim)).await {
            Reply::Claimed(claimed, now) => Ok((claimed, now)),
            Reply::Failed(error) => Err(error),
            Reply::Guarded(..) => Err(CommitError::Unclear("the ledger answered another question".to_owned())),
        }
    }

    /// Changes an entry under its guard.
    ///
    /// # Errors
    /// If it could not be written, or nobody knows.
    pub async fn transition(&self, transition: Transition) -> Result<(Guarded, Timestamp), CommitError> {
        self.guarded(Job::Transition(transition)).await
    }

    /// Removes an entry under its guard.
    ///
    /// # Errors
    /// If it could not be written, or nobody knows.
    pub async fn release(&self, release: Release) -> Result<(Guarded, Timestamp), CommitError> {
        self.guarded(Job::Release(release)).await
    }

    async fn guarded(&self, job: Job) -> Result<(Guarded, Timestamp), CommitError> {
        match self.submit(job).await {
            Reply::Guarded(guarded, now) => Ok((guarded, now)),
            Reply::Failed(error) => Err(error),
            Reply::Claimed(..) => Err(CommitError::Unclear("the ledger answered another question".to_owned())),
        }
    }

    async fn submit(&self, job: Job) -> Reply {
        let (waiter, reply) = oneshot::channel();
        if let Err((_, error)) = self.queue().submit(job, waiter) {
            return Reply::Failed(error);
        }
        self.shared.wake.notify_one();
        reply.await.unwrap_or_else(|_| Reply::Failed(CommitError::Unclear("the committer has stopped".to_owned())))
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue<oneshot::Sender<Reply>>> {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::engine::ledger::{Applied, Batch, DueLookup, Reaped, Released};
    use crate::entry::{Entry, EntryId, InstanceId, Nonce};

    /// Panics at the first batch, and applies every later one.
    #[derive(Default)]
    struct Stumbling(AtomicBool);

    impl Ledger for Stumbling {
        fn apply<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Applied, StoreError>> {
            Box::pin(async move {
                assert!(self.0.swap(true, Ordering::AcqRel), "a bug of the store");
                let releases = vec![Guarded::Done; batch.releases.len()];
                Ok(Applied { now: Timestamp(1), transitions: Vec::new(), releases, claims: Vec::new() })
            })
        }

        fn read(&self, _: EntryId) -> BoxFuture<'_, Result<(Option<Entry>, Timestamp), StoreError>> {
            unreachable!("the committer only applies")
        }

        fn keep_evidence(&self, _: EntryId, _: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
            unreachable!("the committer only applies")
        }

        fn due_lookups(&self, _: u32) -> BoxFuture<'_, Result<Vec<DueLookup>, StoreError>> {
            unreachable!("the committer only applies")
        }

        fn orphan(&self, _: u32) -> BoxFuture<'_, Result<u64, StoreError>> {
            unreachable!("the committer only applies")
        }

        fn in_progress(
            &self,
            _: InstanceId,
            _: Duration,
            _: u32,
        ) -> BoxFuture<'_, Result<Vec<(EntryId, Nonce)>, StoreError>> {
            unreachable!("the committer only applies")
        }

        fn reap(&self, _: u32) -> BoxFuture<'_, Result<Reaped, StoreError>> {
            unreachable!("the committer only applies")
        }
    }

    #[tokio::test]
    async fn a_store_that_panics_costs_a_try_and_not_the_writer() {
        let committer = Committer::new(Arc::new(Stumbling::default()), Limits::default());
        let stop = CancellationToken::new();
        let writer = tokio::spawn(committer.clone().run(stop.clone()));
        let release = Release { id: EntryId([1; 32]), nonce: Nonce([1; 16]), of: Released::FirstAttempt };
        let told = tokio::time::timeout(Duration::from_secs(10), committer.release(release)).await.unwrap();
        assert_eq!(told, Ok((Guarded::Done, Timestamp(1))));
        stop.cancel();
        writer.await.unwrap();
    }
}
