//! Input that is broken, hostile or slow: a clear answer or a clean end, no execution that nobody could
//! retry, and the same key works afterwards.

use tokio::io::AsyncWriteExt as _;

use super::client::rest;
use super::gateway::{Gateway, Settings};
use super::upstream::Upstream;

const HEAD: &str = "POST /pay HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nidempotency-key: k\r\n";

/// The key of a refused request still is new.
async fn the_key_works(gateway: &Gateway, upstream: &Upstream) {
    assert_eq!(upstream.count(), 0);
    assert_eq!(gateway.pay("k").send().await.told(), (201, "{\"payment\":1}", Some("false")));
}

#[tokio::test]
async fn strange_bodies_are_carried_and_compared_by_their_bytes() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000)).into_bytes();
    let digits = format!("{{\"a\":{}}}", "9".repeat(100_000)).into_bytes();
    let table =
        [deep, digits, b"{\"a\":\"\xff\"}".to_vec(), b"{\"a\":\"\\ud800\"}".to_vec(), b"{\"a\"".to_vec(), vec![0; 9]];
    for body in table {
        let upstream = Upstream::counting().await;
        let gateway = Gateway::start(&upstream, &[]).await;
        let first = gateway.pay("k").body(body.clone()).send().await;
        assert_eq!(first.told(), (201, "{\"payment\":1}", Some("false")));
        assert_eq!(upstream.last().body, body);
        gateway.pay("k").body(body.clone()).send().await.is_replay_of(&first);
        let changed = [&body[..], b" x"].concat();
        gateway.pay("k").body(changed).send().await.is_problem(422, "key-reused");
    }
}

#[tokio::test]
async fn a_key_that_can_not_be_read_from_its_body_is_none() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[(".key", "[\"body:/no\"]")]).await;
    for body in [&b"{\"no\":1"[..], b"{\"no\":\"\xff\"}", b"{\"no\":1}}", b"{\"no\":1e400}", b"{\"no\":1.5}", b"no=1"] {
        let answer = gateway.post("/pay").body(body).send().await;
        assert_eq!(answer.status, 400, "{}", String::from_utf8_lossy(body));
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_key_is_found_in_json_of_any_depth_and_declared_type() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[(".key", "[\"body:/no\"]")]).await;
    let deep = format!("{{\"no\":1,\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    for (kind, body) in [("application/json", deep), ("text/plain", "{\"no\":2}".to_owned())] {
        let call = gateway.typed("/pay", kind).body(body);
        let first = call.clone().send().await;
        assert_eq!((first.status, first.field("idempotent-replayed")), (201, Some("false")), "{kind}");
        call.send().await.is_replay_of(&first);
    }
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_however_it_is_announced() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[("server.body_limit", "1KiB")]).await;
    gateway.pay("k").body(vec![b' '; 1025]).send().await.is_problem(413, "body-too-large");
    let mut announced = gateway.raw(format!("{HEAD}content-length: 99999999999\r\nexpect: 100-continue\r\n\r\n")).await;
    let answer = rest(&mut announced).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let chunk = format!("400\r\n{}\r\n", " ".repeat(1024));
    let mut chunked = gateway.raw(format!("{HEAD}transfer-encoding: chunked\r\n\r\n{chunk}1\r\nx\r\n")).await;
    let answer = rest(&mut chunked).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(upstream.count(), 0);
    assert_eq!(gateway.pay("k").body(vec![b' '; 1024]).send().await.status, 201);
}

#[tokio::test]
async fn a_body_that_ends_early_is_not_forwarded() {
    for body in [
        "content-length: 12\r\n\r\n{\"amount\"",
        "transfer-encoding: chunked\r\n\r\n5\r\n{\"am",
        "transfer-encoding: chunked\r\n\r\n5\r\n{\"amo\r\n",
    ] {
        let upstream = Upstream::counting().await;
        let gateway = Gateway::start(&upstream, &[]).await;
        let mut stream = gateway.raw(format!("{HEAD}{body}")).await;
        stream.shutdown().await.unwrap();
        let answer = rest(&mut stream).await;
        assert!(answer.is_empty() || answer.contains("/problems/bad-request"), "{answer}");
        the_key_works(&gateway, &upstream).await;
    }
}

#[tokio::test]
async fn framing_that_can_be_read_in_two_ways_is_refused() {
    let table = [
        "content-length: 1\r\ncontent-length: 2\r\n\r\n12",
        "content-length: 1, 2\r\n\r\n12",
        "content-length: -1\r\n\r\n",
        "content-length: 99999999999999999999999\r\n\r\n",
        "transfer-encoding: chunked, gzip\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\nzz\r\n",
        "host: b\r\nconnection: close\r\ncontent-length: 12\r\n\r\n{\"amount\":1}",
        "x: a\r\n b\r\ncontent-length: 12\r\n\r\n{\"amount\":1}",
    ];
    for framing in table {
        let upstream = Upstream::counting().await;
        let gateway = Gateway::start(&upstream, &[]).await;
        let mut stream = gateway.raw(format!("{HEAD}{framing}")).await;
        let answer = rest(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{framing:?}: {answer}");
        the_key_works(&gateway, &upstream).await;
    }
}

#[tokio::test]
async fn a_head_that_names_no_host_or_two_is_told_so() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    for host in ["", "host: a\r\nhost: b\r\n"] {
        let head = format!("POST /pay HTTP/1.1\r\n{host}idempotency-key: k\r\nconnection: close\r\n\r\n");
        let answer = rest(&mut gateway.raw(head).await).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("It names no host, or several."), "{answer}");
    }
    the_key_works(&gateway, &upstream).await;
}

#[tokio::test]
async fn a_slow_sender_is_told_and_its_key_stays_new() {
    let slow: Settings<'_> = &[("server.body_idle_timeout", "200ms")];
    for body in ["content-length: 12\r\n\r\n{\"amo", "transfer-encoding: chunked\r\n\r\n5\r\n{\"amo\r\n"] {
        let upstream = Upstream::counting().await;
        let gateway = Gateway::start(&upstream, slow).await;
        let mut stream = gateway.raw(format!("{HEAD}{body}")).await;
        let answer = rest(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("/problems/body-timeout"), "{answer}");
        the_key_works(&gateway, &upstream).await;
    }
}

#[tokio::test]
async fn a_chunked_body_and_a_sized_one_are_the_same_request() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let chunked = "connection: close\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"amo\r\n7\r\nunt\":1}\r\n0\r\n\r\n";
    let answer = rest(&mut gateway.raw(format!("{HEAD}{chunked}")).await).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert_eq!(
        (upstream.last().field("content-length"), upstream.last().field("transfer-encoding")),
        (Some("12"), None)
    );
    assert_eq!(gateway.pay("k").send().await.told(), (201, "{\"payment\":1}", Some("true")));
}

#[tokio::test]
async fn a_head_over_the_limit_is_refused() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[("server.header_limit", "8KiB")]).await;
    let answer = gateway.pay("k").field("x-large", "x".repeat(9000)).send().await;
    assert_eq!(answer.status, 431);
    the_key_works(&gateway, &upstream).await;
}
