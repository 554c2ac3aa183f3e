//! A fresh, migrated database per test, on each kind of server.

use std::collections::BTreeSet;

use oncegate::storage::{Store, StoreOptions};
use sqlx::{Connection as _, Executor as _, Row as _};

use super::outbox::texts;
use super::{mariadb, postgres};

/// A kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    MySql,
}

/// A database that only one test knows.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) kind: Kind,
    pub(crate) url: String,
    /// Removed with the test, on SQLite.
    _dir: Option<tempfile::TempDir>,
}

impl Database {
    /// An empty one, on the server that all tests share.
    pub(crate) async fn create(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => {
                let dir = tempfile::tempdir().unwrap();
                let url = format!("sqlite://{}", dir.path().join("oncegate.db").display());
                Self { kind, url, _dir: Some(dir) }
            }
            Kind::Postgres => Self::create_on(kind, postgres::base_url()).await,
            Kind::MySql => Self::create_on(kind, mariadb::base_url()).await,
        }
    }

    /// An empty one, on a server of the test's own.
    pub(crate) async fn create_on(kind: Kind, base_url: &str) -> Self {
        let name = format!("t{:032x}", rand::random::<u128>());
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
        if kind == Kind::MySql {
            sqlx::MySqlConnection::connect(base_url).await.unwrap().execute(create).await.unwrap();
        } else {
            let admin = format!("{base_url}/postgres");
            sqlx::PgConnection::connect(&admin).await.unwrap().execute(create).await.unwrap();
        }
        Self { kind, url: format!("{base_url}/{name}"), _dir: None }
    }

    /// The same database for a second owner, who must not outlive this one on SQLite.
    pub(crate) fn shared(&self) -> Self {
        Self { kind: self.kind, url: self.url.clone(), _dir: None }
    }

    /// Another store on it, as another gateway would have.
    pub(crate) fn open(&self) -> Store {
        Store::open(&self.options()).unwrap()
    }

    pub(crate) fn options(&self) -> StoreOptions {
        StoreOptions::new(&self.url)
    }

    /// A connection of somebody who is not a gateway.
    pub(crate) async fn stranger(&self) -> Stranger {
        match self.kind {
            Kind::Sqlite => Stranger::Sqlite(sqlx::SqliteConnection::connect(&self.url).await.unwrap()),
            Kind::Postgres => Stranger::Postgres(sqlx::PgConnection::connect(&self.url).await.unwrap()),
            Kind::MySql => Stranger::MySql(sqlx::MySqlConnection::connect(&self.url).await.unwrap()),
        }
    }

    /// The tables in which `text` is found, in whatever column.
    pub(crate) async fn tables_with(&self, text: &str) -> BTreeSet<String> {
        let mut stranger = self.stranger().await;
        let hex: String = text.bytes().map(|byte| format!("{byte:02X}")).collect();
        let tables = match self.kind {
            Kind::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
            Kind::Postgres => {
                "SELECT CAST(table_name AS TEXT) FROM information_schema.tables WHERE table_schema = 'public'"
            }
            Kind::MySql => {
                "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = DATABASE()"
            }
        };
        let mut found = BTreeSet::new();
        for table in texts(&mut stranger, tables).await {
            let columns = match self.kind {
                Kind::Sqlite => format!("SELECT name FROM pragma_table_info('{table}')"),
                Kind::Postgres => "SELECT 'whole row'".to_owned(),
                Kind::MySql => format!(
                    "SELECT CAST(column_name AS CHAR) FROM information_schema.columns \
                     WHERE table_schema = DATABASE() AND table_name = '{table}'"
                ),
            };
            for column in texts(&mut stranger, &columns).await {
                let holds = match self.kind {
                    Kind::Postgres => format!(
                        "POSITION('{text}' IN CAST(t AS TEXT)) > 0 OR POSITION('{}' IN CAST(t AS TEXT)) > 0",
                        hex.to_lowercase()
                    ),
                    Kind::Sqlite | Kind::MySql => format!("INSTR(HEX(t.{column}), '{hex}') > 0"),
                };
                if stranger.number(&format!("SELECT COUNT(*) FROM {table} AS t WHERE {holds}")).await > 0 {
                    found.insert(table.clone());
                }
            }
        }
        found
    }

    /// `bytes` as this database spells them.
    pub(crate) fn literal(&self, bytes: &[u8]) -> String {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self.kind {
            Kind::Postgres => format!("'\\x{hex}'::bytea"),
            Kind::Sqlite | Kind::MySql => format!("x'{hex}'"),
        }
    }
}

/// Somebody who is not a gateway: a person with a client, a caller with its own transaction.
#[derive(Debug)]
pub(crate) enum Stranger {
    Sqlite(sqlx::SqliteConnection),
    Postgres(sqlx::PgConnection),
    MySql(sqlx::MySqlConnection),
}

impl Stranger {
    /// Runs plain statements and says how many rows they hit.
    pub(crate) async fn run(&mut self, sql: &str) -> u64 {
        let query = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
        match self {
            Self::Sqlite(connection) => query.execute(connection).await.unwrap().rows_affected(),
            Self::Postgres(connection) => query.execute(connection).await.unwrap().rows_affected(),
            Self::MySql(connection) => query.execute(connection).await.unwrap().rows_affected(),
        }
    }

    /// The first column of the first row: an integer.
    pub(crate) async fn number(&mut self, sql: &str) -> i64 {
        let query = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
        match self {
            Self::Sqlite(connection) => query.fetch_one(connection).await.unwrap().get_unchecked(0),
            Self::Postgres(connection) => query.fetch_one(connection).await.unwrap().get_unchecked(0),
            Self::MySql(connection) => query.fetch_one(connection).await.unwrap().get_unchecked(0),
        }
    }

    /// Closes every other connection to this database, as a failing server would. SQLite has none.
    pub(crate) async fn kill_the_others(&mut self) {
        match self {
            Self::Sqlite(_) => {}
            Self::Postgres(connection) => {
                let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                           WHERE datname = current_database() AND pid <> pg_backend_pid()";
                connection.execute(sql).await.unwrap();
            }
            Self::MySql(connection) => {
                let sql = "SELECT id FROM information_schema.processlist \
                           WHERE db = database() AND id <> connection_id()";
                for row in connection.fetch_all(sql).await.unwrap() {
                    let id: i64 = row.get_unchecked(0);
                    // It may be gone already.
                    connection.execute(sqlx::AssertSqlSafe(format!("KILL {id}"))).await.ok();
                }
            }
        }
    }
}

/// A fresh, migrated database and a store on it.
pub(crate) async fn fresh(kind: Kind) -> (Database, Store) {
    let database = Database::create(kind).await;
    let store = database.open();
    store.migrate().await.unwrap();
    (database, store)
}

/// Makes each named `async fn(Kind)` of a contract suite a test on each database.
macro_rules! on_each_database {
    ($($test:ident),* $(,)?) => {
        mod sqlite { $(#[tokio::test] async fn $test() { super::$test($crate::servers::database::Kind::Sqlite).await; })* }
        mod postgres { $(#[tokio::test] async fn $test() { super::$test($crate::servers::database::Kind::Postgres).await; })* }
        mod mysql { $(#[tokio::test] async fn $test() { super::$test($crate::servers::database::Kind::MySql).await; })* }
    };
}
pub(crate) use on_each_database;
