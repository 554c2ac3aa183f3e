//! Confirms that are lost on their way: the broker has the events, and whoever published them can't know.

use std::sync::Arc;

use oncegate::broker::PublishError;

use super::contract::{Broker, SHORT, assert_delivered, deliver, events, publish_all};
use super::eventually;
use crate::servers::wire::{Mode, Wire};

/// A broker whose publishers reach it over a wire.
pub(super) trait Wired: Broker {
    fn wire(&self) -> &Wire;

    /// Whether the topic has so many, while nothing that the broker says comes through.
    async fn has(&self, topic: &str, number: usize) -> bool {
        self.received(topic).await.len() >= number
    }

    /// Whether its client asks by itself what became of an event.
    fn asks_again(&self) -> bool {
        false
    }
}

/// The tests of lost confirms, each on a broker of its own that `$wired`, an async function, returns.
macro_rules! confirms {
    ($wired:ident) => {
        $crate::broker::confirms::confirms! {
            $wired:
            what_was_taken_and_not_confirmed_comes_again_under_its_id_and_in_order
            a_wire_that_breaks_again_and_again_loses_nothing_and_keeps_the_order
        }
    };
    ($wired:ident: $($behaviour:ident)*) => {
        mod confirms {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $behaviour() {
                $crate::broker::confirms::$behaviour(super::$wired().await).await;
            })*
        }
    };
}
pub(super) use confirms;

pub(super) async fn what_was_taken_and_not_confirmed_comes_again_under_its_id_and_in_order(broker: impl Wired) {
    let (publisher, topic, wire) = (broker.publisher(SHORT), broker.topic().await, broker.wire());
    let all = events(&topic, 70, 3);
    let (before, lost) = all.split_at(10);
    deliver(&*publisher, before).await;
    wire.set(Mode::Unanswered);
    let calls = tokio::spawn({
        let (publisher, lost) = (Arc::clone(&publisher), lost.to_vec());
        async move { publish_all(&*publisher, &lost).await }
    });
    eventually("the broker has them all", async || broker.has(&topic, all.len()).await).await;
    wire.cut();
    wire.set(Mode::Whole);
    for result in calls.await.unwrap() {
        let is_open = matches!(result, Err(PublishError::Unavailable(_) | PublishError::TopicUnavailable(_)));
        assert!(is_open || (result.is_ok() && broker.asks_again()), "{result:?}");
    }
    deliver(&*publisher, lost).await;
    assert_delivered(&all, &broker.received(&topic).await);
}

pub(super) async fn a_wire_that_breaks_again_and_again_loses_nothing_and_keeps_the_order(broker: impl Wired) {
    /// Of what the broker says, between two breaks: more than it says to a new connection.
    const BYTES: usize = 2_000;
    let (publisher, topic, wire) = (broker.publisher(SHORT), broker.topic().await, broker.wire());
    let sent = events(&topic, 4_000, 10);
    deliver(&*publisher, &sent[..10]).await;
    wire.set(Mode::Unanswered);
    let relay = tokio::spawn({
        let (publisher, sent) = (Arc::clone(&publisher), sent.clone());
        async move { deliver(&*publisher, &sent[10..]).await }
    });
    for _ in 0..5 {
        let lost = wire.swallowed();
        wire.set(Mode::Unanswered);
        eventually("a confirm is lost", async || relay.is_finished() || wire.swallowed() > lost).await;
        let heard = wire.answered();
        wire.cut();
        wire.set(Mode::Whole);
        eventually("some are confirmed", async || relay.is_finished() || wire.answered() > heard + BYTES).await;
    }
    relay.await.unwrap();
    assert_delivered(&sent, &broker.received(&topic).await);
}
