//! The contract of marks: fast, expiring hints "someone is on it / it is done". Never the truth: delete
//! every mark and the system stays right, only slower.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::entry::{EntryId, Fingerprint, Nonce};

/// A store of marks. Every method answers within a bounded time; [`Unavailable`] means "ask the database".
///
/// Implementations pass the contract suite in `tests/it/marks.rs`.
pub trait Marks: Send + Sync + 'static {
    /// Sets `mark` unless there is one, in one step together with its `ttl`.
    fn reserve<'a>(
        &'a self,
        id: EntryId,
        mark: &'a Mark,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Reserved, Unavailable>>;

    /// The mark, if there is one.
    fn get(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Mark>, Unavailable>>;

    /// Makes the mark say "done", if it carries `mark`'s nonce or is gone; says whether it did.
    fn complete<'a>(&'a self, id: EntryId, mark: &'a Mark, ttl: Duration) -> BoxFuture<'a, Result<bool, Unavailable>>;

    /// Deletes the mark if it carries `nonce`; says whether it did.
    fn release(&self, id: EntryId, nonce: Nonce) -> BoxFuture<'_, Result<bool, Unavailable>>;

    /// Gives each in-progress mark that carries its nonce `ttl` from now, in one pipeline.
    fn extend<'a>(&'a self, marks: &'a [(EntryId, Nonce)], ttl: Duration) -> BoxFuture<'a, Result<(), Unavailable>>;
}

/// What a mark says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The execution that set it; every later change compares it.
    pub nonce: Nonce,
    /// What its request means.
    pub fingerprint: Fingerprint,
    /// How far it is.
    pub state: MarkState,
}

/// How far the marked execution is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkState {
    /// Someone is on it.
    InProgress,
    /// It is done.
    Completed {
        /// Until when the answer is kept, by the database's clock in milliseconds since the epoch.
        expires: crate::clock::Timestamp,
        /// The answer in its encoded form where it is small; `None`: ask the ledger.
        response: Option<Bytes>,
    },
}

/// The answer to a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// The mark is mine.
    Acquired,
    /// Somebody has one.
    Existing(Mark),
}

/// The mark store did not answer in time. The database decides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("marks are not available: {0}")]
pub struct Unavailable(pub String);
