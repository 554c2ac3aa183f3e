//! Bringing the schema up to date.

use std::fs::File;
use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError, Migrator};

use super::conn::Connection;
use super::error::{Error, classify};
use super::lockfiles::LockFiles;
use super::options::Connector;
use super::transaction::within;

/// One at a time, whoever else starts now. sqlx's own lock is PostgreSQL's only: on SQLite there is none, and
/// MariaDB refuses the endless wait that it asks for.
const LOCK_MYSQL: &str = "SELECT COALESCE(GET_LOCK(CONCAT('oncegate:', MD5(DATABASE())), 600), 0)";

/// How long a connection may take to come about: one that is half open never does. What is run on it may take its time.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Runs the migrations that the database has not seen, on a connection of its own.
pub(super) async fn run(connector: &Connector) -> Result<(), Error> {
    let _lock = lock_file(connector).await?;
    let connected = within(CONNECT_LIMIT, Box::pin(connector.connect_plain())).await;
    let mut connection = connected.map_err(|error| classify(&error))?;
    if let Connection::MySql(_) = &connection {
        let rows = connection.borrow().simple(LOCK_MYSQL).await.map_err(|error| classify(&error))?;
        if !rows.first().is_some_and(|row| row.int(0).is_ok_and(|got| got == 1)) {
            return Err(Error::Migration("another process has been migrating for too long".to_owned()));
        }
    }
    match &mut connection {
        Connection::Postgres(connection) => migrate(sqlx::migrate!("migrations/postgres"), true, connection).await,
        Connection::MySql(connection) => migrate(sqlx::migrate!("migrations/mysql"), false, connection).await,
        Connection::Sqlite(connection) => migrate(sqlx::migrate!("migrations/sqlite"), false, connection).await,
    }
    .map_err(told)?;
    // Ends MySQL's lock as well.
    connection.close().await.map_err(|error| classify(&error).into())
}

/// What is asked beside the migrations themselves fails where the database can't be used now: it is a standby, say.
fn told(error: MigrateError) -> Error {
    match error {
        MigrateError::Execute(error) => classify(&error).into(),
        other => Error::Migration(other.to_string()),
    }
}

/// `run_direct`, since `run` makes the future unfit for a task. What a newer version has added is left alone:
/// old and new processes run side by side during a deploy.
async fn migrate(mut migrator: Migrator, locking: bool, connection: &mut impl Migrate) -> Result<(), MigrateError> {
    migrator.set_ignore_missing(true).set_locking(locking).run_direct(None, connection, false).await
}

/// Waits for other processes' migrations on SQLite.
async fn lock_file(connector: &Connector) -> Result<Option<File>, Error> {
    let Some(file) = connector.file() else { return Ok(None) };
    let locks = LockFiles::beside(file);
    let failed = |error: &dyn std::fmt::Display| Error::Migration(format!("lock file: {error}"));
    let lock = tokio::task::spawn_blocking(move || locks.lock_migrations()).await;
    lock.map_err(|error| failed(&error))?.map(Some).map_err(|error| failed(&error))
}
