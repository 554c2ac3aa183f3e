//! What every subscriber does when its broker fails: the second half of the contract.

use std::collections::BTreeSet;
use std::time::Duration;

use oncegate::broker::subscriber::SubscribeError;
use oncegate::clock;
use tokio::time::timeout;

use super::super::contract::{SLACK, events, ids as ids_of};
use super::super::{PATIENCE, eventually};
use super::{Fragile, assert_received, id, ids, next, publish, receipts, take};

pub(super) async fn what_was_in_hand_when_the_connection_was_cut_comes_again(source: impl Fragile) {
    let topic = source.topic(&["points"]).await;
    let sent = events(&topic, 40, 2);
    publish(&source, &sent).await;
    let mut subscriber = source.subscriber(&topic, "points", 40);
    let in_hand = next(&mut *subscriber).await;
    source.proxy().cut();
    // Their connection is over. Whether it has been noticed or not: nothing wrong is acknowledged.
    let told = subscriber.ack(&receipts(&in_hand[..1])).await;
    assert!(matches!(told, Ok(()) | Err(SubscribeError::Unavailable(_))), "{told:?}");
    let wanted: Vec<String> = ids_of(&sent).into_iter().filter(|wanted| wanted != id(&in_hand[0])).collect();
    let received = take(&mut *subscriber, &wanted).await;
    for message in &in_hand[1..] {
        let again = received.iter().find(|again| again.id == message.id).unwrap();
        assert_eq!((&again.data, &again.attributes), (&message.data, &message.attributes));
    }
    subscriber.close().await;
}

pub(super) async fn all_arrive_over_many_lost_connections(source: impl Fragile) {
    let topic = source.topic(&["points"]).await;
    let sent = events(&topic, 2_000, 10);
    publish(&source, &sent).await;
    let mut subscriber = source.subscriber(&topic, "points", 50);
    let (mut received, mut missing) = (Vec::new(), ids_of(&sent).into_iter().collect::<BTreeSet<_>>());
    let mut cuts = 0;
    while !missing.is_empty() {
        let batch = next(&mut *subscriber).await;
        // Between receiving and acknowledging, and between that and receiving.
        if cuts < 12 && missing.len() < sent.len() - cuts * 150 {
            cuts += 1;
            source.proxy().cut();
        }
        let told = subscriber.ack(&receipts(&batch)).await;
        assert!(matches!(told, Ok(()) | Err(SubscribeError::Unavailable(_))), "{told:?}");
        for id in ids(&batch) {
            missing.remove(&id);
        }
        received.extend(batch);
    }
    assert!(cuts > 5, "{cuts}");
    if source.keeps_order_through_losses() {
        assert_received(&sent, &received);
    }
    subscriber.close().await;
}

pub(super) async fn all_arrive_over_restarts_of_the_broker(mut source: impl Fragile) {
    let topic = source.topic(&["points"]).await;
    let sent = events(&topic, 300, 3);
    publish(&source, &sent).await;
    let mut subscriber = source.subscriber(&topic, "points", 30);
    let mut missing = ids_of(&sent).into_iter().collect::<BTreeSet<_>>();
    for _ in 0..2 {
        let acknowledged = next(&mut *subscriber).await;
        assert_eq!(subscriber.ack(&receipts(&acknowledged)).await, Ok(()));
        for id in ids(&acknowledged) {
            missing.remove(&id);
        }
        // These are in hand when it is gone, and come again.
        let in_hand = next(&mut *subscriber).await;
        source.kill();
        let told = subscriber.ack(&receipts(&in_hand)).await;
        assert!(matches!(told, Ok(()) | Err(SubscribeError::Unavailable(_))), "{told:?}");
        let error = timeout(PATIENCE, async {
            loop {
                // What was received before it was gone may still be told.
                let told = match subscriber.receive().await {
                    Ok(received) => subscriber.ack(&receipts(&received)).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = told {
                    return error;
                }
            }
        });
        let error = error.await.expect("it says that the broker is gone");
        assert!(matches!(error, SubscribeError::Unavailable(_)), "{error}");
        source.start_again().await;
    }
    let missing: Vec<String> = missing.into_iter().collect();
    take(&mut *subscriber, &missing).await;
    subscriber.close().await;
}

pub(super) async fn a_broker_that_is_not_there_yet_is_found(mut source: impl Fragile) {
    let topic = source.topic(&["points"]).await;
    source.kill();
    let mut subscriber = source.subscriber(&topic, "points", 10);
    for _ in 0..2 {
        let start = clock::now();
        let error = subscriber.receive().await.expect_err("nobody is there");
        assert!(matches!(error, SubscribeError::Unavailable(_)), "{error}");
        assert!(clock::now() - start < PATIENCE / 2, "{:?}", clock::now() - start);
    }
    source.start_again().await;
    let sent = events(&topic, 20, 2);
    eventually("it takes events again", async || timeout(SLACK, publish(&source, &sent)).await.is_ok()).await;
    take(&mut *subscriber, &ids_of(&sent)).await;
    subscriber.close().await;
}

pub(super) async fn a_broker_that_says_nothing_hangs_no_acknowledgement(source: impl Fragile) {
    let topic = source.topic(&["points"]).await;
    let sent = events(&topic, 60, 2);
    publish(&source, &sent).await;
    let mut subscriber = source.subscriber(&topic, "points", 20);
    let in_hand = next(&mut *subscriber).await;
    source.pause();
    let start = clock::now();
    let told = timeout(PATIENCE, subscriber.ack(&receipts(&in_hand))).await.expect("it ends");
    assert!(matches!(told, Ok(()) | Err(SubscribeError::Unavailable(_))), "{told:?}");
    assert!(clock::now() - start < PATIENCE, "{:?}", clock::now() - start);
    source.resume();
    // Of what was in hand, the server may have had the acknowledgement.
    let wanted: Vec<String> = ids_of(&sent).into_iter().filter(|wanted| !ids(&in_hand).contains(wanted)).collect();
    take(&mut *subscriber, &wanted).await;
    tokio::time::timeout(Duration::from_secs(30), subscriber.close()).await.expect("it closes");
}
