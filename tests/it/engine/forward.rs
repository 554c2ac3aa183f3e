//! Unknown entries settled by forwarding again to an upstream that honours the key.

use std::sync::Arc;

use oncegate::engine::policy::OnUnknown;
use oncegate::engine::{Arrived, Policy, Recorded};
use oncegate::entry::{Outcome, State};

use super::upstream::{Upstream, answer, completed, not_executed, timed_out};
use super::{Setup, Told, assert_held, assert_in_progress, assert_replay, gateway, policy, two, under};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    the_second_attempt_settles_and_is_replayed,
    a_second_attempt_that_was_refused_stays_unknown,
    two_gateways_that_forward_at_once_run_one_second_attempt,
    a_late_answer_of_the_first_attempt_is_fenced_by_the_second,
);

fn forwarding() -> Arc<Policy> {
    Arc::new(Policy { on_unknown: OnUnknown::Forward, ..policy() })
}

async fn the_second_attempt_settles_and_is_replayed(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    let (policy, upstream) = (forwarding(), Upstream::default());
    gateway.arrive(under(&policy, "a", "1"), upstream.loses_it()).await;
    let run = upstream.run(|attempt| {
        assert_eq!(attempt.number, 2);
        completed("paid")
    });
    let told = gateway.arrive(under(&policy, "a", "1"), run).await;
    assert!(matches!(told, Arrived::Executed { answer: "paid", recorded: Recorded::Completed(_) }), "{told:?}");
    assert_replay(&gateway.arrive(under(&policy, "a", "1"), upstream.never()).await, "paid");
    let entry = gateway.entry("a").await.unwrap();
    assert_eq!((entry.attempt, upstream.calls()), (2, 2));
}

async fn a_second_attempt_that_was_refused_stays_unknown(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    let (policy, upstream) = (forwarding(), Upstream::default());
    gateway.arrive(under(&policy, "a", "1"), upstream.loses_it()).await;
    let told = gateway.arrive(under(&policy, "a", "1"), upstream.run(|_| not_executed())).await;
    assert!(matches!(told, Arrived::Executed { answer: "refused", recorded: Recorded::Unknown }), "{told:?}");
    assert!(gateway.is_unknown("a").await);
    assert_held(&gateway.arrive(super::request("a", "1"), upstream.never()).await);
    // So does one that panicked before its first byte.
    let panics: super::upstream::Run = Box::new(|_| panic!("a handler's bug"));
    gateway.arrive(under(&policy, "a", "1"), panics).await;
    gateway.house.sweep_step().await.unwrap();
    assert!(gateway.is_unknown("a").await);
    gateway
        .arrive(
            under(&policy, "a", "1"),
            upstream.run(|attempt| {
                assert_eq!(attempt.number, 4);
                completed("paid")
            }),
        )
        .await;
    assert!(gateway.is_completed("a").await);
}

async fn two_gateways_that_forward_at_once_run_one_second_attempt(kind: Kind) {
    let (_database, first, second) = two(kind, Setup::default).await;
    let policy = forwarding();
    for key in ["a", "b", "c", "d"] {
        let upstream = Upstream::default();
        first.arrive(under(&policy, key, "1"), upstream.loses_it()).await;
        let send = |n: usize| [&first, &second][n % 2].send(under(&policy, key, "1"), upstream.pays());
        let sent: Vec<_> = (0..8).map(send).collect();
        let told: Vec<Told> = futures_util::future::join_all(sent).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(upstream.calls(), 2, "{told:?}");
        assert_eq!(told.iter().filter(|told| matches!(told, Arrived::Executed { .. })).count(), 1);
        for told in told.iter().filter(|told| matches!(told, Arrived::Told(oncegate::engine::Verdict::Replay { .. }))) {
            assert_replay(told, "paid");
        }
    }
}

async fn a_late_answer_of_the_first_attempt_is_fenced_by_the_second(kind: Kind) {
    let (database, first, second) = two(kind, Setup::default).await;
    let (policy, upstream) = (forwarding(), Upstream::default());
    let (end, late) = timed_out();
    first.arrive(under(&policy, "a", "1"), upstream.run(|_| end)).await;
    let (run, mut held) = upstream.held();
    let sent = second.send(under(&policy, "a", "1"), run);
    held.begun().await;
    assert_in_progress(&first.arrive(under(&policy, "a", "1"), upstream.never()).await);
    late.send(Outcome::Completed(answer("late"))).unwrap();
    let mut stranger = database.stranger().await;
    let deadline = oncegate::clock::now() + super::LIMIT;
    while stranger.number("SELECT COUNT(*) FROM entries WHERE evidence IS NOT NULL").await == 0 {
        assert!(oncegate::clock::now() < deadline, "no evidence was kept");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(matches!(second.state("a").await, State::InProgress { .. }));
    held.ends(completed("paid"));
    sent.await.unwrap();
    for gateway in [&first, &second] {
        assert_replay(&gateway.arrive(under(&policy, "a", "1"), upstream.never()).await, "paid");
    }
}
