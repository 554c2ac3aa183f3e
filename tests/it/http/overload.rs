//! More than the gateway takes: who is turned away, and what becomes of the others.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use oncegate::entry::{Identity, Key, Namespace, Scope};

use super::gateway::{Gateway, Settings};
use super::in_time;
use super::upstream::{Gate, Upstream, after, created};
use crate::servers::database::Kind;

/// An upstream whose first answer comes when the gate opens.
async fn first_gated() -> (Upstream, Gate) {
    let gate = Gate::new();
    let waited_for = gate.clone();
    let script = move |number, _: &_| if number == 1 { after(&waited_for, created(1)) } else { created(number) };
    (Upstream::start(script).await, gate)
}

#[tokio::test]
async fn claims_over_the_limit_are_refused_at_once_and_those_that_were_taken_are_executed() {
    const QUEUE: usize = 4;
    const CALLERS: usize = 20;
    let upstream = Upstream::counting().await;
    let settings: Settings<'_> = &[
        ("store.queue_limit", "4"),
        ("store.batch_limit", "1"),
        ("store.acquire_timeout", "25s"),
        ("store.statement_timeout", "25s"),
        ("store.lock_timeout", "25s"),
    ];
    let gateway = Gateway::start(&upstream, settings).await;
    let mut stranger = gateway.database.stranger().await;
    stranger.run("BEGIN IMMEDIATE").await;
    let call = |number| {
        let (key, call) = (format!("k{number}"), gateway.pay(&format!("k{number}")));
        async move { (key, call.send().await) }
    };
    let mut calls: FuturesUnordered<_> = (0..CALLERS).map(call).collect();
    // One claim is on its way to the database, and as many as may wait do. All others are answered while those
    // wait.
    let mut refused = Vec::new();
    while refused.len() < CALLERS - QUEUE - 1 {
        let (key, answer) = in_time(calls.next()).await.unwrap();
        answer.is_problem(503, "unavailable");
        assert_eq!((answer.field("retry-after"), answer.field("idempotent-replayed")), (Some("1"), Some("false")));
        refused.push(key);
    }
    assert_eq!(upstream.count(), 0, "nothing runs without a claim");
    stranger.run("ROLLBACK").await;
    let mut executed = 0;
    while let Some((key, answer)) = in_time(calls.next()).await {
        match answer.status {
            201 => executed += 1,
            // The last one that was refused, where no claim was on its way yet when it came.
            _ => {
                answer.is_problem(503, "unavailable");
                refused.push(key);
            }
        }
    }
    assert!((QUEUE..=QUEUE + 1).contains(&executed), "{executed}");
    assert_eq!(upstream.count(), executed);
    for key in refused {
        let again = gateway.pay(&key).send().await;
        assert_eq!((again.status, again.field("idempotent-replayed")), (201, Some("false")), "{key}");
    }
}

#[tokio::test]
async fn waiters_over_the_limit_are_told_at_once_and_those_who_wait_hold_no_connection() {
    const WAITERS: usize = 2;
    const CALLERS: usize = 6;
    let settings: Settings<'_> = &[
        (".concurrent", "wait"),
        (".wait", "25s"),
        ("upstreams.up.timeout", "20s"),
        ("engine.lease", "60s"),
        ("engine.max_waiters", "2"),
        ("store.readers", "1"),
        ("store.writers", "1"),
    ];
    let (upstream, gate) = first_gated().await;
    let one = Gateway::on(Kind::Postgres, &upstream, settings).await;
    let two = Gateway::again(one.database.shared(), &upstream.url(), "", settings).await;
    let first = tokio::spawn(one.pay("k").send());
    upstream.reached(1).await;
    let mut waiting = Vec::new();
    // Beside the execution, and where it is another gateway's.
    for gateway in [&one, &two] {
        let mut calls: FuturesUnordered<_> = (0..CALLERS).map(|_| tokio::spawn(gateway.pay("k").send())).collect();
        for _ in 0..CALLERS - WAITERS {
            let told = in_time(calls.next()).await.unwrap().unwrap();
            told.is_problem(409, "processing");
            assert_eq!(told.field("retry-after"), Some("1"));
        }
        let other = gateway.pay(&gateway.addr.to_string()).send().await;
        assert_eq!((other.status, other.field("idempotent-replayed")), (201, Some("false")));
        assert!(calls.iter().all(|call| !call.is_finished()), "they wait");
        waiting.extend(calls);
    }
    gate.cancel();
    let first = first.await.unwrap();
    assert_eq!(first.told(), (201, "{\"payment\":1}", Some("false")));
    for call in waiting {
        in_time(call).await.unwrap().is_replay_of(&first);
    }
    assert_eq!(upstream.count(), 3);
}

#[tokio::test]
async fn a_row_that_a_person_has_locked_is_processing_and_stalls_nobody_else() {
    for kind in [Kind::Postgres, Kind::MySql] {
        let (upstream, gate) = first_gated().await;
        let one = Gateway::on(kind, &upstream, &[]).await;
        let two = Gateway::again(one.database.shared(), &upstream.url(), "", &[]).await;
        let first = tokio::spawn(one.pay("k").send());
        upstream.reached(1).await;
        let (namespace, key) = (Namespace::new("pay").unwrap(), Key::from_business("k").unwrap());
        let id = Identity { namespace, scope: Scope::Global, key }.id();
        let mut stranger = one.database.stranger().await;
        stranger.run("BEGIN").await;
        let id = one.database.literal(&id.0);
        stranger.run(&format!("SELECT * FROM entries WHERE id = {id} FOR UPDATE")).await;
        let (retry, other) = tokio::join!(two.pay("k").send(), two.pay("other").send());
        retry.is_problem(409, "processing");
        assert_eq!(other.told(), (201, "{\"payment\":2}", Some("false")), "{kind:?}");
        // The outcome is tried until it is recorded.
        gate.cancel();
        stranger.run("ROLLBACK").await;
        let first = in_time(first).await.unwrap();
        assert_eq!((first.told(), first.field("oncegate-recorded")), ((201, "{\"payment\":1}", Some("false")), None));
        two.pay("k").send().await.is_replay_of(&first);
    }
}

/// The database is asked in vain on all connections but the one that keeps the lease: were they expired, their
/// executions would be Unknown for nothing.
#[tokio::test]
async fn while_every_other_connection_waits_the_lease_is_renewed() {
    let upstream = Upstream::counting().await;
    let settings: Settings<'_> = &[
        ("server.status_endpoint", "anyone"),
        ("engine.lease", "20s"),
        ("engine.renew", "200ms"),
        ("store.readers", "1"),
        ("store.writers", "1"),
        ("store.acquire_timeout", "25s"),
        ("store.statement_timeout", "25s"),
        ("store.lock_timeout", "25s"),
    ];
    let gateway = Gateway::on(Kind::Postgres, &upstream, settings).await;
    let mut stranger = gateway.database.stranger().await;
    stranger.run("BEGIN; LOCK TABLE entries IN ACCESS EXCLUSIVE MODE").await;
    let claim = tokio::spawn(gateway.pay("k").send());
    let read = tokio::spawn(gateway.call("GET", "/idempotency/requests/other?namespace=pay").send());
    let mut observer = gateway.database.stranger().await;
    let waiting =
        "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while observer.number(waiting).await < 2 {
        assert!(!read.is_finished(), "{:?}", read.await);
    }
    let mut renewals = async || observer.number("SELECT renewals FROM instances WHERE state = 1").await;
    let before = renewals().await;
    in_time(async { while renewals().await < before + 3 {} }).await;
    assert!(!claim.is_finished() && !read.is_finished(), "they wait");
    stranger.run("ROLLBACK").await;
    assert_eq!(claim.await.unwrap().told(), (201, "{\"payment\":1}", Some("false")));
    read.await.unwrap();
}
