//! What is to be written, one by one.

use crate::engine::ledger::{Claim, Release, To, Transition};
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
    pub(super) fn id(&self) -> EntryId {
        match self {
            Self::Claim(claim) => claim.id,
            Self::Transition(transition) => transition.id,
            Self::Release(release) => release.id,
        }
    }

    /// About how many bytes the job adds to a batch.
    pub(super) fn weight(&self) -> usize {
        /// Keys, names, digests and numbers of a row.
        const ROW: usize = 512;
        match self {
            Self::Claim(claim) => ROW + claim.context.as_ref().map_or(0, bytes::Bytes::len),
            Self::Transition(Transition { to: To::Completed { answer, events, .. }, .. }) => {
                let answer = match answer {
                    Answer::Response(response) => response.encoded_len(),
                    Answer::StatusOnly(_) => 0,
                };
                ROW + answer + events.iter().map(|event| ROW + event.event.data.len()).sum::<usize>()
            }
            Self::Transition(_) | Self::Release(_) => ROW,
        }
    }
}
