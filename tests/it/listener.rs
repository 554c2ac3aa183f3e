//! The listener against raw clients.

mod bounds;
mod drain;
mod framing;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use oncegate::http::body::{self, BodyError, BodyLimits};
use oncegate::http::connection::Handler;
use oncegate::http::drain::Drained;
use oncegate::http::framing as length;
use oncegate::http::listener::{Listener, ListenerOptions};
use oncegate::http::workers::Dealer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longest wait of a test for anything.
const PATIENCE: Duration = Duration::from_secs(10);

/// A listener under test.
struct Served {
    addr: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<Drained>,
}

impl Served {
    async fn start(options: ListenerOptions, service: impl Handler) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), options).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(listener.serve(service, Dealer::here(), stop.clone()));
        Self { addr, stop, serving }
    }

    async fn echo(options: ListenerOptions) -> Self {
        Self::start(options, tower::service_fn(echo)).await
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    async fn send(&self, text: &[u8]) -> TcpStream {
        let mut stream = self.connect().await;
        drop(stream.write_all(text).await);
        stream
    }

    async fn drained(self) -> Drained {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.serving).await.expect("it drains").unwrap()
    }
}

/// Answers with the body, as a guarded route reads it.
async fn echo(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let limits = BodyLimits { bytes: 1000, total: PATIENCE, idle: PATIENCE };
    let (parts, incoming) = request.into_parts();
    let answer = |status: StatusCode, body: Body| Ok(Response::builder().status(status).body(body).unwrap());
    if length::check(&parts).is_err() {
        return answer(StatusCode::BAD_REQUEST, Body::from("refused"));
    }
    match body::read(incoming, limits).await {
        Ok(body) => answer(StatusCode::OK, Body::from(body)),
        Err(BodyError::TooLarge) => answer(StatusCode::PAYLOAD_TOO_LARGE, Body::from("too large")),
        Err(BodyError::TimedOut) => answer(StatusCode::REQUEST_TIMEOUT, Body::from("timed out")),
        Err(BodyError::Cut) => answer(StatusCode::BAD_REQUEST, Body::from("cut")),
    }
}

/// What comes until the connection ends, and whether it ended.
async fn rest(stream: &mut TcpStream, patience: Duration) -> (String, bool) {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match tokio::time::timeout(patience, stream.read(&mut piece)).await {
            Ok(Ok(0) | Err(_)) => return (String::from_utf8_lossy(&text).into_owned(), true),
            Ok(Ok(read)) => text.extend_from_slice(&piece[..read]),
            Err(_elapsed) => return (String::from_utf8_lossy(&text).into_owned(), false),
        }
    }
}

/// Reads until `end` has come.
async fn until(stream: &mut TcpStream, end: &str) -> String {
    let reading = async {
        let mut text = String::new();
        while !text.ends_with(end) {
            text.push(char::from(stream.read_u8().await.unwrap()));
        }
        text
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("{end:?} did not come"))
}

#[tokio::test]
async fn http2_by_prior_knowledge_and_http1_share_a_port() {
    let served = Served::echo(ListenerOptions::default()).await;
    let stream = hyper_util::rt::TokioIo::new(served.connect().await);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("http://{}/", served.addr)).body(Body::from("two")).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "two");
    let mut one = served.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\none").await;
    assert!(until(&mut one, "one").await.starts_with("HTTP/1.1 200"));
}
