//! Removing what was sent, beside what is being sent.

use std::time::Duration;

use oncegate::outbox::relay::{Duties, RelayOptions};

use super::ground::{Ground, LANES, QUEUE};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(cleaning_up_beside_traffic_disturbs_nobody);

/// What is removed by one transaction, so that there are many of them.
const BATCH: u32 = 50;

/// Two processes clean up at once, as all gateways do, while events are committed, taken up and concluded in the same
/// lanes. Nobody waits for long, and no two wait for each other.
async fn cleaning_up_beside_traffic_disturbs_nobody(kind: Kind) {
    let ground = Ground::new(kind).await;
    let relay = ground.relay(RelayOptions { keep_sent: Duration::ZERO, ..RelayOptions::default() });
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let (total, mut committed) = (3_000, 0);
    let committing = async {
        while committed < total {
            ground.commit(&keys.repeat(10)).await;
            relay.wake.committed();
            committed += 80;
        }
        ground.all_sent().await;
    };
    let lanes: Vec<u32> = (0..LANES).collect();
    let cleaning = async || {
        use oncegate::outbox::store::Outbox as _;
        loop {
            let removed = ground.store.reap(QUEUE, &lanes, BATCH).await;
            assert!(removed.is_ok(), "{kind:?}: {removed:?}");
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = committing => {}
        () = cleaning() => {}
        () = cleaning() => {}
    }
    let received = ground.broker.received().len();
    let duties = Duties::new(QUEUE, LANES, ground.store.clone());
    super::ground::eventually("all is removed", async || {
        duties.reap().await.unwrap();
        ground.count("1 = 1").await == 0
    })
    .await;
    assert_eq!(received, committed, "each came once");
    ground.broker.assert_ordered();
    relay.stop().await;
}
