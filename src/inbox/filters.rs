//! What stands in front of the database: positive results only, and never the truth.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::message::MessageDigest;
use crate::clock::Timestamp;
use crate::engine::marks::{Mark, MarkState, Marks};
use crate::entry::fingerprint::SecretId;
use crate::entry::{EntryId, Fingerprint, Nonce};

/// Marks of what was committed, the nearest store first: this process's memory, then one that processes share.
///
/// A mark says "a commit has recorded this message". There are no marks of messages in progress: the row that the
/// transaction writes keeps others out, and a mark of an effect that is rolled back would have to be taken back.
pub(super) struct Filters {
    stores: Vec<Filter>,
    /// How long a mark lives.
    ttl: Duration,
    /// One of this many duplicates that a mark tells of goes to the database all the same; 0 for none.
    verify_one_in: u64,
    told: AtomicU64,
}

/// A store of marks.
pub struct Filter {
    /// What it is called in metrics: `cache`, `mark`.
    pub name: &'static str,
    /// Where its marks are.
    pub marks: Arc<dyn Marks>,
}

impl Filters {
    /// Marks that live for `ttl`, or shorter, so that none outlives its row: one that is found in a store shortly
    /// before its end begins anew in a nearer one.
    pub(super) fn new(stores: Vec<Filter>, ttl: Duration, retention: Duration, verify_one_in: u32) -> Self {
        Self { stores, ttl: ttl.min(retention / 2), verify_one_in: verify_one_in.into(), told: AtomicU64::new(0) }
    }

    /// Which store knows that the message of `id` was recorded, and says nothing else of it than `digest`.
    pub(super) async fn find(&self, id: EntryId, digest: Option<MessageDigest>) -> Option<&'static str> {
        for (place, store) in self.stores.iter().enumerate() {
            // A store that does not answer is a hint less.
            let Ok(Some(mark)) = store.marks.get(id).await else { continue };
            if !tells_of(&mark, digest) {
                return None;
            }
            if self.is_to_be_verified() {
                return None;
            }
            self.write(&self.stores[..place], id, &mark).await;
            return Some(store.name);
        }
        None
    }

    /// Keeps that the message of `id` was recorded by somebody.
    pub(super) async fn keep_known(&self, id: EntryId, digest: Option<MessageDigest>) {
        self.write(&self.stores, id, &mark(KNOWN, digest)).await;
    }

    /// Keeps that the message of `id` was recorded by a commit of ours, and says whether a store knows that another
    /// commit had recorded it before: the store has survived what the database has not.
    pub(super) async fn keep_committed(&self, id: EntryId, digest: Option<MessageDigest>) -> bool {
        let mark = mark(Nonce::random(), digest);
        let mut is_another_commits = false;
        for (store, is_written) in self.stores.iter().zip(self.write(&self.stores, id, &mark).await) {
            if !is_written && let Ok(Some(present)) = store.marks.get(id).await {
                is_another_commits |= present.nonce != KNOWN && present.nonce != mark.nonce;
            }
        }
        is_another_commits
    }

    /// Says for each of `stores` whether the mark is there now, or nobody knows.
    async fn write(&self, stores: &[Filter], id: EntryId, mark: &Mark) -> Vec<bool> {
        let writes = join_all(stores.iter().map(|store| store.marks.complete(id, mark, self.ttl))).await;
        writes.into_iter().map(|written| written.unwrap_or(true)).collect()
    }

    /// By turns, so that what a test sees is certain; a message that comes again and again is verified in time.
    fn is_to_be_verified(&self) -> bool {
        self.verify_one_in > 0 && (self.told.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.verify_one_in)
    }
}

/// The nonce of marks of what others have recorded: it may be there before theirs.
const KNOWN: Nonce = Nonce([0; 16]);

/// In the fingerprint, version 0 is a message that does not say what it means.
fn mark(nonce: Nonce, digest: Option<MessageDigest>) -> Mark {
    let fingerprint = Fingerprint {
        version: u8::from(digest.is_some()),
        secret: SecretId([0; 4]),
        digest: digest.map_or([0; 32], |digest| digest.0),
    };
    // Nobody reads when it ends: nothing is answered from it.
    let state = MarkState::Completed { expires: Timestamp(0), response: None };
    Mark { nonce, fingerprint, state }
}

fn tells_of(mark: &Mark, digest: Option<MessageDigest>) -> bool {
    let is_done = matches!(mark.state, MarkState::Completed { .. });
    let is_same = mark.fingerprint.version == 0 || digest.is_none_or(|digest| digest.0 == mark.fingerprint.digest);
    is_done && is_same
}

impl fmt::Debug for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.stores.iter().map(|store| store.name).collect();
        f.debug_struct("Filters").field("stores", &names).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("name", &self.name).finish_non_exhaustive()
    }
}
