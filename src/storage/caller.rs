//! A caller's own pool and transactions, for loops that open them on the caller's behalf.

use futures_util::future::BoxFuture;
use sqlx::{Database, MySql, Pool, Postgres, Sqlite, Transaction};

use super::dedup::{are_held, commit_holding};
use super::error::{classify, classify_commit, is_of_failed_transaction};
use super::transaction::TxConnection;
use crate::engine::ledger::StoreError;
use crate::entry::EntryId;
use crate::inbox::HandlerError;

/// A service's own pool of connections: one of sqlx's `PgPool`, `MySqlPool` and `SqlitePool`.
pub trait TxPool: sealed::Sealed + Clone + Send + Sync + 'static {
    /// What its transactions are open on.
    type Connection: TxConnection + 'static;
    /// One of its transactions.
    type Transaction: CallerTransaction<Connection = Self::Connection>;

    /// Opens a transaction. On SQLite it is a writer from the beginning (`BEGIN IMMEDIATE`): one that has read first
    /// could not always become one.
    ///
    /// # Errors
    /// If the database can't be reached.
    fn begin(&self) -> BoxFuture<'_, Result<Self::Transaction, StoreError>>;
}

/// A transaction that a service has opened from its pool: sqlx's `Transaction`. Dropped, it is rolled back.
///
/// Never a savepoint inside another one, whose release is no commit: that one borrows from the other, and these don't.
pub trait CallerTransaction: sealed::Sealed + Send + 'static {
    /// What it is open on.
    type Connection: TxConnection;

    /// What it is open on.
    fn connection(&mut self) -> &mut Self::Connection;

    /// Commits it.
    ///
    /// # Errors
    /// If it was not committed, or nobody knows.
    fn commit(self) -> BoxFuture<'static, Result<(), StoreError>>;

    /// Commits it if each of `records` (rows of the inbox, and the nonces they were written under) is in it; `false` if
    /// not, and then nothing is committed.
    #[doc(hidden)]
    fn commit_holding(mut self, records: Vec<(EntryId, i64)>) -> BoxFuture<'static, Result<bool, StoreError>>
    where
        Self: Sized,
    {
        Box::pin(async move {
            if let [record] = records[..]
                && let Some(committed) = commit_holding(self.connection(), record).await
            {
                return committed;
            }
            if !are_held(self.connection(), &records).await? {
                return Ok(false);
            }
            self.commit().await.map(|()| true)
        })
    }

    /// Rolls it back.
    ///
    /// # Errors
    /// If nobody has answered: its connection is closed then.
    fn roll_back(self) -> BoxFuture<'static, Result<(), StoreError>>;
}

mod sealed {
    #[expect(unnameable_types, reason = "sealed: pools and transactions are sqlx's")]
    pub trait Sealed {}

    impl<DB: sqlx::Database> Sealed for sqlx::Pool<DB> {}
    impl<DB: sqlx::Database> Sealed for sqlx::Transaction<'static, DB> {}
}

/// How a pool's transactions begin.
macro_rules! pools {
    ($($database:ty: $begin:literal),*) => {$(
        impl TxPool for Pool<$database> {
            type Connection = <$database as Database>::Connection;
            type Transaction = Transaction<'static, $database>;

            fn begin(&self) -> BoxFuture<'_, Result<Self::Transaction, StoreError>> {
                Box::pin(async { self.begin_with($begin).await.map_err(|error| classify_begin(&error)) })
            }
        }
    )*};
}

pools!(Postgres: "BEGIN", MySql: "START TRANSACTION", Sqlite: "BEGIN IMMEDIATE");

/// What is locked here is no row but all of SQLite's file, and what is refused is no data: nothing can be written now.
fn classify_begin(error: &sqlx::Error) -> StoreError {
    match classify(error) {
        StoreError::Locked(text) | StoreError::Refused(text) => StoreError::Unavailable(text),
        other @ (StoreError::Conflict(_) | StoreError::Unavailable(_) | StoreError::CommitUnknown(_)) => other,
    }
}

impl<DB> CallerTransaction for Transaction<'static, DB>
where
    DB: Database,
    DB::Connection: TxConnection,
{
    type Connection = DB::Connection;

    fn connection(&mut self) -> &mut DB::Connection {
        self
    }

    fn commit(self) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async { Transaction::commit(self).await.map_err(|error| classify_commit(&error)) })
    }

    fn roll_back(self) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async { self.rollback().await.map_err(|error| classify(&error)) })
    }
}

/// What a handler's own statement came to: a database that is not there costs the message no attempt, and going on
/// after a statement has failed does.
impl From<sqlx::Error> for HandlerError {
    fn from(error: sqlx::Error) -> Self {
        if is_of_failed_transaction(&error) { Self::Retry(error.to_string()) } else { classify(&error).into() }
    }
}
