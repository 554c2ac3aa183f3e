//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt as _};

use super::listener::ListenerOptions;
use super::peer::Peer;
use crate::clock;
use crate::upstream::Held;

/// What answers requests: an axum `Router`, or anything like it.
pub trait Handler:
    Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<S> Handler for S where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

/// What all connections of a listener share.
#[derive(Debug, Clone)]
pub(super) struct Protocol {
    builder: auto::Builder<TokioExecutor>,
    tls: Option<Arc<ServerConfig>>,
    handshake_timeout: Duration,
    idle_timeout: Duration,
    finish: CancellationToken,
}

impl Protocol {
    pub(super) fn new(options: &ListenerOptions, finish: CancellationToken) -> Self {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(options.head_timeout)
            .max_headers(options.max_headers)
            .max_buf_size(options.max_head_bytes);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(options.head_timeout)
            .max_concurrent_streams(options.max_streams)
            .max_header_list_size(u32::try_from(options.max_head_bytes).unwrap_or(u32::MAX));
        Self {
            builder,
            tls: options.tls.clone(),
            handshake_timeout: options.handshake_timeout,
            idle_timeout: options.head_timeout,
            finish,
        }
    }

    /// Serves `stream` until it ends, or until it has finished after being told to.
    pub(super) async fn serve<S: Handler>(self, stream: TcpStream, addr: SocketAddr, held: Held, service: S) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "connection ended before it began");
            return;
        }
        let peer = Peer::new(addr, self.tls.is_some());
        let Some(tls) = self.tls.clone() else { return self.converse(stream, peer, held, service).await };
        let handshake = timeout(self.handshake_timeout, TlsAcceptor::from(tls).accept(stream));
        let stream = tokio::select! {
            stream = handshake => stream,
            () = self.finish.cancelled() => return,
        };
        match stream {
            Ok(Ok(stream)) => self.converse(stream, peer, held, service).await,
            Ok(Err(error)) => tracing::debug!(peer = %peer.addr, %error, "TLS handshake failed"),
            Err(_elapsed) => tracing::debug!(peer = %peer.addr, "TLS handshake did not come to an end"),
        }
    }

    async fn converse<I, S>(&self, io: I, peer: Peer, held: Held, service: S)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Handler,
    {
        let activity = Arc::new(Activity::default());
        let addr = peer.addr;
        let service = service_fn({
            let activity = Arc::clone(&activity);
            move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(peer.clone());
                if request.headers().contains_key(header::UPGRADE) {
                    request.extensions_mut().insert(held.clone());
                }
                let busy = Busy::new(&activity);
                let answer = service.clone().oneshot(request);
                async move { Ok::<_, Infallible>(answer.await?.map(|body| Answering::new(body, busy))) }
            }
        });
        let mut connection = std::pin::pin!(self.builder.serve_connection_with_upgrades(TokioIo::new(io), service));
        let mut finish = std::pin::pin!(self.finish.cancelled());
        let mut check = std::pin::pin!(tokio::time::sleep(self.idle_timeout));
        let (mut finishing, mut seen) = (false, 0);
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(peer = %addr, error, "connection ended with an error");
                    }
                    return;
                }
                () = &mut finish, if !finishing => {
                    finishing = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = &mut check => {
                    let idle = activity.idle_since(&mut seen);
                    // Asked to finish one period ago, and still nothing to finish: the peer is gone.
                    if idle && finishing {
                        return;
                    }
                    if idle {
                        finishing = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    check.as_mut().reset(clock::now() + self.idle_timeout);
                }
            }
        }
    }
}

/// Tells whether a connection does nothing. hyper bounds the wait for an HTTP/1.1 head, but not the wait for
/// the first bytes that tell the version, nor an HTTP/2 connection without a stream.
///
/// The low half counts requests being answered, the high half those that have begun.
#[derive(Debug, Default)]
struct Activity(AtomicU64);

const BEGUN: u64 = 1 << 32;
const ANSWERING: u64 = BEGUN - 1;

impl Activity {
    /// Whether nothing is being answered and nothing has begun since `seen`, which is moved on.
    fn idle_since(&self, seen: &mut u64) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        let idle = now & ANSWERING == 0 && now == *seen;
        *seen = now & !ANSWERING;
        idle
    }
}

/// A request being answered, until the last byte of the answer.
#[derive(Debug)]
struct Busy(Arc<Activity>);

impl Busy {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.0.fetch_add(BEGUN + 1, Ordering::Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer.
struct Answering {
    body: Body,
    /// What the body failed with, and hyper is told one turn later: it drops what it has not written yet when
    /// a body fails, and the client would not even see the status of an answer that was cut.
    failed: Option<axum::Error>,
    _busy: Busy,
}

impl Answering {
    fn new(body: Body, busy: Busy) -> Self {
        Self { body, failed: None, _busy: busy }
    }
}

impl http_body::Body for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let Poll::Ready(Some(Err(error))) = polled else { return polled };
        self.failed = Some(error);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.failed.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
