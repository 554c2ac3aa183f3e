//! Versions: a row's number that only grows.

use futures_util::future::BoxFuture;

use super::{Hit, RowKey, Target, failed, name};
use crate::inbox::Error;
use crate::storage::dialect::Dialect;
use crate::storage::transaction::TxConnection;

/// The version of a caller's rows: a column of integers.
///
/// Advance it first, then change the rest of the row in the same transaction: the row is locked from then on.
///
/// ```
/// use oncegate::inbox::Versioned;
///
/// const STOCK: Versioned = Versioned::new("stock", "sku", "version");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Versioned {
    target: Target,
}

/// What advancing a version came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "what was read is old if its version has not been advanced"]
pub enum Advanced {
    /// The row has the new version in this transaction.
    Applied,
    /// It has another version than it should. Nothing was changed.
    Not {
        /// The version that it has.
        found: i64,
    },
    /// There is no such row.
    Missing,
}

impl Versioned {
    /// The rows of `table` that are found by their unique column `key` and have their version in `version`, which is
    /// never NULL.
    ///
    /// # Panics
    /// If a name is not a plain one: when the program is compiled, where it stands in a constant.
    #[must_use]
    pub const fn new(table: &'static str, key: &'static str, version: &'static str) -> Self {
        Self { target: Target::new(table, key, version) }
    }

    /// On PostgreSQL, the type of the key's column where it is none of text, integers and bytes: `uuid`.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub const fn key_type(mut self, name: &'static str) -> Self {
        assert!(name::is_table(name), "the type's name is no plain name");
        self.target.key_type = Some(name);
        self
    }

    /// Advances the row of `key` by one if it still is at `from`, the version with which it was read: nobody has
    /// changed it since. [`Advanced::Not`] means that somebody has: roll back, read it again, decide again.
    ///
    /// # Errors
    /// If `key` finds several rows, or if the database can't be asked.
    pub fn advance<'a>(
        &'a self,
        tx: &'a mut impl TxConnection,
        key: impl Into<RowKey<'a>>,
        from: i64,
    ) -> BoxFuture<'a, Result<Advanced, Error>> {
        let key = key.into();
        Box::pin(async move {
            let to = from.checked_add(1).ok_or_else(|| Error::Misuse("there is no version after that".to_owned()))?;
            self.write(tx, key, from, to).await
        })
    }

    /// Advances the row of `key` to `to` if it is at any lower version: for messages that carry the version of what
    /// they say. [`Advanced::Not`] means that the row has a newer one, or this very one: the message is stale.
    ///
    /// # Errors
    /// If `key` finds several rows, or if the database can't be asked.
    pub fn advance_to<'a>(
        &'a self,
        tx: &'a mut impl TxConnection,
        key: impl Into<RowKey<'a>>,
        to: i64,
    ) -> BoxFuture<'a, Result<Advanced, Error>> {
        Box::pin(self.write(tx, key.into(), i64::MIN, to))
    }

    /// From any version that is at least `lowest` and below `to`.
    async fn write(
        &self,
        tx: &mut impl TxConnection,
        key: RowKey<'_>,
        lowest: i64,
        to: i64,
    ) -> Result<Advanced, Error> {
        let column = self.target.column;
        let guard = format!("{column} >= ? AND {column} < ?");
        let values = [to.into(), key.into(), lowest.into(), to.into()];
        let conn = &mut tx.as_conn();
        // Whatever kind of integer the column is.
        let read = match conn.dialect() {
            Dialect::MySql => format!("CAST({column} AS SIGNED)"),
            Dialect::Postgres | Dialect::Sqlite => format!("CAST({column} AS BIGINT)"),
        };
        Ok(match self.target.update(conn, &guard, &values, &read, key).await? {
            Hit::Done => Advanced::Applied,
            Hit::Not(None) => Advanced::Missing,
            Hit::Not(Some(row)) => Advanced::Not { found: row.int(0).map_err(failed)? },
        })
    }
}
