//! The embedded queue, on each database: a publisher like any other, and what is its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use oncegate::broker::embedded::{
    Behind, Embedded, EmbeddedSubscriber, EmbeddedSubscriberOptions, Messages as _, Stored, Trimmed,
};
use oncegate::broker::{CONFIRMED, PublishError, Published, Publisher, cloud_events};
use oncegate::inbox::store::{Cursor, Deposits as _};
use oncegate::outbox::event::Outgoing;
use oncegate::storage::Store;

use super::contract::{Broker, Received};
use super::event;
use crate::servers::database::{Database, Kind, fresh, on_each_database};

const QUEUE: &str = "default";

/// A database with its queue.
struct Ground {
    database: Database,
    store: Arc<Store>,
}

impl Ground {
    async fn new(kind: Kind) -> Self {
        let (database, store) = fresh(kind).await;
        Self { database, store: Arc::new(store) }
    }

    fn publisher(&self, queue: &str) -> Embedded {
        Embedded::new(queue, self.store.clone())
    }

    async fn tail(&self, queue: &str, topic: Option<&str>) -> Vec<Stored> {
        self.store.tail(queue, topic, 0, 10_000).await.unwrap()
    }
}

impl Broker for Ground {
    /// Bounded by the store's own time-outs.
    fn publisher(&self, _time_limit: Duration) -> Arc<dyn Publisher> {
        Arc::new(self.publisher(QUEUE))
    }

    async fn topic(&self) -> String {
        super::unique("topic")
    }

    async fn received(&self, topic: &str) -> Vec<Received> {
        let received = |stored: Stored| Received {
            attributes: serde_json::from_str(&stored.message.attributes).unwrap(),
            content_type: stored.message.content_type.into(),
            data: stored.message.data.to_vec(),
        };
        self.tail(QUEUE, Some(topic)).await.into_iter().map(received).collect()
    }

    async fn dead_end(&self) -> Option<String> {
        Some("t".repeat(256))
    }

    fn too_many_bytes(&self) -> Option<usize> {
        None
    }
}

/// The contract of publishers, on a database.
macro_rules! publishers_on {
    ($name:ident, $kind:ident) => {
        mod $name {
            use crate::broker::embedded::{Ground, Kind};

            async fn shared() -> Ground {
                Ground::new(Kind::$kind).await
            }
            crate::broker::contract::contract!(shared);
        }
    };
}
publishers_on!(publisher_on_sqlite, Sqlite);
publishers_on!(publisher_on_postgres, Postgres);
publishers_on!(publisher_on_mysql, MySql);

on_each_database!(
    a_message_is_kept_once_however_often_it_is_published,
    what_a_person_wants_to_be_published_again_is_there_again,
    what_is_not_taken_keeps_back_those_of_its_key,
    queues_and_topics_are_apart,
    what_a_subscription_has_not_taken_stays,
    old_messages_leave_in_bounded_batches,
    a_closed_publisher_takes_nothing,
    what_comes_later_is_committed_later,
);

fn ids(stored: &[Stored]) -> Vec<String> {
    stored.iter().map(|stored| stored.message.id.to_string()).collect()
}

async fn publish_all(publisher: &Embedded, events: &[Outgoing]) -> Vec<Published> {
    join_all(events.iter().map(|event| publisher.publish(event.clone()))).await
}

async fn a_message_is_kept_once_however_often_it_is_published(kind: Kind) {
    let ground = Ground::new(kind).await;
    let events: Vec<_> = (0..300).map(|n| event("payments", "a", n)).collect();
    let publisher = ground.publisher(QUEUE);
    let twice = [&events[..200], &events[100..], &events[..1]].concat();
    assert!(publish_all(&publisher, &twice).await.iter().all(Result::is_ok));
    let stored = ground.tail(QUEUE, None).await;
    let expected: Vec<_> = events.iter().map(|event| event.event.id.to_string()).collect();
    assert_eq!(ids(&stored), expected, "each once, in the order of the first calls");
    let attributes: serde_json::Value = serde_json::from_str(&stored[7].message.attributes).unwrap();
    for (name, value) in cloud_events::attributes(&events[7]) {
        assert_eq!(attributes[name], *value);
    }
    let after = ground.store.tail(QUEUE, Some("payments"), stored[9].position, 5).await.unwrap();
    assert_eq!(ids(&after), expected[10..15]);
}

/// A later one of a key must not be kept before an earlier one: published again, it would be passed over.
async fn what_a_person_wants_to_be_published_again_is_there_again(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (publisher, first) = (ground.publisher(QUEUE), event("payments", "a", 1));
    for (redrives, stored) in [(0, 1), (0, 1), (1, 2), (1, 2), (2, 3)] {
        assert_eq!(publisher.publish(Outgoing { redrives, ..first.clone() }).await, CONFIRMED);
        let received = ground.received("payments").await;
        assert_eq!(received, vec![Received::expected(&first); stored], "{redrives}: the same event");
    }
    let options = EmbeddedSubscriberOptions::new(QUEUE, "payments");
    let read = EmbeddedSubscriber::new(ground.store.clone(), options).look().await.unwrap();
    let ids: Vec<_> = read.iter().map(|received| received.id.as_deref()).collect();
    assert_eq!(ids, [Some(&*first.event.id.to_string()); 3]);
}

async fn what_is_not_taken_keeps_back_those_of_its_key(kind: Kind) {
    let ground = Ground::new(kind).await;
    let publisher = ground.publisher(QUEUE);
    let mut events: Vec<_> = (0..6).map(|n| event("payments", if n % 2 == 0 { "even" } else { "odd" }, n)).collect();
    events[2].event.topic = "t".repeat(256).into();
    let results = publish_all(&publisher, &events).await;
    assert!(matches!(results[2], Err(PublishError::Never(_))), "{results:?}");
    assert!(matches!(results[4], Err(PublishError::Refused(_))), "{results:?}");
    for taken in [0, 1, 3, 5] {
        assert_eq!(results[taken], CONFIRMED);
    }
    assert_eq!(ground.tail(QUEUE, None).await.len(), 4);
}

async fn queues_and_topics_are_apart(kind: Kind) {
    let ground = Ground::new(kind).await;
    let same = event("payments", "a", 1);
    let (one, other) = (ground.publisher("one"), ground.publisher("other"));
    for publisher in [&one, &other] {
        publisher.publish(same.clone()).await.unwrap();
    }
    one.publish(event("refunds", "a", 2)).await.unwrap();
    assert_eq!((ground.tail("one", None).await.len(), ground.tail("other", None).await.len()), (2, 1));
    assert_eq!(ids(&ground.tail("one", Some("payments")).await), [same.event.id.to_string()]);
}

async fn old_messages_leave_in_bounded_batches(kind: Kind) {
    let ground = Ground::new(kind).await;
    let events: Vec<_> = (0..5).map(|n| event("payments", "a", n)).collect();
    let publisher = ground.publisher(QUEUE);
    publish_all(&publisher, &events).await;
    ground.publisher("other").publish(event("payments", "a", 9)).await.unwrap();
    let trim = async |keep, limit| ground.store.trim(QUEUE, keep, limit).await.unwrap().removed;
    assert_eq!(trim(Duration::from_secs(3600), 10).await, 0);
    assert_eq!((trim(Duration::ZERO, 3).await, ground.tail(QUEUE, None).await.len()), (3, 2));
    assert_eq!(trim(Duration::ZERO, 3).await, 2);
    assert_eq!(ground.tail("other", None).await.len(), 1);
}

/// However old they are, and whoever else has.
async fn what_a_subscription_has_not_taken_stays(kind: Kind) {
    let ground = Ground::new(kind).await;
    let publisher = ground.publisher(QUEUE);
    let events: Vec<_> = (0..5).map(|n| event("payments", "a", n)).collect();
    publish_all(&publisher, &events).await;
    publish_all(&publisher, &[event("refunds", "a", 9), event("refunds", "a", 10)]).await;
    let stored = ground.tail(QUEUE, Some("payments")).await;
    let step = |consumer: &str, to: usize| Cursor {
        queue: QUEUE.into(),
        topic: "payments".into(),
        consumer: consumer.into(),
        from: 0,
        to: stored[to].position,
    };
    ground.store.deposit(&[], Some(&step("fast", 4))).await.unwrap();
    ground.store.enlist(QUEUE, "payments", "slow").await.unwrap();
    let trim = async || ground.store.trim(QUEUE, Duration::ZERO, 10).await.unwrap();
    let slow = Behind { topic: "payments".into(), consumer: "slow".into() };
    // Of other topics everything leaves, and of this one nothing: not even what was there before it was known.
    assert_eq!(trim().await, Trimmed { removed: 2, behind: vec![slow.clone()] });
    assert_eq!(ground.tail(QUEUE, None).await.len(), 5);
    ground.store.deposit(&[], Some(&step("slow", 2))).await.unwrap();
    ground.store.enlist(QUEUE, "payments", "slow").await.unwrap();
    assert_eq!(trim().await, Trimmed { removed: 3, behind: vec![slow.clone()] }, "it is known already");
    let young = ground.store.trim(QUEUE, Duration::from_secs(3600), 10).await.unwrap();
    assert_eq!(young, Trimmed::default(), "what is not old is in nobody's way");

    let standings = ground.store.standings().await.unwrap();
    let told: Vec<_> = standings.iter().map(|one| (&*one.id.consumer, one.position, one.left)).collect();
    assert_eq!(told, [("fast", stored[4].position, 0), ("slow", stored[2].position, 2)]);
    assert!(ground.store.forget_cursor(&standings[1].id).await.unwrap());
    assert!(!ground.store.forget_cursor(&standings[1].id).await.unwrap());
    assert_eq!(trim().await, Trimmed { removed: 2, behind: Vec::new() });
}

async fn a_closed_publisher_takes_nothing(kind: Kind) {
    let ground = Ground::new(kind).await;
    let publisher = ground.publisher(QUEUE);
    let large = Outgoing {
        event: oncegate::outbox::event::Envelope { data: Bytes::from(vec![1; 3 << 20]), ..event("t", "a", 1).event },
        ..event("t", "a", 1)
    };
    let under_way = [publisher.publish(large.clone()), publisher.publish(event("t", "b", 2))];
    publisher.close().await;
    assert!(join_all(under_way).await.iter().all(Result::is_ok), "what came before is taken");
    assert!(matches!(publisher.publish(event("t", "c", 3)).await, Err(PublishError::Unavailable(_))));
    assert_eq!(ground.tail(QUEUE, None).await.len(), 2);
}

/// Another process is in the middle of an append: it has its position, and has not committed it.
async fn what_comes_later_is_committed_later(kind: Kind) {
    let ground = Ground::new(kind).await;
    if kind == Kind::Sqlite {
        // One writer at a time: there is no middle.
        return;
    }
    let publisher = ground.publisher(QUEUE);
    assert_eq!(publisher.publish(event("payments", "a", 1)).await, CONFIRMED);
    let mut stranger = ground.database.stranger().await;
    stranger.run("START TRANSACTION").await;
    stranger.run(&format!("SELECT queue FROM message_queues WHERE queue = '{QUEUE}' FOR UPDATE")).await;
    let columns = "queue, id, topic, message_key, content_type, attributes, data, created_at";
    let values = format!("'{QUEUE}', 'slow', 'payments', 'b', 'text/plain', '{{}}', '', 0");
    stranger.run(&format!("INSERT INTO messages ({columns}) VALUES ({values})")).await;

    let mut later = publisher.publish(event("payments", "c", 2));
    let waited = tokio::time::timeout(Duration::from_millis(300), &mut later).await;
    assert!(waited.is_err(), "it passed the one before it: {waited:?}");
    assert_eq!(ground.tail(QUEUE, None).await.len(), 1);
    stranger.run("COMMIT").await;
    assert_eq!(later.await, CONFIRMED);
    let ids = ids(&ground.tail(QUEUE, None).await);
    assert_eq!((ids.len(), &*ids[1]), (3, "slow"));
    // Other queues do not wait for each other.
    stranger.run("START TRANSACTION").await;
    stranger.run(&format!("SELECT queue FROM message_queues WHERE queue = '{QUEUE}' FOR UPDATE")).await;
    assert_eq!(ground.publisher("other").publish(event("payments", "a", 3)).await, CONFIRMED);
    stranger.run("ROLLBACK").await;
}
