use std::time::Duration;

use oncegate::http::listener::ListenerOptions;
use tokio::io::AsyncWriteExt as _;

use super::{PATIENCE, Served, rest, until};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

fn impatient() -> ListenerOptions {
    ListenerOptions { head_timeout: Duration::from_millis(100), ..ListenerOptions::default() }
}

#[tokio::test]
async fn a_client_that_sends_no_whole_head_in_time_is_closed() {
    let served = Served::echo(impatient()).await;
    // Nothing; too little to tell the version; a head without end; HTTP/2 without a request.
    for start in [&b""[..], b"P", b"GET / HTTP/1.1\r\nhost: a\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut client = served.send(start).await;
        let (text, closed) = rest(&mut client, PATIENCE).await;
        assert!(closed && !text.starts_with("HTTP/1.1 200"), "{start:?}: {text:?}");
    }
}

#[tokio::test]
async fn dripping_does_not_lengthen_the_time_for_a_head() {
    let served = Served::echo(impatient()).await;
    let mut client = served.connect().await;
    let begun = oncegate::clock::now();
    // Each byte comes well within the time-out, the head does not.
    while client.write_all(b"G").await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "still open");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_answer_that_takes_longer_than_the_time_for_a_head_is_not_cut() {
    let slow = tower::service_fn(|_| async {
        tokio::time::sleep(Duration::from_millis(350)).await;
        let body = futures_util::stream::once(async {
            tokio::time::sleep(Duration::from_millis(350)).await;
            Ok::<_, std::io::Error>(bytes::Bytes::from_static(b"slow"))
        });
        Ok(http::Response::new(axum::body::Body::from_stream(body)))
    });
    let served = Served::start(impatient(), slow).await;
    let mut client = served.send(GET).await;
    assert!(until(&mut client, "slow\r\n0\r\n\r\n").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn at_the_bound_the_next_connection_waits_for_a_place() {
    let options = ListenerOptions { max_connections: 1, ..ListenerOptions::default() };
    let served = Served::echo(options).await;
    let mut first = served.send(GET).await;
    until(&mut first, "\r\n\r\n").await;
    let mut second = served.send(GET).await;
    let (text, closed) = rest(&mut second, Duration::from_millis(100)).await;
    assert!(text.is_empty() && !closed, "{text:?}");
    drop(first);
    assert!(until(&mut second, "\r\n\r\n").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_the_client_sends_it() {
    let served = Served::echo(ListenerOptions::default()).await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1001\r\n\r\n";
    let mut client = served.send(head.as_bytes()).await;
    assert!(until(&mut client, "too large").await.starts_with("HTTP/1.1 413"));
}

#[tokio::test]
async fn chunks_over_the_limit_are_refused_by_what_comes() {
    let served = Served::echo(ListenerOptions::default()).await;
    let chunk = format!("300\r\n{}\r\n", "x".repeat(0x300));
    let request = format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}");
    let mut client = served.send(request.as_bytes()).await;
    assert!(until(&mut client, "too large").await.starts_with("HTTP/1.1 413"));
}
