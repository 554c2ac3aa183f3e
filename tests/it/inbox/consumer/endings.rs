//! How messages end: applied, duplicate, stale, or given up and kept for a person.

use std::num::NonZeroU32;
use std::time::Duration;

use oncegate::inbox::{HandlerError, Policy};

use super::broker::Broker;
use super::{Ground, Points, batched, hasty};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    each_message_is_handled_once_and_acknowledged,
    a_thousand_redeliveries_of_a_message_have_one_effect,
    what_is_given_up_is_kept_with_its_reason_and_handled_when_it_is_sent_again,
);

async fn each_message_is_handled_once_and_acknowledged(kind: Kind) {
    for policy in [hasty(), batched()] {
        let (ground, broker, points) = (Ground::new(kind).await, Broker::default(), Points::willing());
        let keys: Vec<String> = (0..100).map(|number| (number % 50).to_string()).collect();
        broker.send(keys.iter().map(|key| (&**key, "")));
        ground.consume_all(&broker, &points, policy).await;
        assert_eq!((ground.effects().await, ground.rows().await), (50, [50, 0]), "{policy:?}");
        assert_eq!((broker.acked().len(), points.calls().len()), (100, 50), "{policy:?}");
        assert_eq!(broker.closed(), 1);
    }
}

async fn a_thousand_redeliveries_of_a_message_have_one_effect(kind: Kind) {
    for policy in [hasty(), batched()] {
        let (ground, broker, points) = (Ground::new(kind).await, Broker::default(), Points::willing());
        broker.send(std::iter::repeat_n(("1001", ""), 1_000));
        ground.consume_all(&broker, &points, policy).await;
        assert_eq!((ground.effects().await, points.calls().len()), (1, 1), "{policy:?}");
        assert_eq!(broker.acked().len(), 1_000);
    }
}

async fn what_is_given_up_is_kept_with_its_reason_and_handled_when_it_is_sent_again(kind: Kind) {
    let ground = Ground::new(kind).await.with_dead_letters().await;
    let points = Points::new(|received, before| match &*super::text(received) {
        "broken" if before < 3 => Err(HandlerError::Retry("no luck".to_owned())),
        "wrong" if before < 1 => Err(HandlerError::Reject("makes no sense".to_owned())),
        _ => Ok(()),
    });
    for policy in [hasty(), batched()] {
        let broker = Broker::default();
        broker.send([("broken", ""), ("good", ""), ("wrong", ""), (" ", ""), ("good=1", ""), ("also good", "")]);
        ground.consume_all(&broker, &points, policy).await;
        assert_eq!(broker.acked().len(), 6, "{policy:?}");
    }
    for dead in ["broken: tried 3 times; at last: no luck (3)", "wrong: rejected: makes no sense (1)"] {
        assert_eq!(ground.dead_like(dead).await, 1, "{dead}: sent again, it was handled");
    }
    assert_eq!(ground.dead_like(" : the message%key can_t be one: the key is empty (0)").await, 2);
    assert_eq!(ground.dead_letters().await, 4);
    assert_eq!(ground.effects().await, 4, "each of the others once");
    assert_eq!(ground.number("SELECT COUNT(DISTINCT message) FROM effects").await, 4);
}

#[tokio::test]
async fn a_conflict_is_given_up_and_its_neighbours_are_not() {
    for policy in [hasty(), batched()] {
        let ground = Ground::new(Kind::Sqlite).await.with_dead_letters().await;
        let (broker, points) = (Broker::default(), Points::willing());
        broker.send([("a=1", ""), ("a=2", ""), ("b=1", ""), ("a=1", ""), ("a=3", "")]);
        ground.consume_all(&broker, &points, policy).await;
        assert_eq!((ground.effects().await, ground.dead_letters().await), (2, 2), "{policy:?}");
        assert_eq!(ground.dead_like("a=_: another message of the same key said something else (1)").await, 2);
    }
}

#[tokio::test]
async fn a_stale_message_is_acknowledged_and_has_no_effect() {
    for policy in [hasty(), batched()] {
        let (ground, broker, points) = (Ground::new(Kind::Sqlite).await, Broker::default(), Points::willing());
        broker.send([("cancelled@2", "order-1"), ("created@1", "order-1"), ("created@1", "order-1")]);
        ground.consume_all(&broker, &points, policy).await;
        assert_eq!(points.calls(), ["cancelled@2"], "{policy:?}");
        assert_eq!((ground.effects().await, broker.acked().len()), (1, 3));
    }
}

#[tokio::test]
async fn a_panic_is_a_failure_and_leaves_no_effect() {
    for policy in [hasty(), batched()] {
        let ground = Ground::new(Kind::Sqlite).await.with_dead_letters().await;
        let points = Points::new(|received, before| {
            assert!(before > 0 || super::text(received) != "clumsy", "the handler's own");
            assert!(super::text(received) != "hopeless", "the handler's own");
            Ok(())
        });
        let broker = Broker::default();
        broker.send([("clumsy", ""), ("hopeless", ""), ("unreadable", ""), ("good", "")]);
        ground.consume_all(&broker, &points, policy).await;
        assert_eq!((ground.effects().await, ground.dead_letters().await), (2, 2), "{policy:?}");
        assert_eq!(ground.dead_like("unreadable: the message can_t be read (0)").await, 1);
        assert_eq!(ground.dead_like("hopeless: tried 3 times; at last: %panicked (3)").await, 1);
    }
}

/// Its statements go on failing, and the COMMIT would succeed and roll back.
#[tokio::test]
async fn a_handler_that_swallows_an_error_of_postgres_has_not_handled_the_message() {
    for policy in [hasty(), batched()] {
        let ground = Ground::new(Kind::Postgres).await.with_dead_letters().await;
        let (broker, points) = (Broker::default(), Points::willing());
        broker.send([("swallows", ""), ("good", "")]);
        let running = ground.consume(&broker, &points, policy);
        let tries = || points.calls().iter().filter(|call| *call == "swallows").count();
        super::eventually("it is tried again", async || broker.is_empty()).await;
        running.end().await;
        assert!(tries() >= 2, "{policy:?}");
        assert_eq!(ground.number("SELECT COUNT(*) FROM effects WHERE message = 'swallows'").await, 1);
    }
}

#[tokio::test]
async fn a_handler_that_hangs_is_rolled_back_and_tried_again() {
    for (kind, policy) in [(Kind::Postgres, hasty()), (Kind::MySql, batched()), (Kind::Sqlite, batched())] {
        let ground = Ground::new(kind).await.with_dead_letters().await;
        let (broker, points) = (Broker::default(), Points::willing());
        broker.send([("hangs", ""), ("good", "")]);
        let policy = Policy { timeout: Duration::from_secs(1), ..policy };
        ground.consume_all(&broker, &points, policy).await;
        assert_eq!((ground.effects().await, ground.dead_letters().await), (2, 0), "{policy:?}");
    }
}

/// The database commits although nobody waits for it any more: only a question can tell, since there is no next try.
#[tokio::test]
async fn a_commit_that_outlasts_the_last_try_is_found_and_not_given_up() {
    let ground = Ground::new(Kind::Postgres).await.with_dead_letters().await;
    let slowly =
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3); RETURN NULL; END';
                  CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
                  FOR EACH ROW WHEN (NEW.message = 'slow') EXECUTE FUNCTION slowly()";
    ground.database.stranger().await.run(slowly).await;
    let (broker, points) = (Broker::default(), Points::willing());
    broker.send([("slow", ""), ("good", "")]);
    let policy = Policy { timeout: Duration::from_secs(2), attempts: NonZeroU32::MIN, ..hasty() };
    ground.consume_all(&broker, &points, policy).await;
    assert_eq!((ground.effects().await, ground.dead_letters().await), (2, 0));
    assert_eq!(points.calls().iter().filter(|call| *call == "slow").count(), 1);
}

/// Nothing was committed: it is given up as any other one.
#[tokio::test]
async fn a_last_try_that_takes_too_long_and_commits_nothing_is_given_up() {
    let ground = Ground::new(Kind::Postgres).await.with_dead_letters().await;
    let (broker, points) = (Broker::default(), Points::willing());
    broker.send([("hangs", "")]);
    let policy = Policy { timeout: Duration::from_millis(500), attempts: NonZeroU32::MIN, ..hasty() };
    ground.consume_all(&broker, &points, policy).await;
    assert_eq!((ground.effects().await, ground.dead_letters().await), (0, 1));
    assert_eq!(ground.dead_like("hangs: tried 1 times; at last: it took too long (1)").await, 1);
}
