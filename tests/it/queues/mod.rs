//! Queues as a configuration names them: a gateway that publishes what lies in its outbox.

mod access;

use std::time::Duration;

use oncegate::clock;
use oncegate::config::{Config, Severity, check};
use oncegate::outbox::desk::Desk as _;
use oncegate::server::Server;

use crate::servers::database::{Database, Kind, fresh};

/// How long a test waits for what must come: longer than any client's time-out.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the queues' secrets are.
const SECRETS: [(&str, &str); 4] = [
    ("SECRET", "0123456789abcdef0123456789abcdef"),
    ("RIGHT", "p@ss:w/rd"),
    ("WRONG", "hunter2"),
    ("SIGNING", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
];

/// Asks until `done`, a little apart. Panics when patience ends.
async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = clock::now() + PATIENCE;
    while !done().await {
        assert!(clock::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An outbox with one event, and the gateway that is to publish it.
struct Outbox {
    database: Database,
    topic: String,
}

impl Outbox {
    async fn new() -> Self {
        let (database, store) = fresh(Kind::Sqlite).await;
        store.close().await;
        let outbox = Self { database, topic: format!("payments-{:08x}", rand::random::<u32>()) };
        outbox.commit("default").await;
        outbox
    }

    /// Commits an event, and tells nobody.
    async fn commit(&self, queue: &str) {
        let Self { database, topic } = self;
        let (id, entry) = (database.literal(&rand::random::<[u8; 16]>()), database.literal(&[9; 32]));
        let sql = format!(
            "INSERT INTO events (id, queue, lane, event_key, state, holds, attempts, created_at, changed_at, entry, \
             route, topic, type, source, content_type, data) VALUES ({id}, '{queue}', 0, 'order-1', 1, 1, 0, 1000, \
             1000, {entry}, 'create-payment', '{topic}', 'com.example.paid', '/payments', 'application/json', x'7b7d')"
        );
        database.stranger().await.run(&sql).await;
    }

    /// A gateway with `queue` as its default queue's settings.
    async fn gateway(&self, queue: &str) -> Server {
        self.try_gateway(queue).await.unwrap_or_else(|error| panic!("{error}\n{queue}"))
    }

    async fn try_gateway(&self, queue: &str) -> Result<Server, oncegate::server::ServeError> {
        let text = format!(
            "server.listen = '127.0.0.1:0'\nsecrets.fingerprint = ['env:SECRET']\nstore.url = '{}'\n[queue]\n{queue}",
            self.database.url
        );
        let env = SECRETS.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter();
        let env = env.chain(self.more_secrets());
        let config = Config::parse("test.toml", &text, env, []).unwrap();
        let errors = check(&config).into_iter().filter(|finding| finding.severity == Severity::Error);
        assert_eq!(errors.collect::<Vec<_>>(), [], "{queue}");
        Server::start(&config).await
    }

    fn more_secrets(&self) -> impl Iterator<Item = (String, String)> {
        access::seed().into_iter().map(|seed| ("SEED".to_owned(), seed))
    }

    async fn is_sent(&self) -> bool {
        self.count("state = 5").await == 1
    }

    /// With `queue`, the broker confirms the event.
    async fn arrives(&self, queue: &str) {
        let gateway = self.gateway(queue).await;
        eventually(queue, async || self.is_sent().await).await;
        gateway.stop().await;
    }

    /// With `queue`, the broker takes nothing, people are told a reason with one of `reasons` in it and no secret, and
    /// the event does not count an attempt.
    async fn is_told(&self, queue: &str, reasons: &[&str]) {
        let gateway = self.gateway(queue).await;
        let deadline = clock::now() + PATIENCE;
        let told = loop {
            if let Some(told) = self.told().await {
                break told;
            }
            assert!(clock::now() < deadline && !self.is_sent().await, "nothing is told\n{queue}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(reasons.iter().any(|reason| told.contains(reason)), "{told}\n{queue}");
        assert!(SECRETS.iter().all(|(_, secret)| !told.contains(secret)), "{told}");
        gateway.stop().await;
        assert_eq!(self.count("state = 1 AND attempts = 0").await, 1, "{told}");
    }

    async fn count(&self, which: &str) -> i64 {
        self.database.stranger().await.number(&format!("SELECT COUNT(*) FROM events WHERE {which}")).await
    }

    async fn told(&self) -> Option<String> {
        let store = self.database.open();
        let relays = store.relays().await.unwrap();
        store.close().await;
        relays.into_iter().find_map(|seen| seen.trouble).map(|(reason, _)| reason.into())
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg(feature = "rabbitmq")]
async fn a_queue_that_is_down_holds_no_other_one_up() {
    let outbox = Outbox::new().await;
    outbox.commit("audit").await;
    let gateway = outbox.gateway("url = 'amqp://127.0.0.1:1'\n[[queues]]\nname = 'audit'\n").await;
    eventually("it is told", async || outbox.told().await.is_some()).await;
    eventually("the other one is sent", async || outbox.count("queue = 'audit' AND state = 5").await == 1).await;
    // And what is committed now, by somebody who tells nobody.
    outbox.commit("audit").await;
    eventually("it is found", async || outbox.count("queue = 'audit' AND state = 5").await == 2).await;
    gateway.stop().await;
    assert_eq!(outbox.count("queue = 'default' AND state = 1 AND attempts = 0").await, 1);
}
