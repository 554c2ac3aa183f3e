//! Leases: who stops renewing loses what it had in progress, and nothing else.

use std::time::Duration;

use oncegate::engine::{Arrived, LeaseTiming, Options, Reason, Recorded, Verdict};
use oncegate::entry::State;

use super::upstream::{Run, Upstream, completed, not_executed};
use super::{Gateway, Setup, assert_held, assert_replay, expire, gateway, memory, owner, request, soon, two, until};
use crate::servers::database::{Kind, on_each_database};
use futures_util::FutureExt as _;

on_each_database!(
    an_expired_gateways_executions_become_unknown_and_its_late_completion_is_kept,
    an_expired_gateway_begins_anew,
    a_claim_of_an_expired_gateway_is_never_executed_by_its_next_instance,
);

/// Short, yet with gaps that a busy machine may leave between two steps.
const SHORT: LeaseTiming = LeaseTiming { lease: Duration::from_millis(600), renew: Duration::from_millis(250) };

fn short() -> Setup {
    Setup { options: Options { lease: SHORT, ..Options::default() }, ..Setup::default() }
}

/// Steps the lease of `gateway` until its sweep has made the entry of `key` Unknown.
async fn rescue(gateway: &Gateway, key: &str) {
    until("the rescuer is done", || async {
        gateway.house.lease_step().await.unwrap();
        gateway.house.sweep_step().await.unwrap();
        gateway.is_unknown(key).await
    })
    .await;
}

async fn silent_gateway_is_expired(kind: Kind) {
    let (_database, silent, rescuer) = two(kind, short).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let patient = std::sync::Arc::new(oncegate::engine::Policy { budget: Duration::ZERO, ..super::policy() });
    silent.house.lease_step().await.unwrap();
    let sent = silent.send(super::under(&patient, "a", "1"), run);
    held.begun().await;
    rescue(&rescuer, "a").await;
    assert_held(&rescuer.arrive(request("a", "1"), upstream.never()).await);
    held.ends(completed("paid"));
    let told = sent.await.unwrap();
    assert!(matches!(told, Arrived::Executed { answer: "paid", recorded: Recorded::Completed(_) }), "{told:?}");
    assert_replay(&rescuer.arrive(request("a", "1"), upstream.never()).await, "paid");
    assert_eq!(upstream.calls(), 1);
}

// On SQLite a process that holds its lock file is alive, however long it is silent.
#[tokio::test]
async fn a_gateway_that_is_silent_for_a_lease_is_expired_on_postgres() {
    silent_gateway_is_expired(Kind::Postgres).await;
}

#[tokio::test]
async fn a_gateway_that_is_silent_for_a_lease_is_expired_on_mysql() {
    silent_gateway_is_expired(Kind::MySql).await;
}

#[tokio::test]
async fn a_gateway_that_renews_keeps_what_it_has_in_progress() {
    let (database, slow, other) = two(Kind::Postgres, short).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    slow.house.lease_step().await.unwrap();
    let patient = std::sync::Arc::new(oncegate::engine::Policy { budget: Duration::ZERO, ..super::policy() });
    let sent = slow.send(super::under(&patient, "a", "1"), run);
    held.begun().await;
    let begun = oncegate::clock::now();
    while begun.elapsed() < SHORT.lease * 3 {
        for gateway in [&other, &slow] {
            gateway.house.lease_step().await.unwrap();
            gateway.house.sweep_step().await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(matches!(slow.state("a").await, State::InProgress { .. }));
    let instances = database.stranger().await.number("SELECT COUNT(*) FROM instances").await;
    assert_eq!(instances, 2, "nobody had to begin anew");
    held.ends(completed("paid"));
    sent.await.unwrap();
}

async fn an_expired_gateways_executions_become_unknown_and_its_late_completion_is_kept(kind: Kind) {
    let shared = memory();
    let (database, dead, rescuer) = two(kind, || Setup { marks: shared.clone(), ..Setup::default() }).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = dead.send(request("a", "1"), run);
    held.begun().await;
    rescuer.house.sweep_step().await.unwrap();
    let instance = owner(&dead, "a").await;
    expire(&database, instance).await;
    rescuer.house.sweep_step().await.unwrap();
    assert!(rescuer.is_unknown("a").await);
    held.ends(completed("paid"));
    let told = sent.await.unwrap();
    assert!(matches!(told, Arrived::Executed { recorded: Recorded::Completed(_), .. }), "{told:?}");
    for gateway in [&dead, &rescuer] {
        assert_replay(&soon(gateway.arrive(super::patient(request("a", "1")), upstream.never())).await, "paid");
    }
    assert_eq!(upstream.calls(), 1);
}

async fn an_expired_gateway_begins_anew(kind: Kind) {
    let (database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = gateway.send(request("a", "1"), run);
    held.begun().await;
    let before = owner(&gateway, "a").await;
    expire(&database, before).await;
    let told = gateway.arrive(request("b", "1"), upstream.never()).await;
    assert!(matches!(told, Arrived::Told(Verdict::Unavailable(Reason::Lease))), "{told:?}");
    gateway.house.lease_step().await.unwrap();
    assert!(gateway.engine.is_alive());
    let (run, mut second) = upstream.held();
    let again = gateway.send(request("b", "1"), run);
    second.begun().await;
    assert_ne!(owner(&gateway, "b").await, before);
    gateway.house.sweep_step().await.unwrap();
    assert!(gateway.is_unknown("a").await, "what was in progress before is unknown");
    assert!(matches!(gateway.state("b").await, State::InProgress { .. }));
    second.ends(completed("paid"));
    held.ends(completed("paid"));
    for sent in [sent, again] {
        let told = sent.await.unwrap();
        assert!(matches!(told, Arrived::Executed { recorded: Recorded::Completed(_), .. }), "{told:?}");
    }
}

/// Claims, is suspended until somebody has expired it, wakes up as another instance: what it claimed before
/// is no longer its own to execute, since others may be settling it.
async fn a_claim_of_an_expired_gateway_is_never_executed_by_its_next_instance(kind: Kind) {
    let (database, gateway) = gateway(kind, Setup::default()).await;
    let (claim, claimed) = tokio::sync::oneshot::channel();
    let (wake, woken) = tokio::sync::oneshot::channel::<()>();
    let run: Run = Box::new(move |attempt| {
        async move {
            claim.send(()).unwrap();
            woken.await.unwrap();
            assert!(attempt.dispatch().is_err(), "its instance has been expired");
            not_executed()
        }
        .boxed()
    });
    let sent = gateway.send(request("a", "1"), run);
    soon(claimed).await.unwrap();
    expire(&database, owner(&gateway, "a").await).await;
    gateway.house.lease_step().await.unwrap();
    assert!(gateway.engine.is_alive());
    wake.send(()).unwrap();
    let told = soon(sent).await.unwrap();
    assert!(matches!(told, Arrived::Executed { answer: "refused", .. }), "{told:?}");
}

#[tokio::test]
async fn nothing_is_sent_when_the_lease_does_not_last_as_long_as_the_execution() {
    let (_database, gateway) = gateway(Kind::Sqlite, short()).await;
    let upstream = Upstream::default();
    // A budget of a second never fits into this lease.
    let told = gateway.arrive(request("a", "1"), upstream.never()).await;
    assert!(matches!(told, Arrived::Executed { answer: "refused", recorded: Recorded::Released }), "{told:?}");
    assert_eq!((upstream.calls(), gateway.entry("a").await), (0, None));
    until("the lease is over", || async { !gateway.engine.is_alive() }).await;
    gateway.house.lease_step().await.unwrap();
    assert!(gateway.engine.is_alive());
}
