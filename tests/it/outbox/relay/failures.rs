//! Brokers that refuse, and brokers that are not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};
use std::time::Duration;

use futures_util::future::BoxFuture;
use oncegate::broker::{Ordering, Published, Publisher};
use oncegate::outbox::desk::{Action, Desk as _, Filter, Mode, Order, State, Which};
use oncegate::outbox::event::Outgoing;
use oncegate::outbox::relay::{Backoff, RelayOptions};
use tokio::sync::Notify;

use super::broker::{Line, Manner};
use super::ground::{Ground, PATIENCE, eventually, unpolled};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    a_failing_event_stops_its_own_key_only,
    an_event_that_nobody_can_publish_is_parked_in_its_place,
    a_refused_event_is_tried_again_before_the_later_ones,
    a_topic_that_takes_nothing_costs_no_attempt_and_holds_no_other_up,
    an_outage_costs_no_attempt_and_ends_by_itself,
    an_event_that_kills_its_relay_is_parked_and_its_neighbours_are_sent,
    a_publisher_that_panics_costs_an_attempt,
);

fn quick(first: u64) -> Backoff {
    Backoff { first: Duration::from_millis(first), max: Duration::from_millis(first * 4) }
}

async fn a_failing_event_stops_its_own_key_only(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.broker.treats("never", Manner::Never);
    ground.broker.treats("refused", Manner::Refuse);
    let hour = Backoff { first: Duration::from_secs(3600), max: Duration::from_secs(3600) };
    let relay = ground.relay(RelayOptions { retry: hour, ..unpolled() });
    for _ in 0..5 {
        ground.commit(&["never", "refused", "a", "b", "c", "d", "e", "f", "g", "h"]).await;
        relay.wake.committed();
    }
    let others = "event_key NOT IN ('never', 'refused') AND state = 5";
    eventually("the others are sent", async || ground.count(others).await == 40).await;
    eventually("the failing keys stand still", async || ground.count("state = 1").await == 0).await;
    for (key, state) in [("never", 4), ("refused", 2)] {
        let of = async |state: i64| ground.count(&format!("event_key = '{key}' AND state = {state}")).await;
        assert_eq!((of(state).await, of(3).await), (1, 4), "{key}");
        let first = format!("(SELECT MIN(e.position) FROM events AS e WHERE e.event_key = '{key}')");
        let is_first = format!("state = {state} AND position = {first}");
        assert_eq!(ground.count(&is_first).await, 1, "{key}: the first one");
    }
    relay.stop().await;
}

async fn an_event_that_nobody_can_publish_is_parked_in_its_place(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit(&["held", "skipped", "held", "skipped", "other", "held", "skipped"]).await;
    let first = "(SELECT MIN(e.position) FROM events AS e)";
    let mut stranger = ground.database.stranger().await;
    stranger.run("UPDATE events SET holds = 0 WHERE event_key = 'skipped'").await;
    let offset = stranger.number(&format!("SELECT {first}")).await;
    let unfit = format!("position IN ({}, {})", offset + 2, offset + 3);
    stranger.run(&format!("UPDATE events SET reason = 'no JSON' WHERE {unfit}")).await;
    let relay = ground.relay(unpolled());
    relay.wake.committed();
    eventually("the others are sent", async || ground.count("state = 5").await == 4).await;
    eventually("nobody can publish two", async || ground.count(&format!("state = 4 AND {unfit}")).await == 2).await;
    let parked = "state = 4 AND attempts = 1 AND reason = 'no JSON'";
    assert_eq!((ground.count(parked).await, ground.count("state = 3 AND event_key = 'held'").await), (2, 1));

    let held = Filter { key: Some("held".into()), states: vec![State::Parked], ..Filter::default() };
    let to = Which::All { filter: held, limit: 1 };
    let retry = Order { action: Action::Retry, to, reason: "as it is".into(), mode: Mode::Carry };
    assert_eq!(ground.store.act(&retry).await.unwrap().changed.len(), 1);
    relay.wake.committed();
    eventually("they go on", async || ground.count("state = 5").await == 6).await;
    ground.broker.assert_ordered();
    assert_eq!((ground.broker.count("held"), ground.broker.count("skipped")), (3, 2));
    relay.stop().await;
}

async fn a_refused_event_is_tried_again_before_the_later_ones(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.broker.treats("a", Manner::Refuse);
    let relay = ground.relay(RelayOptions { retry: quick(50), ..unpolled() });
    ground.commit(&["a", "a", "a"]).await;
    relay.wake.committed();
    eventually("it is tried three times", async || {
        let first = ground.broker.received().first().map(|first| first.id.clone());
        ground.broker.received().iter().filter(|received| Some(&received.id) == first.as_ref()).count() >= 3
    })
    .await;
    ground.broker.treats("a", Manner::Confirm);
    ground.all_sent().await;
    let received = ground.broker.received();
    let last: Vec<i64> = received[received.len() - 3..].iter().map(|received| received.sequence).collect();
    assert!(last.is_sorted(), "in the end they came in order: {received:?}");
    assert_eq!(ground.count("attempts = 1").await, 2, "waiting is not an attempt");
    relay.stop().await;
}

/// Its events are the oldest of every lane, and more than the relay's window.
async fn a_topic_that_takes_nothing_costs_no_attempt_and_holds_no_other_up(kind: Kind) {
    let ground = Ground::new(kind).await;
    let keys: Vec<String> = (0..200).map(|n| format!("ill-{n}")).collect();
    for key in &keys {
        ground.broker.treats(key, Manner::Away);
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for _ in 0..2 {
        ground.commit_to("ill", &keys).await;
    }
    let (outage, later) = (quick(50), quick(50));
    let options = RelayOptions { window_events: 32, outage, later, attempts: 2, ..RelayOptions::default() };
    let relay = ground.relay(options);
    relay.wake.committed();
    for round in 1..=5 {
        ground.commit_to("well", &["a", "b", "c", "d", "e", "f", "g", "h"]).await;
        relay.wake.committed();
        eventually("others are sent", async || ground.count("topic = 'well' AND state = 5").await == 8 * round).await;
    }
    eventually("it is tried now and then", async || ground.broker.received().len() > 50).await;
    assert_eq!(ground.count("topic = 'ill' AND (state = 5 OR attempts > 1)").await, 0);
    for key in &keys {
        ground.broker.treats(key, Manner::Confirm);
    }
    ground.all_sent().await;
    assert_eq!(ground.count("attempts = 1").await, 440);
    for (key, sequences) in ground.broker.first_times() {
        assert!(sequences.is_sorted(), "{key}: {sequences:?}");
    }
    relay.stop().await;
}

async fn an_outage_costs_no_attempt_and_ends_by_itself(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.broker.go_down();
    let relay = ground.relay(RelayOptions { outage: quick(5), attempts: 2, ..unpolled() });
    let keys = ["a", "b", "c", "d"].repeat(25);
    ground.commit(&keys).await;
    relay.wake.committed();
    let tries = Arc::new(AtomicUsize::new(0));
    let counting = ground.relay_to(
        Arc::new(Counting { line: Line::to(&ground.broker, Ordering::ByCall), tries: Arc::clone(&tries) }),
        RelayOptions { outage: quick(5), attempts: 2, ..unpolled() },
    );
    relay.stop().await;
    eventually("the outage lasts for many tries", async || tries.load(Atomic::Relaxed) > 20).await;
    eventually("all are given back", async || ground.count("state = 1 AND attempts = 0").await == 100).await;
    ground.broker.come_up();
    ground.all_sent().await;
    assert_eq!(ground.count("attempts = 1").await, 100);
    ground.broker.assert_ordered();
    counting.stop().await;
}

/// Counts calls.
struct Counting {
    line: Arc<Line>,
    tries: Arc<AtomicUsize>,
}

impl Publisher for Counting {
    fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published> {
        self.tries.fetch_add(1, Atomic::Relaxed);
        self.line.publish(event)
    }

    fn ordering(&self) -> Ordering {
        self.line.ordering()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.line.close()
    }
}

/// Says when it publishes a deadly event, and then never says anything: the test ends the relay there.
struct Deadly {
    line: Arc<Line>,
    died: Arc<Notify>,
}

impl Publisher for Deadly {
    fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published> {
        if &*event.event.key == "deadly" {
            self.died.notify_one();
            return Box::pin(std::future::pending());
        }
        self.line.publish(event)
    }

    fn ordering(&self) -> Ordering {
        Ordering::ByCall
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.line.close()
    }
}

async fn an_event_that_kills_its_relay_is_parked_and_its_neighbours_are_sent(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit(&["a", "b", "deadly", "a", "b", "c", "deadly", "d"]).await;
    let options = RelayOptions {
        lease: Duration::from_millis(500),
        renew: Duration::from_millis(100),
        crash_attempts: 3,
        poll: Duration::from_millis(100),
        ..RelayOptions::default()
    };
    let mut deaths = 0;
    loop {
        let died = Arc::new(Notify::new());
        let publisher = Deadly { line: Line::to(&ground.broker, Ordering::ByCall), died: Arc::clone(&died) };
        let relay = ground.relay_to(Arc::new(publisher), options.clone());
        let settled = eventually("nothing is ready", async || ground.count("state NOT IN (3, 4, 5)").await == 0);
        tokio::select! {
            () = died.notified() => deaths += 1,
            () = settled => {
                relay.stop().await;
                break;
            }
        }
        relay.kill().await;
    }
    assert_eq!(deaths, 3);
    assert_eq!(ground.count("event_key <> 'deadly' AND state = 5").await, 6);
    assert_eq!(ground.count("state = 4 AND reason LIKE '%died 3 times%'").await, 1);
    assert_eq!(ground.count("state = 3").await, 1, "the next one of its key waits for a person");
}

struct Panicking {
    line: Arc<Line>,
    left: AtomicUsize,
}

impl Publisher for Panicking {
    fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published> {
        let is_over = self.left.fetch_update(Atomic::Relaxed, Atomic::Relaxed, |left| left.checked_sub(1)).is_err();
        assert!(is_over, "a bug of the publisher");
        self.line.publish(event)
    }

    fn ordering(&self) -> Ordering {
        Ordering::ByCall
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.line.close()
    }
}

async fn a_publisher_that_panics_costs_an_attempt(kind: Kind) {
    let ground = Ground::new(kind).await;
    let publisher = Panicking { line: Line::to(&ground.broker, Ordering::ByCall), left: AtomicUsize::new(1) };
    let relay = ground.relay_to(Arc::new(publisher), RelayOptions { retry: quick(20), ..unpolled() });
    ground.commit(&["a", "b"]).await;
    relay.wake.committed();
    tokio::time::timeout(PATIENCE, ground.all_sent()).await.unwrap();
    assert_eq!(ground.count("attempts = 2").await, 1);
    relay.stop().await;
}
