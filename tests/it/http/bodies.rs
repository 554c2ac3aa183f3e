//! Answers that are large, cut or streamed.

use http_body_util::BodyExt as _;

use super::client::Answer;
use super::gateway::{Gateway, Settings};
use super::upstream::{Gate, Step, Upstream, answer, send};
use super::{eventually, in_time};

const SMALL: Settings<'_> = &[(".response_limit", "10B")];

/// A whole answer in chunks.
fn chunked(kind: &str, chunks: &[&str]) -> Step {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunks: String = chunks.iter().map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len())).collect();
    send(head + &chunks + "0\r\n\r\n")
}

/// A request whose answer was not kept.
async fn is_not_kept(gateway: &Gateway, status: u16) {
    let retry = eventually(|| gateway.pay("k").send(), |answer| answer.problem().1 != "processing").await;
    retry.is_problem(409, "response-not-kept");
    assert_eq!(retry.json()["original_status"], status);
    assert_eq!(retry.json()["retry"], "no");
    assert!(retry.field("idempotency-key-expires").is_some());
}

#[tokio::test]
async fn an_answer_over_the_limit_is_delivered_whole_and_not_kept() {
    let large = "12345678901";
    for steps in [answer("201 Created", &[], large), vec![chunked("text/plain", &["123456", "78901"])]] {
        let upstream = Upstream::always(steps).await;
        let gateway = Gateway::start(&upstream, SMALL).await;
        let first = gateway.pay("k").send().await;
        assert_eq!((&first.body[..], first.cut), (large.as_bytes(), false));
        is_not_kept(&gateway, first.status).await;
        assert_eq!(upstream.count(), 1);
    }
}

#[tokio::test]
async fn an_answer_of_just_the_limit_is_kept() {
    for steps in [answer("200 OK", &[], "1234567890"), vec![chunked("text/plain", &["12345", "67890"])]] {
        let upstream = Upstream::always(steps).await;
        let gateway = Gateway::start(&upstream, SMALL).await;
        let first = gateway.pay("k").send().await;
        assert_eq!(&first.body[..], b"1234567890");
        gateway.pay("k").send().await.is_replay_of(&first);
    }
}

#[tokio::test]
async fn a_cut_success_happened_and_its_caller_sees_the_cut() {
    let length = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345";
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n";
    for text in [length, chunks] {
        let upstream = Upstream::always(vec![send(text), Step::Close]).await;
        let gateway = Gateway::start(&upstream, &[]).await;
        let first = gateway.pay("k").send().await;
        assert_eq!((first.status, &first.body[..], first.cut), (200, &b"12345"[..], true));
        is_not_kept(&gateway, 200).await;
        assert_eq!(upstream.count(), 1);
        let passed = gateway.call("GET", "/pay").send().await;
        assert_eq!((passed.status, &passed.body[..], passed.cut), (200, &b"12345"[..], true), "unguarded too");
    }
}

#[tokio::test]
async fn a_cut_refusal_is_no_answer() {
    let cut = "HTTP/1.1 402 Payment Required\r\ncontent-length: 10\r\n\r\n12345";
    let upstream = Upstream::always(vec![send(cut), Step::Close]).await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let first = gateway.pay("k").send().await;
    assert_eq!((first.status, first.cut), (402, true));
    gateway.pay("k").send().await.is_problem(409, "outcome-unknown");
}

#[tokio::test]
async fn a_body_that_hangs_times_out_as_a_cut_one() {
    let hanging = vec![send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345"), Step::Wait(Gate::new())];
    let upstream = Upstream::always(hanging).await;
    let gateway = Gateway::start(&upstream, &[("upstreams.up.timeout", "300ms")]).await;
    let first = gateway.pay("k").send().await;
    assert_eq!((first.status, &first.body[..], first.cut), (200, &b"12345"[..], true));
    is_not_kept(&gateway, 200).await;
}

fn stream(media_type: &str, gate: &Gate, end: Step) -> Vec<Step> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ntransfer-encoding: chunked\r\n\r\n");
    vec![send(head + "5\r\none\n\n\r\n"), Step::Wait(gate.clone()), send("5\r\ntwo\n\n\r\n"), end]
}

fn events(gate: &Gate, end: Step) -> Vec<Step> {
    stream("text/event-stream", gate, end)
}

#[tokio::test]
async fn parts_that_are_meant_to_be_read_one_by_one_are_delivered_as_they_come() {
    for media_type in ["application/x-ndjson; charset=utf-8", "Application/JSON-seq", "multipart/x-mixed-replace"] {
        let gate = Gate::new();
        let upstream = Upstream::always(stream(media_type, &gate, send("0\r\n\r\n"))).await;
        let gateway = Gateway::start(&upstream, &[]).await;
        let mut first = gateway.pay("k").begin().await;
        let part = in_time(first.body_mut().frame()).await.unwrap().unwrap();
        assert_eq!(part.into_data().unwrap(), "one\n\n", "{media_type}");
        gate.cancel();
        assert_eq!(Answer::read(first).await.body, "two\n\n");
    }
}

#[tokio::test]
async fn an_event_stream_is_delivered_as_it_comes_and_replayed_whole() {
    let gate = Gate::new();
    let upstream = Upstream::always(events(&gate, send("0\r\n\r\n"))).await;
    // The stream goes on for longer than an answer may take.
    let gateway = Gateway::start(&upstream, &[("upstreams.up.timeout", "200ms")]).await;
    let mut first = gateway.pay("k").begin().await;
    let event = in_time(first.body_mut().frame()).await.unwrap().unwrap();
    assert_eq!(event.into_data().unwrap(), "one\n\n");
    gateway.pay("k").send().await.is_problem(409, "processing");
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    gate.cancel();
    let rest = Answer::read(first).await;
    assert_eq!((&rest.body[..], rest.cut), (&b"two\n\n"[..], false));
    let replay = eventually(|| gateway.pay("k").send(), |answer| answer.status != 409).await;
    assert_eq!(replay.told(), (200, "one\n\ntwo\n\n", Some("true")));
    assert_eq!(replay.field("content-type"), Some("text/event-stream"));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn an_event_stream_that_breaks_or_grows_too_large_is_not_kept() {
    let open = Gate::new();
    open.cancel();
    for (end, settings) in [(Step::Close, &[][..]), (send("5\r\ntri\n\n\r\n0\r\n\r\n"), SMALL)] {
        let upstream = Upstream::always(events(&open, end)).await;
        let gateway = Gateway::start(&upstream, settings).await;
        let first = gateway.pay("k").send().await;
        assert_eq!(first.cut, settings.is_empty());
        assert!(first.body.starts_with(b"one\n\ntwo\n\n"));
        is_not_kept(&gateway, 200).await;
        assert_eq!(upstream.count(), 1);
    }
}

#[tokio::test]
async fn an_event_stream_is_kept_though_its_client_has_gone() {
    let gate = Gate::new();
    let upstream = Upstream::always(events(&gate, send("0\r\n\r\n"))).await;
    let gateway = Gateway::start(&upstream, &[]).await;
    drop(gateway.pay("k").begin().await);
    gate.cancel();
    let retry =
        eventually(|| gateway.pay("k").send(), |answer| answer.status != 409 || answer.problem().1 != "processing")
            .await;
    assert_eq!(retry.told(), (200, "one\n\ntwo\n\n", Some("true")));
    assert_eq!(upstream.count(), 1);
}
