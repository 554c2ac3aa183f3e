//! The ledger's contract: what the engine asks of a database, in the engine's words.
//!
//! Writes come as [`Batch`]es, one transaction each, and are **idempotent by nonce**: applying a batch again
//! after an unclear commit gives the same answer as if it had been applied once. That is how an unclear
//! commit is settled: apply it again, and whoever carries my nonce is mine.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::clock::Timestamp;
use crate::entry::{Answer, Entry, EntryId, Fingerprint, Identity, InstanceId, Nonce};
use crate::outbox::event::NewEvent;

/// The durable, unique-keyed table: one entry per identity. The truth.
///
/// Implementations pass the contract suite in `tests/it/ledger.rs`.
pub trait Ledger: Send + Sync + 'static {
    /// Applies `batch` in one durable transaction, transitions first (with their events, in the order of the
    /// batch), then releases, then claims, and reports each item's result by its index.
    ///
    /// No two items of a batch name the same entry; the caller sees to it.
    ///
    /// # Errors
    /// Nothing of the batch is applied unless the error is [`StoreError::CommitUnknown`]; then all of it is,
    /// or nothing.
    fn apply<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Applied, StoreError>>;

    /// The entry as the primary has it now, and the database's time.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn read(&self, id: EntryId) -> BoxFuture<'_, Result<(Option<Entry>, Timestamp), StoreError>>;

    /// Keeps the answer of an execution that lost its entry to somebody else, as evidence for a person: on the entry
    /// that was made under `origin`, and on the decision of a person that ended it. Where both are missing, on the entry
    /// that the key has by now: what ran then may have run twice. The first evidence stays.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn keep_evidence(&self, id: EntryId, origin: Nonce, evidence: Bytes) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Up to `limit` Unknown entries whose background lookup is due, longest due first.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn due_lookups(&self, limit: u32) -> BoxFuture<'_, Result<Vec<DueLookup>, StoreError>>;

    /// Makes up to `limit` in-progress entries of instances that are not alive Unknown, with their lookup
    /// due at once, and says how many. Only this makes orphans Unknown; admission never infers it.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn orphan(&self, limit: u32) -> BoxFuture<'_, Result<u64, StoreError>>;

    /// Up to `limit` of the entries in progress under `instance` whose attempt was claimed at least `age` ago,
    /// for its own sweep: the oldest, or the oldest that come after `after`.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn in_progress(
        &self,
        instance: InstanceId,
        age: Duration,
        after: Option<InProgress>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<InProgress>, StoreError>>;

    /// Ends the time of up to `limit` entries each way: completed ones past their retention lose their
    /// answer and become tombstones (or leave at once where the tombstone is over as well), tombstones past
    /// their time leave. Never touches anything in progress or Unknown.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn reap(&self, limit: u32) -> BoxFuture<'_, Result<Reaped, StoreError>>;
}

/// What one transaction is to write. At most one item per entry.
#[derive(Debug, Default, Clone)]
pub struct Batch {
    /// Guarded changes of existing rows. Applied first.
    pub transitions: Vec<Transition>,
    /// Guarded removals.
    pub releases: Vec<Release>,
    /// New rows.
    pub claims: Vec<Claim>,
}

impl Batch {
    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.transitions.len() + self.releases.len() + self.claims.len()
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A new row in progress, unless the identity has one.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The digest of `identity`.
    pub id: EntryId,
    /// Stored in the clear, for people.
    pub identity: Identity,
    /// The claiming execution's nonce, stored as the row's nonce and as its origin.
    pub nonce: Nonce,
    /// Whose lease vouches for the execution. A claim by an instance that is not alive wins nothing.
    pub instance: InstanceId,
    /// What the request means.
    pub fingerprint: Fingerprint,
    /// The route (or subscription) by name: where a rescuer finds the policy.
    pub route: Box<str>,
    /// What settling needs of the request after a crash, encoded by the door that made it.
    pub context: Option<Bytes>,
}

/// A guarded change of an existing row: legal only while the row carries `nonce` and is in `from`.
#[derive(Debug, Clone)]
pub struct Transition {
    /// The row.
    pub id: EntryId,
    /// The nonce that the row must carry.
    pub nonce: Nonce,
    /// The states that it is legal from.
    pub from: FromState,
    /// What the row becomes.
    pub to: To,
}

/// The states that a transition is legal from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromState {
    /// In progress only.
    InProgress,
    /// Unknown only.
    Unknown,
    /// Either: a late finisher's real answer is not thrown away while nobody else has settled.
    Unfinished,
}

/// What a row becomes.
#[derive(Debug, Clone)]
pub enum To {
    /// In progress again, as attempt + 1 of `instance`, under a new nonce.
    InProgress {
        /// The new execution's nonce.
        nonce: Nonce,
        /// Whose lease vouches for it.
        instance: InstanceId,
    },
    /// Unknown, its nonce unchanged so that a late finisher can still complete it.
    Unknown {
        /// How long from now the next lookup in the background is due; `None` for never.
        next_lookup: Option<Duration>,
        /// Lookups made so far.
        lookups: u32,
    },
    /// Completed. `nonce` is the execution's own when it finishes, a new one when somebody else settles, so
    /// that the two can be told apart.
    Completed {
        /// What the row carries from now on.
        nonce: Nonce,
        /// The answer.
        answer: Answer,
        /// How long the answer is kept, from now.
        retention: Duration,
        /// How much longer the key is remembered; `None` is for ever.
        tombstone: Option<Duration>,
        /// What is announced with it: written exactly if the row carries `nonce` and is completed afterwards.
        events: Arc<[NewEvent]>,
    },
}

impl Transition {
    /// The nonce that the row carries once the transition has been applied.
    #[must_use]
    pub fn nonce_after(&self) -> Nonce {
        match &self.to {
            To::InProgress { nonce, .. } | To::Completed { nonce, .. } => *nonce,
            To::Unknown { .. } => self.nonce,
        }
    }
}

/// A guarded removal.
#[derive(Debug, Clone)]
pub struct Release {
    /// The row.
    pub id: EntryId,
    /// The nonce that the row must carry.
    pub nonce: Nonce,
    /// What makes the removal legal.
    pub of: Released,
}

/// What makes a removal legal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The execution under this nonce did not happen: in progress or Unknown, and its first attempt.
    FirstAttempt,
    /// It was settled as not executed: Unknown, whatever its attempt.
    Settled,
    /// Its retention and tombstone are over: completed or tombstone, and past its time.
    Forgotten,
}

/// What became of a batch, by index.
#[derive(Debug, Clone)]
pub struct Applied {
    /// The database's time, read in the transaction.
    pub now: Timestamp,
    /// One per transition.
    pub transitions: Vec<Guarded>,
    /// One per release.
    pub releases: Vec<Guarded>,
    /// One per claim.
    pub claims: Vec<Claimed>,
}

/// What became of a guarded write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded {
    /// The row is as asked (by this write, or by the same one applied before).
    Done,
    /// The guard did not hold: the row carries another nonce, is in another state, or is gone.
    Fenced,
}

/// What became of a claim. The store reports; admission decides.
#[derive(Debug, Clone)]
pub enum Claimed {
    /// After the commit the row carries my nonce: I may execute.
    Won,
    /// The identity has an entry.
    Existing(Box<Entry>),
    /// The row is locked by somebody's own transaction.
    Busy,
    /// The claiming instance is not alive.
    NotAlive,
    /// The row vanished between the write and the read: claim again.
    Vanished,
    /// The identity has an entry that this version can't read, one of a newer version.
    Unreadable,
    /// The identity has an entry whose answer is sealed under a key that is not here.
    Sealed,
}

/// An entry in progress as its own instance finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InProgress {
    /// The entry.
    pub id: EntryId,
    /// The nonce that its row carries.
    pub nonce: Nonce,
    /// When its attempt was claimed: with the id, its place among the others.
    pub since: Timestamp,
}

/// An Unknown entry whose background lookup is due.
#[derive(Debug, Clone)]
pub struct DueLookup {
    /// The entry.
    pub entry: Entry,
    /// Whose it is.
    pub identity: Identity,
    /// Its route by name.
    pub route: Box<str>,
    /// What the claim stored for settling.
    pub context: Result<Option<Bytes>, Sealed>,
}

/// It is sealed under a key that is not here, or was changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed;

/// What one reaping did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Completed entries that lost their answer.
    pub tombstoned: u64,
    /// Entries that left.
    pub removed: u64,
}

/// Why the store did not answer, in the ways that callers differ.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written: a deadlock or serialisation failure. At once again may succeed.
    #[error("transaction was rolled back by a conflict: {0}")]
    Conflict(String),
    /// Nothing was written: a row is locked by somebody's own transaction.
    #[error("a row is locked: {0}")]
    Locked(String),
    /// Nothing was written: an item can't be stored as it is. It fails again.
    #[error("the store refuses the data: {0}")]
    Refused(String),
    /// Nothing was written: the database is not reachable or not able.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The connection broke in the COMMIT: all of it is written, or nothing.
    #[error("the outcome of a commit is unknown: {0}")]
    CommitUnknown(String),
}
