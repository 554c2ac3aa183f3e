//! What a client sees for malformed heads and ambiguous lengths. The table of `http::framing` says the same.

use std::time::Duration;

use oncegate::http::listener::ListenerOptions;

use super::{PATIENCE, Served, rest};

/// The answer's status line, all of the answer, and whether the connection was closed after it.
async fn answer(request: &[u8]) -> (String, String, bool) {
    let served = Served::echo(ListenerOptions::default()).await;
    let mut client = served.send(request).await;
    let (text, closed) = rest(&mut client, Duration::from_millis(300)).await;
    (text.lines().next().unwrap_or_default().to_owned(), text, closed)
}

#[tokio::test]
async fn probe() {
    let many: String = (0..10_000).map(|n| format!("x-{n}: 1\r\n")).collect();
    let big = "x".repeat(1 << 20);
    let long_uri = "x".repeat(70_000);
    let post = |fields: &str, body: &str| format!("POST / HTTP/1.1\r\nhost: a\r\n{fields}\r\n{body}");
    let table = [
        ("two lengths", post("content-length: 3\r\ncontent-length: 4\r\n", "abcd")),
        ("same lengths", post("content-length: 3\r\ncontent-length: 3\r\n", "abc")),
        ("list length", post("content-length: 3, 3\r\n", "abc")),
        ("neg length", post("content-length: -3\r\n", "abc")),
        ("plus length", post("content-length: +3\r\n", "abc")),
        ("cl+te", post("content-length: 3\r\ntransfer-encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n")),
        ("te+cl", post("transfer-encoding: chunked\r\ncontent-length: 3\r\n", "3\r\nabc\r\n0\r\n\r\n")),
        ("te gzip", post("transfer-encoding: gzip\r\n", "abc")),
        ("te chunked, identity", post("transfer-encoding: chunked, identity\r\n", "abc")),
        ("bad chunk", post("transfer-encoding: chunked\r\n", "zz\r\nabc\r\n0\r\n\r\n")),
        ("huge chunk", post("transfer-encoding: chunked\r\n", "ffffffffffffffffff\r\nabc\r\n0\r\n\r\n")),
        ("obs-fold", post("x-a: 1\r\n 2\r\n", "")),
        ("nul", post("x-a: 1\02\r\n", "")),
        ("space before colon", post("x-a : 1\r\n", "")),
        ("bare lf", "GET / HTTP/1.1\nhost: a\n\n".to_owned()),
        ("no host", "GET / HTTP/1.1\r\n\r\n".to_owned()),
        ("many", post(&many, "")),
        ("big", post(&format!("x: {big}\r\n"), "")),
        ("uri", format!("GET /{long_uri} HTTP/1.1\r\nhost: a\r\n\r\n")),
        ("http/1.0 te", "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned()),
        ("http/3", "GET / HTTP/3.0\r\nhost: a\r\n\r\n".to_owned()),
        ("garbage", "\x16\x03\x01\x00\r\n\r\n".to_owned()),
    ];
    for (name, request) in table {
        let (_, text, closed) = answer(request.as_bytes()).await;
        println!("{name}: {text:?} closed={closed}");
    }
    let _ = PATIENCE;
}
