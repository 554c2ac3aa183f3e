//! Unknown entries settled by asking the upstream.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use oncegate::engine::policy::{Found, Lookup, LookupPolicy, OnUnknown};
use oncegate::engine::{Arrived, Policy};
use oncegate::entry::{EntryId, Identity, Outcome, State};
use tokio::sync::Barrier;

use super::upstream::{Upstream, answer, timed_out, unknown};
use super::{
    Gateway, Setup, assert_held, assert_replay, expire, gateway, owner, patient, policy, soon, two, under, until,
};
use crate::servers::database::{Database, Kind, on_each_database};

on_each_database!(
    a_retry_that_finds_it_done_is_replayed,
    of_retries_that_come_at_once_one_asks,
    of_retries_that_wait_for_a_lookup_hardly_any_asks_again,
    the_background_settles_without_a_client,
    absent_is_believed_after_its_time_only,
    absent_is_never_believed_where_it_is_not_declared,
    two_gateways_that_ask_at_once_settle_once,
    a_late_answer_after_a_lookup_settled_is_kept_as_evidence,
);

/// An upstream that is asked.
pub(super) struct Oracle {
    says: Mutex<Found>,
    asked: AtomicU32,
    /// Where everybody who asks waits for the others.
    meeting: Barrier,
}

impl Oracle {
    pub(super) fn says(says: Found) -> Arc<Self> {
        Self::at_meetings_of(1, says)
    }

    fn at_meetings_of(gateways: usize, says: Found) -> Arc<Self> {
        Arc::new(Self { says: Mutex::new(says), asked: AtomicU32::new(0), meeting: Barrier::new(gateways) })
    }

    fn now_says(&self, says: Found) {
        *self.says.lock().unwrap() = says;
    }

    pub(super) fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    /// A policy that asks it.
    pub(super) fn policy(self: &Arc<Self>, first: Duration, absent_after: Option<Duration>) -> Arc<Policy> {
        let lookup: Arc<dyn Lookup> = self.clone();
        let on_unknown = OnUnknown::Lookup(LookupPolicy {
            lookup,
            business_keys_only: false,
            absent_means_not_executed_after: absent_after,
            first,
            max: first * 4,
        });
        Arc::new(Policy { on_unknown, ..policy() })
    }
}

impl Lookup for Oracle {
    fn lookup<'a>(&'a self, id: EntryId, identity: &'a Identity) -> BoxFuture<'a, Found> {
        Box::pin(async move {
            assert_eq!(identity.id(), id);
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.meeting.wait().await;
            self.says.lock().unwrap().clone()
        })
    }
}

const AT_ONCE: Duration = Duration::ZERO;
const MINUTE: Duration = Duration::from_secs(60);

fn done() -> Found {
    Found::Completed(answer("found"))
}

async fn gateway_of(kind: Kind, policy: &Arc<Policy>) -> (Database, Gateway) {
    gateway(kind, Setup { policies: vec![policy.clone()], ..Setup::default() }).await
}

async fn lookups(gateway: &Gateway, key: &str) -> u32 {
    match gateway.state(key).await {
        State::Unknown { lookups, .. } => lookups,
        state => panic!("not unknown: {state:?}"),
    }
}

async fn a_retry_that_finds_it_done_is_replayed(kind: Kind) {
    let oracle = Oracle::says(Found::Undecided);
    let policy = oracle.policy(AT_ONCE, None);
    let (_database, gateway) = gateway_of(kind, &policy).await;
    let upstream = Upstream::default();
    gateway.arrive(under(&policy, "a", "1"), upstream.loses_it()).await;
    assert_held(&gateway.arrive(under(&policy, "a", "1"), upstream.never()).await);
    oracle.now_says(done());
    for _ in 0..2 {
        assert_replay(&gateway.arrive(under(&policy, "a", "1"), upstream.never()).await, "found");
    }
    assert_eq!((oracle.asked(), upstream.calls()), (2, 1));
}

async fn of_retries_that_come_at_once_one_asks(kind: Kind) {
    let oracle = Oracle::says(Found::Undecided);
    let policy = oracle.policy(MINUTE, None);
    let (_database, gateway) = gateway_of(kind, &policy).await;
    let upstream = Upstream::default();
    gateway.arrive(under(&policy, "a", "1"), upstream.loses_it()).await;
    for _ in 0..5 {
        assert_held(&gateway.arrive(under(&policy, "a", "1"), upstream.never()).await);
    }
    assert_eq!((oracle.asked(), upstream.calls()), (1, 1));
}

/// Each of them takes its turn at the key, and finds that somebody has just asked.
async fn of_retries_that_wait_for_a_lookup_hardly_any_asks_again(kind: Kind) {
    const WAITING: u32 = 8;
    let oracle = Oracle::at_meetings_of(2, Found::Undecided);
    let policy = oracle.policy(MINUTE, None);
    let (_database, gateway) = gateway_of(kind, &policy).await;
    let upstream = Upstream::default();
    gateway.arrive(under(&policy, "a", "1"), upstream.loses_it()).await;
    let first = gateway.send(under(&policy, "a", "1"), upstream.never());
    until("one asks", || async { oracle.asked() == 1 }).await;
    let waiting = (0..WAITING).map(|_| gateway.send(patient(under(&policy, "a", "1")), upstream.never()));
    let waiting: Vec<_> = waiting.collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(waiting.iter().all(|told| !told.is_finished()));
    // Whoever still asks is answered as well.
    let meets = oracle.clone();
    let answering = tokio::spawn(async move {
        loop {
            meets.meeting.wait().await;
        }
    });
    for told in waiting.into_iter().chain([first]) {
        assert_held(&soon(told).await.unwrap());
    }
    // Once a second is allowed, and machines that test are slow.
    assert!(oracle.asked() <= 1 + WAITING / 2, "{} asked", oracle.asked());
    answering.abort();
}

async fn the_background_settles_without_a_client(kind: Kind) {
    let oracle = Oracle::says(Found::Undecided);
    let policy = oracle.policy(AT_ONCE, None);
    let (database, gateway) = gateway_of(kind, &policy).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    gateway.arrive(under(&policy, "a", "1"), upstream.loses_it()).await;
    // An orphan is due at once as well.
    let sent = gateway.send(under(&policy, "b", "1"), run);
    held.begun().await;
    expire(&database, owner(&gateway, "b").await).await;
    gateway.house.sweep_step().await.unwrap();
    for _ in 0..2 {
        gateway.house.lookup_step().await.unwrap();
    }
    assert_eq!((lookups(&gateway, "a").await, lookups(&gateway, "b").await), (2, 2));
    oracle.now_says(done());
    gateway.house.lookup_step().await.unwrap();
    held.ends(unknown());
    sent.await.unwrap();
    for key in ["a", "b"] {
        assert!(gateway.is_completed(key).await);
        assert_replay(&gateway.arrive(under(&policy, key, "1"), upstream.never()).await, "found");
    }
    gateway.house.lookup_step().await.unwrap();
    assert_eq!((oracle.asked(), upstream.calls()), (6, 2));
}

async fn absent_is_believed_after_its_time_only(kind: Kind) {
    let oracle = Oracle::says(Found::Absent);
    let (early, late) = (oracle.policy(AT_ONCE, Some(MINUTE)), oracle.policy(AT_ONCE, Some(AT_ONCE)));
    let (_database, gateway) = gateway_of(kind, &early).await;
    let upstream = Upstream::default();
    gateway.arrive(under(&early, "a", "1"), upstream.loses_it()).await;
    assert_held(&gateway.arrive(under(&early, "a", "1"), upstream.never()).await);
    gateway.house.lookup_step().await.unwrap();
    assert!(gateway.is_unknown("a").await);
    let told = gateway.arrive(under(&late, "a", "1"), upstream.pays()).await;
    assert!(matches!(told, Arrived::Executed { answer: "paid", .. }), "{told:?}");
    assert_eq!(gateway.entry("a").await.unwrap().attempt, 1, "it never happened before");
    assert_eq!(upstream.calls(), 2);
}

/// The claim may be long past when the call begins: only the time since the outcome became unknown counts.
#[tokio::test]
async fn absence_is_not_believed_because_the_claim_is_old() {
    let oracle = Oracle::says(Found::Absent);
    let policy = oracle.policy(AT_ONCE, Some(MINUTE));
    let (database, gateway) = gateway_of(Kind::Sqlite, &policy).await;
    let upstream = Upstream::default();
    gateway.arrive(under(&policy, "a", "1"), upstream.loses_it()).await;
    database.stranger().await.run("UPDATE entries SET started_at = 1, created_at = 1").await;
    assert_held(&gateway.arrive(under(&policy, "a", "1"), upstream.never()).await);
    assert!(gateway.is_unknown("a").await);
}

async fn absent_is_never_believed_where_it_is_not_declared(kind: Kind) {
    let oracle = Oracle::says(Found::Absent);
    let policy = oracle.policy(AT_ONCE, None);
    let (database, gateway) = gateway_of(kind, &policy).await;
    let upstream = Upstream::default();
    gateway.arrive(under(&policy, "a", "1"), upstream.loses_it()).await;
    database.stranger().await.run("UPDATE entries SET started_at = 1, changed_at = 1").await;
    for _ in 0..3 {
        gateway.house.lookup_step().await.unwrap();
        assert_held(&gateway.arrive(under(&policy, "a", "1"), upstream.never()).await);
    }
    assert_eq!(upstream.calls(), 1);
}

async fn two_gateways_that_ask_at_once_settle_once(kind: Kind) {
    let oracle = Oracle::at_meetings_of(2, done());
    let policy = oracle.policy(AT_ONCE, None);
    let (database, first, second) = two(kind, || Setup { policies: vec![policy.clone()], ..Setup::default() }).await;
    let upstream = Upstream::default();
    first.arrive(under(&policy, "a", "1"), upstream.loses_it()).await;
    // Both have read the entry before either settles it.
    let (one, other) = tokio::join!(first.house.lookup_step(), second.house.lookup_step());
    one.unwrap();
    other.unwrap();
    assert_eq!(oracle.asked(), 2);
    let settled = first.entry("a").await.unwrap();
    assert!(matches!(settled.state, State::Completed { .. }), "{settled:?}");
    let mut stranger = database.stranger().await;
    assert_eq!(stranger.number("SELECT COUNT(*) FROM entries WHERE evidence IS NOT NULL").await, 0);
    for gateway in [&first, &second] {
        assert_replay(&gateway.arrive(under(&policy, "a", "1"), upstream.never()).await, "found");
    }
    assert_eq!(upstream.calls(), 1);
}

async fn a_late_answer_after_a_lookup_settled_is_kept_as_evidence(kind: Kind) {
    let oracle = Oracle::says(done());
    let policy = oracle.policy(MINUTE, None);
    let (database, gateway) = gateway_of(kind, &policy).await;
    let upstream = Upstream::default();
    let (end, late) = timed_out();
    gateway.arrive(under(&policy, "a", "1"), upstream.run(|_| end)).await;
    assert_replay(&gateway.arrive(under(&policy, "a", "1"), upstream.never()).await, "found");
    late.send(Outcome::Completed(answer("something else"))).unwrap();
    let mut stranger = database.stranger().await;
    let evidence = "SELECT COUNT(*) FROM entries WHERE evidence IS NOT NULL";
    let deadline = oncegate::clock::now() + super::LIMIT;
    while stranger.number(evidence).await == 0 {
        assert!(oncegate::clock::now() < deadline, "no evidence was kept");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let other = super::on(&database, Setup::default()).await;
    for gateway in [&gateway, &other] {
        assert_replay(&gateway.arrive(under(&policy, "a", "1"), upstream.never()).await, "found");
    }
    assert_eq!(upstream.calls(), 1);
}

#[tokio::test]
async fn lookups_in_the_background_come_less_and_less_often() {
    let oracle = Oracle::says(Found::Undecided);
    let policy = oracle.policy(MINUTE, None);
    let (database, gateway) = gateway_of(Kind::Sqlite, &policy).await;
    let upstream = Upstream::default();
    gateway.arrive(under(&policy, "a", "1"), upstream.loses_it()).await;
    let mut stranger = database.stranger().await;
    gateway.house.lookup_step().await.unwrap();
    assert_eq!(oracle.asked(), 0, "not due yet");
    for (round, minutes) in [(1, 1), (2, 2), (3, 4), (4, 4)] {
        stranger.run("UPDATE entries SET due_at = 1").await;
        gateway.house.lookup_step().await.unwrap();
        gateway.house.lookup_step().await.unwrap();
        assert_eq!(oracle.asked(), round, "once, then it is not due");
        let (entry, now) = oncegate::engine::ledger::Ledger::read(&*gateway.store, super::id("a")).await.unwrap();
        let State::Unknown { next_lookup: Some(due), lookups } = entry.unwrap().state else { panic!("settled") };
        assert_eq!(lookups, round);
        let left = due.since(now);
        assert!(left <= MINUTE * minutes && left > MINUTE * minutes - super::LIMIT, "{left:?} after {round}");
    }
}

#[tokio::test]
async fn a_route_that_is_not_configured_here_is_left_to_the_gateway_that_has_it() {
    let oracle = Oracle::says(done());
    let policy = oracle.policy(AT_ONCE, None);
    let (database, stranger) = gateway(Kind::Sqlite, Setup::default()).await;
    let mine = super::on(&database, Setup { policies: vec![policy.clone()], ..Setup::default() }).await;
    let upstream = Upstream::default();
    mine.arrive(under(&policy, "a", "1"), upstream.loses_it()).await;
    let mut sql = database.stranger().await;
    sql.run("UPDATE entries SET lookups = 3").await;
    stranger.house.lookup_step().await.unwrap();
    assert_eq!((oracle.asked(), lookups(&mine, "a").await), (0, 3), "its back-off stays");
    sql.run("UPDATE entries SET due_at = 1").await;
    mine.house.lookup_step().await.unwrap();
    until("settled", || mine.is_completed("a")).await;
}
