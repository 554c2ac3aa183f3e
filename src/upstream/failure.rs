//! Why there is no answer, and what that proves.
//!
//! "Nothing was sent" is believed in these cases only. Each rests on what hyper 1.12 and hyper-util 0.1.21
//! do; the tests in `tests/it/upstream.rs` hold them to it.
//!
//! 1. **No connection.** hyper-util attaches `connect_info` to an error only after a connection has been
//!    taken for the request. Without it the request was never handed to anything: name look-up, TCP, TLS or
//!    the HTTP/2 preface failed.
//! 2. **Cancelled.** hyper makes an error `is_canceled()` only where it still holds the whole request, in the
//!    queue before the connection's task (`client/dispatch.rs`, `proto/h1/dispatch.rs`): nothing of it was
//!    encoded. This is the pooled connection that turned out closed.
//! 3. **`REFUSED_STREAM`** from the peer: RFC 9113 section 8.7 makes it a promise that nothing was processed.
//! 4. **GOAWAY** from the peer, below our stream (section 6.8). h2 gives a stream that error only when its id
//!    is above the last one. But hyper also reports it when it meets the closing connection right after
//!    opening the stream, where the id may have been below. It takes the body's first piece only after that
//!    point, so the error is proof once the body has been taken, and not before.
//!
//! 5. **Left behind.** The socket of the HTTP/1.1 connection is gone, and still there is neither an answer nor
//!    an error, and the body exists untouched: the request lies in the queue of a task that has ended, see
//!    `watched.rs`. A task that had taken it would have said so before it let go of the socket, and
//!    would have dropped the body with it.
//!
//! 6. **An alert about our certificate.** In TLS 1.3 a client's certificate is judged after the client's last word
//!    in the handshake, so the request is on its way already. Nothing of it is decrypted before the handshake is
//!    over on the other side too, and such an alert says that it never will be.
//!
//! A write that fails proves nothing: hyper doesn't say how much of the request the socket had taken. So a
//! connection that the upstream closes in the very moment of sending is `Lost`, and the pool's short idle
//! time is what keeps that rare.

use std::error::Error as _;
use std::fmt;

use hyper_util::client::legacy;

use super::connector::ConnectError;

/// Why there is no answer, for people and for `Proxy-Status`.
#[derive(Debug, Clone)]
pub struct Failure {
    /// In one word.
    pub reason: Reason,
    /// What the libraries below said, for the log.
    pub detail: Box<str>,
}

/// Why there is no answer, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The host has no address.
    Dns,
    /// Nobody listens on the port.
    Refused,
    /// The host can't be reached, or the connection ended before it could be used.
    Unreachable,
    /// No connection within the connect time-out.
    ConnectTimeout,
    /// The TLS handshake failed.
    Tls,
    /// The upstream's certificate is not trusted.
    TlsCertificate,
    /// HTTP/2: the upstream refused the stream unprocessed.
    RefusedStream,
    /// HTTP/2: the upstream is going away and will not process the stream.
    GoneAway,
    /// The connection ended after the request was sent, or while it was.
    ConnectionLost,
    /// What came back is not HTTP.
    Protocol,
}

impl Reason {
    /// The error type registered for `Proxy-Status` (RFC 9209, section 2.3).
    #[must_use]
    pub fn proxy_status(self) -> &'static str {
        match self {
            Self::Dns => "dns_error",
            Self::Refused => "connection_refused",
            Self::Unreachable => "destination_unavailable",
            Self::ConnectTimeout => "connection_timeout",
            Self::Tls => "tls_protocol_error",
            Self::TlsCertificate => "tls_certificate_error",
            Self::RefusedStream | Self::GoneAway | Self::ConnectionLost => "connection_terminated",
            Self::Protocol => "http_protocol_error",
        }
    }
}

impl Failure {
    /// There was nothing to try.
    pub(super) fn no_url() -> Self {
        Self { reason: Reason::Unreachable, detail: "no URL left to try".into() }
    }

    /// There was no connection in time.
    pub(super) fn no_time() -> Self {
        Self { reason: Reason::ConnectTimeout, detail: "no connection while there was time to send it".into() }
    }

    /// The upstream switched protocols though nobody had asked it to.
    pub(super) fn unasked_upgrade() -> Self {
        Self { reason: Reason::Protocol, detail: "101 to a request that asked for no upgrade".into() }
    }
}

/// What the silence of a connection whose socket is gone proves (rule 5).
pub(super) fn judge_silence(http1: bool, body_untouched: bool) -> Verdict {
    if http1 && body_untouched {
        let detail = "the connection was closed before it took the request".into();
        Verdict::Unsent(Failure { reason: Reason::Unreachable, detail })
    } else {
        let detail = "the connection was closed, without a word on the request".into();
        Verdict::Lost(Failure { reason: Reason::ConnectionLost, detail })
    }
}

/// What it means that there is no time left to begin: nothing was sent, if there was no connection to send it on. One that
/// has the request and has not taken its body yet may have sent the head; the body is refused to it from now on.
pub(super) fn judge_time(connected: bool) -> Verdict {
    match connected {
        false => Verdict::NoConnection(Failure::no_time()),
        true => {
            let detail = "the connection did not take the request in time".into();
            Verdict::Lost(Failure { reason: Reason::ConnectionLost, detail })
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.reason, self.detail)
    }
}

impl std::error::Error for Failure {}

/// What an error of the client proves.
#[derive(Debug)]
pub(super) enum Verdict {
    /// There was no connection: another URL may be tried.
    NoConnection(Failure),
    /// The pooled connection was closed already: dialling again is safe.
    Unsent(Failure),
    /// The upstream has said that it did not process it. Bytes were sent, so no other URL is tried.
    Unprocessed(Failure),
    /// Nobody knows.
    Lost(Failure),
}

/// Judges `error` by the rules of this module. `body_taken` says whether the connection had begun to take
/// the body.
pub(super) fn judge(error: &legacy::Error, body_taken: bool) -> Verdict {
    let failure = |reason| Failure { reason, detail: chain(error).into() };
    let source = error.source();
    if error.connect_info().is_none() {
        let connect = source.and_then(|source| source.downcast_ref::<ConnectError>());
        return Verdict::NoConnection(failure(connect.map_or(Reason::Unreachable, |connect| connect.reason)));
    }
    let Some(hyper) = source.and_then(|source| source.downcast_ref::<hyper::Error>()) else {
        return Verdict::Lost(failure(Reason::ConnectionLost));
    };
    if hyper.is_canceled() {
        return Verdict::Unsent(failure(Reason::Unreachable));
    }
    if is_refused_handshake(hyper) {
        return Verdict::Unprocessed(failure(Reason::Tls));
    }
    match hyper.source().and_then(|source| source.downcast_ref::<h2::Error>()) {
        Some(h2) if is_refused(h2) => Verdict::Unprocessed(failure(Reason::RefusedStream)),
        Some(h2) if h2.is_go_away() && h2.is_remote() && body_taken => Verdict::Unprocessed(failure(Reason::GoneAway)),
        Some(h2) if h2.is_library() => Verdict::Lost(failure(Reason::Protocol)),
        Some(_) => Verdict::Lost(failure(Reason::ConnectionLost)),
        None if hyper.is_parse() => Verdict::Lost(failure(Reason::Protocol)),
        None => Verdict::Lost(failure(Reason::ConnectionLost)),
    }
}

fn is_refused(error: &h2::Error) -> bool {
    error.is_reset() && error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM)
}

/// Rule 6.
fn is_refused_handshake(error: &hyper::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let tls = io.and_then(std::io::Error::get_ref).and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::AlertReceived(alert)) = tls else { return false };
    let about_certificates = [
        Alert::BadCertificate,
        Alert::UnsupportedCertificate,
        Alert::CertificateRevoked,
        Alert::CertificateExpired,
        Alert::CertificateUnknown,
        Alert::UnknownCA,
        Alert::AccessDenied,
        Alert::CertificateRequired,
    ];
    about_certificates.contains(alert)
}

/// The error and all its sources in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
