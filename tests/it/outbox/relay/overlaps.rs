//! Positions do not commit in order.

use super::ground::{Ground, eventually, unpolled};
use crate::servers::database::Kind;

/// Order is that of commits, whatever the positions: nothing is passed over, and nothing waits for a transaction that
/// may never end.
async fn events_whose_transactions_overlap_come_in_the_order_of_their_commits(kind: Kind) {
    let ground = Ground::new(kind).await;
    let relay = ground.relay(unpolled());
    let mut slow = ground.database.stranger().await;
    slow.run("START TRANSACTION").await;
    slow.run(&ground.insert("t", &["a"])).await;
    ground.commit(&["a", "a"]).await;
    relay.wake.committed();
    eventually("those that were committed are sent", async || ground.count("state = 5").await == 2).await;
    slow.run("COMMIT").await;
    ground.commit(&["a"]).await;
    relay.wake.committed();
    ground.all_sent().await;
    let sequences: Vec<i64> = ground.broker.received().iter().map(|received| received.sequence).collect();
    let mut sorted = sequences.clone();
    sorted.sort_unstable();
    let [late, one, two, last] = sorted[..] else { panic!("{sequences:?}: something came twice or never") };
    assert_eq!(sequences, [one, two, late, last], "the lowest position was committed last but one");
    relay.stop().await;
}

#[tokio::test]
async fn on_postgres_events_whose_transactions_overlap_come_in_the_order_of_their_commits() {
    events_whose_transactions_overlap_come_in_the_order_of_their_commits(Kind::Postgres).await;
}

#[tokio::test]
async fn on_mariadb_events_whose_transactions_overlap_come_in_the_order_of_their_commits() {
    events_whose_transactions_overlap_come_in_the_order_of_their_commits(Kind::MySql).await;
}
