//! What an answer, or its absence, makes of a request, as the first caller and the next retry see it.

use tokio::net::TcpListener;

use super::eventually;
use super::gateway::{Gateway, Settings};
use super::upstream::{Gate, Step, Upstream, after, answer, created, send};
use crate::servers::database::{Database, Kind};
use crate::servers::process::free_port;

/// What a retry meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Replay,
    Again,
    Held,
}

async fn status_then(settings: Settings<'_>, status: u16, then: Then) {
    let upstream = Upstream::always(answer(&format!("{status} Said"), &[("x-said", "1")], "body")).await;
    let gateway = Gateway::start(&upstream, settings).await;
    let first = gateway.pay("k").send().await;
    assert_eq!((first.told(), first.field("x-said")), ((status, "body", Some("false")), Some("1")));
    assert_eq!(first.field("idempotency-key-expires").is_some(), then == Then::Replay, "{status}");
    let retry = gateway.pay("k").send().await;
    match then {
        Then::Replay => retry.is_replay_of(&first),
        Then::Again => assert_eq!(retry.told(), (status, "body", Some("false"))),
        Then::Held => retry.is_problem(409, "outcome-unknown"),
    }
    assert_eq!(upstream.count(), if then == Then::Again { 2 } else { 1 }, "{status}");
}

#[tokio::test]
async fn what_is_certain_is_replayed() {
    for status in [200, 202, 301, 307, 400, 402, 409, 410, 422, 451] {
        status_then(&[], status, Then::Replay).await;
    }
}

#[tokio::test]
async fn a_refusal_before_any_work_lets_the_key_run_again() {
    for status in [401, 403, 404, 405, 413, 415, 421, 425, 429, 431] {
        status_then(&[], status, Then::Again).await;
    }
}

#[tokio::test]
async fn what_may_have_happened_is_held() {
    for status in [408, 500, 502, 503, 504, 599] {
        status_then(&[], status, Then::Held).await;
    }
}

#[tokio::test]
async fn the_route_lists_what_is_a_refusal() {
    let lists: Settings<'_> = &[(".outcomes.not_executed", "[503]")];
    for (status, then) in [(503, Then::Again), (404, Then::Replay), (500, Then::Held)] {
        status_then(lists, status, then).await;
    }
}

#[tokio::test]
async fn a_late_answer_settles_what_timed_out() {
    let gate = Gate::new();
    let waited_for = gate.clone();
    let upstream = Upstream::start(move |number, _| after(&waited_for, created(number))).await;
    let gateway = Gateway::start(&upstream, &[("upstreams.up.timeout", "200ms")]).await;
    let first = gateway.pay("k").send().await;
    first.is_problem(504, "upstream-timeout");
    assert_eq!(first.field("proxy-status"), Some("oncegate; error=http_response_timeout"));
    let retry = gateway.pay("k").send().await;
    retry.is_problem(409, "outcome-unknown");
    let seconds: u64 = retry.field("retry-after").unwrap().parse().unwrap();
    assert!((45..=75).contains(&seconds), "{seconds}");
    gate.cancel();
    let settled = eventually(|| gateway.pay("k").send(), |answer| answer.status != 409).await;
    assert_eq!(settled.told(), (201, "{\"payment\":1}", Some("true")));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_late_refusal_lets_the_key_run_again() {
    let gate = Gate::new();
    let waited_for = gate.clone();
    let upstream = Upstream::start(move |number, _| match number {
        1 => after(&waited_for, answer("429 Too Many", &[], "")),
        _ => created(number),
    })
    .await;
    let gateway = Gateway::start(&upstream, &[("upstreams.up.timeout", "200ms")]).await;
    gateway.pay("k").send().await.is_problem(504, "upstream-timeout");
    gateway.pay("k").send().await.is_problem(409, "outcome-unknown");
    gate.cancel();
    let again = eventually(|| gateway.pay("k").send(), |answer| answer.status != 409).await;
    assert_eq!(again.told(), (201, "{\"payment\":2}", Some("false")));
}

#[tokio::test]
async fn a_lost_connection_is_held_and_never_sent_again() {
    let cut_head = vec![send("HTTP/1.1 200 OK\r\ncontent-le"), Step::Close];
    let table = [
        (vec![Step::Close], "connection_terminated"),
        (cut_head, "connection_terminated"),
        (vec![send("I am no HTTP server\r\n\r\n"), Step::Close], "http_protocol_error"),
    ];
    for (steps, reason) in table {
        let upstream = Upstream::always(steps).await;
        let gateway = Gateway::start(&upstream, &[]).await;
        let first = gateway.pay("k").send().await;
        first.is_problem(502, "upstream-failed");
        assert_eq!(first.field("proxy-status"), Some(&*format!("oncegate; error={reason}")));
        for _ in 0..3 {
            gateway.pay("k").send().await.is_problem(409, "outcome-unknown");
        }
        assert_eq!(upstream.count(), 1);
    }
}

#[tokio::test]
async fn what_was_not_sent_may_run_again() {
    let port = free_port();
    let database = Database::create(Kind::Sqlite).await;
    let gateway = Gateway::again(database, &format!("http://127.0.0.1:{port}"), "", &[]).await;
    let refused = gateway.pay("k").send().await;
    refused.is_problem(502, "upstream-unreachable");
    assert_eq!(refused.field("proxy-status"), Some("oncegate; error=connection_refused"));
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let upstream = Upstream::on(listener, |number, _| created(number));
    let again = gateway.pay("k").body("{\"amount\":2}").send().await;
    assert_eq!(again.told(), (201, "{\"payment\":1}", Some("false")));
    assert_eq!(upstream.last().field("oncegate-attempt"), Some("1"));
}

#[tokio::test]
async fn a_connection_that_the_upstream_closed_while_idle_is_dialled_again() {
    let upstream = Upstream::start(|number, _| created(number).into_iter().chain([Step::Close]).collect()).await;
    let gateway = Gateway::start(&upstream, &[]).await;
    for key in 1..=20 {
        let answer = gateway.pay(&key.to_string()).send().await;
        assert_eq!(answer.told(), (201, &*format!("{{\"payment\":{key}}}"), Some("false")));
    }
}
