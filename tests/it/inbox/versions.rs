//! Messages that carry the state of an entity.

use oncegate::inbox::{Error, Message};
use tokio::task::JoinSet;

use super::{Ground, message, told};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    an_older_version_never_follows_a_newer_one,
    what_is_cancelled_before_it_is_created_stays_cancelled,
    the_same_version_under_another_key_is_a_duplicate_or_a_conflict,
    a_gap_is_told,
    a_version_is_remembered_when_its_message_is_forgotten,
    versions_that_come_at_once_are_applied_in_growing_order,
);

fn state(key: &str, version: i64) -> Message {
    message(key).version("order-1", version).unwrap()
}

async fn an_older_version_never_follows_a_newer_one(kind: Kind) {
    let ground = Ground::new(kind).await;
    for (key, version, what) in [
        ("a", 1, "first"),
        ("c", 3, "first after 1"),
        ("b", 2, "stale behind 3"),
        ("b", 2, "stale behind 3"),
        ("c", 3, "duplicate"),
        ("d", 4, "first after 3"),
        ("z", i64::MIN, "stale behind 4"),
        ("e", i64::MAX, "first after 4"),
    ] {
        assert_eq!(ground.handle(&state(key, version)).await, what, "{key}");
    }
    assert_eq!(ground.handle(&message("x").version("order-2", 1).unwrap()).await, "first", "another entity");
    assert_eq!((ground.effects().await, ground.rows().await), (5, [5, 2]), "stale ones leave nothing");
}

async fn what_is_cancelled_before_it_is_created_stays_cancelled(kind: Kind) {
    let ground = Ground::new(kind).await;
    assert_eq!(ground.handle(&state("cancelled", 2)).await, "first");
    assert_eq!(ground.handle(&state("created", 1)).await, "stale behind 2");
    assert_eq!(ground.number("SELECT COUNT(*) FROM effects WHERE message = 'cancelled'").await, 1);
    assert_eq!(ground.effects().await, 1);
}

async fn the_same_version_under_another_key_is_a_duplicate_or_a_conflict(kind: Kind) {
    let ground = Ground::new(kind).await;
    assert_eq!(ground.handle(&state("a", 7).payload(b"paid")).await, "first");
    for (again, what) in [
        (state("b", 7).payload(b"paid"), "duplicate"),
        (state("b", 7).payload(b"failed"), "conflict"),
        (state("b", 7), "duplicate"),
        (state("b", 8).payload(b"failed"), "first after 7"),
        (state("a", 9).payload(b"paid"), "duplicate"),
    ] {
        assert_eq!(ground.handle(&again).await, what, "{again:?}");
    }
    assert_eq!((ground.effects().await, ground.rows().await), (2, [2, 1]));
}

async fn a_gap_is_told(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.handle(&state("a", 3)).await;
    // Who wants each version one after the other rolls back, and has the message come again.
    let mut tx = ground.pool.begin().await;
    assert_eq!(told(&tx.begin(&ground.inbox, &state("c", 5)).await.unwrap()), "first after 3");
    tx.roll_back().await;
    assert_eq!(ground.handle(&state("b", 4)).await, "first after 3");
    assert_eq!(ground.handle(&state("c", 5)).await, "first after 4");
}

/// A dead letter that is sent again when its record has long been removed.
async fn a_version_is_remembered_when_its_message_is_forgotten(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.handle(&state("a", 1)).await;
    ground.handle(&state("b", 2)).await;
    ground.database.stranger().await.run("DELETE FROM inbox").await;
    assert_eq!(ground.handle(&state("b", 2)).await, "duplicate");
    assert_eq!(ground.handle(&state("a", 1)).await, "stale behind 2");
    assert_eq!(ground.effects().await, 2);
}

/// Each transaction has to wait for the entity's row, and none may be told what another one rolls back or overtakes.
async fn versions_that_come_at_once_are_applied_in_growing_order(kind: Kind) {
    const VERSIONS: i64 = 24;
    let ground = std::sync::Arc::new(Ground::new(kind).await);
    ground.database.stranger().await.run("CREATE TABLE applied (version BIGINT NOT NULL)").await;
    let mut tasks = JoinSet::new();
    for version in 1..=VERSIONS {
        let ground = std::sync::Arc::clone(&ground);
        tasks.spawn(async move { apply(&ground, version).await });
    }
    tasks.join_all().await;
    let sql = format!("SELECT COUNT(*) FROM inbox_versions WHERE version = {VERSIONS}");
    assert_eq!(ground.number(&sql).await, 1);
    let [messages, _] = ground.rows().await;
    assert_eq!(ground.number("SELECT COUNT(*) FROM applied").await, messages);
    assert_eq!(ground.number("SELECT MAX(version) FROM applied").await, VERSIONS);
}

/// Handles the version until it is told what it is. Each that is the first must see all that was applied before it as
/// lower versions.
async fn apply(ground: &Ground, version: i64) {
    loop {
        let mut tx = ground.pool.begin().await;
        match tx.begin(&ground.inbox, &state(&version.to_string(), version)).await {
            Ok(begun) => {
                if told(&begun).starts_with("first") {
                    let newer = format!("SELECT COUNT(*) FROM applied WHERE version >= {version}");
                    assert_eq!(tx.number(&newer).await, 0);
                    tx.run(&format!("INSERT INTO applied VALUES ({version})")).await.unwrap();
                }
                return tx.commit(&ground.inbox, Vec::new()).await.unwrap();
            }
            Err(Error::Busy(_)) => tx.roll_back().await,
            Err(error) => panic!("{error}"),
        }
    }
}
