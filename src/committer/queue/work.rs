//! A batch on its way, and who waits for it.

use std::sync::Arc;

use crate::committer::job::Job;
use crate::engine::ledger::Batch;
use crate::entry::EntryId;

/// A batch with those who wait for it, in the batch's order: transitions, releases, claims.
#[derive(Debug)]
pub(super) struct Work<W> {
    pub(super) batch: Arc<Batch>,
    pub(super) waiting: Vec<W>,
    /// Times it was applied without a result.
    pub(super) tries: u32,
    /// Whether an earlier try ended in an unclear commit: from then on "not available" is unclear too.
    pub(super) unclear: bool,
    /// Whether it is the one job of a locked entry.
    pub(super) slow: bool,
}

impl<W> Work<W> {
    pub(super) fn new(jobs: Vec<(Job, W)>) -> Self {
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
        Self { batch: Arc::new(batch), waiting, tries: 0, unclear: false, slow: false }
    }

    pub(super) fn unclear(self) -> Self {
        Self { unclear: true, ..self }
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = EntryId> + '_ {
        let transitions = self.batch.transitions.iter().map(|transition| transition.id);
        let releases = self.batch.releases.iter().map(|release| release.id);
        transitions.chain(releases).chain(self.batch.claims.iter().map(|claim| claim.id))
    }

    pub(super) fn into_jobs(self) -> Vec<(Job, W)> {
        let Batch { transitions, releases, claims } = Arc::unwrap_or_clone(self.batch);
        let transitions = transitions.into_iter().map(Job::Transition);
        let jobs = transitions.chain(releases.into_iter().map(Job::Release)).chain(claims.into_iter().map(Job::Claim));
        jobs.zip(self.waiting).collect()
    }
}
