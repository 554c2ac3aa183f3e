//! What executions come to that do not simply complete.

use futures_util::FutureExt as _;
use oncegate::engine::{Arrived, Executed, Options, Recorded};
use oncegate::entry::Outcome;

use super::upstream::{Upstream, answer, not_executed, timed_out, unknown};
use super::{Setup, Told, assert_held, assert_replay, expire, gateway, owner, request, soon, until};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    what_was_not_executed_leaves_no_entry_and_another_request_may_have_the_key,
    an_unknown_outcome_is_held,
    a_late_answer_completes_what_timed_out,
    a_late_refusal_releases_what_timed_out,
    late_answers_over_the_limit_are_not_awaited,
    a_panic_before_the_first_byte_is_released_by_the_sweep,
    a_panic_after_the_first_byte_is_unknown,
    a_streamed_answer_is_recorded_at_its_end,
);

fn recorded(told: &Told) -> Recorded {
    match told {
        Arrived::Executed { recorded, .. } => *recorded,
        Arrived::Told(verdict) => panic!("not executed: {verdict:?}"),
    }
}

async fn what_was_not_executed_leaves_no_entry_and_another_request_may_have_the_key(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    let told = gateway.arrive(request("a", "1"), upstream.run(|_| not_executed())).await;
    assert_eq!(recorded(&told), Recorded::Released);
    assert_eq!(gateway.entry("a").await, None);
    let told = gateway.arrive(request("a", "corrected"), upstream.pays()).await;
    assert!(matches!(recorded(&told), Recorded::Completed(_)));
    assert_eq!(upstream.calls(), 2);
}

async fn an_unknown_outcome_is_held(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    let told = gateway.arrive(request("a", "1"), upstream.run(|_| unknown())).await;
    assert_eq!(recorded(&told), Recorded::Unknown);
    for _ in 0..3 {
        assert_held(&gateway.arrive(request("a", "1"), upstream.never()).await);
        gateway.house.sweep_step().await.unwrap();
        gateway.house.lookup_step().await.unwrap();
        gateway.house.reap_step().await.unwrap();
    }
    assert!(gateway.is_unknown("a").await);
    assert_eq!(upstream.calls(), 1);
}

async fn a_late_answer_completes_what_timed_out(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    let (end, late) = timed_out();
    let told = soon(gateway.arrive(request("a", "1"), upstream.run(|_| end))).await;
    assert!(matches!(told, Arrived::Executed { answer: "timed out", recorded: Recorded::Unknown }), "{told:?}");
    assert_held(&gateway.arrive(request("a", "1"), upstream.never()).await);
    late.send(Outcome::Completed(answer("paid"))).unwrap();
    until("completed", || gateway.is_completed("a")).await;
    assert_replay(&gateway.arrive(request("a", "1"), upstream.never()).await, "paid");
    assert_eq!(upstream.calls(), 1);
}

async fn a_late_refusal_releases_what_timed_out(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    let (end, late) = timed_out();
    gateway.arrive(request("a", "1"), upstream.run(|_| end)).await;
    late.send(Outcome::NotExecuted).unwrap();
    until("released", || async { gateway.entry("a").await.is_none() }).await;
    assert!(matches!(recorded(&gateway.arrive(request("a", "1"), upstream.pays()).await), Recorded::Completed(_)));
}

async fn late_answers_over_the_limit_are_not_awaited(kind: Kind) {
    let options = Options { late_answers: 1, ..Options::default() };
    let (_database, gateway) = gateway(kind, Setup { options, ..Setup::default() }).await;
    let upstream = Upstream::default();
    let ((first_end, first), (second_end, second)) = (timed_out(), timed_out());
    for (key, end) in [("a", first_end), ("b", second_end)] {
        gateway.arrive(request(key, "1"), upstream.run(|_| end)).await;
    }
    until("nobody listens to the second one", || async { second.is_closed() }).await;
    first.send(Outcome::Completed(answer("paid"))).unwrap();
    until("completed", || gateway.is_completed("a")).await;
    assert_held(&gateway.arrive(request("b", "1"), upstream.never()).await);
}

async fn a_panic_before_the_first_byte_is_released_by_the_sweep(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    let told = gateway.arrive(request("a", "1"), Box::new(|_| async { panic!("a handler's bug") }.boxed())).await;
    assert!(matches!(told, Arrived::Told(_)), "{told:?}");
    assert!(!gateway.is_unknown("a").await);
    let again = gateway.arrive(request("a", "1"), upstream.never()).await;
    assert!(matches!(again, Arrived::Told(_)), "guarded until the sweep: {again:?}");
    gateway.house.sweep_step().await.unwrap();
    assert_eq!(gateway.entry("a").await, None);
    gateway.arrive(request("a", "1"), upstream.pays()).await;
    assert_eq!(upstream.calls(), 1);
}

async fn a_panic_after_the_first_byte_is_unknown(kind: Kind) {
    let (database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    gateway.arrive(request("a", "1"), upstream.run(|_| panic!("a handler's bug"))).await;
    gateway.house.sweep_step().await.unwrap();
    assert!(gateway.is_unknown("a").await);
    // Neither is it released where a rescuer was first.
    gateway.arrive(request("b", "1"), upstream.run(|_| panic!("a handler's bug"))).await;
    expire(&database, owner(&gateway, "b").await).await;
    gateway.house.sweep_step().await.unwrap();
    gateway.house.sweep_step().await.unwrap();
    for key in ["a", "b"] {
        assert_held(&gateway.arrive(request(key, "1"), upstream.never()).await);
    }
    assert_eq!(upstream.calls(), 2);
}

async fn a_streamed_answer_is_recorded_at_its_end(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    let (end_stream, ended) = tokio::sync::oneshot::channel();
    let finish = async move { ended.await.unwrap_or(Outcome::Unknown) }.boxed();
    let told =
        gateway.arrive(request("a", "1"), upstream.run(|_| Executed::Streaming { answer: "a piece", finish })).await;
    assert_eq!(recorded(&told), Recorded::Streaming);
    super::assert_in_progress(&gateway.arrive(request("a", "1"), upstream.never()).await);
    end_stream.send(Outcome::Completed(answer("paid"))).unwrap();
    assert_replay(&soon(gateway.arrive(super::patient(request("a", "1")), upstream.never())).await, "paid");
    assert_eq!(upstream.calls(), 1);
}
