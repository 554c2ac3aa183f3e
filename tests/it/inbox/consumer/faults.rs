//! Brokers and databases that fail.

use std::time::Duration;

use oncegate::inbox::{HandlerError, Inbox, Policy};
use oncegate::outbox::relay::Backoff;

use super::broker::Broker;
use super::{Ground, Points, batched, eventually, hasty};
use crate::inbox::Pool;
use crate::servers::database::{Database, Kind};
use crate::servers::postgres::Postgres;

#[tokio::test]
async fn an_ack_that_fails_brings_the_message_again_as_a_duplicate() {
    for policy in [hasty(), batched()] {
        let (ground, broker, points) = (Ground::new(Kind::Sqlite).await, Broker::default(), Points::willing());
        broker.fail_acks(3);
        broker.send([("a", ""), ("b", "")]);
        ground.consume_all(&broker, &points, policy).await;
        assert_eq!((ground.effects().await, points.calls().len()), (2, 2), "{policy:?}");
        assert_eq!(broker.acked().len(), 2);
    }
}

#[tokio::test]
async fn a_broker_that_is_away_is_asked_again() {
    let (ground, broker, points) = (Ground::new(Kind::Sqlite).await, Broker::default(), Points::willing());
    broker.fail_receptions(3);
    broker.send([("a", "")]);
    ground.consume_all(&broker, &points, hasty()).await;
    assert_eq!(ground.effects().await, 1);
}

#[tokio::test]
async fn duplicates_that_a_filter_knows_open_no_transaction() {
    for policy in [hasty(), batched()] {
        let ground = Ground::with(Kind::Sqlite, |setup| {
            setup.options(oncegate::inbox::Options { verify_one_in: 0, ..oncegate::inbox::Options::default() })
        })
        .await;
        let (broker, points) = (Broker::default(), Points::willing());
        broker.send([("a", ""), ("b", "")]);
        ground.consume_all(&broker, &points, policy).await;
        ground.pool.close().await;
        broker.send([("a", ""), ("b", ""), ("a", "")]);
        ground.consume_all(&broker, &points, policy).await;
        assert_eq!((broker.acked().len(), points.calls().len()), (5, 2), "{policy:?}");
    }
}

/// More failures than a message has attempts, and none of them is the message's.
#[tokio::test]
async fn what_the_handler_needs_and_does_not_have_costs_no_attempt() {
    let ground = Ground::new(Kind::Sqlite).await.with_dead_letters().await;
    let broker = Broker::default();
    let points =
        Points::new(
            |_, before| {
                if before < 20 { Err(HandlerError::Unavailable("by the test".to_owned())) } else { Ok(()) }
            },
        );
    broker.send([("a", "")]);
    ground.consume_all(&broker, &points, hasty()).await;
    assert_eq!((ground.effects().await, ground.dead_letters().await), (1, 0));
}

#[tokio::test]
async fn a_dead_letter_that_can_not_be_kept_is_not_acknowledged() {
    let ground = Ground::new(Kind::Sqlite).await.with_dead_letters().await;
    let broker = Broker::default();
    let points = Points::new(|_, _| Err(HandlerError::Reject("by the test".to_owned())));
    broker.send([("unburied late", "")]);
    let running = ground.consume(&broker, &points, hasty());
    eventually("it is rejected", async || !points.calls().is_empty()).await;
    // It waits for its table; nothing else is lost meanwhile.
    assert!(!broker.is_empty());
    ground.database.stranger().await.run("CREATE TABLE late (message VARCHAR(300))").await;
    eventually("it is kept", async || broker.is_empty()).await;
    running.end().await;
    assert_eq!((ground.dead_letters().await, ground.effects().await), (1, 0));
}

#[tokio::test]
async fn a_database_that_is_down_stops_everything_and_loses_nothing() {
    let mut server = Postgres::start(&[]);
    let database = Database::create_on(Kind::Postgres, &server.base_url).await;
    let inbox = Inbox::setup(&database.url).open("points").await.unwrap();
    let pool = Pool::open(&database, Duration::from_secs(1)).await;
    let tables = "CREATE TABLE effects (message VARCHAR(300) NOT NULL)";
    database.stranger().await.run(tables).await;
    let ground = Ground { database, pool, inbox }.with_dead_letters().await;
    for policy in [hasty(), batched()] {
        let (broker, points) = (Broker::default(), Points::willing());
        let run = rand::random::<u32>().to_string();
        let keys: Vec<String> = (0..20).map(|number| format!("{run}-{number}")).collect();
        server.crash();
        broker.send(keys.iter().map(|key| (&**key, "")));
        let running = ground.consume(&broker, &points, policy);
        server.recover();
        eventually("all is acknowledged", async || broker.is_empty()).await;
        running.end().await;
        let sql = format!("SELECT COUNT(*) FROM effects WHERE message LIKE '{run}%'");
        assert_eq!((ground.number(&sql).await, ground.dead_letters().await), (20, 0), "{policy:?}");
    }
}

/// Its member of the group is suspended for longer than the broker waits: another one handles the message.
#[tokio::test]
async fn two_consumers_that_get_the_same_messages_have_one_effect_each() {
    for kind in [Kind::Sqlite, Kind::Postgres, Kind::MySql] {
        let ground = Ground::new(kind).await;
        let other = Ground {
            database: ground.database.shared(),
            pool: ground.pool.clone(),
            inbox: ground.another(|setup| setup).await,
        };
        let keys: Vec<String> = (0..60).map(|number| number.to_string()).collect();
        let brokers = [Broker::default(), Broker::default()];
        let pause = Backoff { first: Duration::from_millis(1), max: Duration::from_millis(5) };
        let points = Points::willing();
        let running =
            [(&ground, hasty()), (&other, batched())].into_iter().zip(&brokers).map(|((ground, policy), broker)| {
                broker.send(keys.iter().map(|key| (&**key, "")));
                ground.consume(broker, &points, Policy { outage: pause, ..policy })
            });
        let running: Vec<_> = running.collect();
        eventually("all is acknowledged", async || brokers.iter().all(Broker::is_empty)).await;
        for running in running {
            running.end().await;
        }
        assert_eq!((ground.effects().await, ground.rows().await), (60, [60, 0]), "{kind:?}");
    }
}
