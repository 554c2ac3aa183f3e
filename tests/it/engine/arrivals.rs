//! Requests of one key at the same time, in one gateway and in two.

use oncegate::engine::{Arrived, Recorded};

use super::upstream::{Upstream, completed, not_executed};
use super::{
    Gateway, Setup, Told, assert_in_progress, assert_mismatch, assert_replay, gateway, memory, patient, request, soon,
    two,
};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    simultaneous_requests_of_a_key_run_once,
    simultaneous_requests_in_two_gateways_run_once_with_and_without_shared_marks,
    two_keys_with_one_body_are_two_payments,
    another_request_with_the_key_is_told_so_while_the_first_still_runs,
    a_replay_is_the_first_answer_in_every_gateway,
    a_caller_that_hangs_up_cancels_nothing,
);

const MANY: usize = 20;

async fn all(gateways: &[&Gateway], upstream: &Upstream, key: &str) -> Vec<Told> {
    let sent: Vec<_> =
        (0..MANY).map(|n| gateways[n % gateways.len()].send(request(key, "1"), upstream.pays())).collect();
    futures_util::future::join_all(sent).await.into_iter().map(Result::unwrap).collect()
}

/// One was executed; the others were told that it is being, or its answer.
fn assert_one_ran(told: &[Told], upstream: &Upstream) {
    assert_eq!(upstream.calls(), 1);
    let executed = told.iter().filter(|told| matches!(told, Arrived::Executed { answer: "paid", .. })).count();
    assert_eq!(executed, 1, "{told:?}");
    for told in told {
        match told {
            Arrived::Executed { recorded, .. } => assert!(matches!(recorded, Recorded::Completed(_)), "{told:?}"),
            Arrived::Told(oncegate::engine::Verdict::InProgress { .. }) => {}
            Arrived::Told(_) => assert_replay(told, "paid"),
        }
    }
}

async fn simultaneous_requests_of_a_key_run_once(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    for key in ["a", "b", "c"] {
        let upstream = Upstream::default();
        assert_one_ran(&all(&[&gateway], &upstream, key).await, &upstream);
    }
}

async fn simultaneous_requests_in_two_gateways_run_once_with_and_without_shared_marks(kind: Kind) {
    let shared = memory();
    let (_database, first, second) = two(kind, || Setup { marks: shared.clone(), ..Setup::default() }).await;
    let (_alone, third, fourth) = two(kind, Setup::default).await;
    for key in ["a", "b", "c"] {
        for gateways in [[&first, &second], [&third, &fourth]] {
            let upstream = Upstream::default();
            assert_one_ran(&all(&gateways, &upstream, key).await, &upstream);
        }
    }
}

async fn two_keys_with_one_body_are_two_payments(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    for key in ["a", "b"] {
        gateway.arrive(request(key, "1"), upstream.pays()).await;
    }
    assert_eq!(upstream.calls(), 2);
}

async fn another_request_with_the_key_is_told_so_while_the_first_still_runs(kind: Kind) {
    let shared = memory();
    let (_database, first, second) = two(kind, || Setup { marks: shared.clone(), ..Setup::default() }).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = first.send(request("a", "1"), run);
    held.begun().await;
    for gateway in [&first, &second] {
        assert_mismatch(&gateway.arrive(request("a", "2"), upstream.never()).await);
        assert_mismatch(&soon(gateway.arrive(patient(request("a", "2")), upstream.never())).await);
        assert_in_progress(&gateway.arrive(request("a", "1"), upstream.never()).await);
    }
    held.ends(completed("paid"));
    sent.await.unwrap();
    for gateway in [&first, &second] {
        assert_mismatch(&gateway.arrive(request("a", "2"), upstream.never()).await);
        assert_replay(&gateway.arrive(request("a", "1"), upstream.never()).await, "paid");
    }
    assert_eq!(upstream.calls(), 1);
}

async fn a_replay_is_the_first_answer_in_every_gateway(kind: Kind) {
    let (database, first, second) = two(kind, Setup::default).await;
    let upstream = Upstream::default();
    let told = first.arrive(request("a", "1"), upstream.pays()).await;
    assert!(matches!(told, Arrived::Executed { answer: "paid", recorded: Recorded::Completed(_) }), "{told:?}");
    assert_replay(&first.arrive(request("a", "1"), upstream.never()).await, "paid");
    assert_replay(&second.arrive(request("a", "1"), upstream.never()).await, "paid");
    let third = super::on(&database, Setup::default()).await;
    let peeked = third.engine.peek(&request("a", "1")).await.unwrap();
    assert_replay(&Arrived::Told(peeked.unwrap()), "paid");
    assert_eq!(upstream.calls(), 1);
}

async fn a_caller_that_hangs_up_cancels_nothing(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = gateway.send(request("a", "1"), run);
    held.begun().await;
    sent.abort();
    assert!(sent.await.unwrap_err().is_cancelled());
    let waiting = gateway.send(patient(request("a", "1")), upstream.never());
    held.ends(completed("paid"));
    assert_replay(&soon(waiting).await.unwrap(), "paid");
    assert_eq!(upstream.calls(), 1);
}

/// A mismatch that leads in this process while it still asks the ledger proves nothing about the key.
#[tokio::test]
async fn a_request_beside_a_mismatch_is_never_called_the_mismatch() {
    let (database, writer) = gateway(Kind::Sqlite, Setup::default()).await;
    let upstream = Upstream::default();
    writer.arrive(request("a", "1"), upstream.pays()).await;
    // Fresh gateways know nothing yet, so that both requests have to ask.
    for round in 0..10 {
        let fresh = super::on(&database, Setup::default()).await;
        let (wrong, right) = tokio::join!(
            fresh.arrive(request("a", "2"), upstream.never()),
            fresh.arrive(request("a", "1"), upstream.never()),
        );
        assert_mismatch(&wrong);
        assert!(!matches!(right, Arrived::Told(oncegate::engine::Verdict::Mismatch)), "round {round}");
        assert_replay(&fresh.arrive(request("a", "1"), upstream.never()).await, "paid");
    }
    assert_eq!(upstream.calls(), 1);
}

/// A mark may be left over of a request that came to nothing; only the ledger says whose the key is.
#[tokio::test]
async fn a_mark_left_over_of_another_request_does_not_refuse_the_corrected_one() {
    let marks = memory();
    let (_database, gateway) = gateway(Kind::Sqlite, Setup { marks: marks.clone(), ..Setup::default() }).await;
    let left = request("a", "1");
    super::hints::leave_mark(&*marks, &left).await;
    let upstream = Upstream::default();
    let told = gateway.arrive(request("a", "2"), upstream.pays()).await;
    assert!(matches!(told, Arrived::Executed { answer: "paid", .. }), "{told:?}");
}

/// The caller is told once its flight and its mark are gone: else it would meet itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_told_that_nothing_happened_may_come_again_at_once() {
    let (_database, gateway) = gateway(Kind::Sqlite, Setup::default()).await;
    let upstream = Upstream::default();
    for n in 0..100 {
        let told = gateway.arrive(request("a", "1"), upstream.run(|_| not_executed())).await;
        assert!(matches!(told, Arrived::Executed { recorded: Recorded::Released, .. }), "{n}: {told:?}");
    }
    assert_eq!(upstream.calls(), 100);
}
