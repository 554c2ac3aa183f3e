//! Whether a commit survives the power.

use super::Store;
use super::conn::{Conn, Row};
use super::dialect::Dialect;
use super::error::classify;
use super::transaction::within;
use crate::engine::ledger::StoreError;

/// A setting of the database by which a committed entry may be lost with the power, so that a retry makes a
/// payment a second time. The caller refuses to start, or goes on loudly where its configuration allows it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {value}: committed entries may be lost with the power; {remedy}")]
pub struct Weakness {
    /// The database's setting.
    pub setting: &'static str,
    /// What it is.
    pub value: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// Whether a database may be used that may lose a confirmed commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It is refused.
    Demanded,
    /// It is used, and each start says so in the log: for tests and toys.
    WeakAllowed,
}

impl Store {
    /// Reads the database's settings and returns those by which a commit may be lost; none is good.
    ///
    /// # Errors
    /// If the database can't be asked.
    pub async fn check_durability(&self) -> Result<Vec<Weakness>, StoreError> {
        let mut lease = self.writers.lend().await?;
        let found = within(self.statement_timeout, weaknesses(lease.conn())).await;
        let found = found.map_err(|error| classify(&error))?;
        lease.give_back();
        Ok(found)
    }
}

async fn weaknesses(mut conn: Conn<'_>) -> sqlx::Result<Vec<Weakness>> {
    let settings = match conn.dialect() {
        Dialect::Postgres => "SELECT current_setting('synchronous_commit'), current_setting('fsync')",
        Dialect::MySql => {
            "SELECT CAST(@@innodb_flush_log_at_trx_commit AS CHAR), IF(@@log_bin, 'on', 'off'), \
             CAST(@@sync_binlog AS CHAR)"
        }
        Dialect::Sqlite => "SELECT CAST(synchronous AS TEXT) FROM pragma_synchronous",
    };
    let rows = conn.simple(settings).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    match conn.dialect() {
        Dialect::Postgres => postgres(row),
        Dialect::MySql => mysql(row),
        Dialect::Sqlite => sqlite(row),
    }
}

/// `local` and `remote_write` are durable on this server, which is what a crash of it needs.
fn postgres(row: &Row) -> sqlx::Result<Vec<Weakness>> {
    let commit = is("synchronous_commit", row.text(0)?, "off", "set it to on");
    let fsync = is("fsync", row.text(1)?, "off", "set it to on");
    Ok(commit.into_iter().chain(fsync).collect())
}

/// With a binary log, recovery rolls back what the log has not got: then it has to be synced as well.
fn mysql(row: &Row) -> sqlx::Result<Vec<Weakness>> {
    let flush = is_not("innodb_flush_log_at_trx_commit", row.text(0)?, "1", "set it to 1");
    let has_binary_log = row.text(1)? == "on";
    let sync = is_not("sync_binlog", row.text(2)?, "1", "set it to 1, or log_bin to off");
    Ok(flush.into_iter().chain(sync.filter(|_| has_binary_log)).collect())
}

/// We set it ourselves; a build of SQLite may not obey.
fn sqlite(row: &Row) -> sqlx::Result<Vec<Weakness>> {
    let value = row.text(0)?;
    let is_durable = matches!(value.as_str(), "2" | "3");
    let weakness = Weakness { setting: "synchronous", value, remedy: "use a build of SQLite that obeys FULL" };
    Ok(Some(weakness).into_iter().filter(|_| !is_durable).collect())
}

fn is(setting: &'static str, value: String, weak: &str, remedy: &'static str) -> Option<Weakness> {
    (value == weak).then_some(Weakness { setting, value, remedy })
}

fn is_not(setting: &'static str, value: String, durable: &str, remedy: &'static str) -> Option<Weakness> {
    (value != durable).then_some(Weakness { setting, value, remedy })
}
