//! Requests that wait for another one of their key.

use oncegate::engine::{Arrived, Options, Recorded, Verdict};

use super::upstream::{Upstream, completed, not_executed, unknown};
use super::{
    Arrival, SECOND, Setup, assert_held, assert_in_progress, assert_replay, gateway, memory, patient, request, soon,
    two,
};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    waiters_get_the_first_answer_in_both_gateways,
    a_waiter_is_admitted_anew_after_a_request_that_was_not_executed,
    a_waiter_is_told_when_the_outcome_is_unknown,
);

async fn waiters_get_the_first_answer_in_both_gateways(kind: Kind) {
    for shared in [true, false] {
        let marks = memory();
        let setup = || Setup { marks: if shared { marks.clone() } else { memory() }, ..Setup::default() };
        let (_database, first, second) = two(kind, setup).await;
        let upstream = Upstream::default();
        let (run, mut held) = upstream.held();
        let sent = first.send(request("a", "1"), run);
        held.begun().await;
        let send = |n: usize| [&first, &second][n % 2].send(patient(request("a", "1")), upstream.never());
        let waiting: Vec<_> = (0..10).map(send).collect();
        held.ends(completed("paid"));
        sent.await.unwrap();
        for told in soon(futures_util::future::join_all(waiting)).await {
            assert_replay(&told.unwrap(), "paid");
        }
        assert_eq!(upstream.calls(), 1);
    }
}

async fn a_waiter_is_admitted_anew_after_a_request_that_was_not_executed(kind: Kind) {
    let shared = memory();
    let (_database, first, second) = two(kind, || Setup { marks: shared.clone(), ..Setup::default() }).await;
    for (key, other) in [("a", &first), ("b", &second)] {
        let upstream = Upstream::default();
        let (run, mut held) = upstream.held();
        let sent = first.send(request(key, "1"), run);
        held.begun().await;
        let waiting = other.send(patient(request(key, "1")), upstream.pays());
        tokio::task::yield_now().await;
        held.ends(not_executed());
        let told = sent.await.unwrap();
        assert!(matches!(told, Arrived::Executed { answer: "refused", recorded: Recorded::Released }), "{told:?}");
        let told = soon(waiting).await.unwrap();
        assert!(matches!(told, Arrived::Executed { answer: "paid", recorded: Recorded::Completed(_) }), "{told:?}");
        assert_eq!(upstream.calls(), 2);
    }
}

async fn a_waiter_is_told_when_the_outcome_is_unknown(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = gateway.send(request("a", "1"), run);
    held.begun().await;
    let waiting = gateway.send(patient(request("a", "1")), upstream.never());
    held.ends(unknown());
    sent.await.unwrap();
    assert_held(&soon(waiting).await.unwrap());
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test]
async fn waiters_are_bounded_and_the_rest_is_told_at_once() {
    let options = Options { waiters: 2, ..Options::default() };
    let (_database, gateway) = gateway(Kind::Sqlite, Setup { options, ..Setup::default() }).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = gateway.send(request("a", "1"), run);
    held.begun().await;
    let waiting: Vec<_> = (0..5).map(|_| gateway.send(patient(request("a", "1")), upstream.never())).collect();
    let (mut refused, mut replayed) = (0, 0);
    super::until("three were told", || async { waiting.iter().filter(|told| told.is_finished()).count() == 3 }).await;
    held.ends(completed("paid"));
    sent.await.unwrap();
    for told in soon(futures_util::future::join_all(waiting)).await.into_iter().map(Result::unwrap) {
        match told {
            Arrived::Told(Verdict::InProgress { .. }) => refused += 1,
            told => {
                assert_replay(&told, "paid");
                replayed += 1;
            }
        }
    }
    assert_eq!((refused, replayed), (3, 2));
}

/// Also where the key is executed by another gateway, and a request that waits has to look for itself.
#[tokio::test]
async fn a_storm_of_one_key_leaves_seats_to_others() {
    const STORM: usize = 300;
    let options = || Options { waiters: STORM, ..Options::default() };
    let (_database, first, second) = two(Kind::Sqlite, || Setup { options: options(), ..Setup::default() }).await;
    for (storming, other) in [("a", "b"), ("c", "d")] {
        let gateway = if storming == "a" { &first } else { &second };
        let upstream = Upstream::default();
        let (run, mut held) = upstream.held();
        let (other_run, mut other_held) = upstream.held();
        let sent = [first.send(request(storming, "1"), run), first.send(request(other, "1"), other_run)];
        held.begun().await;
        other_held.begun().await;
        let storm: Vec<_> =
            (0..STORM).map(|_| gateway.send(patient(request(storming, "1")), upstream.never())).collect();
        let told = || async { storm.iter().filter(|told| told.is_finished()).count() >= STORM - 256 };
        super::until("the rest was told", told).await;
        let waiter = gateway.send(patient(request(other, "1")), upstream.never());
        other_held.ends(completed("other"));
        assert_replay(&soon(waiter).await.unwrap(), "other");
        held.ends(completed("paid"));
        let told = soon(futures_util::future::join_all(storm)).await;
        let replayed = told.iter().filter(|told| matches!(told, Ok(Arrived::Told(Verdict::Replay { .. })))).count();
        assert_eq!(replayed, 256, "of {STORM}");
        soon(futures_util::future::join_all(sent)).await;
    }
}

#[tokio::test]
async fn a_wait_ends_at_its_time_here_and_elsewhere() {
    let (_database, first, second) = two(Kind::Sqlite, Setup::default).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = first.send(request("a", "1"), run);
    held.begun().await;
    for gateway in [&first, &second] {
        let short = Arrival { wait: SECOND / 10, ..request("a", "1") };
        assert_in_progress(&soon(gateway.arrive(short, upstream.never())).await);
    }
    held.ends(completed("paid"));
    sent.await.unwrap();
    assert_eq!(upstream.calls(), 1);
}
