//! Those who wait for another request of their key, executed here or elsewhere: bounded, in all and per key.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::entry::EntryId;

/// Requests that may wait for one key. More is a storm, and a storm is told to come again, so that it leaves room for
/// those who wait for other keys.
const PER_KEY: usize = 256;

/// The seats.
#[derive(Debug)]
pub(super) struct Waiters {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_key: HashMap<EntryId, usize>,
}

/// A place among those who wait. Dropped, it is free.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    waiters: &'a Waiters,
    id: EntryId,
}

impl Waiters {
    /// `most` seats, of which a key gets [`PER_KEY`].
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default() }
    }

    /// A seat, if one is free.
    pub(super) fn seat(&self, id: EntryId) -> Option<Seat<'_>> {
        let mut taken = self.lock();
        if taken.all >= self.most || taken.by_key.get(&id).is_some_and(|of_key| *of_key >= PER_KEY) {
            return None;
        }
        taken.all += 1;
        *taken.by_key.entry(id).or_default() += 1;
        Some(Seat { waiters: self, id })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut taken = self.waiters.lock();
        taken.all -= 1;
        if let Some(of_key) = taken.by_key.get_mut(&self.id) {
            *of_key -= 1;
            if *of_key == 0 {
                taken.by_key.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORM: EntryId = EntryId([1; 32]);
    const OTHER: EntryId = EntryId([2; 32]);

    #[test]
    fn a_storm_leaves_room_for_others() {
        let waiters = Waiters::new(PER_KEY + 1);
        let mut storm: Vec<_> = (0..PER_KEY).map(|_| waiters.seat(STORM).expect("a free seat")).collect();
        assert!(waiters.seat(STORM).is_none(), "all of its key's are taken");
        let other = waiters.seat(OTHER).expect("a free seat");
        assert!(waiters.seat(OTHER).is_none(), "all are taken");
        storm.pop();
        drop(waiters.seat(OTHER).expect("who gives up leaves a free one"));
        drop((storm, other));
        assert!(waiters.lock().by_key.is_empty(), "nothing is left of whom nobody waits for");
    }
}
