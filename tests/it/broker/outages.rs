//! What every publisher does when its broker fails: the second half of the contract.

use std::collections::BTreeSet;
use std::sync::Arc;

use oncegate::broker::Ordering;
use oncegate::clock;

use super::contract::{
    Breakable, SHORT, SLACK, assert_delivered, assert_unavailable, deliver, events, ids, publish_all, works_again,
};
use super::{event, eventually};

pub(super) async fn an_outage_is_told_in_time_and_over_when_the_broker_is_back(mut broker: impl Breakable) {
    let (publisher, topic) = (broker.publisher(SHORT), broker.topic().await);
    let first = events(&topic, 50, 3);
    deliver(&*publisher, &first).await;
    broker.kill().await;
    for _ in 0..3 {
        let start = clock::now();
        assert_unavailable(&publish_all(&*publisher, &events(&topic, 5, 2)).await);
        assert!(clock::now() - start < SHORT * 10 + SLACK, "{:?}", clock::now() - start);
    }
    broker.start_again().await;
    let second = events(&topic, 50, 3);
    deliver(&*publisher, &second).await;
    let both = [first, second].concat();
    let ids: BTreeSet<_> = ids(&both).into_iter().collect();
    // A broker that is just back may not hand out at once all that it has.
    eventually("all that was confirmed is there", async || {
        let received = broker.received(&topic).await;
        ids.is_subset(&received.iter().map(|event| event.id().to_owned()).collect())
    })
    .await;
}

pub(super) async fn a_broker_that_is_not_there_yet_is_found(mut broker: impl Breakable) {
    let topic = broker.topic().await;
    broker.kill().await;
    let publisher = broker.publisher(SHORT);
    assert_unavailable(&[publisher.publish(event(&topic, "early", 0)).await]);
    broker.start_again().await;
    works_again(&*publisher, &topic).await;
}

pub(super) async fn a_broker_that_says_nothing_hangs_nobody(broker: impl Breakable) {
    let (connected, fresh) = (broker.publisher(SHORT), broker.publisher(SHORT));
    let topic = broker.topic().await;
    works_again(&*connected, &topic).await;
    broker.pause().await;
    for publisher in [&connected, &fresh] {
        let start = clock::now();
        let number = if publisher.ordering() == Ordering::ByCall { 100 } else { 2 };
        assert_unavailable(&publish_all(&**publisher, &events(&topic, number, 7)).await);
        assert!(clock::now() - start < SHORT * 4 + SLACK, "{:?}", clock::now() - start);
    }
    broker.resume().await;
    for publisher in [&connected, &fresh] {
        works_again(&**publisher, &topic).await;
        publisher.close().await;
    }
}

pub(super) async fn a_crash_in_the_middle_of_a_batch_loses_nothing_and_keeps_the_order(mut broker: impl Breakable) {
    let (publisher, topic) = (broker.publisher(SHORT), broker.topic().await);
    let sent = events(&topic, 2_000, 10);
    let relay = tokio::spawn({
        let (publisher, sent) = (Arc::clone(&publisher), sent.clone());
        async move { deliver(&*publisher, &sent).await }
    });
    for _ in 0..2 {
        let before = broker.received(&topic).await.len();
        eventually("some more arrive", async || relay.is_finished() || broker.received(&topic).await.len() > before)
            .await;
        broker.kill().await;
        broker.start_again().await;
    }
    relay.await.unwrap();
    assert_delivered(&sent, &broker.received(&topic).await);
}
