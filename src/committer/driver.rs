//! Moves batches between the queue and the ledger.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::job::Job;
use super::queue::{CommitError, Flush, FlushId, Limits, Queue, Reply, Submitted};
use crate::clock::{self, Timestamp};
use crate::engine::ledger::{Applied, Claim, Claimed, Guarded, Ledger, Release, StoreError, Transition};

/// The front of the ledger: each call is written in a batch with whatever else is waiting, and gets its own
/// result.
///
/// A caller that is dropped loses nothing: what it submitted is written all the same.
#[derive(Clone)]
pub struct Committer {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue<Waiter>>,
    wake: Notify,
    /// Says that a job of a locked entry is waiting.
    wake_slow: Notify,
    /// Says that those who were waited for are back.
    gathered: Notify,
    /// Writers that run; when the last one ends, nobody is left waiting.
    running: AtomicUsize,
    ledger: Arc<dyn Ledger>,
}

/// Where a caller waits for its reply.
type Waiter = oneshot::Sender<Reply>;

/// A batch that was applied.
struct Flushed {
    jobs: usize,
    took: Duration,
}

/// The timer's resolution: a shorter wait would take as long.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

impl fmt::Debug for Committer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committer").finish_non_exhaustive()
    }
}

impl Committer {
    /// A committer in front of `ledger`. Nothing is written before a [`Self::run`] runs.
    #[must_use]
    pub fn new(ledger: Arc<dyn Ledger>, limits: Limits) -> Self {
        Self {
            shared: Arc::new(Shared {
                queue: Mutex::new(Queue::new(limits)),
                wake: Notify::new(),
                wake_slow: Notify::new(),
                gathered: Notify::new(),
                running: AtomicUsize::new(0),
                ledger,
            }),
        }
    }

    /// One writer: applies one batch after the other until `stop` and nothing is left to write. More than
    /// one may run; each holds one connection while it applies. Once the last one has ended, what is submitted is
    /// refused.
    ///
    /// Beside it, on another connection, what waits for locked rows is applied one by one.
    pub async fn run(self, stop: CancellationToken) {
        let _running = Running::new(&self.shared);
        let batches = async {
            loop {
                while let Some(flushed) = self.step(Queue::next_flush).await {
                    self.gather(flushed).await;
                }
                if stop.run_until_cancelled(self.shared.wake.notified()).await.is_none() {
                    return;
                }
            }
        };
        let slow = async {
            loop {
                while self.step(Queue::next_slow).await.is_some() {}
                if stop.run_until_cancelled(self.shared.wake_slow.notified()).await.is_none() {
                    return;
                }
            }
        };
        tokio::join!(batches, slow);
        while self.step(|queue| queue.next_flush().or_else(|| queue.next_slow())).await.is_some() {}
    }

    /// After a flush: waits a moment for those whom it has answered.
    ///
    /// Each of them comes back at once, with the outcome of what was claimed or with its next request. Begun with
    /// the first of them, the next flush would leave the others to wait for one more. Where a flush takes less than
    /// four times [`SHORTEST_WAIT`], that is cheaper than waiting.
    async fn gather(&self, Flushed { jobs, took }: Flushed) {
        let patience = took / 4;
        if patience < SHORTEST_WAIT || !self.queue().expect(jobs) {
            return;
        }
        let _expecting = Expecting(self);
        // In vain is as well: who comes later starts the next flush.
        drop(tokio::time::timeout(patience, self.shared.gathered.notified()).await);
    }

    /// Applies one batch and tells those who wait for it; `None` if there was nothing to write.
    async fn step(&self, next: impl FnOnce(&mut Queue<Waiter>) -> Option<Flush>) -> Option<Flushed> {
        let Flush { id, batch, delay } = next(&mut self.queue())?;
        let mut under_way = UnderWay { committer: self, id: Some(id) };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let (jobs, begun) = (batch.len(), clock::now());
        metrics::histogram!("oncegate_flush_batch_size").record(f64::from(u32::try_from(jobs).unwrap_or(u32::MAX)));
        // A writer that died of a bug would leave every later request waiting for ever. What a panic left behind
        // is not known, so the batch is tried again, as after an unclear commit.
        let applied = AssertUnwindSafe(self.shared.ledger.apply(&batch)).catch_unwind().await;
        let result = applied.unwrap_or_else(|_| Err(StoreError::CommitUnknown("the store panicked".to_owned())));
        // Freed before the queue takes the jobs apart, so that it need not copy them.
        drop(batch);
        if let Err(error) = &result {
            tracing::warn!(%error, "batch was not applied");
        }
        under_way.finish(result);
        Some(Flushed { jobs, took: begun.elapsed() })
    }

    /// Tells those who wait for a batch, and wakes who goes on.
    fn finish(&self, id: FlushId, result: Result<Applied, StoreError>) {
        let told = self.queue().finished(id, result);
        for (waiter, reply) in told {
            // A caller that has gone needs no reply.
            drop(waiter.send(reply));
        }
        // What waits for this entry may be the other loop's from now on.
        if self.queue().has_slow() {
            self.shared.wake_slow.notify_one();
        }
        self.shared.wake.notify_one();
    }

    /// Whether the last writer has ended: nothing will be written any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.queue().is_closed()
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
        let submitted = self.queue().submit(job, waiter);
        match submitted {
            Err((_, error)) => return Reply::Failed(error),
            Ok(Submitted::ToBeFlushed) => self.shared.wake.notify_one(),
            Ok(Submitted::Last) => self.shared.gathered.notify_one(),
            Ok(Submitted::AmongExpected) => {}
            Ok(Submitted::Slow) => self.shared.wake_slow.notify_one(),
        }
        reply.await.unwrap_or_else(|_| Reply::Failed(CommitError::Unclear("the committer has stopped".to_owned())))
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue<Waiter>> {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch at the ledger. Dropped before the ledger has told, because its writer's task was cancelled, it is another
/// writer's to apply again, as after an unclear commit.
struct UnderWay<'c> {
    committer: &'c Committer,
    /// `None` once the ledger has told.
    id: Option<FlushId>,
}

impl UnderWay<'_> {
    fn finish(&mut self, result: Result<Applied, StoreError>) {
        if let Some(id) = self.id.take() {
            self.committer.finish(id, result);
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.finish(Err(StoreError::CommitUnknown("its writer was cancelled".to_owned())));
    }
}

/// A writer that waits for more jobs. Dropped, it waits no longer, and they are flushed as they come.
struct Expecting<'c>(&'c Committer);

impl Drop for Expecting<'_> {
    fn drop(&mut self) {
        self.0.queue().expect_nobody();
        self.0.shared.wake.notify_one();
    }
}

/// A writer at work. Dropped, also because its task was cancelled, it leaves nobody waiting for ever.
struct Running(Arc<Shared>);

impl Running {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.running.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shared))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let told = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner).close();
        for (waiter, reply) in told {
            drop(waiter.send(reply));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use bytes::Bytes;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::engine::ledger::{Batch, DueLookup, InProgress, Reaped, Released};
    use crate::entry::{Entry, EntryId, InstanceId, Nonce};

    /// Never gets over its first batch, and applies every later one.
    struct Stumbling {
        first: First,
        has_stumbled: AtomicBool,
        stumbled: Notify,
    }

    enum First {
        Panics,
        Hangs,
    }

    impl Stumbling {
        fn new(first: First) -> Arc<Self> {
            Arc::new(Self { first, has_stumbled: AtomicBool::default(), stumbled: Notify::new() })
        }
    }

    impl Ledger for Stumbling {
        fn apply<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Applied, StoreError>> {
            Box::pin(async move {
                if !self.has_stumbled.swap(true, Ordering::AcqRel) {
                    self.stumbled.notify_one();
                    match self.first {
                        First::Panics => panic!("a bug of the store"),
                        First::Hangs => std::future::pending().await,
                    }
                }
                let releases = vec![Guarded::Done; batch.releases.len()];
                Ok(Applied { now: Timestamp(1), transitions: Vec::new(), releases, claims: Vec::new() })
            })
        }

        fn read(&self, _: EntryId) -> BoxFuture<'_, Result<(Option<Entry>, Timestamp), StoreError>> {
            unreachable!("the committer only applies")
        }

        fn keep_evidence(&self, _: EntryId, _: Nonce, _: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
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
            _: Option<InProgress>,
            _: u32,
        ) -> BoxFuture<'_, Result<Vec<InProgress>, StoreError>> {
            unreachable!("the committer only applies")
        }

        fn reap(&self, _: u32) -> BoxFuture<'_, Result<Reaped, StoreError>> {
            unreachable!("the committer only applies")
        }
    }

    async fn release(committer: &Committer) -> Result<(Guarded, Timestamp), CommitError> {
        let release = Release { id: EntryId([1; 32]), nonce: Nonce([1; 16]), of: Released::FirstAttempt };
        tokio::time::timeout(Duration::from_secs(10), committer.release(release)).await.expect("nobody answers")
    }

    #[tokio::test]
    async fn a_store_that_panics_costs_a_try_and_not_the_writer() {
        let committer = Committer::new(Stumbling::new(First::Panics), Limits::default());
        let stop = CancellationToken::new();
        let writer = tokio::spawn(committer.clone().run(stop.clone()));
        assert_eq!(release(&committer).await, Ok((Guarded::Done, Timestamp(1))));
        stop.cancel();
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn a_writer_that_is_cancelled_leaves_its_batch_to_the_others() {
        let ledger = Stumbling::new(First::Hangs);
        let committer = Committer::new(Arc::clone(&ledger) as Arc<dyn Ledger>, Limits::default());
        let cancelled = tokio::spawn(committer.clone().run(CancellationToken::new()));
        let asked = tokio::spawn({
            let committer = committer.clone();
            async move { release(&committer).await }
        });
        ledger.stumbled.notified().await;
        let stop = CancellationToken::new();
        let other = tokio::spawn(committer.clone().run(stop.clone()));
        cancelled.abort();
        assert_eq!(asked.await.unwrap(), Ok((Guarded::Done, Timestamp(1))));
        stop.cancel();
        other.await.unwrap();
        assert!(committer.is_closed());
    }

    #[tokio::test]
    async fn what_comes_after_the_last_writer_is_refused_at_once() {
        let committer = Committer::new(Stumbling::new(First::Panics), Limits::default());
        let stop = CancellationToken::new();
        let [stopped, aborted] = [(); 2].map(|()| tokio::spawn(committer.clone().run(stop.child_token())));
        assert_eq!(release(&committer).await, Ok((Guarded::Done, Timestamp(1))));
        aborted.abort();
        drop(aborted.await);
        assert_eq!(release(&committer).await, Ok((Guarded::Done, Timestamp(1))), "one still writes");
        stop.cancel();
        stopped.await.unwrap();
        for _ in 0..2 {
            assert!(matches!(release(&committer).await, Err(CommitError::NotWritten(_))));
        }
    }
}
