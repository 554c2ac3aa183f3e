//! Fingerprint secrets that rotate.

use oncegate::engine::{Arrival, Arrived, Reason, Verdict};

use super::upstream::{Upstream, completed};
use super::{SECRET, Setup, assert_in_progress, assert_mismatch, assert_replay, memory, on, request, secrets};
use crate::servers::database::{Database, Kind, on_each_database};

on_each_database!(
    fingerprints_under_an_old_secret_compare,
    a_fingerprint_under_an_unknown_secret_is_neither_run_nor_refused,
    what_a_newer_version_wrote_is_neither_run_nor_refused,
);

const NEW: &str = "the secret after the rotation";

/// The request as a gateway would take it whose first secret is [`NEW`].
fn renewed(key: &str, body: &'static str) -> Arrival {
    let request = request(key, body);
    Arrival { fingerprint: secrets(&[NEW]).fingerprint(&request.meaning), ..request }
}

async fn fingerprints_under_an_old_secret_compare(kind: Kind) {
    let (database, marks) = (Database::create(kind).await, memory());
    let before = on(&database, Setup { marks: marks.clone(), ..Setup::default() }).await;
    let after = on(&database, Setup { marks, secrets: vec![NEW, SECRET], ..Setup::default() }).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = before.send(request("a", "1"), run);
    held.begun().await;
    assert_in_progress(&after.arrive(renewed("a", "1"), upstream.never()).await);
    assert_mismatch(&after.arrive(renewed("a", "2"), upstream.never()).await);
    held.ends(completed("paid"));
    sent.await.unwrap();
    assert_replay(&super::soon(after.arrive(super::patient(renewed("a", "1")), upstream.never())).await, "paid");
    assert_mismatch(&after.arrive(renewed("a", "2"), upstream.never()).await);
    assert_eq!(upstream.calls(), 1);
}

async fn a_fingerprint_under_an_unknown_secret_is_neither_run_nor_refused(kind: Kind) {
    let (database, marks) = (Database::create(kind).await, memory());
    let before = on(&database, Setup { marks: marks.clone(), ..Setup::default() }).await;
    let after = on(&database, Setup { marks, secrets: vec![NEW], ..Setup::default() }).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = before.send(request("a", "1"), run);
    held.begun().await;
    let assert_incomparable = |told: super::Told| {
        assert!(matches!(told, Arrived::Told(Verdict::Unavailable(Reason::Incomparable))), "{told:?}");
    };
    assert_incomparable(after.arrive(renewed("a", "1"), upstream.never()).await);
    held.ends(completed("paid"));
    sent.await.unwrap();
    before.arrive(request("b", "1"), upstream.loses_it()).await;
    for key in ["a", "b"] {
        assert_incomparable(after.arrive(renewed(key, "1"), upstream.never()).await);
    }
    assert_eq!(upstream.calls(), 2);
}

/// Gateways of two versions run side by side during a deploy.
async fn what_a_newer_version_wrote_is_neither_run_nor_refused(kind: Kind) {
    let database = Database::create(kind).await;
    let before = on(&database, Setup::default()).await;
    let upstream = Upstream::default();
    before.arrive(request("a", "1"), upstream.pays()).await;
    before.arrive(request("b", "1"), upstream.loses_it()).await;
    let mut newer = database.stranger().await;
    let mut fingerprint = request("a", "1").fingerprint.encode();
    fingerprint[0] += 1;
    let fingerprint = format!("fingerprint = {}", database.literal(&fingerprint));
    for (key, change) in [("a", &*fingerprint), ("b", "state = 3, status = 201, due_at = NULL")] {
        assert_eq!(newer.run(&format!("UPDATE entries SET {change} WHERE idempotency_key = '{key}'")).await, 1);
    }
    let after = on(&database, Setup::default()).await;
    for (key, body) in [("a", "1"), ("a", "2"), ("b", "1")] {
        let told = after.arrive(request(key, body), upstream.never()).await;
        assert!(matches!(told, Arrived::Told(Verdict::Unavailable(Reason::Incomparable))), "{key} {body}: {told:?}");
    }
    assert_eq!(upstream.calls(), 2);
}
