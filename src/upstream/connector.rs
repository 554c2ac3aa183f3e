//! Opens connections: name look-up, TCP and TLS under one time-out, with typed reasons for failures.

use std::io;
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, MapErr, TryFutureExt};
use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiFuture, GaiResolver, Name};
use rustls::{ClientConfig, RootCertStore};
use tower::Service;

use super::failure::Reason;
use super::options::{InvalidUpstream, Trust, UpstreamOptions};
use super::watched::Watched;
use crate::tls::{self, ClientCertificate};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How often a TCP connection with a silent peer is probed, so that one whose host has vanished is found
/// while it is idle and not by the next request.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

/// Connects to the URLs of one upstream.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    inner: HttpsConnector<HttpConnector<Resolver>>,
    timeout: Duration,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("no connection ({reason:?})")]
pub(super) struct ConnectError {
    pub(super) reason: Reason,
    #[source]
    source: Option<BoxError>,
}

impl Connector {
    pub(super) fn new(options: &UpstreamOptions) -> Result<Self, InvalidUpstream> {
        let mut tcp = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        tcp.set_connect_timeout(Some(options.connect_timeout));
        let schemes = HttpsConnectorBuilder::new().with_tls_config(tls_config(options)?).https_or_http();
        let inner = if options.http2_prior_knowledge {
            schemes.enable_http2().wrap_connector(tcp)
        } else {
            schemes.enable_all_versions().wrap_connector(tcp)
        };
        Ok(Self { inner, timeout: options.connect_timeout })
    }
}

impl Service<Uri> for Connector {
    type Response = Watched;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.inner.poll_ready(cx).map_err(ConnectError::from_below)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = tokio::time::timeout(self.timeout, self.inner.call(uri));
        Box::pin(async move {
            match connecting.await {
                Ok(connected) => connected.map(Watched::new).map_err(ConnectError::from_below),
                Err(_elapsed) => Err(ConnectError { reason: Reason::ConnectTimeout, source: None }),
            }
        })
    }
}

impl ConnectError {
    /// Finds the reason in what the TCP and TLS connectors said. The TLS one gives a bare `io::Error`, the
    /// TCP one wraps it.
    fn from_below(error: BoxError) -> Self {
        let reason = if let Some(io) = error.downcast_ref::<io::Error>() {
            tls_reason(io)
        } else if let Some(source) = error.source() {
            tcp_reason(source)
        } else {
            Reason::Unreachable
        };
        Self { reason, source: Some(error) }
    }
}

fn tls_reason(error: &io::Error) -> Reason {
    let mut innermost = error;
    while let Some(inner) = innermost.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>()) {
        innermost = inner;
    }
    match innermost.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(_)) => Reason::TlsCertificate,
        Some(_) | None => Reason::Tls,
    }
}

fn tcp_reason(source: &(dyn std::error::Error + 'static)) -> Reason {
    if source.is::<DnsError>() {
        return Reason::Dns;
    }
    match source.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => Reason::Refused,
        Some(io::ErrorKind::TimedOut) => Reason::ConnectTimeout,
        Some(_) | None => Reason::Unreachable,
    }
}

/// Looks names up by the system, and marks its errors so that they can be told from TCP's.
#[derive(Debug, Clone)]
struct Resolver(GaiResolver);

#[derive(Debug, thiserror::Error)]
#[error("name look-up failed: {0}")]
struct DnsError(io::Error);

impl Service<Name> for Resolver {
    type Response = <GaiResolver as Service<Name>>::Response;
    type Error = DnsError;
    type Future = MapErr<GaiFuture, fn(io::Error) -> DnsError>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DnsError>> {
        self.0.poll_ready(cx).map_err(DnsError)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        self.0.call(name).map_err(DnsError)
    }
}

fn tls_config(options: &UpstreamOptions) -> Result<ClientConfig, InvalidUpstream> {
    let roots = match &options.trust {
        Trust::Public => tls::public_authorities(),
        Trust::PublicAnd(path) => with_authorities(tls::public_authorities(), path)?,
        Trust::Only(path) => with_authorities(RootCertStore::empty(), path)?,
    };
    let shown = options.certificate.as_ref().map(|(chain, key)| {
        let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        Ok(ClientCertificate { chain: read(chain)?, key: read(key)? })
    });
    let shown = shown.transpose().map_err(InvalidUpstream::Tls)?;
    tls::client_config(roots, shown.as_ref()).map_err(InvalidUpstream::Tls)
}

fn with_authorities(mut roots: RootCertStore, path: &Path) -> Result<RootCertStore, InvalidUpstream> {
    let pem = std::fs::read(path).map_err(|error| error.to_string());
    let added = pem.and_then(|pem| tls::add_authorities(&mut roots, &pem));
    added.map_err(|reason| InvalidUpstream::Ca { path: path.to_owned(), reason })?;
    Ok(roots)
}
