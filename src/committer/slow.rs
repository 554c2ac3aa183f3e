//! Entries whose rows somebody else's transaction holds.

use std::collections::HashSet;

use crate::entry::EntryId;

/// How many are remembered. More locked rows than this at a time is no matter of single rows any more.
const MOST: usize = 1024;

/// Entries that were found locked lately: what is to be done with them is applied alone, beside all the others, until
/// it goes through.
#[derive(Debug, Default)]
pub(super) struct Slow(HashSet<EntryId>);

impl Slow {
    pub(super) fn insert(&mut self, id: EntryId) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(id);
    }

    pub(super) fn remove(&mut self, id: EntryId) {
        self.0.remove(&id);
    }

    pub(super) fn contains(&self, id: EntryId) -> bool {
        // Nearly always: no digest is hashed for nothing.
        !self.0.is_empty() && self.0.contains(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
