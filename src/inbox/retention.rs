//! How long it is remembered that a message was handled.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::engine::ledger::StoreError;
use crate::entry::{EntryId, Namespace};

/// How long rows are kept unless it is said otherwise. **It must be longer than anything can come late**: the longest
/// time between two deliveries of a message, and the longest that one lies in a dead-letter queue before somebody sends
/// it again. A message that comes after that is a new one, unless its version or its business rows say that it is not.
pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Rows that are removed in one transaction: some milliseconds, so that no message waits for long.
pub(super) const BATCH: u32 = 500;

/// How often is looked for rows whose time is over.
pub(super) const PERIOD: Duration = Duration::from_secs(60);

/// The rows of a database, as far as they are no part of a caller's transaction.
pub trait Records: Send + Sync + 'static {
    /// In which try each of these messages was last, of those on record.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn attempts<'a>(&'a self, ids: &'a [EntryId]) -> BoxFuture<'a, Result<HashMap<EntryId, u32>, StoreError>>;

    /// Puts on record, durably, in which try messages of `consumer` are. The same call again changes nothing.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn note_attempts<'a>(
        &'a self,
        consumer: &'a Namespace,
        tries: &'a [(EntryId, u32)],
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Removes up to `limit` rows of `consumer` that are older than `keep` by the database's clock, the oldest first,
    /// and says how many; and what is on record of tries as old as that.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn forget<'a>(
        &'a self,
        consumer: &'a Namespace,
        keep: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, StoreError>>;
}
