//! A database with an outbox, a broker, and relays between them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use oncegate::broker::{Ordering, Publisher};
use oncegate::clock;
use oncegate::outbox::relay::{Relay, RelayOptions, Wake, Wakes};
use oncegate::outbox::store::Outbox as _;
use oncegate::storage::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::broker::{Broker, Line};
use crate::servers::database::{Database, Kind};

pub(super) const QUEUE: &str = "default";
pub(super) const LANES: u32 = 8;

/// Longest wait for anything: machines that test are busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

const HOUR: Duration = Duration::from_secs(3600);

/// Whatever happens soon is told, not polled.
pub(super) fn unpolled() -> RelayOptions {
    RelayOptions { poll: HOUR, ..RelayOptions::default() }
}

pub(super) struct Ground {
    pub(super) database: Database,
    pub(super) store: Arc<Store>,
    pub(super) broker: Broker,
}

/// A relay that runs as a process of its own would: with its own store and its own wakes.
pub(super) struct Running {
    pub(super) wake: Wake,
    stop: CancellationToken,
    relay: JoinHandle<()>,
    listening: JoinHandle<()>,
}

impl Ground {
    pub(super) async fn new(kind: Kind) -> Self {
        Self::on(Database::create(kind).await).await
    }

    pub(super) async fn on(database: Database) -> Self {
        let store = Arc::new(database.open());
        store.migrate().await.unwrap();
        assert_eq!(store.open(QUEUE, LANES).await.unwrap(), LANES);
        Self { database, store, broker: Broker::start().await }
    }

    pub(super) fn relay(&self, options: RelayOptions) -> Running {
        self.relay_to(Line::to(&self.broker, Ordering::ByCall), options)
    }

    pub(super) fn relay_to(&self, publisher: Arc<dyn Publisher>, options: RelayOptions) -> Running {
        // SQLite's processes are ordered by one file; two stores of this process would be no different.
        let store = match self.database.kind {
            Kind::Sqlite => Arc::clone(&self.store),
            Kind::Postgres | Kind::MySql => Arc::new(self.database.open()),
        };
        self.relay_on(store, publisher, options)
    }

    pub(super) fn relay_on(&self, store: Arc<Store>, publisher: Arc<dyn Publisher>, options: RelayOptions) -> Running {
        let (wakes, stop) = (Wakes::default(), CancellationToken::new());
        let wake = wakes.of(QUEUE);
        let relay = Relay::new(QUEUE, store.clone(), publisher, wake.clone(), options);
        let relay = tokio::spawn(relay.run(stop.clone()));
        let listening = tokio::spawn(async move { wakes.listen(&*store).await });
        Running { wake, stop, relay, listening }
    }

    /// Commits events of `keys`, in order, in one transaction.
    pub(super) async fn commit(&self, keys: &[&str]) {
        self.commit_to("t", keys).await;
    }

    /// The same, to a topic.
    pub(super) async fn commit_to(&self, topic: &str, keys: &[&str]) {
        self.database.stranger().await.run(&self.insert(topic, keys)).await;
    }

    /// Commits an event at a position that another one may have had.
    pub(super) async fn commit_at(&self, position: i64, key: &str) {
        let overriding = if self.database.kind == Kind::Postgres { " OVERRIDING SYSTEM VALUE" } else { "" };
        let insert = self.insert("t", &[key]);
        let insert = insert
            .replace("(id, queue", "(position, id, queue")
            .replace(" VALUES (", &format!("{overriding} VALUES ({position}, "));
        self.database.stranger().await.run(&insert).await;
    }

    /// The statement that inserts events of `keys`.
    pub(super) fn insert(&self, topic: &str, keys: &[&str]) -> String {
        let mut sql = String::from(
            "INSERT INTO events (id, queue, lane, event_key, state, holds, attempts, created_at, changed_at, entry, \
             route, topic, type, source, content_type, data) VALUES ",
        );
        for (index, key) in keys.iter().enumerate() {
            let id = self.database.literal(&rand::random::<[u8; 16]>());
            let (entry, data) = (self.database.literal(&[7; 32]), self.database.literal(b"{}"));
            let comma = if index == 0 { "" } else { ", " };
            write!(
                sql,
                "{comma}({id}, '{QUEUE}', {}, '{key}', 1, 1, 0, 1000, 1000, {entry}, 'r', '{topic}', 'e', '/', \
                 'application/json', {data})",
                lane_of(key)
            )
            .unwrap();
        }
        sql
    }

    pub(super) async fn count(&self, what: &str) -> i64 {
        self.database.stranger().await.number(&format!("SELECT COUNT(*) FROM events WHERE {what}")).await
    }

    /// Waits until every event is sent.
    pub(super) async fn all_sent(&self) {
        eventually("everything is sent", async || self.count("state <> 5").await == 0).await;
    }

    /// How many lanes are owned, and by how many relays.
    pub(super) async fn owners(&self) -> (i64, i64) {
        let mut stranger = self.database.stranger().await;
        let owned = stranger.number("SELECT COUNT(*) FROM lanes WHERE owner IS NOT NULL").await;
        (owned, stranger.number("SELECT COUNT(DISTINCT owner) FROM lanes").await)
    }
}

/// The lane that holds `key`: by its last byte, so that tests can choose.
pub(super) fn lane_of(key: &str) -> u32 {
    u32::from(*key.as_bytes().last().unwrap()) % LANES
}

impl Running {
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.relay.await.unwrap();
        self.listening.abort();
    }

    /// Ends it in the middle of whatever it does.
    pub(super) async fn kill(self) {
        self.relay.abort();
        self.listening.abort();
        assert!(self.relay.await.unwrap_err().is_cancelled());
    }
}

/// Polls until `holds`.
pub(super) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = clock::now() + PATIENCE;
    while !holds().await {
        assert!(clock::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
