//! Claims without an execution, and the end of a gateway.

use std::time::Duration;

use bytes::Bytes;
use oncegate::engine::ledger::{Batch, Claim, Claimed, Ledger as _};
use oncegate::engine::{Arrived, LeaseTiming, Options, Reason, Verdict};
use oncegate::entry::{InstanceId, Nonce, State};

use super::upstream::{Upstream, completed};
use super::{Gateway, Setup, assert_replay, gateway, identity, owner, request, soon, two, until};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    a_claim_without_an_execution_is_released_and_one_with_an_execution_is_not,
    a_drained_gateway_has_recorded_everything_and_claims_no_more,
);

/// What an unclear commit leaves behind: a row of `gateway`'s that no task of it knows.
async fn claim_without_execution(gateway: &Gateway, instance: InstanceId, key: &str) {
    let claim = Claim {
        id: super::id(key),
        identity: identity(key),
        nonce: Nonce::random(),
        instance,
        fingerprint: request(key, "1").fingerprint,
        route: "pay".into(),
        context: Some(Bytes::from_static(b"h")),
    };
    let applied = gateway.store.apply(&Batch { claims: vec![claim], ..Batch::default() }).await.unwrap();
    assert!(matches!(applied.claims[..], [Claimed::Won]), "{applied:?}");
}

async fn a_claim_without_an_execution_is_released_and_one_with_an_execution_is_not(kind: Kind) {
    // A short lease, since a claim is swept once it is as old as one; renewed by hand.
    let lease = LeaseTiming { lease: Duration::from_millis(1500), renew: Duration::from_millis(500) };
    // More executions go on before it than one statement of the sweep takes.
    let options = Options { lease, sweep_limit: 2, ..Options::default() };
    let (_database, gateway, other) = two(kind, || Setup { options, ..Setup::default() }).await;
    let upstream = Upstream::default();
    gateway.house.lease_step().await.unwrap();
    let flying = ["flying-1", "flying-2", "flying-3"];
    let mut flights = Vec::new();
    for key in flying {
        let (run, mut held) = upstream.held();
        let sent = gateway.send(request(key, "1"), run);
        held.begun().await;
        flights.push((held, sent));
    }
    claim_without_execution(&gateway, owner(&gateway, flying[0]).await, "left").await;
    gateway.house.sweep_step().await.unwrap();
    assert!(gateway.entry("left").await.is_some(), "too young: its execution may be just beginning");
    until("released", || async {
        // Both stay alive; only the one whose claim it is may release it.
        for gateway in [&gateway, &other] {
            gateway.house.lease_step().await.unwrap();
        }
        gateway.house.sweep_step().await.unwrap();
        gateway.entry("left").await.is_none()
    })
    .await;
    for key in flying {
        assert!(matches!(gateway.state(key).await, State::InProgress { .. }));
    }
    for (held, sent) in flights {
        held.ends(completed("paid"));
        sent.await.unwrap();
    }
    for key in flying {
        assert!(gateway.is_completed(key).await);
    }
}

async fn a_drained_gateway_has_recorded_everything_and_claims_no_more(kind: Kind) {
    let (_database, gateway, other) = two(kind, Setup::default).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = gateway.send(request("a", "1"), run);
    held.begun().await;
    let instance = owner(&gateway, "a").await;
    claim_without_execution(&gateway, instance, "left").await;
    gateway.arrive(request("panicked", "1"), Box::new(|_| panic!("a handler's bug"))).await;
    let engine = gateway.engine.clone();
    let draining = tokio::spawn(async move { engine.drain().await });
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert!(!draining.is_finished(), "an execution is under way");
    held.ends(completed("paid"));
    sent.await.unwrap();
    soon(draining).await.unwrap().unwrap();
    assert_eq!((other.entry("left").await, other.entry("panicked").await), (None, None), "they never ran");
    // Whatever housekeeping still does, the instance has ended.
    gateway.house.lease_step().await.unwrap();
    gateway.house.sweep_step().await.unwrap();
    other.house.sweep_step().await.unwrap();
    let told = gateway.arrive(request("b", "1"), upstream.never()).await;
    assert!(matches!(told, Arrived::Told(Verdict::Unavailable(Reason::Lease))), "{told:?}");
    assert_replay(&other.arrive(request("a", "1"), upstream.never()).await, "paid");
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test]
async fn a_sweep_that_is_given_up_loses_no_panicked_execution() {
    let (_database, gateway) = gateway(Kind::Sqlite, Setup::default()).await;
    let upstream = Upstream::default();
    for key in ["a", "b", "c"] {
        gateway.arrive(request(key, "1"), upstream.run(|_| panic!("a handler's bug"))).await;
    }
    // Given up later and later, until one is not.
    for step in 0.. {
        let patience = Duration::from_micros(200) * step;
        if tokio::time::timeout(patience, gateway.house.sweep_step()).await.is_ok() {
            break;
        }
    }
    gateway.house.sweep_step().await.unwrap();
    for key in ["a", "b", "c"] {
        until("held", || gateway.is_unknown(key)).await;
    }
}
