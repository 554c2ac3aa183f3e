//! A server that speaks HTTP/2 frame by frame, to say what libraries would not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncegate::upstream::{Exchange, Permit, Reason, Upstream, UpstreamOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::raw::Server;
use super::{assert_lost, assert_not_sent, options, patient, post, send, status};

const PREFACE_LEN: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const MAX_CONCURRENT_STREAMS_1: [u8; 6] = [0, 3, 0, 0, 0, 1];
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
/// `:status: 200` in HPACK's static table.
const STATUS_200: &[u8] = &[0x88];

/// What the server does once it has the whole request, on the given stream.
#[derive(Debug, Clone, Copy)]
enum Then {
    Answer,
    Reset(u32),
    /// GOAWAY with this last stream id; then the connection ends.
    GoAway(u32, u32),
    End,
}

async fn frame(stream: &mut TcpStream, kind: u8, flags: u8, id: u32, payload: &[u8]) {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&id.to_be_bytes());
    frame.extend_from_slice(payload);
    stream.write_all(&frame).await.unwrap();
}

/// Reads frames until one ends a request; gives its stream.
async fn request(stream: &mut TcpStream) -> Option<u32> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.ok()?;
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match (head[3], head[4]) {
            (SETTINGS, flags) if flags & ACK == 0 => frame(stream, SETTINGS, ACK, 0, &[]).await,
            (HEADERS | DATA, flags) if flags & END_STREAM != 0 => return Some(id),
            _ => {}
        }
    }
}

async fn serve(mut stream: TcpStream, then: Then) {
    let mut preface = [0; PREFACE_LEN];
    stream.read_exact(&mut preface).await.unwrap();
    frame(&mut stream, SETTINGS, 0, 0, &[]).await;
    while let Some(id) = request(&mut stream).await {
        match then {
            Then::Answer => frame(&mut stream, HEADERS, END_HEADERS | END_STREAM, id, STATUS_200).await,
            Then::Reset(code) => frame(&mut stream, RST_STREAM, 0, id, &code.to_be_bytes()).await,
            Then::GoAway(last, code) => {
                let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
                return frame(&mut stream, GOAWAY, 0, 0, &payload).await;
            }
            Then::End => return,
        }
    }
}

/// Allows one stream at a time, answers the first request, and the others once it is told to.
async fn serve_one_by_one(mut stream: TcpStream, seen: Arc<AtomicUsize>, go_on: CancellationToken) {
    let mut preface = [0; PREFACE_LEN];
    stream.read_exact(&mut preface).await.unwrap();
    frame(&mut stream, SETTINGS, 0, 0, &MAX_CONCURRENT_STREAMS_1).await;
    while let Some(id) = request(&mut stream).await {
        if seen.fetch_add(1, Ordering::Relaxed) > 0 {
            go_on.cancelled().await;
        }
        frame(&mut stream, HEADERS, END_HEADERS | END_STREAM, id, STATUS_200).await;
    }
}

/// It waits for a free stream in hyper's queue while its caller is told that nobody knows. Sent when one is free, it would
/// be executed after the key was settled.
#[tokio::test]
async fn what_is_in_line_when_its_time_is_over_is_never_sent() {
    let (seen, go_on) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let (count, gate) = (Arc::clone(&seen), go_on.clone());
    let server = Server::start(move |_, stream| serve_one_by_one(stream, Arc::clone(&count), gate.clone())).await;
    let options = UpstreamOptions { http2_prior_knowledge: true, ..options(&[&server.url()]) };
    let upstream = Upstream::new(&options).unwrap();
    assert_eq!(status(&send(&upstream, post("/", "x")).await), 200);
    let hanging = tokio::spawn(upstream.send(post("/hangs", "x"), patient()));
    while seen.load(Ordering::Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    let permit = Permit::until(oncegate::clock::now() + Duration::from_millis(100));
    let late = upstream.send(post("/late", "x"), permit).await;
    assert!(!matches!(late, Exchange::Answered { .. }), "{late:?}");
    go_on.cancel();
    assert_eq!(status(&hanging.await.unwrap()), 200);
    assert_eq!(status(&send(&upstream, post("/", "x")).await), 200);
    assert_eq!((seen.load(Ordering::Relaxed), server.accepted()), (3, 1));
}

/// What comes of a request with `body` to a server that does `then`, and how many connections it took.
async fn exchange(then: Then, body: &'static str) -> (Exchange, usize) {
    let server = Server::start(move |_, stream| serve(stream, then)).await;
    let healthy = Server::start(|_, stream| serve(stream, Then::Answer)).await;
    let mut options = options(&[&server.url(), &healthy.url()]);
    options.http2_prior_knowledge = true;
    let exchange = send(&Upstream::new(&options).unwrap(), post("/", body)).await;
    assert_eq!(healthy.accepted(), 0, "no other URL after the first byte");
    (exchange, server.accepted())
}

#[tokio::test]
async fn an_answer_comes_by_prior_knowledge() {
    for body in ["", "x"] {
        assert_eq!(status(&exchange(Then::Answer, body).await.0), 200);
    }
}

#[tokio::test]
async fn a_refused_stream_is_not_sent() {
    for body in ["", "x"] {
        let (exchange, connections) = exchange(Then::Reset(REFUSED_STREAM), body).await;
        assert_not_sent(&exchange, Reason::RefusedStream);
        assert_eq!(connections, 1);
    }
}

#[tokio::test]
async fn a_stream_above_goaway_is_not_sent() {
    for (body, code) in [("", NO_ERROR), ("x", NO_ERROR), ("x", INTERNAL_ERROR)] {
        let (exchange, connections) = exchange(Then::GoAway(0, code), body).await;
        assert_not_sent(&exchange, Reason::GoneAway);
        assert_eq!(connections, 1);
    }
}

#[tokio::test]
async fn a_stream_that_goaway_includes_is_lost() {
    for (body, code) in [("", NO_ERROR), ("x", NO_ERROR), ("x", INTERNAL_ERROR)] {
        let (exchange, connections) = exchange(Then::GoAway(1, code), body).await;
        assert_lost(&exchange, Reason::ConnectionLost);
        assert_eq!(connections, 1);
    }
}

#[tokio::test]
async fn any_other_end_is_lost() {
    for then in [Then::Reset(CANCEL), Then::Reset(INTERNAL_ERROR), Then::End] {
        assert_lost(&exchange(then, "x").await.0, Reason::ConnectionLost);
    }
}
