//! Pass-through from a raw client, through the listener and the forwarding fields, to a raw upstream.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use oncegate::http::forwarded::{self, Trust};
use oncegate::http::listener::{Listener, ListenerOptions};
use oncegate::http::peer::Peer;
use oncegate::http::workers::Dealer;
use oncegate::upstream::hop_by_hop;
use oncegate::upstream::{StreamFailure, Upstream};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::raw::{OK, Server, read_request, read_until, refusing, write};
use super::{PATIENCE, options};

/// A listener that passes everything on, as a route without a policy does.
struct Gateway {
    addr: SocketAddr,
    _stop: DropGuard,
}

impl Gateway {
    async fn before(urls: &[&str], timeout: Duration) -> Self {
        Self::with(urls, timeout, ListenerOptions::default()).await
    }

    async fn with(urls: &[&str], timeout: Duration, listener: ListenerOptions) -> Self {
        let mut options = options(urls);
        options.timeout = timeout;
        let upstream = Upstream::new(&options).unwrap();
        let service = tower::service_fn(move |request| pass(upstream.clone(), request));
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), listener).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(listener.serve(service, Dealer::here(), stop.clone()));
        Self { addr, _stop: stop.drop_guard() }
    }

    async fn request(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        write(&mut stream, text).await;
        stream
    }
}

async fn pass(upstream: Upstream, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (mut parts, body) = request.into_parts();
    hop_by_hop::strip_streamed(&mut parts.headers);
    let peer = parts.extensions.get::<Peer>().unwrap().clone();
    forwarded::apply(&mut parts, &peer, Trust::Nobody);
    let answer = upstream.forward_streaming(Request::from_parts(parts, Body::new(body))).await;
    Ok(match answer {
        Ok(response) => {
            let (mut parts, body) = response.into_parts();
            hop_by_hop::strip_streamed(&mut parts.headers);
            forwarded::apply_to_answer(&mut parts);
            Response::from_parts(parts, Body::new(body))
        }
        Err(failure) => {
            let status = if matches!(failure, StreamFailure::TimedOut) { 504 } else { 502 };
            Response::builder().status(status).body(Body::from(failure.to_string())).unwrap()
        }
    })
}

async fn until(stream: &mut TcpStream, end: &str) -> String {
    let read = tokio::time::timeout(PATIENCE, read_until(stream, end)).await;
    read.unwrap_or_else(|_| panic!("{end:?} did not come")).unwrap_or_else(|| panic!("ended before {end:?}"))
}

#[tokio::test]
async fn fields_of_the_connections_stay_on_their_side() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = Server::start(move |_, mut stream| {
        let tell = tell.clone();
        async move {
            tell.send(read_request(&mut stream).await.unwrap()).unwrap();
            write(&mut stream, &OK.replace("\r\n\r\n", "\r\nconnection: x-hop\r\nx-hop: 1\r\nx-end: 1\r\n\r\n")).await;
        }
    })
    .await;
    let gateway = Gateway::before(&[&server.url()], PATIENCE).await;
    let request = "GET /p%2Fq?x=1 HTTP/1.1\r\nhost: shop.test\r\nconnection: x-secret\r\nx-secret: 1\r\n\
                   proxy-authorization: x\r\nx-end: 2\r\n\r\n";
    let mut client = gateway.request(request).await;
    let head = until(&mut client, "\r\n\r\n").await;
    assert!(head.contains("x-end: 1") && head.contains("via: 1.1 oncegate") && !head.contains("x-hop"), "{head}");
    let seen = told.recv().await.unwrap();
    let mut lines: Vec<_> = seen.trim().lines().collect();
    assert_eq!(lines.remove(0), "GET /p%2Fq?x=1 HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", server.addr);
    let fields = [
        &host,
        "via: 1.1 oncegate",
        "x-end: 2",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: shop.test",
        "x-forwarded-proto: http",
    ];
    assert_eq!(lines, fields);
}

#[tokio::test]
async fn bodies_flow_both_ways_as_they_come_with_their_trailers() {
    let server = Server::start(|_, mut stream| async move {
        let head = read_until(&mut stream, "\r\n\r\n").await.unwrap();
        assert!(head.contains("transfer-encoding: chunked") && head.contains("te: trailers"), "{head}");
        read_until(&mut stream, "3\r\none\r\n").await;
        // The answer begins while the request is still being sent.
        let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n3\r\nuno\r\n";
        write(&mut stream, answer).await;
        read_until(&mut stream, "3\r\ntwo\r\n0\r\nx-sum: 6\r\n\r\n").await.unwrap();
        write(&mut stream, "3\r\ndos\r\n0\r\nx-sum: 7\r\n\r\n").await;
    })
    .await;
    let gateway = Gateway::before(&[&server.url()], PATIENCE).await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nte: trailers\r\ntrailer: x-sum\r\n\r\n";
    let mut client = gateway.request(head).await;
    write(&mut client, "3\r\none\r\n").await;
    until(&mut client, "3\r\nuno\r\n").await;
    write(&mut client, "3\r\ntwo\r\n0\r\nx-sum: 6\r\n\r\n").await;
    until(&mut client, "3\r\ndos\r\n0\r\nx-sum: 7\r\n\r\n").await;
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: chat\r\n\r\n";

/// Answers one ping on each upgraded connection, and closes it.
async fn chat() -> Server {
    Server::start(|_, mut stream| async move {
        let head = read_until(&mut stream, "\r\n\r\n").await.unwrap();
        assert!(head.contains("upgrade: chat") && head.contains("connection: upgrade"), "{head}");
        let granted = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\nhello";
        write(&mut stream, granted).await;
        assert_eq!(read_until(&mut stream, "ping").await.unwrap(), "ping");
        write(&mut stream, "pong").await;
    })
    .await
}

#[tokio::test]
async fn an_upgraded_connection_keeps_its_place_among_the_bounded_ones() {
    let server = chat().await;
    let bounds = ListenerOptions { max_connections: 1, ..ListenerOptions::default() };
    let gateway = Gateway::with(&[&server.url()], PATIENCE, bounds).await;
    let mut first = gateway.request(UPGRADE).await;
    until(&mut first, "hello").await;
    let mut second = gateway.request(UPGRADE).await;
    let early = tokio::time::timeout(Duration::from_millis(200), second.read_u8()).await;
    assert!(early.is_err(), "it waits for a place");
    write(&mut first, "ping").await;
    until(&mut first, "pong").await;
    drop(first);
    until(&mut second, "hello").await;
}

#[tokio::test]
async fn an_upgraded_connection_is_joined_both_ways_until_it_ends() {
    let server = chat().await;
    let gateway = Gateway::before(&[&server.url()], PATIENCE).await;
    let mut client = gateway.request(UPGRADE).await;
    let head = until(&mut client, "hello").await;
    assert!(head.starts_with("HTTP/1.1 101") && head.contains("upgrade: chat"), "{head}");
    write(&mut client, "ping").await;
    until(&mut client, "pong").await;
    let end = tokio::time::timeout(PATIENCE, client.read_u8()).await.expect("the end is passed on");
    assert!(end.is_err());
}

#[tokio::test]
async fn a_refused_upgrade_is_an_answer_like_any_other() {
    let server = Server::ok().await;
    let gateway = Gateway::before(&[&server.url()], PATIENCE).await;
    let mut client = gateway.request("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\n").await;
    assert!(until(&mut client, "ok").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it_from_us_and_the_upstream_gets_the_body_only() {
    let server = Server::start(|_, mut stream| async move {
        let request = read_request(&mut stream).await.unwrap();
        assert!(!request.contains("expect") && request.ends_with("body"), "{request}");
        write(&mut stream, OK).await;
    })
    .await;
    let gateway = Gateway::before(&[&server.url()], PATIENCE).await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    let mut client = gateway.request(head).await;
    assert!(until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 100"));
    write(&mut client, "body").await;
    assert!(until(&mut client, "ok").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_client_that_expects_100_continue_is_not_asked_for_a_body_that_nobody_takes() {
    let gateway = Gateway::before(&[&refusing().await], PATIENCE).await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    let mut client = gateway.request(head).await;
    assert!(until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 502"));
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_times_out() {
    let (tell, told) = oneshot::channel::<()>();
    let held = std::sync::Mutex::new(Some(tell));
    let server = Server::start(move |_, mut stream| {
        let held = held.lock().unwrap().take();
        async move {
            // Ends when the gateway gives up, and says so by dropping `held`.
            while read_request(&mut stream).await.is_some() {}
            drop(held);
        }
    })
    .await;
    let gateway = Gateway::before(&[&server.url()], Duration::from_millis(100)).await;
    let mut client = gateway.request("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 504"));
    let closed = tokio::time::timeout(PATIENCE, told).await.expect("the upstream's connection is closed");
    assert!(closed.is_err());
}

#[tokio::test]
async fn a_slow_upload_does_not_time_out_while_it_goes_on() {
    let server = Server::ok().await;
    let gateway = Gateway::before(&[&server.url()], Duration::from_millis(400)).await;
    let mut client = gateway.request("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\n").await;
    for _ in 0..6 {
        // The pace of the upload is what is tested: 600 ms in all, more than the time-out.
        tokio::time::sleep(Duration::from_millis(100)).await;
        write(&mut client, "x").await;
    }
    assert!(until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_request_without_body_is_tried_at_another_url_while_nothing_was_sent() {
    let healthy = Server::ok().await;
    let gateway = Gateway::before(&[&refusing().await, &healthy.url()], PATIENCE).await;
    for _ in 0..4 {
        let mut client = gateway.request("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert!(until(&mut client, "ok").await.starts_with("HTTP/1.1 200"));
    }
    let broken = Server::start(|_, mut stream| async move { _ = read_request(&mut stream).await }).await;
    let before = healthy.accepted();
    let gateway = Gateway::before(&[&broken.url(), &healthy.url()], PATIENCE).await;
    let mut client = gateway.request("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 502"));
    assert_eq!(healthy.accepted(), before, "no other URL after the first byte");
}
