//! Commit to confirm.

use std::time::Duration;

use oncegate::broker::Ordering;
use oncegate::clock;
use oncegate::outbox::relay::{Duties, RelayOptions};

use super::broker::{Line, Manner};
use super::ground::{Ground, LANES, QUEUE, eventually, unpolled};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    what_is_committed_is_confirmed_and_sent_in_order,
    one_by_one_each_event_follows_the_confirm_of_the_one_before_it,
    a_commit_wakes_the_relay_without_polling,
    a_slow_key_delays_nobody,
    a_hot_key_stays_within_the_window_and_lets_others_pass,
    what_was_sent_long_ago_leaves,
);

/// Keys in several lanes.
const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "i"];

async fn what_is_committed_is_confirmed_and_sent_in_order(kind: Kind) {
    let ground = Ground::new(kind).await;
    let relay = ground.relay(unpolled());
    for _ in 0..10 {
        ground.commit(&KEYS.repeat(5)).await;
        relay.wake.committed();
    }
    ground.all_sent().await;
    let times = ground.broker.first_times();
    assert!(KEYS.iter().all(|key| times[*key].len() == 50));
    ground.broker.assert_ordered();
    assert_eq!(ground.broker.received().len(), 300, "nothing went wrong, so nothing came twice");
    relay.stop().await;
}

async fn one_by_one_each_event_follows_the_confirm_of_the_one_before_it(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.broker.treats("a", Manner::Silent);
    let relay = ground.relay_to(Line::to(&ground.broker, Ordering::OneByOne), unpolled());
    ground.commit(&["a", "a", "b", "b"]).await;
    relay.wake.committed();
    eventually("the other key is sent", async || ground.count("event_key = 'b' AND state = 5").await == 2).await;
    assert_eq!(ground.broker.count("a"), 1);
    ground.broker.let_go();
    ground.all_sent().await;
    assert_eq!(ground.broker.count("a"), 2);
    relay.stop().await;
}

/// Polling is an hour away.
async fn a_commit_wakes_the_relay_without_polling(kind: Kind) {
    let ground = Ground::new(kind).await;
    let relay = ground.relay(unpolled());
    eventually("it holds the lanes", async || ground.owners().await.0 == i64::from(LANES)).await;
    let mut took = Vec::new();
    for _ in 0..20 {
        let committed = ground.broker.received().len() + 1;
        ground.commit(&["a"]).await;
        let begun = clock::now();
        relay.wake.committed();
        eventually("it is published", async || ground.broker.received().len() == committed).await;
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    println!("{kind:?}: commit to confirm: median {:?}, most {:?}", took[took.len() / 2], took[took.len() - 1]);
    relay.stop().await;
}

async fn a_slow_key_delays_nobody(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.broker.treats("slow", Manner::Silent);
    let relay = ground.relay(unpolled());
    // In the same lane, and in the same batch.
    let (slow, quick) = ("slow", "7");
    assert_eq!(super::ground::lane_of(slow), super::ground::lane_of(quick));
    for _ in 0..3 {
        ground.commit(&[slow, quick, slow, quick]).await;
        relay.wake.committed();
    }
    let of_quick = format!("event_key = '{quick}' AND state = 5");
    eventually("the others are sent", async || ground.count(&of_quick).await == 6).await;
    assert_eq!(ground.count("event_key = 'slow' AND state = 5").await, 0);
    ground.broker.let_go();
    ground.all_sent().await;
    relay.stop().await;
}

/// 10,000 events of one key lie there when another key's come.
async fn a_hot_key_stays_within_the_window_and_lets_others_pass(kind: Kind) {
    const BACKLOG: usize = 10_000;
    let ground = Ground::new(kind).await;
    for _ in 0..BACKLOG / 1000 {
        ground.commit(&["hot"; 1000]).await;
    }
    let options = RelayOptions { window_events: 256, ..unpolled() };
    let window = options.window_events;
    let begun = clock::now();
    let relay = ground.relay(options);
    eventually("it has begun", async || ground.broker.count("hot") > 0).await;
    ground.commit(&["other"; 10]).await;
    relay.wake.committed();
    eventually("the other key is published", async || ground.broker.count("other") == 10).await;
    let before = ground.broker.count("hot");
    assert!(before < BACKLOG, "the other key waited for the hot one");
    ground.all_sent().await;
    println!("{kind:?}: {:.0} events of one key a second", BACKLOG as f64 / begun.elapsed().as_secs_f64());
    assert!(ground.broker.most_outstanding() <= window);
    ground.broker.assert_ordered();
    relay.stop().await;
}

async fn what_was_sent_long_ago_leaves(kind: Kind) {
    let ground = Ground::new(kind).await;
    let kept = ground.relay(RelayOptions { keep_sent: Duration::from_secs(3600), ..unpolled() });
    ground.commit(&["a", "b"]).await;
    kept.wake.committed();
    ground.all_sent().await;
    kept.stop().await;
    let relay = ground.relay(RelayOptions { keep_sent: Duration::ZERO, ..unpolled() });
    ground.broker.treats("c", Manner::Never);
    ground.commit(&["c", "d", "d"]).await;
    relay.wake.committed();
    eventually("all is concluded", async || ground.count("state IN (1, 2)").await == 0).await;
    let duties = Duties::new(QUEUE, LANES, ground.store.clone());
    let mut removed = 0;
    // By the database's clock, which tells milliseconds.
    eventually("their time is over", async || {
        removed += duties.reap().await.unwrap();
        removed == 2
    })
    .await;
    duties.measure().await.unwrap();
    assert_eq!(ground.count("event_key IN ('a', 'b', 'c')").await, 3);
    relay.stop().await;
}
