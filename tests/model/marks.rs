//! The marks' contract in memory, on the world's time.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use oncegate::clock::millis;
use oncegate::engine::marks::{Mark, MarkState, Marks, Reserved, Unavailable};
use oncegate::entry::{EntryId, Nonce};

use crate::world::{Shared, World};

#[derive(Debug, Default)]
pub(crate) struct MarkTable(BTreeMap<EntryId, (Mark, i64)>);

impl MarkTable {
    fn get(&self, id: EntryId, now: i64) -> Option<&Mark> {
        self.0.get(&id).filter(|(_, until)| *until > now).map(|(mark, _)| mark)
    }

    /// What a restart of Redis does.
    pub(crate) fn empty(&mut self) {
        self.0.clear();
    }
}

/// A process's connection to the marks.
pub(crate) struct MarkStore {
    pub(crate) world: Shared,
    pub(crate) process: u32,
}

impl MarkStore {
    fn ask<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&mut World) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Unavailable>> {
        let asked = self.world.call(self.process, what, work);
        asked.map(|told| told.map_err(|_| Unavailable("by the schedule".to_owned()))).boxed()
    }
}

impl Marks for MarkStore {
    fn reserve<'a>(
        &'a self,
        id: EntryId,
        mark: &'a Mark,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Reserved, Unavailable>> {
        let mark = mark.clone();
        self.ask("reserve mark", move |world| match world.marks.get(id, world.now) {
            Some(present) => Reserved::Existing(present.clone()),
            None => {
                world.marks.0.insert(id, (mark, world.now + millis(ttl)));
                Reserved::Acquired
            }
        })
    }

    fn get(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Mark>, Unavailable>> {
        self.ask("get mark", move |world| world.marks.get(id, world.now).cloned())
    }

    fn complete<'a>(&'a self, id: EntryId, mark: &'a Mark, ttl: Duration) -> BoxFuture<'a, Result<bool, Unavailable>> {
        let mark = mark.clone();
        self.ask("complete mark", move |world| {
            let is_mine = world.marks.get(id, world.now).is_none_or(|present| present.nonce == mark.nonce);
            if is_mine {
                world.marks.0.insert(id, (mark, world.now + millis(ttl)));
            }
            is_mine
        })
    }

    fn release(&self, id: EntryId, nonce: Nonce) -> BoxFuture<'_, Result<bool, Unavailable>> {
        self.ask("release mark", move |world| {
            let is_mine = world.marks.get(id, world.now).is_some_and(|present| present.nonce == nonce);
            is_mine && world.marks.0.remove(&id).is_some()
        })
    }

    fn extend<'a>(&'a self, marks: &'a [(EntryId, Nonce)], ttl: Duration) -> BoxFuture<'a, Result<(), Unavailable>> {
        let marks = marks.to_vec();
        self.ask("extend marks", move |world| {
            let (now, until) = (world.now, world.now + millis(ttl));
            for (id, nonce) in marks {
                let Some((mark, end)) = world.marks.0.get_mut(&id).filter(|(_, end)| *end > now) else { continue };
                if mark.nonce == nonce && mark.state == MarkState::InProgress {
                    *end = until;
                }
            }
        })
    }
}
