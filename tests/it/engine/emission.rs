//! Every way to a completed entry announces it, once; no other end does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue};
use oncegate::engine::policy::{Found, Lookup, LookupPolicy, OnUnknown};
use oncegate::engine::{Arrival, OnEvents, Policy};
use oncegate::entry::source::Sent;
use oncegate::entry::{EntryId, Identity, Outcome};
use oncegate::outbox::data::Data;
use oncegate::outbox::event::EventId;
use oncegate::outbox::key::EventKey;
use oncegate::outbox::lane::Lanes;
use oncegate::outbox::rule::{EventRule, EventRules};
use oncegate::outbox::seed::Asked;

use super::upstream::{Upstream, answer, completed, not_executed, timed_out};
use super::{Gateway, Setup, assert_held, assert_replay, expire, gateway, on, owner, policy, two, under, until};
use crate::servers::database::{Database, Kind, on_each_database};
use crate::servers::outbox::{Written, written};

on_each_database!(
    an_execution_announces_and_its_replays_do_not,
    what_was_not_executed_or_is_unknown_announces_nothing,
    a_lookup_in_the_background_announces_what_the_claim_kept,
    a_lookup_by_a_retry_announces,
    a_late_answer_announces,
    a_late_answer_after_a_lookup_announces_nothing_more,
    a_second_attempt_announces_under_the_first_ones_origin,
);

const BODY: &str = r#"{"no":"A-1","amount":1.10}"#;
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Two events: what was asked, ordered by the order's number, and what was answered.
fn announcing(on_unknown: OnUnknown) -> Arc<Policy> {
    let asked = EventRule {
        data: Data::Request,
        key: EventKey::Request(serde_json::from_str(r#""body:/no""#).unwrap()),
        ..EventRule::new("asked", "com.example.asked", "orders")
    };
    let rules = vec![asked, EventRule::new("answered", "com.example.answered", "payments")];
    let events = EventRules::new("pay", rules, &Lanes::default()).unwrap();
    Arc::new(Policy { on_unknown, events, ..policy() })
}

/// A request of `key` in a trace, under `policy`.
fn request(policy: &Arc<Policy>, key: &str) -> Arrival {
    let body = Bytes::from_static(BODY.as_bytes());
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", HeaderValue::from_static(TRACE));
    let sent = Sent { body: Some(&body), ..Sent::default() };
    let seed = policy.events.seed(&Asked { sent, headers: &headers, body: &body }, [0; 24]);
    Arrival { seed: Arc::new(seed), ..under(policy, key, BODY) }
}

/// What is written of an entry that was answered with `answered`.
async fn assert_announced(database: &Database, gateway: &Gateway, key: &str, answered: &str) {
    let origin = gateway.entry(key).await.unwrap().origin;
    let said: Vec<_> = written(database).await.into_iter().map(said).collect();
    let id = |name: &str| EventId::of(origin, name).to_string();
    let expected = [
        (id("asked"), "A-1".to_owned(), TRACE.to_owned(), "1.0.1".to_owned(), BODY.to_owned()),
        (id("answered"), key.to_owned(), TRACE.to_owned(), "1.0.1".to_owned(), answered.to_owned()),
    ];
    assert_eq!(said, expected);
}

fn said(event: Written) -> (String, String, String, String, String) {
    (event.id, event.key, event.traceparent, event.state, event.data)
}

/// An upstream that says what became of a request.
struct Oracle;

impl Lookup for Oracle {
    fn lookup<'a>(&'a self, _: EntryId, _: &'a Identity) -> BoxFuture<'a, Found> {
        Box::pin(async { Found::Completed(answer("found")) })
    }
}

fn looking_up() -> Arc<Policy> {
    let first = Duration::ZERO;
    let absent_means_not_executed_after = None;
    let lookup = Arc::new(Oracle);
    announcing(OnUnknown::Lookup(LookupPolicy {
        lookup,
        business_keys_only: false,
        absent_means_not_executed_after,
        first,
        max: first,
    }))
}

async fn an_execution_announces_and_its_replays_do_not(kind: Kind) {
    let woken = Arc::new(AtomicU32::new(0));
    let wakes = Arc::clone(&woken);
    let on_events = OnEvents::new(move || {
        wakes.fetch_add(1, Ordering::SeqCst);
    });
    let (database, gateway) = gateway(kind, Setup { on_events, ..Setup::default() }).await;
    let (policy, upstream) = (announcing(OnUnknown::Hold), Upstream::default());
    gateway.arrive(request(&policy, "a"), upstream.pays()).await;
    assert_announced(&database, &gateway, "a", "paid").await;
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    // From the cache, and by another gateway from the ledger.
    let other = on(&database, Setup::default()).await;
    for gateway in [&gateway, &other] {
        assert_replay(&gateway.arrive(request(&policy, "a"), upstream.never()).await, "paid");
    }
    assert_announced(&database, &gateway, "a", "paid").await;
    assert_eq!((woken.load(Ordering::SeqCst), upstream.calls()), (1, 1));
    // Nobody is woken for nothing.
    gateway.arrive(under(&Arc::new(super::policy()), "b", "1"), upstream.pays()).await;
    assert_eq!(woken.load(Ordering::SeqCst), 1);
}

async fn what_was_not_executed_or_is_unknown_announces_nothing(kind: Kind) {
    let (database, gateway) = gateway(kind, Setup::default()).await;
    let (policy, upstream) = (announcing(OnUnknown::Hold), Upstream::default());
    gateway.arrive(request(&policy, "a"), upstream.run(|_| not_executed())).await;
    gateway.arrive(request(&policy, "b"), upstream.loses_it()).await;
    assert_held(&gateway.arrive(request(&policy, "b"), upstream.never()).await);
    assert_eq!(written(&database).await, []);
}

async fn a_lookup_in_the_background_announces_what_the_claim_kept(kind: Kind) {
    let policy = looking_up();
    let (database, gone, rescuer) = two(kind, || Setup { policies: vec![policy.clone()], ..Setup::default() }).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = gone.send(request(&policy, "a"), run);
    held.begun().await;
    // The process that claimed it is gone: all that is known of the request is in the row.
    expire(&database, owner(&gone, "a").await).await;
    rescuer.house.sweep_step().await.unwrap();
    rescuer.house.lookup_step().await.unwrap();
    until("settled", || rescuer.is_completed("a")).await;
    assert_announced(&database, &rescuer, "a", "found").await;
    // It was only suspended, and its answer comes.
    held.ends(completed("too late"));
    sent.await.unwrap();
    assert_announced(&database, &rescuer, "a", "found").await;
}

async fn a_lookup_by_a_retry_announces(kind: Kind) {
    let policy = looking_up();
    let (database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    gateway.arrive(request(&policy, "a"), upstream.loses_it()).await;
    for _ in 0..2 {
        assert_replay(&gateway.arrive(request(&policy, "a"), upstream.never()).await, "found");
    }
    assert_announced(&database, &gateway, "a", "found").await;
}

async fn a_late_answer_announces(kind: Kind) {
    let (database, gateway) = gateway(kind, Setup::default()).await;
    let (policy, upstream) = (announcing(OnUnknown::Hold), Upstream::default());
    let (end, late) = timed_out();
    gateway.arrive(request(&policy, "a"), upstream.run(|_| end)).await;
    assert_eq!(written(&database).await, []);
    late.send(Outcome::Completed(answer("late"))).unwrap();
    until("completed", || gateway.is_completed("a")).await;
    assert_announced(&database, &gateway, "a", "late").await;
}

async fn a_late_answer_after_a_lookup_announces_nothing_more(kind: Kind) {
    let policy = looking_up();
    let (database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    let (end, late) = timed_out();
    gateway.arrive(request(&policy, "a"), upstream.run(|_| end)).await;
    assert_replay(&gateway.arrive(request(&policy, "a"), upstream.never()).await, "found");
    late.send(Outcome::Completed(answer("late"))).unwrap();
    let evidence = "SELECT COUNT(*) FROM entries WHERE evidence IS NOT NULL";
    until("evidence", || async { database.stranger().await.number(evidence).await == 1 }).await;
    assert_announced(&database, &gateway, "a", "found").await;
}

async fn a_second_attempt_announces_under_the_first_ones_origin(kind: Kind) {
    let (database, gateway) = gateway(kind, Setup::default()).await;
    let (policy, upstream) = (announcing(OnUnknown::Forward), Upstream::default());
    gateway.arrive(request(&policy, "a"), upstream.loses_it()).await;
    let origin = gateway.entry("a").await.unwrap().origin;
    let run = upstream.run(move |attempt| {
        assert_eq!((attempt.number, attempt.origin), (2, origin));
        assert_ne!(attempt.nonce, origin);
        completed("paid")
    });
    gateway.arrive(request(&policy, "a"), run).await;
    assert_eq!(gateway.entry("a").await.unwrap().origin, origin);
    assert_announced(&database, &gateway, "a", "paid").await;
}

/// An entry that an older gateway claimed has no seed: what its events can't say waits for a person.
#[tokio::test]
async fn an_entry_claimed_before_there_were_events_announces_what_is_known() {
    let policy = looking_up();
    let (database, gateway) = gateway(Kind::Sqlite, Setup { policies: vec![policy.clone()], ..Setup::default() }).await;
    gateway.arrive(request(&policy, "a"), Upstream::default().loses_it()).await;
    database.stranger().await.run("UPDATE entries SET context = x'68'").await;
    gateway.house.lookup_step().await.unwrap();
    let events: Vec<_> = written(&database).await;
    let id = super::id("a").to_hex();
    let seen: Vec<_> = events.iter().map(|event| (event.is_unfit(), &*event.key, &*event.data)).collect();
    assert_eq!(seen, [(true, &*id, "null"), (false, "a", "found")]);
}
