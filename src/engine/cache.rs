//! Completed entries that this process knows: replays from here need no I/O.
//!
//! Filled only after a confirmed commit, or from what the ledger or a mark says. A completed entry never
//! changes until its answer expires, so nothing here can be stale before that; the expiry is checked at
//! every use.

use std::sync::Arc;

use moka::sync::Cache as Bounded;

use crate::entry::{Answer, Entry, EntryId, State};

/// What an entry costs beside its answer: ids, nonces, fingerprint, map overhead.
const ENTRY_BYTES: usize = 400;

/// A cache bounded in bytes; the least useful entries leave first.
#[derive(Debug)]
pub(super) struct Cache {
    entries: Bounded<EntryId, Arc<Entry>>,
}

impl Cache {
    pub(super) fn new(max_bytes: u64) -> Self {
        let weight = |_: &EntryId, entry: &Arc<Entry>| u32::try_from(weigh(entry)).unwrap_or(u32::MAX);
        Self { entries: Bounded::builder().max_capacity(max_bytes).weigher(weight).build() }
    }

    pub(super) fn get(&self, id: EntryId) -> Option<Arc<Entry>> {
        self.entries.get(&id)
    }

    /// Keeps a completed entry; anything else is not certain enough.
    pub(super) fn keep(&self, entry: Arc<Entry>) {
        if matches!(entry.state, State::Completed { .. }) {
            self.entries.insert(entry.id, entry);
        }
    }

    pub(super) fn forget(&self, id: EntryId) {
        self.entries.invalidate(&id);
    }
}

fn weigh(entry: &Entry) -> usize {
    match &entry.state {
        State::Completed { answer: Answer::Response(response), .. } => ENTRY_BYTES + response.encoded_len(),
        State::Completed { .. } | State::InProgress { .. } | State::Unknown { .. } | State::Tombstone { .. } => {
            ENTRY_BYTES
        }
    }
}
