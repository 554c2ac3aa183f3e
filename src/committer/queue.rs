//! The committer's decisions, without I/O: which jobs form a batch, and what a failure means for each.
//!
//! | the ledger says | what happens |
//! |---|---|
//! | applied | each job gets its own result |
//! | conflict | the same batch again, then halves, then the job fails |
//! | locked | pieces; alone, a claim is Busy, and what comes for that entry waits for nobody and keeps nobody waiting |
//! | refused | halves; alone, a completion is kept with less (see [`super::less`]), anything else fails |
//! | not available | all its jobs fail: nothing was written |
//! | commit unknown | the same batch again (it is idempotent by nonce), then its jobs fail as unclear |

mod work;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::job::Job;
use super::less::{self, Less};
use super::slow::Slow;
use crate::clock::Timestamp;
use crate::engine::ledger::{Applied, Batch, Claimed, Guarded, StoreError};
use crate::entry::EntryId;
use work::Work;

/// What became of a job.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A claim's result, with the database's time.
    Claimed(Claimed, Timestamp),
    /// A transition's or release's result, with the database's time.
    Guarded(Guarded, Timestamp),
    /// It was not written, or nobody knows.
    Failed(CommitError),
}

/// What a submitted job comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// It is to be flushed as soon as a writer is free.
    ToBeFlushed,
    /// A writer waits for more.
    AmongExpected,
    /// A writer has waited for it: no more are expected.
    Last,
    /// Its entry was found locked: it is to be flushed alone.
    Slow,
}

/// Why a job has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Too many claims are waiting. Nothing was written.
    #[error("too many requests are waiting to be recorded")]
    Overloaded,
    /// Nothing was written.
    #[error("not written: {0}")]
    NotWritten(String),
    /// It is written, or nothing is. Applying it again under the same nonce tells.
    #[error("written or not, nobody knows yet: {0}")]
    Unclear(String),
}

/// What bounds a batch and the queue.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Jobs in one batch. Above some hundred the statements cost more than the saved commits.
    pub batch_jobs: usize,
    /// Bytes in one batch; below the smallest packet limit of the databases (MySQL's 16 MiB).
    pub batch_bytes: usize,
    /// Claims that may wait; one more is turned away. Completions are never turned away.
    pub waiting_claims: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { batch_jobs: 256, batch_bytes: 4 << 20, waiting_claims: 16_384 }
    }
}

/// Names a batch on its way to the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlushId(u64);

/// A batch to be applied.
#[derive(Debug)]
pub struct Flush {
    /// What to report its result under.
    pub id: FlushId,
    /// What to apply.
    pub batch: Arc<Batch>,
    /// How long to wait before applying it: it failed before.
    pub delay: Duration,
}

/// Jobs waiting and batches under way. `W` is whoever waits for a job's reply.
#[derive(Debug)]
pub struct Queue<W> {
    limits: Limits,
    /// Transitions and releases: they end executions and free waiters, so they go first.
    writes: VecDeque<(Job, W)>,
    claims: VecDeque<(Job, W)>,
    /// Batches to be applied again, as they are.
    again: VecDeque<Work<W>>,
    under_way: HashMap<FlushId, Work<W>>,
    /// Entries of the batches under way or to be applied again: their next jobs wait.
    taken: HashSet<EntryId>,
    /// Entries whose jobs are not for [`Self::next_flush`].
    slow: Slow,
    /// Jobs that a writer waits for, if one does.
    expected: Option<usize>,
    /// Whether nobody writes any more.
    closed: bool,
    next_id: u64,
}

/// What is said once nobody writes any more.
const CLOSED: &str = "this process has stopped writing";

/// Times the same batch is tried before it is cut in halves, or given up.
const TRIES: u32 = 5;

/// Into how many pieces a batch is cut that met a locked row. Each piece that still has it waits for as long as the
/// database lets it, so the row is to be found in few steps.
const LOCKED_PIECES: usize = 8;

/// What the n-th try waits for: long enough for the other side of a deadlock to finish.
const RETRY_STEP: Duration = Duration::from_millis(20);

impl<W> Queue<W> {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            writes: VecDeque::new(),
            claims: VecDeque::new(),
            again: VecDeque::new(),
            under_way: HashMap::new(),
            taken: HashSet::new(),
            slow: Slow::default(),
            expected: None,
            closed: false,
            next_id: 0,
        }
    }

    /// Adds a job.
    ///
    /// # Errors
    /// Gives `waiter` back with [`CommitError::Overloaded`] if too many claims wait, or with
    /// [`CommitError::NotWritten`] once the queue is closed.
    pub fn submit(&mut self, job: Job, waiter: W) -> Result<Submitted, (W, CommitError)> {
        let is_slow = self.slow.contains(job.id());
        match job {
            _ if self.closed => return Err((waiter, CommitError::NotWritten(CLOSED.to_owned()))),
            Job::Claim(_) if self.claims.len() >= self.limits.waiting_claims => {
                return Err((waiter, CommitError::Overloaded));
            }
            Job::Claim(_) => self.claims.push_back((job, waiter)),
            Job::Transition(_) | Job::Release(_) => self.writes.push_back((job, waiter)),
        }
        Ok(match self.expected {
            _ if is_slow => Submitted::Slow,
            None => Submitted::ToBeFlushed,
            Some(expected) if self.waiting() >= expected => Submitted::Last,
            Some(_) => Submitted::AmongExpected,
        })
    }

    /// Notes that a writer waits until `jobs` are waiting; `false` if they do already, or a single one is not worth
    /// a wait: nobody else may come.
    pub fn expect(&mut self, jobs: usize) -> bool {
        let jobs = jobs.min(self.limits.batch_jobs);
        let worthwhile = jobs > 1 && self.waiting() < jobs && self.again.is_empty();
        if worthwhile {
            self.expected = Some(jobs);
        }
        worthwhile
    }

    /// Notes that no writer waits any longer.
    pub fn expect_nobody(&mut self) {
        self.expected = None;
    }

    /// Whether there is something for [`Self::next_slow`].
    pub fn has_slow(&self) -> bool {
        let is_slow = |(job, _): &(Job, W)| self.slow.contains(job.id()) && !self.taken.contains(&job.id());
        self.again.iter().any(|work| work.slow)
            || !self.slow.is_empty() && self.writes.iter().chain(&self.claims).any(is_slow)
    }

    fn waiting(&self) -> usize {
        self.writes.len() + self.claims.len()
    }

    /// The next batch to apply, if there is anything to write but for what is slow.
    pub fn next_flush(&mut self) -> Option<Flush> {
        let work = self.pop_again(false).or_else(|| self.gather())?;
        Some(self.send(work))
    }

    /// The next job of an entry that was found locked, alone. To be applied beside the other batches, since it may wait
    /// for as long as the database lets it.
    pub fn next_slow(&mut self) -> Option<Flush> {
        let work = self.pop_again(true).or_else(|| self.take_slow())?;
        Some(self.send(work))
    }

    fn pop_again(&mut self, slow: bool) -> Option<Work<W>> {
        let place = self.again.iter().position(|work| work.slow == slow)?;
        self.again.remove(place)
    }

    fn take_slow(&mut self) -> Option<Work<W>> {
        if self.slow.is_empty() {
            return None;
        }
        for queue in [&mut self.writes, &mut self.claims] {
            let is_next = |(job, _): &(Job, W)| self.slow.contains(job.id()) && !self.taken.contains(&job.id());
            if let Some(found) = queue.iter().position(is_next).and_then(|place| queue.remove(place)) {
                self.taken.insert(found.0.id());
                return Some(Work { slow: true, ..Work::new(vec![found]) });
            }
        }
        None
    }

    fn send(&mut self, work: Work<W>) -> Flush {
        let id = FlushId(self.next_id);
        self.next_id += 1;
        let flush = Flush { id, batch: Arc::clone(&work.batch), delay: RETRY_STEP * work.tries };
        self.under_way.insert(id, work);
        flush
    }

    /// Takes jobs in order of arrival, at most one per entry, until the batch is full.
    fn gather(&mut self) -> Option<Work<W>> {
        let mut jobs = Vec::new();
        let mut room = self.limits.batch_bytes;
        for queue in [&mut self.writes, &mut self.claims] {
            let mut later = VecDeque::new();
            while jobs.len() < self.limits.batch_jobs
                && let Some((job, waiter)) = queue.pop_front()
            {
                let weight = job.weight();
                if weight > room && !jobs.is_empty() {
                    later.push_back((job, waiter));
                    break;
                }
                if self.slow.contains(job.id()) || !self.taken.insert(job.id()) {
                    later.push_back((job, waiter));
                    continue;
                }
                room = room.saturating_sub(weight);
                jobs.push((job, waiter));
            }
            while let Some(job) = later.pop_back() {
                queue.push_front(job);
            }
        }
        (!jobs.is_empty()).then(|| Work::new(jobs))
    }

    /// Takes the result of a batch and says who is told what. What is to be tried again comes out of
    /// [`Self::next_flush`].
    pub fn finished(&mut self, id: FlushId, result: Result<Applied, StoreError>) -> Vec<(W, Reply)> {
        let Some(work) = self.under_way.remove(&id) else { return Vec::new() };
        match result {
            Ok(applied) => self.reply(work, applied),
            Err(StoreError::Unavailable(text)) => self.fail(work, &text),
            Err(StoreError::CommitUnknown(text)) if work.tries >= TRIES => self.fail(work.unclear(), &text),
            Err(StoreError::CommitUnknown(_)) => self.retry(work.unclear()),
            Err(StoreError::Conflict(_)) if work.tries < TRIES => self.retry(work),
            Err(StoreError::Conflict(text)) => self.cut(work, 2, &text, Self::fail),
            Err(StoreError::Locked(text)) => self.cut(work, LOCKED_PIECES, &text, Self::busy),
            Err(StoreError::Refused(text)) => self.cut(work, 2, &text, Self::with_less),
        }
    }

    fn reply(&mut self, work: Work<W>, applied: Applied) -> Vec<(W, Reply)> {
        self.give_back(&work);
        for id in work.ids() {
            self.slow.remove(id);
        }
        let now = applied.now;
        let guarded = applied.transitions.into_iter().chain(applied.releases).map(|done| Reply::Guarded(done, now));
        let claimed = applied.claims.into_iter().map(|claimed| Reply::Claimed(claimed, now));
        work.waiting.into_iter().zip(guarded.chain(claimed)).collect()
    }

    fn fail(&mut self, work: Work<W>, text: &str) -> Vec<(W, Reply)> {
        self.give_back(&work);
        let error = match work.unclear {
            true => CommitError::Unclear(text.to_owned()),
            false => CommitError::NotWritten(text.to_owned()),
        };
        work.waiting.into_iter().map(|waiter| (waiter, Reply::Failed(error.clone()))).collect()
    }

    fn retry(&mut self, mut work: Work<W>) -> Vec<(W, Reply)> {
        work.tries += 1;
        self.again.push_back(work);
        Vec::new()
    }

    /// Cuts the batch in pieces, each tried on its own; `alone` says what becomes of a single job.
    fn cut(
        &mut self,
        work: Work<W>,
        pieces: usize,
        text: &str,
        alone: impl FnOnce(&mut Self, Work<W>, &str) -> Vec<(W, Reply)>,
    ) -> Vec<(W, Reply)> {
        if work.waiting.len() <= 1 {
            return alone(self, work, text);
        }
        let (unclear, size) = (work.unclear, work.waiting.len().div_ceil(pieces));
        let mut rest = work.into_jobs();
        while !rest.is_empty() {
            let later = rest.split_off(size.min(rest.len()));
            self.again.push_back(Work { unclear, ..Work::new(rest) });
            rest = later;
        }
        Vec::new()
    }

    /// A claim of a locked row is told so; a guarded write is the caller's to try again.
    fn busy(&mut self, mut work: Work<W>, text: &str) -> Vec<(W, Reply)> {
        for id in work.ids() {
            self.slow.insert(id);
        }
        if work.unclear || work.batch.claims.is_empty() {
            return self.fail(work, text);
        }
        self.give_back(&work);
        // The ledger told no time; Busy needs none.
        work.waiting.drain(..).map(|waiter| (waiter, Reply::Claimed(Claimed::Busy, Timestamp(0)))).collect()
    }

    /// The outcome matters more than what is stored with it: a completion that the store refuses is tried again
    /// with less.
    fn with_less(&mut self, mut work: Work<W>, text: &str) -> Vec<(W, Reply)> {
        let batch = Arc::make_mut(&mut work.batch);
        match batch.transitions.first_mut().map(|transition| less::less(&mut transition.to)) {
            Some(Less::Tryable) => self.retry(work),
            Some(Less::Nothing) | None => self.fail(work, text),
        }
    }

    fn give_back(&mut self, work: &Work<W>) {
        for id in work.ids() {
            self.taken.remove(&id);
        }
    }

    /// Takes nothing more, and says who is told that nothing was written (or that nobody knows): nobody writes
    /// any more.
    pub fn close(&mut self) -> Vec<(W, Reply)> {
        self.closed = true;
        let waiting = self.writes.drain(..).chain(self.claims.drain(..)).map(|(_, waiter)| waiter);
        let failed = Reply::Failed(CommitError::NotWritten(CLOSED.to_owned()));
        let mut told: Vec<_> = waiting.map(|waiter| (waiter, failed.clone())).collect();
        while let Some(work) = self.again.pop_front() {
            told.extend(self.fail(work, CLOSED));
        }
        told
    }

    /// Whether nobody writes any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether nothing waits and nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.writes.is_empty() && self.claims.is_empty() && self.again.is_empty() && self.under_way.is_empty()
    }
}

#[cfg(test)]
mod tests;
