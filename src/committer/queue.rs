//! The committer's decisions, without I/O: which jobs form a batch, and what a failure means for each.
//!
//! | the ledger says | what happens |
//! |---|---|
//! | applied | each job gets its own result |
//! | conflict | the same batch again, then halves, then the job fails |
//! | locked | halves, so that one locked row does not stall its neighbours; alone, a claim is Busy |
//! | refused | halves; alone, a completion is kept without its answer, anything else fails |
//! | not available | all its jobs fail: nothing was written |
//! | commit unknown | the same batch again (it is idempotent by nonce), then its jobs fail as unclear |

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::engine::ledger::{Applied, Batch, Claim, Claimed, Guarded, Release, StoreError, To, Transition};
use crate::entry::{Answer, EntryId};

/// One thing to be written.
#[derive(Debug, Clone)]
pub enum Job {
    /// A new entry.
    Claim(Claim),
    /// A guarded change.
    Transition(Transition),
    /// A guarded removal.
    Release(Release),
}

impl Job {
    fn id(&self) -> EntryId {
        match self {
            Self::Claim(claim) => claim.id,
            Self::Transition(transition) => transition.id,
            Self::Release(release) => release.id,
        }
    }

    /// About how many bytes the job adds to a batch.
    fn weight(&self) -> usize {
        /// Keys, names, digests and numbers of a row.
        const ROW: usize = 512;
        match self {
            Self::Claim(claim) => ROW + claim.context.as_ref().map_or(0, bytes::Bytes::len),
            Self::Transition(Transition { to: To::Completed { answer: Answer::Response(response), .. }, .. }) => {
                ROW + response.encoded_len()
            }
            Self::Transition(_) | Self::Release(_) => ROW,
        }
    }
}

/// What became of a job.
#[derive(Debug)]
pub enum Reply {
    /// A claim's result, with the database's time.
    Claimed(Claimed, Timestamp),
    /// A transition's or release's result, with the database's time.
    Guarded(Guarded, Timestamp),
    /// It was not written, or nobody knows.
    Failed(CommitError),
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
    next_id: u64,
}

/// A batch with those who wait for it, in the batch's order: transitions, releases, claims.
#[derive(Debug)]
struct Work<W> {
    batch: Arc<Batch>,
    waiting: Vec<W>,
    /// Times it was applied without a result.
    tries: u32,
    /// Whether an earlier try ended in an unclear commit: from then on "not available" is unclear too.
    unclear: bool,
}

/// Times the same batch is tried before it is cut in halves, or given up.
const TRIES: u32 = 5;

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
            next_id: 0,
        }
    }

    /// Adds a job.
    ///
    /// # Errors
    /// Gives `waiter` back with [`CommitError::Overloaded`] if too many claims wait.
    pub fn submit(&mut self, job: Job, waiter: W) -> Result<(), (W, CommitError)> {
        match job {
            Job::Claim(_) if self.claims.len() >= self.limits.waiting_claims => {
                return Err((waiter, CommitError::Overloaded));
            }
            Job::Claim(_) => self.claims.push_back((job, waiter)),
            Job::Transition(_) | Job::Release(_) => self.writes.push_back((job, waiter)),
        }
        Ok(())
    }

    /// The next batch to apply, if there is anything to write.
    pub fn next_flush(&mut self) -> Option<Flush> {
        let work = self.again.pop_front().or_else(|| self.gather())?;
        let id = FlushId(self.next_id);
        self.next_id += 1;
        let flush = Flush { id, batch: Arc::clone(&work.batch), delay: RETRY_STEP * work.tries };
        self.under_way.insert(id, work);
        Some(flush)
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
                if !self.taken.insert(job.id()) {
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
            Err(StoreError::Conflict(text)) => self.halve(work, &text, Self::fail),
            Err(StoreError::Locked(text)) => self.halve(work, &text, Self::busy),
            Err(StoreError::Refused(text)) => self.halve(work, &text, Self::drop_answer),
        }
    }

    fn reply(&mut self, work: Work<W>, applied: Applied) -> Vec<(W, Reply)> {
        self.give_back(&work);
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

    /// Cuts the batch in two, each tried on its own; `alone` says what becomes of a single job.
    fn halve(
        &mut self,
        work: Work<W>,
        text: &str,
        alone: impl FnOnce(&mut Self, Work<W>, &str) -> Vec<(W, Reply)>,
    ) -> Vec<(W, Reply)> {
        if work.waiting.len() <= 1 {
            return alone(self, work, text);
        }
        let unclear = work.unclear;
        let mut first = work.into_jobs();
        let second = first.split_off(first.len() / 2);
        for jobs in [first, second] {
            self.again.push_back(Work { unclear, ..Work::new(jobs) });
        }
        Vec::new()
    }

    /// A claim of a locked row is told so; a guarded write is the caller's to try again.
    fn busy(&mut self, mut work: Work<W>, text: &str) -> Vec<(W, Reply)> {
        if work.unclear || work.batch.claims.is_empty() {
            return self.fail(work, text);
        }
        self.give_back(&work);
        // The ledger told no time; Busy needs none.
        work.waiting.drain(..).map(|waiter| (waiter, Reply::Claimed(Claimed::Busy, Timestamp(0)))).collect()
    }

    /// The outcome matters more than its answer: a completion that the store refuses is kept without it.
    fn drop_answer(&mut self, mut work: Work<W>, text: &str) -> Vec<(W, Reply)> {
        let batch = Arc::make_mut(&mut work.batch);
        if let Some(Transition { to: To::Completed { answer, .. }, .. }) = batch.transitions.first_mut()
            && let Answer::Response(response) = answer
        {
            *answer = Answer::StatusOnly(response.status.as_u16());
            return self.retry(work);
        }
        self.fail(work, text)
    }

    fn give_back(&mut self, work: &Work<W>) {
        for id in work.ids() {
            self.taken.remove(&id);
        }
    }

    /// Whether nothing waits and nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.writes.is_empty() && self.claims.is_empty() && self.again.is_empty() && self.under_way.is_empty()
    }
}

impl<W> Work<W> {
    fn new(jobs: Vec<(Job, W)>) -> Self {
        let mut batch = Batch::default();
        let (mut transitions, mut releases, mut claims) = (Vec::new(), Vec::new(), Vec::new());
        for (job, waiter) in jobs {
            match job {
                Job::Transition(transition) => {
                    batch.transitions.push(transition);
                    transitions.push(waiter);
                }
                Job::Release(release) => {
                    batch.releases.push(release);
                    releases.push(waiter);
                }
                Job::Claim(claim) => {
                    batch.claims.push(claim);
                    claims.push(waiter);
                }
            }
        }
        let waiting = transitions.into_iter().chain(releases).chain(claims).collect();
        Self { batch: Arc::new(batch), waiting, tries: 0, unclear: false }
    }

    fn unclear(self) -> Self {
        Self { unclear: true, ..self }
    }

    fn ids(&self) -> impl Iterator<Item = EntryId> + '_ {
        let transitions = self.batch.transitions.iter().map(|transition| transition.id);
        let releases = self.batch.releases.iter().map(|release| release.id);
        transitions.chain(releases).chain(self.batch.claims.iter().map(|claim| claim.id))
    }

    fn into_jobs(self) -> Vec<(Job, W)> {
        let Batch { transitions, releases, claims } = Arc::unwrap_or_clone(self.batch);
        let transitions = transitions.into_iter().map(Job::Transition);
        let jobs = transitions.chain(releases.into_iter().map(Job::Release)).chain(claims.into_iter().map(Job::Claim));
        jobs.zip(self.waiting).collect()
    }
}

#[cfg(test)]
mod tests;
