//! How to reach a database, and the settings that every connection of ours gets.

use std::fmt;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use super::conn::Connection;
use super::dialect::Dialect;
use super::error::Error;
use super::nodelay;
use crate::sealer::Sealer;

/// How to open a store.
#[derive(Clone)]
pub struct StoreOptions {
    /// `sqlite://path`, `postgres://…` or `mysql://…`.
    pub url: String,
    /// Takes the place of a password in the URL.
    pub password: Option<String>,
    /// Most connections that commit batches at a time. Few: batches share commits, and more writers only share
    /// the disk. One more is for everything else that is written. SQLite always has one in all.
    pub writers: usize,
    /// Most connections that read at a time.
    pub readers: usize,
    /// How long a call may wait for a connection, opening it included.
    pub acquire_timeout: Duration,
    /// How long a statement or a commit may take. Beyond it the connection counts as dead: that is how a
    /// half-open one is noticed.
    pub statement_timeout: Duration,
    /// How long a write may wait for a row that somebody's own transaction has locked. MySQL counts whole
    /// seconds; on SQLite it is the wait for the whole database, see [`SQLITE_BUSY`].
    pub lock_timeout: Duration,
    /// Seals what is stored of bodies and headers. Default: nothing is sealed.
    pub sealer: Arc<Sealer>,
}

/// How long SQLite waits for another process' transaction at least: there is one write lock, other gateways
/// on the file take it for a few milliseconds at a time, and waiters are not served in order.
pub const SQLITE_BUSY: Duration = Duration::from_secs(1);

impl StoreOptions {
    /// The defaults for a database.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            password: None,
            writers: 1,
            readers: 4,
            acquire_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_millis(250),
            sealer: Arc::default(),
        }
    }
}

/// Shows no URL: it may hold a password.
impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions").field("writers", &self.writers).field("readers", &self.readers).finish()
    }
}

/// Opens connections to one database.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    target: Target,
    statement_timeout: Duration,
    lock_timeout: Duration,
}

#[derive(Debug, Clone)]
enum Target {
    Postgres(PgConnectOptions),
    MySql(MySqlConnectOptions),
    Sqlite(SqliteConnectOptions),
}

impl Connector {
    pub(super) fn new(options: &StoreOptions) -> Result<Self, Error> {
        let (statement_timeout, lock_timeout) = (options.statement_timeout, options.lock_timeout);
        Ok(Self { target: Target::parse(options)?, statement_timeout, lock_timeout })
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self.target {
            Target::Postgres(_) => Dialect::Postgres,
            Target::MySql(_) => Dialect::MySql,
            Target::Sqlite(_) => Dialect::Sqlite,
        }
    }

    /// The database's file, on SQLite.
    pub(super) fn file(&self) -> Option<&Path> {
        match &self.target {
            Target::Sqlite(options) => Some(options.get_filename()),
            Target::Postgres(_) | Target::MySql(_) => None,
        }
    }

    /// Where its server listens.
    fn port(&self) -> Option<u16> {
        match &self.target {
            Target::Postgres(options) => Some(options.get_port()),
            Target::MySql(options) => Some(options.get_port()),
            Target::Sqlite(_) => None,
        }
    }

    /// How to reach it, on PostgreSQL.
    pub(super) fn postgres(&self) -> Option<&PgConnectOptions> {
        match &self.target {
            Target::Postgres(options) => Some(options),
            Target::MySql(_) | Target::Sqlite(_) => None,
        }
    }

    /// A connection as the server gives it, without our limits: migrations may wait for each other.
    pub(super) async fn connect_plain(&self) -> sqlx::Result<Connection> {
        Ok(match &self.target {
            Target::Postgres(options) => Connection::Postgres(options.connect().await?),
            Target::MySql(options) => Connection::MySql(options.connect().await?),
            Target::Sqlite(options) => Connection::Sqlite(options.connect().await?),
        })
    }

    /// A connection with our settings.
    pub(super) async fn connect(&self, access: Access) -> sqlx::Result<Connection> {
        let mut connection = self.connect_plain().await?;
        if let Some(port) = self.port() {
            nodelay::on_connections_to(port);
        }
        connection.borrow().simple(&self.session(access)).await?;
        Ok(connection)
    }

    /// What each session is told, whatever the server's defaults.
    fn session(&self, access: Access) -> String {
        let statement_ms = self.statement_timeout.as_millis();
        let lock_ms = self.lock_timeout.as_millis();
        match self.dialect() {
            // Plans: every statement of ours goes through an index, and a plan that was made while the table
            // was small must not outlive that. Idle in a transaction is a gateway that vanished: its locks go.
            Dialect::Postgres => format!(
                "SET statement_timeout = {statement_ms}; SET lock_timeout = {lock_ms}; \
                 SET default_transaction_isolation = 'read committed'; \
                 SET idle_in_transaction_session_timeout = {statement_ms}; \
                 SET plan_cache_mode = force_generic_plan; SET jit = off; \
                 SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
            ),
            Dialect::MySql => format!(
                "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'; \
                 SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                 SET SESSION innodb_lock_wait_timeout = {}",
                self.lock_timeout.as_secs().max(1)
            ),
            Dialect::Sqlite => match access {
                Access::Write => "PRAGMA query_only = 0".to_owned(),
                Access::Read => "PRAGMA query_only = 1".to_owned(),
            },
        }
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

impl Target {
    fn parse(options: &StoreOptions) -> Result<Self, Error> {
        let (scheme, _) = options.url.split_once(':').unwrap_or_default();
        let wrong = |error: sqlx::Error| Error::Url(error.to_string());
        match scheme {
            "postgres" | "postgresql" => {
                let mut target = PgConnectOptions::from_str(&options.url).map_err(wrong)?.application_name("oncegate");
                if let Some(password) = &options.password {
                    target = target.password(password);
                }
                Ok(Self::Postgres(target.disable_statement_logging()))
            }
            "mysql" | "mariadb" => {
                let mut target = MySqlConnectOptions::from_str(&options.url).map_err(wrong)?;
                if let Some(password) = &options.password {
                    target = target.password(password);
                }
                Ok(Self::MySql(target.disable_statement_logging()))
            }
            "sqlite" => sqlite(options).map(Self::Sqlite),
            _ => Err(Error::Url("the scheme is none of sqlite, postgres and mysql".to_owned())),
        }
    }
}

fn sqlite(options: &StoreOptions) -> Result<SqliteConnectOptions, Error> {
    let target = SqliteConnectOptions::from_str(&options.url).map_err(|error| Error::Url(error.to_string()))?;
    let in_memory = options.url.contains(":memory:") || options.url.contains("mode=memory");
    if in_memory || target.get_filename().as_os_str().is_empty() {
        return Err(Error::Url("a database in memory forgets what was paid; name a file".to_owned()));
    }
    Ok(target
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(options.lock_timeout.max(SQLITE_BUSY))
        .disable_statement_logging())
}
