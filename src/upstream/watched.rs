//! A connection that says when its socket is gone.
//!
//! hyper hands a request to the connection's task through a channel. When that task ends in the very moment
//! of the hand-over, the request can be left in the channel for ever (hyper 1.12 on tokio 1.54): the channel
//! would return it only to a sender that has gone away, and the sender waits for the answer. So somebody has
//! to see that the socket is gone.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::{CaptureConnection, Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};

type Plain = MaybeHttpsStream<TokioIo<TcpStream>>;

/// How long the connection's task has to say what became of a request after its socket is gone. It says so
/// before it drops the socket; this is for a task that is being torn down.
const GRACE: Duration = Duration::from_millis(250);

/// A TCP or TLS stream.
#[derive(Debug)]
pub(super) struct Watched {
    // Dropped in this order: the socket, then the sign that it is gone.
    inner: Plain,
    gone: Gone,
    _guard: DropGuard,
    /// Whether anything was read.
    has_spoken: bool,
}

/// Cancelled when the socket is gone.
#[derive(Debug, Clone)]
struct Gone(CancellationToken);

impl Watched {
    pub(super) fn new(inner: Plain) -> Self {
        let gone = CancellationToken::new();
        Self { inner, gone: Gone(gone.clone()), _guard: gone.drop_guard(), has_spoken: false }
    }
}

/// Ends when the connection that took the request has been gone for so long that an answer, or an error, can
/// no longer come. Says whether the connection spoke HTTP/2 by negotiation.
pub(super) async fn abandoned(mut connection: CaptureConnection) -> bool {
    let (gone, http2) = {
        let connected = connection.wait_for_connection_metadata().await;
        let mut extras = http::Extensions::new();
        if let Some(connected) = connected.as_ref() {
            connected.get_extras(&mut extras);
        }
        (extras.remove::<Gone>(), connected.as_ref().is_some_and(Connected::is_negotiated_h2))
    };
    match gone {
        Some(Gone(gone)) => gone.cancelled().await,
        None => std::future::pending().await,
    }
    tokio::time::sleep(GRACE).await;
    http2
}

impl Connection for Watched {
    fn connected(&self) -> Connected {
        self.inner.connected().extra(self.gone.clone())
    }
}

impl Read for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.inner).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => self.has_spoken = true,
            // A certificate refused by now is no handshake refused: what kind of error it was must prove nothing.
            Poll::Ready(Err(error)) if self.has_spoken => {
                return Poll::Ready(Err(io::Error::new(error.kind(), error.to_string())));
            }
            other => return other,
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }
}
