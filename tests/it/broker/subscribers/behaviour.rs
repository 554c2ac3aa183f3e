//! What every subscriber does: the first half of the contract.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use oncegate::broker::subscriber::Received;
use oncegate::outbox::event::Outgoing;
use tokio::time::{sleep, timeout};

use super::super::contract::{events, ids as ids_of};
use super::super::event;
use super::{Source, assert_received, assert_same, id, ids, next, publish, receipts, take};

pub(super) async fn what_is_published_arrives_in_order_with_all_that_it_says(source: &impl Source) {
    let topic = source.topic(&["points"]).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let kinds = [
        ("application/json", b"{ \"a\" : 1.10,\n \"a\" : 2 }".to_vec()),
        ("text/plain; charset=utf-16", b"\xff\xfea\0".to_vec()),
        ("application/octet-stream", every_byte.repeat(400)),
        ("application/x-www-form-urlencoded", Vec::new()),
        ("", b"whatever".to_vec()),
    ];
    let kinds = (0..).zip(kinds).map(|(place, (kind, data))| {
        let mut event = event(&topic, "Bestellung Nr. 7: 100 % \u{20ac} \"x\"", place);
        event.event.content_type = kind.into();
        event.event.data = Bytes::from(data);
        event
    });
    let mut bare = Outgoing { sequence: i64::MAX, epoch: i64::MAX, ..event(&topic, "bare", 0) };
    bare.event.traceparent = None;
    let sent: Vec<Outgoing> = kinds.chain([bare]).chain(events(&topic, 300, 7)).collect();
    publish(source, &sent).await;
    let mut subscriber = source.subscriber(&topic, "points", 50);
    let received = take(&mut *subscriber, &ids_of(&sent)).await;
    assert_eq!(received.len(), sent.len(), "each comes once");
    assert_received(&sent, &received);
    assert!(received.iter().all(|message| !message.redelivered));
    subscriber.close().await;
}

pub(super) async fn what_is_not_acknowledged_comes_again_and_what_is_does_not(source: &impl Source) {
    let topic = source.topic(&["points"]).await;
    // So many that some come together, however slow the broker is.
    let sent = events(&topic, 200, 1);
    publish(source, &sent).await;
    let mut subscriber = source.subscriber(&topic, "points", 20);
    let mut received = next(&mut *subscriber).await;
    while received.len() < 4 {
        assert_eq!(subscriber.ack(&receipts(&received)).await, Ok(()));
        received = next(&mut *subscriber).await;
    }
    // With gaps; whatever the broker remembers of that, what is not acknowledged must not be lost.
    let (first, second, third) = (&received[0], &received[1], &received[2]);
    assert_eq!(subscriber.ack(&[first.receipt]).await, Ok(()));
    assert_eq!(subscriber.ack(&[third.receipt]).await, Ok(()));
    let rest: Vec<_> = received.iter().filter(|message| ![id(first), id(third)].contains(&id(message))).collect();
    let again = next(&mut *subscriber).await;
    assert_eq!(id(&again[0]), id(second), "here, and before anything else");
    assert!(again[0].redelivered);
    assert_eq!(again[0], Received { receipt: again[0].receipt, redelivered: true, ..second.clone() });
    subscriber.close().await;
    // And elsewhere.
    let mut other = source.subscriber(&topic, "points", 20);
    let wanted: Vec<String> = rest.iter().map(|message| id(message).to_owned()).collect();
    let last = sent.last().unwrap().event.id.to_string();
    let taken = take(&mut *other, &[wanted, vec![last]].concat()).await;
    assert!(!ids(&taken).contains(&id(first).to_owned()), "it was acknowledged");
    other.close().await;
}

pub(super) async fn a_group_goes_on_where_it_stood(source: &impl Source) {
    let topic = source.topic(&["points"]).await;
    let [early, late, latest] = [(); 3].map(|()| events(&topic, 30, 3));
    publish(source, &early).await;
    let mut subscriber = source.subscriber(&topic, "points", 100);
    take(&mut *subscriber, &ids_of(&early)).await;
    subscriber.close().await;
    publish(source, &late).await;
    let mut subscriber = source.subscriber(&topic, "points", 100);
    let received = take(&mut *subscriber, &ids_of(&late)).await;
    assert_received(&late, &received);
    assert_eq!(received.len(), late.len());
    // A subscriber that was closed can be used again.
    subscriber.close().await;
    subscriber.close().await;
    publish(source, &latest).await;
    assert_received(&latest, &take(&mut *subscriber, &ids_of(&latest)).await);
    subscriber.close().await;
}

pub(super) async fn each_group_gets_everything(source: &impl Source) {
    let groups = ["points", "stock"];
    let topic = source.topic(&groups).await;
    let sent = events(&topic, 100, 3);
    publish(source, &sent).await;
    for group in groups {
        let mut subscriber = source.subscriber(&topic, group, 30);
        assert_received(&sent, &take(&mut *subscriber, &ids_of(&sent)).await);
        subscriber.close().await;
    }
}

pub(super) async fn members_share_and_nothing_is_lost_when_one_dies(source: &impl Source) {
    let topic = source.topic(&["points"]).await;
    let sent = events(&topic, 400, 20);
    publish(source, &sent[..200]).await;
    let mut members = [(); 2].map(|()| source.subscriber(&topic, "points", 10));
    let (mut seen, mut both) = (BTreeSet::new(), [0, 0]);
    // Until each has had something; whoever has nothing waits, and lets the other work.
    while both.contains(&0) {
        for (member, got) in members.iter_mut().zip(&mut both) {
            let Ok(Ok(received)) = timeout(Duration::from_millis(500), member.receive()).await else { continue };
            *got += received.len();
            seen.extend(ids(&received));
            assert_eq!(member.ack(&receipts(&received)).await, Ok(()));
        }
        // The second may have joined when all was taken.
        if both.contains(&0) && seen.len() >= 200 {
            let more = events(&topic, 20, 20);
            publish(source, &more).await;
        }
    }
    let [mut survivor, mut dying] = members;
    publish(source, &sent[200..]).await;
    // It dies with messages in hand, if there are any for it.
    let in_hand = timeout(Duration::from_secs(5), dying.receive()).await;
    drop(dying);
    let wanted: Vec<String> = ids_of(&sent).into_iter().filter(|id| !seen.contains(id)).collect();
    let taken: BTreeSet<_> = ids(&take(&mut *survivor, &wanted).await).into_iter().collect();
    if let Ok(Ok(in_hand)) = in_hand {
        assert!(ids(&in_hand).iter().all(|id| taken.contains(id)), "what it had in hand comes again");
    }
    survivor.close().await;
}

pub(super) async fn a_call_that_is_dropped_loses_nothing(source: &impl Source) {
    let topic = source.topic(&["points"]).await;
    let sent = events(&topic, 200, 4);
    let mut subscriber = source.subscriber(&topic, "points", 7);
    let mut missing: BTreeSet<String> = ids_of(&sent).into_iter().collect();
    let deadline = oncegate::clock::now() + super::PATIENCE;
    let (mut round, mut published) = (0_u64, 0);
    while !missing.is_empty() {
        round += 1;
        assert!(oncegate::clock::now() < deadline, "{} are missing", missing.len());
        if published < sent.len() && round % 4 == 0 {
            publish(source, &sent[published..published + 20]).await;
            published += 20;
        }
        // Looked at once, or for some milliseconds: somewhere between the first step and the last.
        let received = match round % 3 {
            0 => subscriber.receive().now_or_never(),
            rest => timeout(Duration::from_millis(7 * rest + round % 40), subscriber.receive()).await.ok(),
        };
        let Some(Ok(received)) = received else { continue };
        assert_eq!(subscriber.ack(&receipts(&received)).await, Ok(()));
        for id in ids(&received) {
            missing.remove(&id);
        }
    }
    subscriber.close().await;
}

pub(super) async fn no_more_is_held_than_allowed(source: &impl Source) {
    let topic = source.topic(&["points"]).await;
    let sent = events(&topic, 60, 1);
    publish(source, &sent).await;
    let mut subscriber = source.subscriber(&topic, "points", 5);
    let mut received = Vec::new();
    while received.len() < sent.len() {
        let batch = next(&mut *subscriber).await;
        assert!(batch.len() <= 5, "{}", batch.len());
        // Nothing is acknowledged: there is no room for anything else.
        let again = next(&mut *subscriber).await;
        assert!(ids(&batch).starts_with(&ids(&again)) || ids(&again).starts_with(&ids(&batch)), "in the same order");
        assert!(again.len() <= 5, "{}", again.len());
        assert_eq!(subscriber.ack(&receipts(&again)).await, Ok(()));
        received.extend(again);
    }
    assert_received(&sent, &received);
    subscriber.close().await;
}

pub(super) async fn receipts_of_before_are_passed_over(source: &impl Source) {
    let topic = source.topic(&["points"]).await;
    let sent = events(&topic, 10, 1);
    publish(source, &sent).await;
    let mut subscriber = source.subscriber(&topic, "points", 20);
    let old = next(&mut *subscriber).await;
    subscriber.close().await;
    assert_eq!(subscriber.ack(&receipts(&old)).await, Ok(()));
    let fresh = next(&mut *subscriber).await;
    // The broker may know the new ones by what it called the old ones.
    assert_eq!(subscriber.ack(&receipts(&old)).await, Ok(()));
    drop(subscriber);
    let mut other = source.subscriber(&topic, "points", 20);
    let all = take(&mut *other, &ids_of(&sent)).await;
    assert!(ids(&fresh).iter().all(|id| ids(&all).contains(id)), "nothing was acknowledged");
    other.close().await;
}

pub(super) async fn thousands_arrive_at_a_slow_acker(source: &impl Source) {
    let topic = source.topic(&["points"]).await;
    let sent = events(&topic, 3_000, 10);
    let mut subscriber = source.subscriber(&topic, "points", 100);
    let (publisher, slow) = (source.publisher(), async {
        let mut received = Vec::new();
        while received.len() < sent.len() {
            let batch = next(&mut *subscriber).await;
            // What it takes to make a batch durable.
            sleep(Duration::from_millis(3)).await;
            assert_eq!(subscriber.ack(&receipts(&batch)).await, Ok(()));
            received.extend(batch);
        }
        received
    });
    let (received, ()) = tokio::join!(slow, super::deliver(&*publisher, &sent));
    assert_eq!(received.len(), sent.len(), "each comes once");
    assert_received(&sent, &received);
    assert_same(&sent[0], received.iter().find(|message| id(message) == sent[0].event.id.to_string()).unwrap());
    subscriber.close().await;
}
