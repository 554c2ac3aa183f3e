//! What a client sees for malformed heads and ambiguous lengths. The table in `http::framing` says the same.

use std::time::Duration;

use oncegate::http::listener::ListenerOptions;
use tokio::io::AsyncWriteExt as _;

use super::{PATIENCE, Served, rest, until};

const BARE_400: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n";
const BARE_431: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n";

fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nhost: a\r\n{fields}\r\n{body}")
}

/// All that comes back until the server closes.
async fn closing_answer(served: &Served, request: &str) -> String {
    let mut client = served.send(request.as_bytes()).await;
    let (text, closed) = rest(&mut client, PATIENCE).await;
    assert!(closed, "{request:?} leaves the connection open: {text:?}");
    text
}

#[tokio::test]
async fn malformed_heads_and_lengths_get_a_bare_400() {
    let served = Served::echo(ListenerOptions::default()).await;
    let requests = [
        post("content-length: 3\r\ncontent-length: 4\r\n", "abcd"),
        post("content-length: 3, 3\r\n", "abc"),
        post("content-length: -3\r\n", "abc"),
        post("content-length: +3\r\n", "abc"),
        post("transfer-encoding: gzip\r\n", "abc"),
        post("transfer-encoding: chunked, identity\r\n", "abc"),
        post("x-a: 1\r\n 2\r\n", ""),
        post("x-a: 1\x002\r\n", ""),
        post("x-a : 1\r\n", ""),
        "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned(),
        "GET / HTTP/3.0\r\nhost: a\r\n\r\n".to_owned(),
        "\x16\x03\x01\x00\r\n\r\n".to_owned(),
    ];
    for request in requests {
        let answer = closing_answer(&served, &request).await;
        assert!(answer.starts_with(BARE_400), "{request:?}: {answer:?}");
    }
}

#[tokio::test]
async fn heads_over_the_limits_get_a_bare_431() {
    let served = Served::echo(ListenerOptions::default()).await;
    let many: String = (0..10_000).map(|number| format!("x-{number}: 1\r\n")).collect();
    let few: String = (0..101).map(|number| format!("x-{number}: 1\r\n")).collect();
    let big = format!("x: {}\r\n", "x".repeat(1 << 20));
    let target = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(70_000));
    for request in [post(&many, ""), post(&few, ""), post(&big, ""), target] {
        let answer = closing_answer(&served, &request).await;
        assert!(answer.starts_with(BARE_431), "{answer:?}");
    }
}

#[tokio::test]
async fn chunks_win_over_a_length_and_the_connection_is_closed() {
    let served = Served::echo(ListenerOptions::default()).await;
    let chunks = "3\r\nabc\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    for fields in
        ["content-length: 6\r\ntransfer-encoding: chunked\r\n", "transfer-encoding: chunked\r\ncontent-length: 6\r\n"]
    {
        let answer = closing_answer(&served, &post(fields, chunks)).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nabc"), "{answer:?}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "what follows is not read as a request: {answer:?}");
    }
}

#[tokio::test]
async fn the_same_length_twice_is_one_length() {
    let served = Served::echo(ListenerOptions::default()).await;
    let request = post("content-length: 3\r\ncontent-length: 3\r\n", "abc");
    let mut client = served.send(request.as_bytes()).await;
    assert!(until(&mut client, "abc").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_head_without_host_or_with_two_is_refused_by_us() {
    let served = Served::echo(ListenerOptions::default()).await;
    for fields in ["", "host: a\r\nhost: b\r\n"] {
        let mut client = served.send(format!("GET / HTTP/1.1\r\n{fields}\r\n").as_bytes()).await;
        assert!(until(&mut client, "refused").await.starts_with("HTTP/1.1 400"));
    }
}

#[tokio::test]
async fn a_malformed_chunk_is_a_body_cut_short() {
    let served = Served::echo(ListenerOptions::default()).await;
    for size in ["zz", "-3", "ffffffffffffffffff"] {
        let request = post("transfer-encoding: chunked\r\n", &format!("{size}\r\nabc\r\n0\r\n\r\n"));
        let answer = closing_answer(&served, &request).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.ends_with("cut"), "{size}: {answer:?}");
    }
}

#[tokio::test]
async fn a_body_that_ends_early_is_never_taken_for_whole() {
    let served = Served::echo(ListenerOptions::default()).await;
    for (fields, body) in [("content-length: 5\r\n", "abc"), ("transfer-encoding: chunked\r\n", "3\r\nabc\r\n")] {
        let mut client = served.send(post(fields, body).as_bytes()).await;
        client.shutdown().await.unwrap();
        let (answer, closed) = rest(&mut client, Duration::from_secs(5)).await;
        assert!(closed && answer.ends_with("cut"), "{fields:?}: {answer:?}");
    }
}
