//! Each kind of queue, with a whole gateway.

use serde_json::json;

use super::eventually;
use super::handler::Behaviour::{Answers, Crashes, Works};
use super::queue::Broker;
use super::world::{World, paid};
use crate::servers::database::Kind;

/// Makes the tests below of each broker.
macro_rules! on_each_broker {
    ($($(#[$feature:meta])? $module:ident: $broker:expr;)*) => {
        $($(#[$feature])? mod $module {
            use super::*;
            #[tokio::test(flavor = "multi_thread")]
            async fn messages_are_delivered_and_what_is_refused_is_tried_again() {
                super::messages_are_delivered_and_what_is_refused_is_tried_again($broker).await;
            }
            #[tokio::test(flavor = "multi_thread")]
            async fn one_message_that_comes_a_thousand_times_has_one_effect() {
                super::one_message_that_comes_a_thousand_times_has_one_effect($broker).await;
            }
            #[tokio::test(flavor = "multi_thread")]
            async fn a_dead_letter_goes_to_a_topic_of_its_own() {
                super::a_dead_letter_goes_to_a_topic_of_its_own($broker).await;
            }
        })*
    };
}

on_each_broker! {
    embedded: Broker::Embedded;
    #[cfg(feature = "rabbitmq")] rabbitmq: Broker::Rabbitmq;
    #[cfg(feature = "kafka")] kafka: Broker::Kafka;
    #[cfg(feature = "nats")] nats: Broker::Nats;
    #[cfg(feature = "redis-streams")] redis_streams: Broker::Redis;
}

async fn messages_are_delivered_and_what_is_refused_is_tried_again(broker: Broker) {
    let mut world = World::with(Kind::Sqlite, broker, "on_unknown = 'forward'").await;
    world.handler.behave("A-3", [Answers("503 Service Unavailable"), Crashes, Works]);
    for number in 0..10 {
        world.pay(&format!("A-{number}")).await;
    }
    let deliveries = world.over(10).await;
    assert!(deliveries.iter().all(|delivery| delivery.result == "applied"), "{deliveries:?}");
    assert!((0..10).all(|number| world.handler.applied(&format!("A-{number}")) == 1));
    assert_eq!(world.handler.calls("A-3"), 3);
    // What was acknowledged does not come again.
    world.stop().await;
    world.start().await;
    world.pay("B").await;
    world.come_to("B", &["applied"]).await;
    assert_eq!((world.deliveries().await.len(), world.handler.upstream.count()), (11, 13));
}

async fn one_message_that_comes_a_thousand_times_has_one_effect(broker: Broker) {
    let world = World::with(Kind::Sqlite, broker, "").await;
    let id = [9; 16];
    world.queue.send_as(id, &paid("A-1")).await;
    for number in 0..999 {
        // As the queue's own redelivery, and as a producer that mints a fresh id each time it sends.
        if number % 2 == 0 { world.queue.send_as(id, &paid("A-1")).await } else { world.pay("A-1").await }
    }
    world.pay("last").await;
    world.come_to("last", &["applied"]).await;
    let all_over = async || world.results("A-1").await;
    let results = eventually("all are over", all_over, |results| results.iter().all(|result| result != "-")).await;
    assert_eq!(results.iter().filter(|result| *result == "applied").count(), 1, "{results:?}");
    assert!(results.iter().all(|result| ["applied", "duplicate"].contains(&&**result)), "{results:?}");
    assert_eq!((world.handler.calls("A-1"), world.handler.applied("A-1")), (1, 1));
}

async fn a_dead_letter_goes_to_a_topic_of_its_own(broker: Broker) {
    let world = World::with(Kind::Sqlite, broker, "dead_letter = '{topic}.dead'").await;
    world.handler.behave("A-1", [Answers("422 Unprocessable Content")]);
    world.pay("A-1").await;
    world.come_to("A-1", &["rejected"]).await;
    let sent = async || {
        let topic = format!("{}.dead", world.queue.topic);
        let sql = format!("SELECT COUNT(*) FROM events WHERE queue = 'default' AND topic = '{topic}' AND state = 5");
        world.database.stranger().await.number(&sql).await
    };
    eventually("the queue has confirmed it", sent, |count| *count == 1).await;
    // The subscription goes on, and does not get it back.
    world.queue.send(&json!({ "order_no": "A-2", "amount": 1 })).await;
    world.come_to("A-2", &["applied"]).await;
    assert_eq!(world.deliveries().await.len(), 2);
}

/// Duplicates that the cache knows are acknowledged while the table can't be written at all.
#[cfg(feature = "redis-streams")]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_as_done_asks_no_database() {
    let world = World::with(Kind::Postgres, Broker::Redis, "").await;
    world.pay("A-1").await;
    world.come_to("A-1", &["applied"]).await;
    world.database.stranger().await.run("ALTER TABLE events RENAME TO hidden").await;
    for _ in 0..1000 {
        world.pay("A-1").await;
    }
    let redis = crate::servers::redis::single();
    let topic = world.queue.topic.clone();
    let groups = async || redis.cli(&["XINFO", "GROUPS", &topic]);
    let is_read = |told: &String| {
        let lines: Vec<&str> = told.lines().map(str::trim).collect();
        let value = |name| lines.windows(2).find(|pair| pair[0] == name).map(|pair| pair[1]);
        value("pending") == Some("0") && value("entries-read") == Some("1001")
    };
    eventually("all are acknowledged", groups, is_read).await;
    world.database.stranger().await.run("ALTER TABLE hidden RENAME TO events").await;
    assert_eq!((world.deliveries().await.len(), world.handler.calls("A-1")), (1, 1));
}
