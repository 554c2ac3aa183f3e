//! The contract of `Publisher`, on every broker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{FutureExt as _, join_all};
use oncegate::broker::{CONFIRMED, Ordering, PublishError, Published, Publisher, cloud_events};
use oncegate::clock;
use oncegate::outbox::event::Outgoing;
use tokio::time::timeout;

use super::{PATIENCE, event, eventually};

/// A time limit that a busy machine does not exceed.
pub(super) const LONG: Duration = Duration::from_secs(30);

/// The limit of publishers whose broker is about to fail.
pub(super) const SHORT: Duration = Duration::from_secs(2);

/// What a busy machine may add to a time limit. Some publishers need one limit to find that a connection is
/// dead, and one to open another.
pub(super) const SLACK: Duration = Duration::from_secs(15);

/// A broker, and the means to look behind the publisher's back.
pub(super) trait Broker {
    /// A new publisher that allows the broker so long for an event.
    fn publisher(&self, time_limit: Duration) -> Arc<dyn Publisher>;

    /// A new topic that takes events.
    async fn topic(&self) -> String;

    /// All that the topic has, oldest first, read as this broker's consumers do. Asked again, it
    /// tells the same, and what has come since.
    async fn received(&self, topic: &str) -> Vec<Received>;

    /// A topic that takes nothing, where the broker has such: unroutable, refused, not allowed.
    async fn dead_end(&self) -> Option<String>;

    /// So many bytes that the broker never takes them, where it has a limit.
    fn too_many_bytes(&self) -> Option<usize>;
}

/// A broker on a server of the test's own, which keeps on disk what it has confirmed.
pub(super) trait Breakable: Broker {
    /// It is gone, without a word.
    async fn kill(&mut self);

    /// Starts it again on the same address, and waits until it works.
    async fn start_again(&mut self);

    /// It says nothing from now on, and its connections stay open.
    async fn pause(&self);

    /// It goes on.
    async fn resume(&self);
}

/// An event as a consumer gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Received {
    /// CloudEvents' attributes without the broker's prefix, but for the content type.
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) content_type: String,
    pub(super) data: Vec<u8>,
}

impl Received {
    /// What a consumer is to get of `outgoing`.
    pub(super) fn expected(outgoing: &Outgoing) -> Self {
        let attributes = cloud_events::attributes(outgoing).into_iter();
        Self {
            attributes: attributes.map(|(name, value)| (name.to_owned(), value.into_owned())).collect(),
            content_type: outgoing.event.content_type.to_string(),
            data: outgoing.event.data.to_vec(),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.attributes["id"]
    }

    fn key(&self) -> &str {
        &self.attributes["partitionkey"]
    }
}

/// The contract's tests of the broker that `$shared`, an async function, returns.
macro_rules! contract {
    ($shared:ident) => {
        $crate::broker::contract::contract! {
            $shared:
            what_is_confirmed_is_there_as_it_was_sent
            events_arrive_in_the_order_of_the_calls
            a_dropped_future_cancels_nothing
            data_of_any_kind_and_size_is_not_touched
            what_goes_nowhere_is_a_failure_and_its_neighbours_are_none
            what_is_too_large_fails_for_good_and_costs_its_neighbours_a_try_at_most
            closing_waits_for_what_is_under_way
        }
    };
    ($shared:ident: $($behaviour:ident)*) => {
        mod contract {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $behaviour() {
                $crate::broker::contract::$behaviour(&super::$shared().await).await;
            })*
        }
    };
}
pub(super) use contract;

/// The tests of failures, each on a broker of its own that `$private`, an async function, returns.
macro_rules! faults {
    ($private:ident) => {
        $crate::broker::contract::faults! {
            $private:
            an_outage_is_told_in_time_and_over_when_the_broker_is_back
            a_broker_that_is_not_there_yet_is_found
            a_broker_that_says_nothing_hangs_nobody
            a_crash_in_the_middle_of_a_batch_loses_nothing_and_keeps_the_order
        }
    };
    ($private:ident: $($behaviour:ident)*) => {
        mod faults {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $behaviour() {
                $crate::broker::outages::$behaviour(super::$private().await).await;
            })*
        }
    };
}
pub(super) use faults;

/// Publishes in order, and returns each event's result.
pub(super) async fn publish_all(publisher: &dyn Publisher, events: &[Outgoing]) -> Vec<Published> {
    match publisher.ordering() {
        // Awaited from the last on: the call alone gives an event its place.
        Ordering::ByCall => {
            let mut calls: Vec<_> = events.iter().map(|event| publisher.publish(event.clone())).collect();
            calls.reverse();
            let mut results = join_all(calls).await;
            results.reverse();
            results
        }
        Ordering::OneByOne => {
            let mut results: Vec<Published> = Vec::new();
            let mut failed = BTreeMap::new();
            for event in events {
                // What follows a failed event of its key is not even tried.
                let before: Option<&PublishError> = failed.get(&event.event.key);
                let result = match before {
                    Some(error) => Err(error.clone()),
                    None => publisher.publish(event.clone()).await,
                };
                if let Err(error) = &result {
                    failed.insert(event.event.key.clone(), error.clone());
                }
                results.push(result);
            }
            results
        }
    }
}

/// Publishes as the relay does, until all are confirmed: what follows a failed event of a key is published
/// again behind it.
pub(super) async fn deliver(publisher: &dyn Publisher, events: &[Outgoing]) {
    let mut open: Vec<Outgoing> = events.to_vec();
    let deadline = clock::now() + PATIENCE;
    while !open.is_empty() {
        for batch in std::mem::take(&mut open).chunks(500) {
            let mut blocked: BTreeSet<Box<str>> = open.iter().map(|event| event.event.key.clone()).collect();
            // Or it would reach the broker before the failed one.
            let (waiting, batch): (Vec<_>, Vec<_>) =
                batch.iter().cloned().partition(|event| blocked.contains(&event.event.key));
            open.extend(waiting);
            let results = publish_all(publisher, &batch).await;
            let failure = results.iter().find(|result| result.is_err());
            assert!(clock::now() < deadline, "not all is confirmed: {failure:?}");
            for (event, result) in batch.iter().zip(results) {
                if result.is_err() || blocked.contains(&event.event.key) {
                    blocked.insert(event.event.key.clone());
                    open.push(event.clone());
                }
            }
        }
        if !open.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// `number` events of `keys` keys, which take turns.
pub(super) fn events(topic: &str, number: usize, keys: usize) -> Vec<Outgoing> {
    (0..number).map(|place| event(topic, &format!("key {}", place % keys), i64::try_from(place).unwrap())).collect()
}

pub(super) fn ids(events: &[Outgoing]) -> Vec<String> {
    events.iter().map(|event| event.event.id.to_string()).collect()
}

/// Each event is there, in the order of its key, perhaps several times. What repeats is the same to the byte.
pub(super) fn assert_delivered(sent: &[Outgoing], received: &[Received]) {
    let expected: BTreeMap<_, _> = sent.iter().map(|event| (event.event.id.to_string(), event)).collect();
    let mut firsts = BTreeMap::<&str, Vec<i64>>::new();
    for copy in received {
        let event = expected[copy.id()];
        assert_eq!(*copy, Received::expected(event));
        let of_key = firsts.entry(copy.key()).or_default();
        if !of_key.contains(&event.sequence) {
            of_key.push(event.sequence);
        }
    }
    let mut wanted = BTreeMap::<&str, Vec<i64>>::new();
    for event in sent {
        wanted.entry(&event.event.key).or_default().push(event.sequence);
    }
    for (key, wanted) in wanted {
        let first = firsts.remove(key).unwrap_or_default();
        let same = wanted.iter().zip(&first).take_while(|(wanted, first)| wanted == first).count();
        assert!(
            wanted == first,
            "{key}: {} of {}; after {same}: {:?} where {:?} were sent",
            first.len(),
            wanted.len(),
            first.iter().skip(same).take(20).collect::<Vec<_>>(),
            wanted.iter().skip(same).take(20).collect::<Vec<_>>()
        );
    }
}

/// What is published is confirmed, before long.
pub(super) async fn works_again(publisher: &dyn Publisher, topic: &str) {
    eventually("the publisher works again", async || publisher.publish(event(topic, "again", 0)).await.is_ok()).await;
}

pub(super) fn assert_unavailable(results: &[Published]) {
    for result in results {
        assert!(matches!(result, Err(PublishError::Unavailable(_))), "{result:?}");
    }
}

pub(super) async fn what_is_confirmed_is_there_as_it_was_sent(broker: &impl Broker) {
    let (publisher, topic) = (broker.publisher(LONG), broker.topic().await);
    let mut sent = event(&topic, "Bestellung Nr. 7: 100 % \u{20ac} \"x\"", 42);
    assert_eq!(publisher.publish(sent.clone()).await, CONFIRMED);
    assert_eq!(broker.received(&topic).await, [Received::expected(&sent)]);
    // The same event again has the same id, whether or not the broker drops it.
    assert_eq!(publisher.publish(sent.clone()).await, CONFIRMED);
    assert_delivered(std::slice::from_ref(&sent), &broker.received(&topic).await);

    let topic = broker.topic().await;
    sent = Outgoing { sequence: i64::MAX, epoch: i64::MAX, ..event(&topic, "k", 0) };
    sent.event.traceparent = None;
    assert_eq!(publisher.publish(sent.clone()).await, CONFIRMED);
    assert_eq!(broker.received(&topic).await, [Received::expected(&sent)]);
}

pub(super) async fn events_arrive_in_the_order_of_the_calls(broker: &impl Broker) {
    let (publisher, topic) = (broker.publisher(LONG), broker.topic().await);
    let sent = events(&topic, 500, 7);
    for result in publish_all(&*publisher, &sent).await {
        assert_eq!(result, CONFIRMED);
    }
    let received = broker.received(&topic).await;
    assert_eq!(received.len(), sent.len());
    assert_delivered(&sent, &received);
}

pub(super) async fn a_dropped_future_cancels_nothing(broker: &impl Broker) {
    let (publisher, topic) = (broker.publisher(LONG), broker.topic().await);
    if publisher.ordering() == Ordering::OneByOne {
        return;
    }
    let sent = events(&topic, 3, 1);
    drop(publisher.publish(sent[0].clone()));
    // Dropped once it has been looked at.
    assert!(publisher.publish(sent[1].clone()).now_or_never().is_none_or(|result| result.is_ok()));
    assert_eq!(publisher.publish(sent[2].clone()).await, CONFIRMED);
    let received = broker.received(&topic).await;
    assert_eq!(received.iter().map(Received::id).collect::<Vec<_>>(), ids(&sent));
}

pub(super) async fn data_of_any_kind_and_size_is_not_touched(broker: &impl Broker) {
    let (publisher, topic) = (broker.publisher(LONG), broker.topic().await);
    let every_byte: Vec<u8> = (0..=255).collect();
    let kinds = [
        ("application/json", b"{ \"a\" : 1.10,\n \"a\" : 2 }".to_vec()),
        ("application/json", b"{\"cut".to_vec()),
        ("text/plain; charset=utf-16", b"\xff\xfea\0".to_vec()),
        ("application/octet-stream", every_byte.clone()),
        ("application/x-www-form-urlencoded", Vec::new()),
        ("image/png", every_byte.repeat(2_000)),
    ];
    let sent: Vec<Outgoing> = (0..)
        .zip(kinds)
        .map(|(place, (kind, data))| {
            let mut event = event(&topic, "k", place);
            event.event.content_type = kind.into();
            event.event.data = Bytes::from(data);
            event
        })
        .collect();
    for result in publish_all(&*publisher, &sent).await {
        assert_eq!(result, CONFIRMED);
    }
    assert_eq!(broker.received(&topic).await, sent.iter().map(Received::expected).collect::<Vec<_>>());
}

pub(super) async fn what_goes_nowhere_is_a_failure_and_its_neighbours_are_none(broker: &impl Broker) {
    let Some(nowhere) = broker.dead_end().await else { return };
    let (publisher, topic) = (broker.publisher(LONG), broker.topic().await);
    let mut sent = events(&topic, 300, 5);
    for lost in sent.iter_mut().skip(1).step_by(3) {
        lost.event.topic = nowhere.as_str().into();
        lost.event.key = "lost".into();
    }
    let results = publish_all(&*publisher, &sent).await;
    for (event, result) in sent.iter().zip(results) {
        if *event.event.topic == *nowhere {
            let failed = matches!(result, Err(PublishError::Refused(_) | PublishError::Never(_)));
            assert!(failed, "{}: {result:?}", event.sequence);
        } else {
            assert_eq!(result, CONFIRMED, "{}", event.sequence);
        }
    }
    sent.retain(|event| *event.event.topic != *nowhere);
    let received = broker.received(&topic).await;
    assert_eq!(received.len(), sent.len());
    assert_delivered(&sent, &received);
}

pub(super) async fn what_is_too_large_fails_for_good_and_costs_its_neighbours_a_try_at_most(broker: &impl Broker) {
    let Some(too_many) = broker.too_many_bytes() else { return };
    let (publisher, topic) = (broker.publisher(LONG), broker.topic().await);
    let mut sent = events(&topic, 21, 1);
    sent[10].event.key = "large".into();
    sent[10].event.data = Bytes::from(vec![b'x'; too_many]);
    // The neighbours may share its misfortune, for as long as the publisher needs to find out who is to blame.
    for _ in 0..3 {
        let results = publish_all(&*publisher, &sent).await;
        for (event, result) in sent.iter().zip(&results) {
            match result {
                Err(PublishError::Never(_)) => assert_eq!(&*event.event.key, "large"),
                Err(PublishError::Unavailable(_)) | Ok(_) => {}
                Err(_) => panic!("{result:?}"),
            }
        }
        let never = matches!(results[10], Err(PublishError::Never(_)));
        if never && results.iter().filter(|result| result.is_err()).count() == 1 {
            sent.remove(10);
            return assert_delivered(&sent, &broker.received(&topic).await);
        }
    }
    panic!("the large one was not told from its neighbours");
}

pub(super) async fn closing_waits_for_what_is_under_way(broker: &impl Broker) {
    let (publisher, topic) = (broker.publisher(LONG), broker.topic().await);
    let sent = events(&topic, 200, 3);
    let calls: Vec<_> = match publisher.ordering() {
        Ordering::ByCall => sent.iter().map(|event| publisher.publish(event.clone())).collect(),
        Ordering::OneByOne => Vec::new(),
    };
    publisher.close().await;
    let results = timeout(Duration::from_secs(1), join_all(calls)).await.expect("all have their results");
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_unavailable(&[publisher.publish(event(&topic, "late", 0)).await]);
    // Closing is nothing that can't be done twice.
    publisher.close().await;
}
