//! A database that fails over: connections that lead nowhere, and commits that are lost.

use std::sync::Arc;

use oncegate::broker::Ordering;
use oncegate::clock;
use oncegate::outbox::relay::RelayOptions;
use oncegate::storage::{Store, StoreOptions};

use super::broker::{Line, Manner};
use super::ground::{Ground, LANES, eventually};
use crate::servers::database::{Kind, on_each_database};
use crate::servers::wire::{Mode, Wire};

on_each_database!(what_has_the_place_of_an_event_that_was_lost_is_published_too);

/// The primary is gone without a word, and its name leads to another one: nothing comes back over the connections that
/// there are, and those that are opened now work.
async fn connections_that_lead_nowhere_are_given_up(kind: Kind) {
    let ground = Ground::new(kind).await;
    let port = ground.database.url.rsplit_once(':').unwrap().1.split('/').next().unwrap();
    let wire = Wire::to(port.parse().unwrap()).await;
    let url = ground.database.url.replace(&format!(":{port}/"), &format!(":{}/", wire.port));
    let store = Arc::new(Store::open(&StoreOptions::new(url)).unwrap());
    let relay = ground.relay_on(store, Line::to(&ground.broker, Ordering::ByCall), RelayOptions::default());
    eventually("it holds the lanes", async || ground.owners().await.0 == i64::from(LANES)).await;
    let keys = ["a", "b", "c"].repeat(10);
    ground.commit(&keys).await;
    ground.all_sent().await;
    wire.set(Mode::Dead);
    wire.set_next(Mode::Whole);
    let begun = clock::now();
    ground.commit(&keys).await;
    ground.all_sent().await;
    println!("{kind:?}: sent {:?} after the connections went dead", begun.elapsed());
    ground.broker.assert_ordered();
    assert_eq!(ground.count("attempts = 1").await, 60);
    relay.stop().await;
}

#[tokio::test]
async fn connections_to_postgres_that_lead_nowhere_are_given_up() {
    connections_that_lead_nowhere_are_given_up(Kind::Postgres).await;
}

#[tokio::test]
async fn connections_to_mariadb_that_lead_nowhere_are_given_up() {
    connections_that_lead_nowhere_are_given_up(Kind::MySql).await;
}

/// The broker has it, and the database that is the primary now never had: another event has its position.
async fn what_has_the_place_of_an_event_that_was_lost_is_published_too(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.broker.treats("a", Manner::Silent);
    let relay = ground.relay(RelayOptions::default());
    ground.commit(&["a"]).await;
    relay.wake.committed();
    eventually("it is published", async || ground.broker.count("a") == 1).await;
    let mut stranger = ground.database.stranger().await;
    let lost = stranger.number("SELECT MAX(position) FROM events").await;
    stranger.run("DELETE FROM events").await;
    ground.commit_at(lost, "a").await;
    ground.commit(&["b"]).await;
    relay.wake.committed();
    eventually("the relay has looked", async || ground.count("event_key = 'b' AND state = 5").await == 1).await;
    ground.broker.let_go();
    ground.all_sent().await;
    let received: Vec<_> = ground.broker.received().into_iter().filter(|received| received.key == "a").collect();
    assert_eq!(received.len(), 2);
    assert_ne!(received[0].id, received[1].id);
    assert_eq!((received[0].sequence, received[1].sequence), (lost, lost));
    // What its own consumers make of the first one is theirs; here nothing stands in anybody's way.
    ground.commit(&["a", "b"]).await;
    relay.wake.committed();
    ground.all_sent().await;
    relay.stop().await;
}
