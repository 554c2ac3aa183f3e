//! Marks in the memory of one process.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use moka::ops::compute::{CompResult, Op};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use super::encoding;
use crate::engine::marks::{Mark, MarkState, Marks, Reserved, Unavailable};
use crate::entry::{EntryId, Nonce};

/// What a mark costs beside its own bytes: key, lists, timer and allocations, roughly.
const OVERHEAD_BYTES: usize = 400;

/// Marks for a gateway that runs as one process, or as several that leave each other to the database.
///
/// Bounded by memory: when it is full, the mark not used for the longest time goes, which costs the
/// database a question and nothing else.
///
/// A concurrent cache rather than a sharded map under locks, since it has what would have to be written:
/// a life of its own for each mark, room by weight, and compare-and-act per key. The order of eviction is
/// "least recently used" and not the cache's default, which refuses newcomers when it is full: the mark
/// just set is the one that is needed.
#[derive(Clone)]
pub struct MemoryMarks {
    marks: Cache<EntryId, Living>,
}

#[derive(Clone)]
struct Living {
    mark: Mark,
    /// How long the mark lives from the write that put it here.
    ttl: Duration,
}

/// Reads a mark's life from the mark.
struct OwnTtl;

impl moka::Expiry<EntryId, Living> for OwnTtl {
    fn expire_after_create(&self, _: &EntryId, living: &Living, _: Instant) -> Option<Duration> {
        Some(living.ttl)
    }

    fn expire_after_update(&self, _: &EntryId, living: &Living, _: Instant, _: Option<Duration>) -> Option<Duration> {
        Some(living.ttl)
    }
}

impl MemoryMarks {
    /// No marks yet, and never more than about `max_bytes` of them.
    #[must_use]
    pub fn new(max_bytes: u64) -> Self {
        let marks = Cache::builder()
            .name("marks")
            .max_capacity(max_bytes)
            .weigher(|_, living: &Living| weight(&living.mark))
            .eviction_policy(EvictionPolicy::lru())
            .expire_after(OwnTtl)
            .build();
        Self { marks }
    }

    fn put_if_free(&self, id: EntryId, mark: &Mark, ttl: Duration) -> Reserved {
        let result = self.marks.entry(id).and_compute_with(|present| match present {
            None => Op::Put(Living { mark: mark.clone(), ttl }),
            Some(_) => Op::Nop,
        });
        match result {
            CompResult::Unchanged(present) if present.value().mark != *mark => {
                Reserved::Existing(present.into_value().mark)
            }
            _ => Reserved::Acquired,
        }
    }

    fn put_if_mine_or_free(&self, id: EntryId, mark: &Mark, ttl: Duration) -> bool {
        let result = self.marks.entry(id).and_compute_with(|present| match present {
            Some(present) if present.value().mark.nonce != mark.nonce => Op::Nop,
            Some(_) | None => Op::Put(Living { mark: mark.clone(), ttl }),
        });
        matches!(result, CompResult::Inserted(_) | CompResult::ReplacedWith(_))
    }

    fn remove_if_mine(&self, id: EntryId, nonce: Nonce) -> bool {
        let result = self.marks.entry(id).and_compute_with(|present| match present {
            Some(present) if present.value().mark.nonce == nonce => Op::Remove,
            Some(_) | None => Op::Nop,
        });
        matches!(result, CompResult::Removed(_))
    }

    fn extend_if_mine(&self, id: EntryId, nonce: Nonce, ttl: Duration) {
        self.marks.entry(id).and_compute_with(|present| match present.map(moka::Entry::into_value) {
            Some(Living { mark, .. }) if mark.nonce == nonce && mark.state == MarkState::InProgress => {
                Op::Put(Living { mark, ttl })
            }
            Some(_) | None => Op::Nop,
        });
    }
}

fn weight(mark: &Mark) -> u32 {
    u32::try_from(encoding::encoded_len(mark).saturating_add(OVERHEAD_BYTES)).unwrap_or(u32::MAX)
}

impl Marks for MemoryMarks {
    fn reserve<'a>(
        &'a self,
        id: EntryId,
        mark: &'a Mark,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Reserved, Unavailable>> {
        ready(Ok(self.put_if_free(id, mark, ttl))).boxed()
    }

    fn get(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Mark>, Unavailable>> {
        ready(Ok(self.marks.get(&id).map(|living| living.mark))).boxed()
    }

    fn complete<'a>(&'a self, id: EntryId, mark: &'a Mark, ttl: Duration) -> BoxFuture<'a, Result<bool, Unavailable>> {
        ready(Ok(self.put_if_mine_or_free(id, mark, ttl))).boxed()
    }

    fn release(&self, id: EntryId, nonce: Nonce) -> BoxFuture<'_, Result<bool, Unavailable>> {
        ready(Ok(self.remove_if_mine(id, nonce))).boxed()
    }

    fn extend<'a>(&'a self, marks: &'a [(EntryId, Nonce)], ttl: Duration) -> BoxFuture<'a, Result<(), Unavailable>> {
        for (id, nonce) in marks {
            self.extend_if_mine(*id, *nonce, ttl);
        }
        ready(Ok(())).boxed()
    }
}

impl std::fmt::Debug for MemoryMarks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryMarks").field("marks", &self.marks.entry_count()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Fingerprint;
    use crate::entry::fingerprint::SecretId;

    fn mark() -> Mark {
        let fingerprint = Fingerprint { version: 1, secret: SecretId([0; 4]), digest: [0; 32] };
        Mark { nonce: Nonce::random(), fingerprint, state: MarkState::InProgress }
    }

    #[test]
    fn a_full_store_forgets_the_oldest_and_keeps_the_newest() {
        let marks = MemoryMarks::new(100 * u64::from(weight(&mark())));
        let id = |n: u16| EntryId(std::array::from_fn(|i| if i < 2 { n.to_be_bytes()[i] } else { 0 }));
        for n in 0..1_000 {
            assert_eq!(marks.put_if_free(id(n), &mark(), Duration::from_secs(60)), Reserved::Acquired);
        }
        marks.marks.run_pending_tasks();
        assert!(marks.marks.entry_count() <= 100, "{marks:?}");
        assert!(marks.marks.contains_key(&id(999)));
        assert!(!marks.marks.contains_key(&id(0)));
    }
}
