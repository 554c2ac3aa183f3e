//! How long answers and keys are remembered.

use std::sync::Arc;
use std::time::Duration;

use oncegate::engine::policy::Tombstones;
use oncegate::engine::{Arrived, Policy, Verdict};
use oncegate::entry::State;

use super::upstream::Upstream;
use super::{
    Gateway, HOUR, Setup, Told, assert_held, assert_mismatch, assert_replay, gateway, policy, two, under, until,
};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    an_answer_expires_then_its_key_is_remembered_then_new_again,
    without_a_tombstone_the_key_is_new_when_its_answer_expires,
    the_reaper_takes_what_is_over_and_nothing_unfinished,
);

fn keeping(retention: Duration, tombstone: Option<Duration>) -> Arc<Policy> {
    let tombstones = Tombstones { header: tombstone, business: None };
    Arc::new(Policy { retention, tombstones, ..policy() })
}

const SHORT: Duration = Duration::from_millis(800);

fn is_replay(told: &Told) -> bool {
    matches!(told, Arrived::Told(Verdict::Replay { .. }))
}

fn is_expired(told: &Told) -> bool {
    matches!(told, Arrived::Told(Verdict::Expired))
}

async fn an_answer_expires_then_its_key_is_remembered_then_new_again(kind: Kind) {
    let (_database, first, second) = two(kind, Setup::default).await;
    let (policy, upstream) = (keeping(SHORT, Some(SHORT)), Upstream::default());
    first.arrive(under(&policy, "a", "1"), upstream.pays()).await;
    for gateway in [&first, &second] {
        let told = gateway.arrive(under(&policy, "a", "1"), upstream.never()).await;
        assert!(is_replay(&told), "{told:?}");
    }
    let expired =
        async |gateway: &Gateway| is_expired(&gateway.arrive(under(&policy, "a", "1"), upstream.never()).await);
    // Neither from the cache, nor from the mark, nor from the ledger.
    until("expired here", || expired(&first)).await;
    assert!(expired(&second).await);
    first.house.reap_step().await.unwrap();
    until("new again", || async {
        let told = first.arrive(under(&policy, "a", "1"), upstream.pays()).await;
        assert!(!is_replay(&told), "the old answer came back");
        matches!(told, Arrived::Executed { .. })
    })
    .await;
    assert_eq!(upstream.calls(), 2);
}

async fn without_a_tombstone_the_key_is_new_when_its_answer_expires(kind: Kind) {
    let (_database, first, second) = two(kind, Setup::default).await;
    let (policy, upstream) = (keeping(SHORT, Some(Duration::ZERO)), Upstream::default());
    first.arrive(under(&policy, "a", "1"), upstream.pays()).await;
    assert_replay(&second.arrive(under(&policy, "a", "1"), upstream.never()).await, "paid");
    // Another request may have the key then: it is new.
    until("new again", || async {
        let told = second.arrive(under(&policy, "a", "2"), upstream.pays()).await;
        match told {
            Arrived::Executed { .. } => true,
            told @ Arrived::Told(_) => {
                assert_mismatch(&told);
                false
            }
        }
    })
    .await;
    // The first gateway has the old answer in its cache and must not give it any more.
    assert_mismatch(&first.arrive(under(&policy, "a", "1"), upstream.never()).await);
    assert_replay(&first.arrive(under(&policy, "a", "2"), upstream.never()).await, "paid");
    assert_eq!(upstream.calls(), 2);
}

async fn the_reaper_takes_what_is_over_and_nothing_unfinished(kind: Kind) {
    let options = oncegate::engine::Options { sweep_limit: 2, ..Default::default() };
    let (database, gateway) = gateway(kind, Setup { options, ..Setup::default() }).await;
    let upstream = Upstream::default();
    let (gone, remembered, kept) =
        (keeping(Duration::ZERO, Some(Duration::ZERO)), keeping(Duration::ZERO, None), keeping(HOUR, None));
    for (n, policy) in [&gone, &remembered, &kept].into_iter().enumerate() {
        for m in 0..5 {
            gateway.arrive(under(policy, &format!("{n}-{m}"), "1"), upstream.pays()).await;
        }
    }
    gateway.arrive(under(&gone, "lost", "1"), upstream.loses_it()).await;
    database.stranger().await.run("UPDATE entries SET changed_at = 1, started_at = 1, created_at = 1").await;
    gateway.house.reap_step().await.unwrap();
    for m in 0..5 {
        assert_eq!(gateway.entry(&format!("0-{m}")).await, None);
        assert_eq!(gateway.state(&format!("1-{m}")).await, State::Tombstone { until: None });
        assert!(is_expired(&gateway.arrive(under(&remembered, &format!("1-{m}"), "1"), upstream.never()).await));
        assert_mismatch(&gateway.arrive(under(&remembered, &format!("1-{m}"), "2"), upstream.never()).await);
        assert_replay(&gateway.arrive(under(&kept, &format!("2-{m}"), "1"), upstream.never()).await, "paid");
    }
    assert_held(&gateway.arrive(under(&gone, "lost", "1"), upstream.never()).await);
    assert_eq!(upstream.calls(), 16);
}

#[tokio::test]
async fn a_business_number_is_remembered_by_its_own_tombstone() {
    let (_database, gateway) = gateway(Kind::Sqlite, Setup::default()).await;
    let (policy, upstream) = (keeping(Duration::ZERO, Some(Duration::ZERO)), Upstream::default());
    let business =
        || oncegate::engine::Arrival { kind: oncegate::engine::policy::KeyKind::Business, ..under(&policy, "a", "1") };
    gateway.arrive(business(), upstream.pays()).await;
    gateway.house.reap_step().await.unwrap();
    assert!(is_expired(&gateway.arrive(business(), upstream.never()).await));
    assert_eq!(upstream.calls(), 1);
}
