//! What was published, compared with what was received, on each database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oncegate::broker::embedded::Embedded;
use oncegate::broker::{CONFIRMED, Publisher as _};
use oncegate::entry::fingerprint::{self, Secrets};
use oncegate::entry::source::Said;
use oncegate::entry::{Identity, Key, Namespace, Scope};
use oncegate::inbox::reconcile::{Place, Question, Report, reconcile};
use oncegate::inbox::rules::Rules;
use oncegate::inbox::store::{Deposits as _, NewDelivery, queue_of};
use oncegate::outbox::event::{EventId, Outgoing};
use oncegate::outbox::store::Outbox as _;
use oncegate::storage::Store;

use super::{SUBSCRIPTION, delivery};
use crate::servers::database::{Database, Kind, fresh, on_each_database};

on_each_database!(
    what_was_published_and_not_received_is_named,
    what_was_sent_and_is_not_in_its_queue_is_named,
    elsewhere_the_outbox_tells_what_was_published,
    each_result_is_counted,
    what_was_passed_over_as_done_is_a_duplicate_and_not_missing,
    a_key_that_the_data_does_not_tell_is_compared_as_well,
    only_the_time_that_is_asked_for_counts,
);

const SENT: i64 = 5;
const PARKED: i64 = 4;

struct Ground {
    database: Database,
    store: Arc<Store>,
}

impl Ground {
    async fn new(kind: Kind) -> Self {
        let (database, store) = fresh(kind).await;
        store.open(&queue_of(SUBSCRIPTION), 1).await.unwrap();
        Self { database, store: Arc::new(store) }
    }

    /// Puts `message` into the embedded queue, as the relay does, and an event in `state` into the outbox.
    async fn publish(&self, message: &NewDelivery, state: i64) -> String {
        let outgoing = self.event(message, state).await;
        let id = outgoing.event.id.to_string();
        if state == SENT {
            let publisher = Embedded::new("default", self.store.clone());
            assert_eq!(publisher.publish(outgoing).await, CONFIRMED);
            publisher.close().await;
        }
        id
    }

    /// An event in the outbox, in `state`.
    async fn event(&self, message: &NewDelivery, state: i64) -> Outgoing {
        let mut event = message.event.event.clone();
        event.id = EventId(rand::random());
        event.queue = "default".into();
        event.attributes.clear();
        let new = NewDelivery {
            event: oncegate::outbox::event::NewEvent { event: event.clone(), ..message.event.clone() },
            ..message.clone()
        };
        self.store.deposit(&[new], None).await.unwrap();
        let id = self.database.literal(&event.id.0);
        self.run(&format!("UPDATE events SET state = {state} WHERE id = {id}")).await;
        let now = oncegate::clock::Timestamp(1_772_368_496_789);
        Outgoing { event, sequence: 1, epoch: 1, time: now, attempts: 1, tried: false, redrives: 0 }
    }

    /// The subscription has received the message with this id, and it stands so.
    async fn receive(&self, message: &NewDelivery, id: &str, state: i64, result: Option<&str>) -> EventId {
        let event = &message.event.event;
        let mut received = message.clone();
        received.event.event.id = EventId::of_delivery(SUBSCRIPTION, &event.source, id, &event.data);
        let id = received.event.event.id;
        self.store.deposit(&[received], None).await.unwrap();
        let (literal, result) =
            (self.database.literal(&id.0), result.map_or("NULL".to_owned(), |word| format!("'{word}'")));
        self.run(&format!("UPDATE events SET state = {state}, result = {result} WHERE id = {literal}")).await;
        id
    }

    /// The message with this data and key has been handled.
    async fn complete(&self, question: &Question, data: &bytes::Bytes, key: &str) {
        let said = Said { id: None, attributes: &BTreeMap::new(), data };
        let understood = question.rules[SUBSCRIPTION].understand(&said, "application/json", data).unwrap();
        let meant = question.secrets.as_ref().unwrap().fingerprint(&understood.meaning).encode();
        let namespace = Namespace::from_stored(&queue_of(SUBSCRIPTION));
        let identity = Identity { namespace, scope: Scope::Global, key: Key::from_business(key).unwrap() };
        let literal = |bytes: &[u8]| self.database.literal(bytes);
        let (id, nonce, meant) = (literal(&identity.id().0), literal(&[1; 16]), literal(&meant));
        self.run(&format!(
            "INSERT INTO entries (id, namespace, scope, idempotency_key, route, state, nonce, origin, attempt, instance, \
             fingerprint, status, lookups, created_at, started_at, changed_at, due_at) VALUES ({id}, 'sub:award-points', \
             'global', '{key}', 'sub:award-points', 3, {nonce}, {nonce}, 1, {nonce}, {meant}, 200, 0, 1, 1, 1, 1)"
        ))
        .await;
    }

    async fn run(&self, sql: &str) {
        self.database.stranger().await.run(sql).await;
    }

    async fn report(&self, question: &Question) -> Report {
        reconcile(&*self.store, question).await.unwrap()
    }
}

fn question(place: Place) -> Question {
    Question {
        queue: "default".into(),
        place,
        topic: "payments".into(),
        subscriptions: vec![SUBSCRIPTION.into()],
        since: Duration::from_secs(3600),
        until: Duration::ZERO,
        rules: BTreeMap::new(),
        secrets: None,
    }
}

/// A question that knows what makes two messages one.
fn knowing(key: &str) -> Question {
    let rules = Rules {
        key: serde_json::from_str(key).unwrap(),
        entity: None,
        version: None,
        fingerprint: fingerprint::Rules::default(),
    };
    let secrets = Secrets::new(vec![vec![7; 32]]).unwrap();
    Question { rules: [(SUBSCRIPTION.into(), rules)].into(), secrets: Some(secrets), ..question(Place::Queue) }
}

fn message(n: usize) -> NewDelivery {
    delivery("unused", "order-7", format!("{{\"n\": {n}}}").as_bytes())
}

async fn what_was_published_and_not_received_is_named(kind: Kind) {
    let ground = Ground::new(kind).await;
    let mut missing = Vec::new();
    for n in 0..300 {
        let id = ground.publish(&message(n), SENT).await;
        if n % 100 == 7 {
            missing.push(Box::from(id));
        } else {
            ground.receive(&message(n), &id, SENT, Some("applied")).await;
        }
    }
    ground.run("UPDATE events SET created_at = created_at - 10").await;
    ground.run("UPDATE messages SET created_at = created_at - 10").await;
    let report = ground.report(&question(Place::Queue)).await;
    assert_eq!((report.messages, report.lost.count, report.events["sent"]), (Some(300), 0, 300));
    let received = &report.subscriptions[0];
    assert_eq!((received.expected, received.results["applied"]), (300, 297));
    assert_eq!((received.missing.count, &received.missing.first), (3, &missing));
    assert!(!report.is_whole());
}

async fn what_was_sent_and_is_not_in_its_queue_is_named(kind: Kind) {
    let ground = Ground::new(kind).await;
    let id = ground.publish(&message(1), SENT).await;
    ground.receive(&message(1), &id, SENT, Some("applied")).await;
    let lost = ground.event(&message(2), SENT).await.event.id.to_string();
    ground.publish(&message(3), PARKED).await;
    ground.publish(&message(4), 1).await;
    ground.run("UPDATE events SET created_at = created_at - 10").await;
    let report = ground.report(&question(Place::Queue)).await;
    assert_eq!(report.lost.first, [Box::from(lost)]);
    assert_eq!(
        report.events.iter().map(|(state, count)| (*state, *count)).collect::<Vec<_>>(),
        [("parked", 1), ("ready", 1), ("sent", 2)]
    );
    assert!(!report.is_whole());
}

async fn elsewhere_the_outbox_tells_what_was_published(kind: Kind) {
    let ground = Ground::new(kind).await;
    let id = ground.event(&message(1), SENT).await.event.id.to_string();
    ground.receive(&message(1), &id, SENT, Some("applied")).await;
    ground.event(&message(2), PARKED).await;
    ground.run("UPDATE events SET created_at = created_at - 10").await;
    let report = ground.report(&question(Place::Outbox)).await;
    assert_eq!((report.messages, report.subscriptions[0].expected), (None, 1), "what is parked is not to be expected");
    assert!(report.is_whole());
    let id = ground.event(&message(3), SENT).await.event.id.to_string();
    ground.run("UPDATE events SET created_at = created_at - 10").await;
    assert_eq!(ground.report(&question(Place::Outbox)).await.subscriptions[0].missing.first, [Box::from(id)]);
}

async fn each_result_is_counted(kind: Kind) {
    let ground = Ground::new(kind).await;
    let fates = [
        (SENT, Some("applied")),
        (SENT, Some("stale")),
        (PARKED, Some("conflict")),
        (PARKED, Some("rejected")),
        (2, None),
        (7, None),
        (3, None),
    ];
    let mut ids = Vec::new();
    for (n, (state, result)) in fates.into_iter().enumerate() {
        let id = ground.publish(&message(n), SENT).await;
        ids.push(ground.receive(&message(n), &id, state, result).await);
    }
    // One of the parked ones has a copy.
    let mut copy = message(2);
    copy.event.event.id = ids[2].dead_letter(0);
    ground.store.deposit(&[copy], None).await.unwrap();
    ground.run("UPDATE events SET created_at = created_at - 10").await;
    ground.run("UPDATE messages SET created_at = created_at - 10").await;
    let report = ground.report(&question(Place::Queue)).await;
    let received = &report.subscriptions[0];
    let results: Vec<_> = received.results.iter().map(|(word, count)| (&**word, *count)).collect();
    assert_eq!(
        results,
        [("applied", 1), ("conflict", 1), ("deferred", 2), ("rejected", 1), ("stale", 1), ("waiting", 1)]
    );
    assert_eq!((received.dead_letters, received.missing.count), (1, 0));
    assert!(report.is_whole());
}

async fn what_was_passed_over_as_done_is_a_duplicate_and_not_missing(kind: Kind) {
    let ground = Ground::new(kind).await;
    let question = knowing(r#"["body:/n"]"#);
    let id = ground.publish(&message(1), SENT).await;
    ground.receive(&message(1), &id, SENT, Some("applied")).await;
    // Once more with another id: nothing was kept of it, since its key was known as done.
    ground.publish(&message(1), SENT).await;
    ground.complete(&question, &message(1).event.event.data, "1").await;
    let other = delivery("unused", "order-7", br#"{"n": 1, "amount": 2}"#);
    let conflict = ground.publish(&other, SENT).await;
    let unknown = ground.publish(&message(2), SENT).await;
    ground.run("UPDATE messages SET created_at = created_at - 10").await;
    let report = ground.report(&question).await;
    let received = &report.subscriptions[0];
    assert_eq!((received.results["applied"], received.results["duplicate"]), (1, 1));
    assert_eq!(
        received.missing.first,
        [Box::from(conflict), Box::from(unknown)],
        "it says something else, or was never done"
    );
}

async fn a_key_that_the_data_does_not_tell_is_compared_as_well(kind: Kind) {
    let ground = Ground::new(kind).await;
    let question = knowing(r#"["attribute:subject"]"#);
    let mut ids = Vec::new();
    for key in ["A", "B"] {
        let message = delivery("unused", key, b"{}");
        let id = ground.publish(&message, SENT).await;
        let mut received = message.clone();
        let of_message = EventId::of_delivery(SUBSCRIPTION, "/payments", &id, b"{}");
        received.event.event.id = of_message.of_operation(&Key::from_business(key).unwrap());
        if key == "A" {
            ground.store.deposit(&[received], None).await.unwrap();
        }
        ids.push(Box::from(id));
    }
    ground.run("UPDATE messages SET created_at = created_at - 10").await;
    assert_eq!(ground.report(&question).await.subscriptions[0].missing.first, ids[1..]);
}

async fn only_the_time_that_is_asked_for_counts(kind: Kind) {
    let ground = Ground::new(kind).await;
    for n in 0..3 {
        ground.publish(&message(n), SENT).await;
    }
    ground.run("UPDATE messages SET topic = 'refunds' WHERE position = (SELECT p FROM (SELECT MIN(position) AS p FROM messages) AS m)").await;
    ground.run("UPDATE messages SET created_at = created_at - 7200000 WHERE position = (SELECT p FROM (SELECT MAX(position) AS p FROM messages) AS m)").await;
    let recent = Question { until: Duration::from_secs(60), ..question(Place::Queue) };
    assert_eq!(ground.report(&recent).await.messages, None, "all are younger, or older, or of another topic");
    ground.run("UPDATE messages SET created_at = created_at - 600000").await;
    assert_eq!(ground.report(&recent).await.messages, Some(1));
    let long = Question { since: Duration::from_secs(3 * 3600), ..recent };
    assert_eq!(ground.report(&long).await.messages, Some(2));
}
