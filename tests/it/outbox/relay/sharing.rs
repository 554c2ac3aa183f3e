//! Several relays on one outbox: shares, hand-over, death, and wake-ups between processes.

use std::collections::HashSet;
use std::time::Duration;

use oncegate::clock;
use oncegate::outbox::relay::RelayOptions;
use sqlx::postgres::PgListener;

use super::broker::Manner;
use super::ground::{Ground, LANES, eventually, unpolled};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    two_relays_share_the_lanes_and_a_stop_hands_them_over_at_once,
    what_a_dead_relay_had_in_hand_comes_again_with_the_same_ids,
    a_relay_that_stops_awaits_what_is_under_way,
    a_stop_gives_up_after_its_drain_time,
);

const LONG: Duration = Duration::from_secs(3600);

/// Nobody's lease ends while the test runs; balancing is quick.
fn patient() -> RelayOptions {
    RelayOptions { lease: LONG, renew: Duration::from_millis(50), ..unpolled() }
}

async fn two_relays_share_the_lanes_and_a_stop_hands_them_over_at_once(kind: Kind) {
    let ground = Ground::new(kind).await;
    let one = ground.relay(patient());
    eventually("the first holds all", async || ground.owners().await == (i64::from(LANES), 1)).await;
    let other = ground.relay(patient());
    let are_shared = async || {
        let mut stranger = ground.database.stranger().await;
        let least = "SELECT MIN(n) FROM (SELECT COUNT(*) AS n FROM lanes WHERE owner IS NOT NULL GROUP BY owner) AS c";
        ground.owners().await == (i64::from(LANES), 2) && stranger.number(least).await == i64::from(LANES / 2)
    };
    eventually("they are shared", are_shared).await;
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for _ in 0..10 {
        ground.commit(&keys).await;
        one.wake.committed();
        other.wake.committed();
    }
    one.stop().await;
    eventually("the other holds all", async || ground.owners().await == (i64::from(LANES), 1)).await;
    ground.all_sent().await;
    ground.broker.assert_ordered();
    assert_eq!(ground.broker.received().len(), 80, "nobody died, so nothing came twice");
    other.stop().await;
    assert_eq!(ground.owners().await.0, 0);
}

async fn what_a_dead_relay_had_in_hand_comes_again_with_the_same_ids(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.broker.treats("silent", Manner::Silent);
    let lease = Duration::from_millis(800);
    let short =
        || RelayOptions { lease, renew: Duration::from_millis(100), poll: Duration::from_millis(100), ..unpolled() };
    let dying = ground.relay(short());
    ground.commit(&["silent", "silent", "silent"]).await;
    dying.wake.committed();
    eventually("the broker has them", async || ground.broker.count("silent") == 3).await;
    let died = clock::now();
    dying.kill().await;
    ground.broker.let_go();
    let heir = ground.relay(short());
    ground.all_sent().await;
    println!("{kind:?}: sent {:?} after a death, by a lease of {lease:?}", died.elapsed());
    let received = ground.broker.received();
    let ids = |part: &[super::broker::Received]| part.iter().map(|one| one.id.clone()).collect::<HashSet<_>>();
    assert_eq!(received.len(), 6);
    assert_eq!(ids(&received[..3]), ids(&received[3..]));
    assert!(received[3..].is_sorted_by_key(|one| one.sequence));
    assert!(received[3].epoch > received[0].epoch, "a consumer can tell the late one");
    assert_eq!(ground.count("attempts = 2 AND deaths = 1").await, 3);
    heir.stop().await;
}

async fn a_relay_that_stops_awaits_what_is_under_way(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.broker.treats("silent", Manner::Silent);
    let relay = ground.relay(patient());
    ground.commit(&["silent"]).await;
    relay.wake.committed();
    eventually("the broker has it", async || ground.broker.count("silent") == 1).await;
    let stopping = tokio::spawn(relay.stop());
    eventually("idle lanes are released first", async || ground.owners().await.0 == 1).await;
    ground.broker.let_go();
    stopping.await.unwrap();
    assert_eq!((ground.count("state = 5").await, ground.owners().await.0), (1, 0));
}

async fn a_stop_gives_up_after_its_drain_time(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.broker.treats("silent", Manner::Silent);
    let relay = ground.relay(RelayOptions { drain: Duration::from_millis(50), ..patient() });
    ground.commit(&["silent"]).await;
    relay.wake.committed();
    eventually("the broker has it", async || ground.broker.count("silent") == 1).await;
    relay.stop().await;
    assert_eq!((ground.count("state = 1 AND attempts = 0 AND epoch IS NULL").await, ground.owners().await.0), (1, 0));
}

/// Two processes; polling is an hour away, so only a notification can tell the one of the other's commit.
#[tokio::test]
async fn a_commit_here_wakes_the_relay_there() {
    let ground = Ground::new(Kind::Postgres).await;
    let one = ground.relay(patient());
    let other = ground.relay(patient());
    eventually("they are shared", async || ground.owners().await == (i64::from(LANES), 2)).await;
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for _ in 0..5 {
        ground.commit(&keys).await;
        one.wake.committed();
        ground.all_sent().await;
    }
    one.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_storm_of_commits_is_told_to_others_a_few_times() {
    let ground = Ground::new(Kind::Postgres).await;
    let one = ground.relay(patient());
    let other = ground.relay(patient());
    eventually("they are shared", async || ground.owners().await == (i64::from(LANES), 2)).await;
    let mut heard = PgListener::connect(&ground.database.url).await.unwrap();
    heard.listen("oncegate_outbox").await.unwrap();
    let begun = clock::now();
    while begun.elapsed() < Duration::from_millis(300) {
        one.wake.committed();
        tokio::task::yield_now().await;
    }
    let most = begun.elapsed().as_millis() / 20 + 2;
    // Told before the last one, or with it.
    ground.commit(&["a"; 8]).await;
    let mut count = 0;
    while let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(300), heard.recv()).await {
        count += 1;
    }
    assert!((1..=most).contains(&count), "{count} notifications");
    one.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn whoever_holds_all_lanes_tells_nobody() {
    let ground = Ground::new(Kind::Postgres).await;
    let one = ground.relay(patient());
    eventually("it holds all", async || ground.owners().await == (i64::from(LANES), 1)).await;
    // What it knows of the lanes follows its renewal: a sent event comes after both.
    ground.commit(&["a"]).await;
    one.wake.committed();
    ground.all_sent().await;
    let mut heard = PgListener::connect(&ground.database.url).await.unwrap();
    heard.listen("oncegate_outbox").await.unwrap();
    for _ in 0..100 {
        one.wake.committed();
    }
    ground.commit(&["a"]).await;
    one.wake.committed();
    ground.all_sent().await;
    let told = tokio::time::timeout(Duration::from_millis(200), heard.recv()).await;
    assert!(told.is_err(), "{told:?}");
    one.stop().await;
}
