//! The library's inbox: in a caller's own transactions on each database, behind its filters, and in its loop.

mod batches;
mod begins;
mod consumer;
mod examples;
mod filters;
mod guards;
mod retention;
mod versions;
mod waits;

use std::time::Duration;

use oncegate::clock;
use oncegate::embed::InboxSetup;
use oncegate::inbox::{Begun, CallerTransaction as _, Error, Inbox, Message, Receipt, TxPool};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, MySql, MySqlPool, PgPool, Postgres, Row as _, Sqlite, SqlitePool, Transaction};

use crate::servers::database::{Database, Kind};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service with a table of effects, and the inbox of its consumer `points`.
struct Ground {
    database: Database,
    pool: Pool,
    inbox: Inbox,
}

/// The service's own pool.
#[derive(Debug, Clone)]
enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
    MySql(MySqlPool),
}

/// One of the service's transactions.
enum Tx {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
    MySql(Transaction<'static, MySql>),
}

/// Does the same with a pool or a transaction of any kind.
macro_rules! whatever {
    ($kind:ident, $value:expr, $name:ident => $body:expr) => {
        match $value {
            $kind::Sqlite($name) => $body,
            $kind::Postgres($name) => $body,
            $kind::MySql($name) => $body,
        }
    };
}
use whatever;

impl Ground {
    async fn new(kind: Kind) -> Self {
        Self::with(kind, |setup| setup).await
    }

    async fn with(kind: Kind, adapt: impl FnOnce(InboxSetup) -> InboxSetup) -> Self {
        let database = Database::create(kind).await;
        let inbox = adapt(Inbox::setup(&database.url)).open("points").await.unwrap();
        let pool = Pool::open(&database, Duration::from_secs(20)).await;
        database.stranger().await.run("CREATE TABLE effects (message VARCHAR(300) NOT NULL)").await;
        Self { database, pool, inbox }
    }

    /// Another process of the same consumer, with filters of its own.
    async fn another(&self, adapt: impl FnOnce(InboxSetup) -> InboxSetup) -> Inbox {
        adapt(Inbox::setup(&self.database.url)).open("points").await.unwrap()
    }

    /// Begins `message`, has its effect if it is the first one, and commits. Says what it was.
    async fn handle(&self, message: &Message) -> String {
        self.handle_in(&self.inbox, message).await.unwrap()
    }

    async fn handle_in(&self, inbox: &Inbox, message: &Message) -> Result<String, Error> {
        let mut tx = self.pool.begin().await;
        let begun = tx.begin(inbox, message).await?;
        let what = told(&begun);
        let receipts = match begun {
            Begun::First(receipt) => {
                tx.effect(message).await;
                vec![receipt]
            }
            Begun::Duplicate | Begun::Stale { .. } | Begun::Conflict => Vec::new(),
        };
        tx.commit(inbox, receipts).await?;
        Ok(what)
    }

    async fn number(&self, sql: &str) -> i64 {
        self.database.stranger().await.number(sql).await
    }

    async fn effects(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM effects").await
    }

    /// Rows of messages, and of entities.
    async fn rows(&self) -> [i64; 2] {
        let mut stranger = self.database.stranger().await;
        [
            stranger.number("SELECT COUNT(*) FROM inbox").await,
            stranger.number("SELECT COUNT(*) FROM inbox_versions").await,
        ]
    }
}

impl Pool {
    /// `patience` is how long SQLite waits for another writer.
    async fn open(database: &Database, patience: Duration) -> Self {
        const SIZE: u32 = 32;
        match database.kind {
            Kind::Sqlite => {
                let options: SqliteConnectOptions = database.url.parse().unwrap();
                let options = options.journal_mode(SqliteJournalMode::Wal).busy_timeout(patience);
                Self::Sqlite(SqlitePoolOptions::new().max_connections(SIZE).connect_with(options).await.unwrap())
            }
            Kind::Postgres => {
                Self::Postgres(PgPoolOptions::new().max_connections(SIZE).connect(&database.url).await.unwrap())
            }
            Kind::MySql => {
                Self::MySql(MySqlPoolOptions::new().max_connections(SIZE).connect(&database.url).await.unwrap())
            }
        }
    }

    async fn begin(&self) -> Tx {
        match self {
            Self::Sqlite(pool) => Tx::Sqlite(TxPool::begin(pool).await.unwrap()),
            Self::Postgres(pool) => Tx::Postgres(TxPool::begin(pool).await.unwrap()),
            Self::MySql(pool) => Tx::MySql(TxPool::begin(pool).await.unwrap()),
        }
    }

    async fn close(&self) {
        whatever!(Self, self, pool => pool.close().await);
    }
}

impl Tx {
    async fn begin(&mut self, inbox: &Inbox, message: &Message) -> Result<Begun, Error> {
        whatever!(Self, self, tx => inbox.begin(&mut **tx, message).await)
    }

    async fn begin_many(&mut self, inbox: &Inbox, messages: &[Message]) -> Result<Vec<Begun>, Error> {
        whatever!(Self, self, tx => inbox.begin_many(&mut **tx, messages).await)
    }

    /// Runs a plain statement and says how many rows it hit.
    async fn run(&mut self, sql: &str) -> sqlx::Result<u64> {
        let query = sqlx::raw_sql(AssertSqlSafe(sql));
        Ok(whatever!(Self, self, tx => query.execute(&mut **tx).await?.rows_affected()))
    }

    /// The first column of the first row: an integer.
    async fn number(&mut self, sql: &str) -> i64 {
        let query = sqlx::raw_sql(AssertSqlSafe(sql));
        whatever!(Self, self, tx => query.fetch_one(&mut **tx).await.unwrap().get_unchecked(0))
    }

    async fn effect(&mut self, message: &Message) {
        let key = message.key();
        assert_eq!(self.run(&format!("INSERT INTO effects VALUES ('{key}')")).await.unwrap(), 1);
    }

    async fn commit(self, inbox: &Inbox, receipts: Vec<Receipt>) -> Result<(), Error> {
        whatever!(Self, self, tx => inbox.commit(tx, receipts).await)
    }

    async fn roll_back(self) {
        whatever!(Self, self, tx => tx.roll_back().await.unwrap());
    }
}

fn message(key: &str) -> Message {
    Message::new(key).unwrap()
}

/// What a message was found to be.
fn told(begun: &Begun) -> String {
    match begun {
        Begun::First(receipt) => match receipt.previous() {
            None => "first".to_owned(),
            Some(previous) => format!("first after {previous}"),
        },
        Begun::Duplicate => "duplicate".to_owned(),
        Begun::Stale { applied } => format!("stale behind {applied}"),
        Begun::Conflict => "conflict".to_owned(),
    }
}

/// Asks until `done`, a little apart.
async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = clock::now() + PATIENCE;
    while !done().await {
        assert!(clock::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
