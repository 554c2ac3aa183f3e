//! Transactions of our own, and statements inside a caller's.

use std::time::Duration;

use super::conn::{Conn, unreadable};
use super::error::{classify, classify_commit};
use super::pool::{Lease, Pool};
use crate::clock::Timestamp;
use crate::engine::ledger::StoreError;
use crate::sealer::Sealer;

/// A connection that a Rust service has a transaction open on: one of sqlx's `PgConnection`,
/// `MySqlConnection` and `SqliteConnection`. What we write through it commits or rolls back with the rest
/// of the transaction.
pub trait TxConnection: sealed::Sealed {}

impl<T: sealed::Sealed> TxConnection for T {}

/// Lets only this crate say what a connection is.
pub(super) mod sealed {
    use super::super::conn::Conn;

    #[expect(unnameable_types, reason = "sealed: callers pass connections, they do not make them")]
    pub trait Sealed: Send {
        #[doc(hidden)]
        fn as_conn(&mut self) -> Conn<'_>;

        /// Whether sqlx has a transaction open on it.
        #[doc(hidden)]
        fn is_in_transaction(&self) -> bool;
    }

    impl Sealed for sqlx::PgConnection {
        fn as_conn(&mut self) -> Conn<'_> {
            Conn::Postgres(self)
        }

        fn is_in_transaction(&self) -> bool {
            sqlx::Connection::is_in_transaction(self)
        }
    }

    impl Sealed for sqlx::MySqlConnection {
        fn as_conn(&mut self) -> Conn<'_> {
            Conn::MySql(self)
        }

        fn is_in_transaction(&self) -> bool {
            sqlx::Connection::is_in_transaction(self)
        }
    }

    impl Sealed for sqlx::SqliteConnection {
        fn as_conn(&mut self) -> Conn<'_> {
            Conn::Sqlite(self)
        }

        fn is_in_transaction(&self) -> bool {
            sqlx::Connection::is_in_transaction(self)
        }
    }
}

/// An open transaction on a connection of ours. Dropped before its end, the connection is closed, and the
/// database rolls back.
#[derive(Debug)]
pub(super) struct Transaction<'p> {
    lease: Lease<'p>,
    /// The database's time at its beginning.
    pub(super) now: Timestamp,
    /// The largest statement in bytes that the server takes.
    pub(super) statement_limit: usize,
    /// Seals what it writes, and opens what it reads.
    pub(super) sealer: &'p Sealer,
    /// How long each step may take.
    timeout: Duration,
}

impl<'p> Transaction<'p> {
    /// Opens one. A connection that died while it lay idle is noticed here, before anything depends on it,
    /// and another one is tried.
    pub(super) async fn begin(pool: &'p Pool, sealer: &'p Sealer, timeout: Duration) -> Result<Self, StoreError> {
        loop {
            let mut lease = pool.lend().await?;
            match within(timeout, start(&mut lease)).await {
                Ok((now, statement_limit)) => return Ok(Self { lease, now, statement_limit, sealer, timeout }),
                Err(error) if lease.died_idle(&error) => {}
                // What is locked here is no row but all of SQLite's file: nothing can be written now.
                Err(error) => {
                    return Err(match classify(&error) {
                        StoreError::Locked(text) => StoreError::Unavailable(text),
                        other => other,
                    });
                }
            }
        }
    }

    pub(super) fn conn(&mut self) -> Conn<'_> {
        self.lease.conn()
    }

    /// Of the connection that it is on: see [`Lease::session`].
    pub(super) fn session(&self) -> u64 {
        self.lease.session()
    }

    /// Ends the transaction: commits if `work` succeeded, else rolls back and says why.
    pub(super) async fn end<T>(self, work: sqlx::Result<T>) -> Result<T, StoreError> {
        self.end_by("COMMIT", work).await
    }

    /// As [`Self::end`], but does not wait until the disk has it, where the database can: it may forget it should it
    /// crash before the next durable commit, and what was committed so after it.
    pub(super) async fn end_without_flush<T>(mut self, work: sqlx::Result<T>) -> Result<T, StoreError> {
        let commit = self.conn().dialect().commit_without_flush();
        self.end_by(commit, work).await
    }

    async fn end_by<T>(self, commit: &'static str, work: sqlx::Result<T>) -> Result<T, StoreError> {
        match work {
            Ok(done) => self.commit(commit).await.map(|()| done),
            Err(error) => Err(self.roll_back(&error).await),
        }
    }

    async fn commit(mut self, commit: &'static str) -> Result<(), StoreError> {
        within(self.timeout, self.lease.conn().simple(commit)).await.map_err(|error| classify_commit(&error))?;
        self.lease.give_back();
        Ok(())
    }

    /// The connection is kept only if the error spoke of the data: a node that is read-only after a failover,
    /// or a broken one, must not be met again.
    async fn roll_back(mut self, error: &sqlx::Error) -> StoreError {
        let error = classify(error);
        if matches!(error, StoreError::Unavailable(_)) {
            return error;
        }
        if within(self.timeout, self.lease.conn().simple("ROLLBACK")).await.is_ok() {
            self.lease.give_back();
        }
        error
    }
}

async fn start(lease: &mut Lease<'_>) -> sqlx::Result<(Timestamp, usize)> {
    let mut conn = lease.conn();
    let begin = conn.dialect().begin();
    let rows = conn.simple(begin).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let limit = row.int(1)?;
    let limit = usize::try_from(limit).map_err(|_| unreadable(1, format!("a limit of {limit}")))?;
    Ok((Timestamp(row.int(0)?), limit))
}

/// `work`, or the error of a connection that does not answer. Its user closes it: what was on its way may
/// still arrive.
pub(super) async fn within<T>(timeout: Duration, work: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    tokio::time::timeout(timeout, work)
        .await
        .unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))
}
