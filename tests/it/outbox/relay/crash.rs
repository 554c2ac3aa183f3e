//! A database that crashes: it has what was to be durable, and what it has forgotten comes again.

use std::time::Duration;

use oncegate::outbox::relay::RelayOptions;

use super::broker::Manner;
use super::ground::{Ground, LANES, eventually, unpolled};
use crate::servers::database::{Database, Kind};
use crate::servers::postgres::Postgres;

/// The server writes what nobody waits for only now and then: too seldom for this test.
const LAZY: [&str; 1] = ["wal_writer_delay=10s"];

/// The broker has events that the database does not know to have been taken up. It gets them again, in order, and only
/// then are they sent.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_crashed_database_has_forgotten_comes_again_in_order() {
    let mut server = tokio::task::block_in_place(|| Postgres::start(&LAZY));
    let ground = Ground::on(Database::create_on(Kind::Postgres, &server.base_url).await).await;
    ground.broker.treats("a", Manner::Silent);
    let relay = ground.relay(RelayOptions { poll: Duration::from_millis(200), ..unpolled() });
    eventually("it holds the lanes", async || ground.owners().await.0 == i64::from(LANES)).await;
    ground.commit(&["a", "a"]).await;
    relay.wake.committed();
    eventually("they are published", async || ground.broker.count("a") == 2).await;
    assert_eq!(ground.count("epoch IS NOT NULL AND attempts = 1").await, 2);
    server.crash();
    tokio::task::block_in_place(|| server.recover());
    // The relay may be there already.
    let in_hand = ground.count("epoch IS NOT NULL").await;
    println!("{in_hand} of 2 in hand");
    ground.commit(&["a", "a"]).await;
    ground.broker.let_go();
    relay.wake.committed();
    ground.all_sent().await;
    ground.broker.assert_ordered();
    let mut last: Vec<i64> = ground.broker.received().iter().rev().map(|received| received.sequence).collect();
    let mut seen = std::collections::HashSet::new();
    last.retain(|sequence| seen.insert(*sequence));
    assert!(last.iter().rev().is_sorted(), "whoever believes the last one is right: {last:?}");
    assert_eq!(ground.count("attempts = 1").await, 4, "what was forgotten was not counted");
    relay.stop().await;
}
