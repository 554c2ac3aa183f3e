//! A queue, a gateway with one subscription, and its handler.

use std::sync::Arc;

use oncegate::config::Config;
use oncegate::outbox::desk::{Action, Desk as _, Filter, Mode, Of, Order, State, Which};
use oncegate::server::Server;
use serde_json::{Value, json};

use super::eventually;
use super::handler::Handler;
use super::queue::{Broker, Queue};
use crate::servers::database::{Database, Kind};
use crate::servers::outbox::{Delivered, delivered};

/// What a subscription says unless the test says otherwise.
const USUALLY: [&str; 3] = ["key = 'body:/order_no'", "backoff = { first = '100ms', max = '400ms' }", "lease = '2s'"];

/// The configuration of a gateway with one subscription, `points`. `{topic}` in `rest` is the queue's topic.
pub(super) fn document(queue: &Queue, handler: &str, rest: &str) -> String {
    let is_said = |setting: &str| rest.lines().any(|line| line.split(" =").next() == setting.split(" =").next());
    let usually: Vec<&str> = USUALLY.into_iter().filter(|setting| !is_said(setting)).collect();
    let (topic, usually, rest) = (&queue.topic, usually.join("\n"), rest.replace("{topic}", &queue.topic));
    format!(
        "secrets.fingerprint = ['env:SECRET']\n{}\n[[subscriptions]]\nname = 'points'\ntopic = '{topic}'\n\
         deliver = '{handler}'\n{usually}\n{rest}\n",
        queue.toml(),
    )
}

/// What a gateway finds in its environment.
pub(super) const ENV: [(&str, &str); 2] =
    [("SECRET", "a secret of at least thirty-two bytes"), ("QUEUE_PASSWORD", "guest")];

pub(super) struct World {
    pub(super) database: Database,
    pub(super) queue: Queue,
    pub(super) handler: Handler,
    /// What the gateway finds in its environment.
    pub(super) environment: Vec<(String, String)>,
    pub(super) document: String,
    server: Option<Server>,
}

impl World {
    /// With an embedded queue, on a database of this kind. `rest` is what the subscription says besides.
    pub(super) async fn on(kind: Kind, rest: &str) -> Self {
        Self::with(kind, Broker::Embedded, rest).await
    }

    pub(super) async fn with(kind: Kind, broker: Broker, rest: &str) -> Self {
        let database = Database::create(kind).await;
        let queue = Queue::create(broker, &database).await;
        Self::around(database, queue, rest).await
    }

    pub(super) async fn around(database: Database, queue: Queue, rest: &str) -> Self {
        let handler = Handler::start().await;
        let document = document(&queue, &handler.url(), rest);
        let environment = ENV.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let mut world = Self { database, queue, handler, environment, document, server: None };
        if !rest.contains("'env:") {
            world.start().await;
        }
        world
    }

    /// Replaces a part of the configuration, for the next start.
    #[track_caller]
    pub(super) fn change(&mut self, from: &str, to: &str) {
        assert!(self.document.contains(from), "{from} is not in {}", self.document);
        self.document = self.document.replace(from, to);
    }

    /// Starts a gateway, after it was stopped.
    pub(super) async fn start(&mut self) {
        self.server = Some(self.another().await);
    }

    /// One more gateway on the same database.
    pub(super) async fn another(&self) -> Server {
        let flags = [("store.url", &*self.database.url), ("server.listen", "127.0.0.1:0")];
        let flags = flags.map(|(path, value)| (path.to_owned(), value.to_owned()));
        let config = Config::parse("test.toml", &self.document, self.environment.clone(), flags).unwrap();
        Server::start(&config).await.unwrap()
    }

    /// Stops the gateway in good order.
    pub(super) async fn stop(&mut self) {
        self.server.take().unwrap().stop().await;
    }

    /// Publishes a payment of `order`.
    pub(super) async fn pay(&self, order: &str) {
        self.queue.send(&paid(order)).await;
    }

    /// The deliveries, in the order in which they were kept.
    pub(super) async fn deliveries(&self) -> Vec<Delivered> {
        delivered(&self.database, "sub:points").await
    }

    /// The results of the deliveries of `order`; `-` for none yet.
    pub(super) async fn results(&self, order: &str) -> Vec<String> {
        let deliveries = self.deliveries().await.into_iter();
        let of_order = deliveries.filter(|delivery| delivery.data.contains(&format!("\"{order}\"")));
        of_order.map(|delivery| delivery.result).collect()
    }

    /// Sends what is parked once more, and says how many that are.
    pub(super) async fn redrive(&self) -> usize {
        let filter = Filter {
            of: Of::Deliveries,
            queue: Some("sub:points".into()),
            states: vec![State::Parked],
            ..Filter::default()
        };
        let to = Which::All { filter, limit: 10 };
        let order = Order { action: Action::Retry, to, reason: "corrected".into(), mode: Mode::Carry };
        let desk = Arc::new(self.database.open());
        desk.act(&order).await.unwrap().changed.len()
    }

    /// Waits until the deliveries of `order` have come to these results.
    #[track_caller]
    pub(super) fn come_to<'a>(
        &'a self,
        order: &'a str,
        expected: &'a [&'a str],
    ) -> impl Future<Output = Vec<String>> + 'a {
        eventually("the deliveries are over", async || self.results(order).await, move |results| results == expected)
    }

    /// Waits until there are so many deliveries, all of them over.
    #[track_caller]
    pub(super) fn over(&self, count: usize) -> impl Future<Output = Vec<Delivered>> + '_ {
        let is_over = move |deliveries: &Vec<Delivered>| {
            deliveries.len() == count && deliveries.iter().all(|delivery| delivery.result != "-")
        };
        eventually("all deliveries are over", async || self.deliveries().await, is_over)
    }

    /// How many rows of the ledger are in `state`: 1 in progress, 2 unknown, 3 completed.
    pub(super) async fn entries(&self, state: u8) -> i64 {
        self.database.stranger().await.number(&format!("SELECT COUNT(*) FROM entries WHERE state = {state}")).await
    }
}

/// What a message says.
pub(super) fn paid(order: &str) -> Value {
    json!({ "order_no": order, "amount": 250, "state": "paid" })
}
