//! A fresh, migrated database per test, on each kind of server.

use oncegate::storage::{Store, StoreOptions};
use sqlx::{Connection as _, Executor as _};

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
    /// An empty one.
    pub(crate) async fn create(kind: Kind) -> Self {
        let name = format!("t{:032x}", rand::random::<u128>());
        match kind {
            Kind::Sqlite => {
                let dir = tempfile::tempdir().unwrap();
                let url = format!("sqlite://{}", dir.path().join("oncegate.db").display());
                Self { kind, url, _dir: Some(dir) }
            }
            Kind::Postgres => {
                let base = postgres::base_url();
                let mut admin = sqlx::PgConnection::connect(&format!("{base}/postgres")).await.unwrap();
                admin.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
                Self { kind, url: format!("{base}/{name}"), _dir: None }
            }
            Kind::MySql => {
                let base = mariadb::base_url();
                let mut admin = sqlx::MySqlConnection::connect(base).await.unwrap();
                admin.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
                Self { kind, url: format!("{base}/{name}"), _dir: None }
            }
        }
    }

    /// Another store on it, as another gateway would have.
    pub(crate) fn open(&self) -> Store {
        Store::open(&self.options()).unwrap()
    }

    pub(crate) fn options(&self) -> StoreOptions {
        StoreOptions::new(&self.url)
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
