//! Messages of one key are handled in order, and keys do not wait for each other.

use std::time::Duration;

use oncegate::inbox::{HandlerError, Policy};
use oncegate::outbox::relay::Backoff;

use super::broker::Broker;
use super::{Ground, Points, batched, eventually, hasty};
use crate::servers::database::Kind;

const LONG: Backoff = Backoff { first: Duration::from_secs(600), max: Duration::from_secs(600) };

fn failing(data: &'static str, times: u32) -> Points {
    Points::new(move |received, before| {
        let fails = super::text(received) == data && before < times;
        if fails { Err(HandlerError::Retry("by the test".to_owned())) } else { Ok(()) }
    })
}

#[tokio::test]
async fn a_key_that_fails_is_retried_in_its_place_and_the_others_go_on() {
    for policy in [hasty(), batched()] {
        let (ground, broker, points) = (Ground::new(Kind::Sqlite).await, Broker::default(), failing("a1", 2));
        broker.send([("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("b2", "b")]);
        ground.consume_all(&broker, &points, policy).await;
        let of = |key: &str| points.calls().into_iter().filter(|call| call.starts_with(key)).collect::<Vec<_>>();
        assert_eq!(of("a"), ["a1", "a1", "a1", "a2", "a3"], "{policy:?}");
        assert_eq!(of("b")[of("b").len() - 2..], ["b1", "b2"], "{policy:?}");
        assert_eq!(ground.effects().await, 5);
    }
}

#[tokio::test]
async fn while_a_key_waits_for_its_next_try_others_are_acknowledged_and_nothing_is_locked() {
    let policy = Policy { backoff: LONG, ..hasty() };
    let (ground, broker, points) = (Ground::new(Kind::Sqlite).await, Broker::default(), failing("a1", 1));
    broker.send([("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")]);
    let running = ground.consume(&broker, &points, policy);
    eventually("the others are done", async || broker.acked() == ["b1", "c1"] || broker.acked() == ["c1", "b1"]).await;
    let tried = async || points.calls().iter().filter(|call| call.starts_with('a')).count() == 1;
    eventually("the first of the key was tried, and the second was not", tried).await;
    // SQLite has one writer: an open transaction would keep this one out.
    let mut stranger = ground.database.stranger().await;
    stranger.run("PRAGMA busy_timeout = 0; BEGIN IMMEDIATE; ROLLBACK").await;
    assert_eq!(ground.rows().await, [2, 0]);

    // The pause is long; the end is not.
    tokio::time::timeout(super::super::PATIENCE, running.end()).await.unwrap();
    assert!(!broker.is_empty(), "what was not handled is not acknowledged");
    ground.consume_all(&broker, &points, hasty()).await;
    assert_eq!(ground.effects().await, 4);
    let calls = points.calls();
    let place = |data: &str| calls.iter().rposition(|call| call == data).unwrap();
    assert!(place("a1") < place("a2"), "{calls:?}");
}

#[tokio::test]
async fn a_message_that_is_given_up_lets_the_later_ones_of_its_key_go_on() {
    for policy in [hasty(), batched()] {
        let ground = Ground::new(Kind::Sqlite).await.with_dead_letters().await;
        let (broker, points) = (Broker::default(), failing("a1", u32::MAX));
        broker.send([("a1", "a"), ("a2", "a")]);
        ground.consume_all(&broker, &points, policy).await;
        assert_eq!((ground.effects().await, ground.dead_letters().await), (1, 1), "{policy:?}");
    }
}

/// What belongs together is one line, whatever the messages' own keys are.
#[tokio::test]
async fn the_order_is_the_entitys_then_the_producers() {
    let (ground, broker) = (Ground::new(Kind::Sqlite).await, Broker::default());
    let points = failing("x@1", 2);
    broker.send([("x@1", "order-1"), ("y@2", "order-1"), ("z@3", "order-1")]);
    ground.consume_all(&broker, &points, hasty()).await;
    assert_eq!(points.calls(), ["x@1", "x@1", "x@1", "y@2", "z@3"]);
}
