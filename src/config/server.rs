//! `[server]`: the gateway's own side.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Deserialize;

use super::cors::Cors;
use super::value::{ByteSize, Listen, Origin, Period, Secret};

/// `[server]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Where clients are answered. Default `127.0.0.1:8080`: nobody outside reaches a gateway that nobody
    /// has configured.
    pub listen: Listen,
    /// Where operators are answered. Default none: no admin endpoints.
    pub admin_listen: Option<Listen>,
    /// What operators show to be answered there: `Authorization: Bearer ...`. Default none: whoever reaches the address
    /// is answered, which then must be this machine's own.
    pub admin_token: Option<Secret>,
    /// Threads that serve connections, each with connections to upstreams of its own. Default none: as many as the
    /// machine has cores.
    pub workers: Option<NonZeroU32>,
    /// The largest request body on a route with a policy, counted in bytes received. Default 1 MiB: such
    /// bodies are held in memory, and payments are small.
    pub body_limit: ByteSize,
    /// How long a request's body may take. Default 30 s: 1 MiB at 35 kB/s.
    pub body_timeout: Period,
    /// How long a request's body may pause. Default 10 s: a dead client is given up before the whole time.
    pub body_idle_timeout: Period,
    /// The most header fields of a request. Default 100, as hyper and nginx have it.
    pub header_count: NonZeroU32,
    /// The largest head of a request, at least 8 KiB. Default 64 KiB: twice nginx's, for large tokens.
    pub header_limit: ByteSize,
    /// How long a request's head may take, and so also how long a connection is kept unused. Default 30 s:
    /// a slow sender holds a connection for that long only.
    pub header_timeout: Period,
    /// The most client connections at a time; more wait in the listener's queue. Default 10000: about
    /// 200 MiB at 20 kB each.
    pub max_connections: NonZeroU32,
    /// The most requests at a time on one HTTP/2 connection. Default 250: a load balancer needs no second
    /// connection, a hostile client gets no thousands.
    pub max_streams: NonZeroU32,
    /// How long a gateway that is told to stop still takes requests while `/readyz` says that it drains, so that a
    /// load balancer stops sending first. A part of the drain time-out. Default 0 s.
    pub drain_delay: Period,
    /// How long a stopping gateway finishes what is in progress. Default 30 s, the grace period of
    /// Kubernetes.
    pub drain_timeout: Period,
    /// What comes before the gateway's own public paths. Default empty: `/healthz`, `/problems/…`.
    pub prefix: String,
    /// Where clients reach the gateway: the base of the problems' `type`. Default none: `type` is relative.
    pub public_url: Option<Origin>,
    /// Who may ask for the state of a request. Default "authenticated".
    pub status_endpoint: StatusEndpoint,
    /// Where the OpenAPI documents and their pages are shown. Default "admin": what there is need not be told to all.
    pub docs: Docs,
    /// Browsers of other origins. Default none.
    pub cors: Option<Cors>,
    /// The gateway's certificate. Default none: plain HTTP, for a load balancer that ends TLS.
    pub tls: Option<ServerTls>,
}

/// Who may ask for the state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusEndpoint {
    /// A caller with an identity, for its own scope. With `auth.mode = "none"` that is nobody.
    Authenticated,
    /// Everybody; who knows a key of the global scope sees its response.
    Anyone,
    /// Nobody.
    Off,
}

/// Where documentation is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Docs {
    /// On both listeners.
    Public,
    /// On the operators' listener.
    Admin,
    /// Nowhere.
    Off,
}

/// `[server.tls]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// PEM file of the certificate chain, the gateway's own first.
    pub cert: PathBuf,
    /// PEM file of its private key.
    pub key: PathBuf,
    /// How long a handshake may take. Default 10 s.
    #[serde(default = "handshake_timeout")]
    pub handshake_timeout: Period,
}

fn handshake_timeout() -> Period {
    Period::secs(10)
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: Listen::loopback(8080),
            admin_listen: None,
            admin_token: None,
            workers: None,
            body_limit: ByteSize::mib(1),
            body_timeout: Period::secs(30),
            body_idle_timeout: Period::secs(10),
            header_count: super::at_least_one(100),
            header_limit: ByteSize::kib(64),
            header_timeout: Period::secs(30),
            max_connections: super::at_least_one(10_000),
            max_streams: super::at_least_one(250),
            drain_delay: Period::secs(0),
            drain_timeout: Period::secs(30),
            prefix: String::new(),
            public_url: None,
            status_endpoint: StatusEndpoint::Authenticated,
            docs: Docs::Admin,
            cors: None,
            tls: None,
        }
    }
}
