//! What a client's program can tell from each of the gateway's own answers.

use super::client::Answer;
use super::eventually;
use super::gateway::{Gateway, Settings};
use super::upstream::{Gate, Received, Step, Upstream, answer, created};

/// The status, the slug, whether a retry is told when to come, what it may do, and the proxy error.
type Row = (u16, &'static str, bool, &'static str, &'static str);

#[track_caller]
fn is(answer: &Answer, (status, slug, retry_after, retry, proxy_error): Row) {
    answer.is_problem(status, slug);
    assert_eq!(answer.json()["retry"], retry, "{slug}");
    assert_eq!(answer.field("retry-after").is_some(), retry_after, "{slug}");
    assert_eq!(answer.field("proxy-status"), Some(&*format!("oncegate; error={proxy_error}")), "{slug}");
}

/// Does what the key says.
fn script(number: usize, request: &Received) -> Vec<Step> {
    match request.field("idempotency-key") {
        Some("hangs") => vec![Step::Wait(Gate::new())],
        Some("fails") => vec![Step::Close],
        Some("large") => answer("201 Created", &[], "12345678901234567890"),
        _ => created(number),
    }
}

const SETTINGS: Settings<'_> = &[
    (".forward_key", "raw"),
    (".response_limit", "15B"),
    (".retention", "1s"),
    ("upstreams.up.timeout", "400ms"),
    ("server.body_limit", "1KiB"),
    ("server.body_idle_timeout", "300ms"),
];

#[tokio::test]
async fn problems_of_the_request_itself() {
    let upstream = Upstream::start(script).await;
    let gateway = Gateway::start(&upstream, SETTINGS).await;
    let request = "http_request_error";
    is(&gateway.post("/pay").send().await, (400, "key-missing", false, "new_key", request));
    is(&gateway.pay("a, b").send().await, (400, "key-invalid", false, "new_key", request));
    is(&gateway.post("/none").send().await, (404, "no-route", false, "no", request));
    is(&gateway.post("//pay").send().await, (400, "bad-request", false, "same_key", request));
    is(&gateway.pay("k").body(vec![b' '; 2000]).send().await, (413, "body-too-large", false, "no", request));
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn problems_of_a_key_that_was_used() {
    let upstream = Upstream::start(script).await;
    let gateway = Gateway::start(&upstream, SETTINGS).await;
    assert_eq!(gateway.pay("done").send().await.status, 201);
    let reused = gateway.pay("done").body("{}").send().await;
    is(&reused, (422, "key-reused", false, "no", "http_request_error"));
    let first = tokio::spawn(gateway.pay("hangs").send());
    upstream.reached(2).await;
    is(&gateway.pay("hangs").send().await, (409, "processing", true, "same_key", "http_request_denied"));
    is(&first.await.unwrap(), (504, "upstream-timeout", false, "same_key", "http_response_timeout"));
    is(&gateway.pay("hangs").send().await, (409, "outcome-unknown", true, "same_key", "http_request_denied"));
    is(&gateway.pay("fails").send().await, (502, "upstream-failed", false, "same_key", "connection_terminated"));
    assert_eq!(gateway.pay("large").send().await.status, 201);
    is(&gateway.pay("large").send().await, (409, "response-not-kept", false, "no", "http_request_denied"));
    let expired = eventually(|| gateway.pay("done").send(), |answer| answer.status != 201).await;
    is(&expired, (410, "key-expired", false, "no", "http_request_error"));
}

#[tokio::test]
async fn what_the_proxy_error_does_not_say_the_answer_of_the_upstream_does() {
    let upstream =
        Upstream::always(answer("409 Conflict", &[("content-type", "application/problem+json")], "{}")).await;
    let gateway = Gateway::start(&upstream, &[]).await;
    for _ in 0..2 {
        let theirs = gateway.pay("k").send().await;
        assert_eq!((theirs.status, theirs.field("proxy-status"), &theirs.body[..]), (409, None, &b"{}"[..]));
    }
}

#[tokio::test]
async fn a_clients_request_id_is_told_again_if_it_is_plain() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let ask = |id: &[u8]| gateway.post("/pay").field("x-request-id", id).send();
    let plain = ask(b"my-id-1").await;
    plain.is_problem(400, "key-missing");
    assert_eq!(plain.field("x-request-id"), Some("my-id-1"));
    for odd in [&b"\xff"[..], &[b'x'; 129], b""] {
        let answer = ask(odd).await;
        answer.is_problem(400, "key-missing");
        assert_eq!(answer.field("x-request-id").map(str::len), Some(32));
    }
}
