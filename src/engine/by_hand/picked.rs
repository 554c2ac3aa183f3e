//! Settling entries that a person has picked, each as it was seen.

use std::collections::{HashMap, HashSet};

use super::{AT_ONCE, NotSettled, Settled, Settler, Word};
use crate::engine::desk::{Stage, Version};
use crate::entry::EntryId;
use crate::outbox::desk::Mode;

impl Settler {
    /// Settles these, each if it still is as it was seen; or says what would become of it. In their order, each once.
    pub async fn settle_these(
        &self,
        seen: &[(EntryId, Version)],
        word: &Word,
        mode: Mode,
    ) -> Vec<(EntryId, Result<Settled, NotSettled>)> {
        let mut known = HashSet::new();
        let seen: Vec<_> = seen.iter().filter(|(id, _)| known.insert(*id)).copied().collect();
        let mut all = Vec::with_capacity(seen.len());
        for chunk in seen.chunks(AT_ONCE) {
            let mut told = HashMap::new();
            let mut prepared = Vec::new();
            for (id, version) in chunk {
                match self.prepare_seen(*id, *version, word).await {
                    Ok(one) => prepared.push(one),
                    Err(why) => drop(told.insert(*id, Err(why))),
                }
            }
            let done = self.go(prepared, mode).await;
            told.extend(done.settled.into_iter().map(|settled| (settled.entry.id, Ok(settled))));
            told.extend(done.left.into_iter().map(|(entry, why)| (entry.id, Err(why))));
            all.extend(chunk.iter().filter_map(|(id, _)| Some((*id, told.remove(id)?))));
        }
        all
    }

    async fn prepare_seen(&self, id: EntryId, seen: Version, word: &Word) -> Result<super::Prepared, NotSettled> {
        let shown = self.0.desk.show(id).await?.ok_or(NotSettled::Absent)?;
        if shown.listed.stage == Stage::Unknown && shown.listed.version() != seen {
            return Err(NotSettled::Changed);
        }
        self.prepare(shown, word)
    }
}
