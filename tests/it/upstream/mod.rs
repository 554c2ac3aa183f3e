//! The upstream client against real sockets that misbehave at chosen points.

mod answers;
mod http1;
mod http2;
mod raw;
mod streaming;
mod tls;
mod urls;

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use oncegate::upstream::{Exchange, Permit, Reason, Upstream, UpstreamOptions};

/// Longest wait of a test for anything.
const PATIENCE: Duration = Duration::from_secs(10);

fn upstream(urls: &[&str]) -> Upstream {
    Upstream::new(&options(urls)).unwrap()
}

fn options(urls: &[&str]) -> UpstreamOptions {
    UpstreamOptions::new("test", urls.iter().map(|&url| url.to_owned()).collect())
}

fn post(path: &str, body: &'static str) -> Request<Bytes> {
    Request::builder().method(Method::POST).uri(path).body(Bytes::from(body)).unwrap()
}

/// For as long as any test takes.
fn patient() -> Permit {
    Permit::until(oncegate::clock::now() + PATIENCE)
}

async fn send(upstream: &Upstream, request: Request<Bytes>) -> Exchange {
    tokio::time::timeout(PATIENCE, upstream.send(request, patient())).await.expect("an exchange ends")
}

#[track_caller]
fn assert_not_sent(exchange: &Exchange, reason: Reason) {
    let Exchange::NotSent(failure) = exchange else { panic!("sent: {exchange:?}") };
    assert_eq!(failure.reason, reason, "{failure}");
}

#[track_caller]
fn assert_lost(exchange: &Exchange, reason: Reason) {
    let Exchange::Lost(failure) = exchange else { panic!("not lost: {exchange:?}") };
    assert_eq!(failure.reason, reason, "{failure}");
}

#[track_caller]
fn status(exchange: &Exchange) -> u16 {
    let Exchange::Answered { parts, .. } = exchange else { panic!("no answer: {exchange:?}") };
    parts.status.as_u16()
}
