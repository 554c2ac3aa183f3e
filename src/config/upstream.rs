//! `[[upstreams]]`: the services behind the gateway.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Deserialize;

use super::value::{ApiDocument, Name, Origin, Period};

/// One of `[[upstreams]]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// What routes call it.
    pub name: Name,
    /// Where it is reached, at most 64, tried in turn; another one only while nothing has been sent.
    pub urls: Vec<Origin>,
    /// How long a connection may take, TLS included. Default 1 s: within a data centre a SYN lost once.
    #[serde(default = "connect_timeout")]
    pub connect_timeout: Period,
    /// How long the whole call may take. Default 10 s: then the outcome is Unknown, so better too long
    /// than too short; bounded by the lease.
    #[serde(default = "timeout")]
    pub timeout: Period,
    /// How long an idle connection is kept. Default 4 s: below the 5 s after which common servers
    /// (Node.js, uvicorn) close theirs, since a request sent into a closing connection is Unknown.
    #[serde(default = "idle_timeout")]
    pub idle_timeout: Period,
    /// The most idle connections per URL and worker. Default 256: a burst keeps its connections for the
    /// next one.
    #[serde(default = "max_idle")]
    pub max_idle: NonZeroU32,
    /// HTTP/2 without asking first (prior knowledge). Default false: HTTP/1.1.
    #[serde(default)]
    pub http2: bool,
    /// Its OpenAPI document in JSON, `"file:/path"` or a URL, shown beside our own as `server.docs` says: at most 4 MiB.
    /// Default none.
    #[serde(default)]
    pub openapi: Option<ApiDocument>,
    /// TLS of `https` URLs. Default: the public certificate authorities.
    #[serde(default)]
    pub tls: UpstreamTls,
}

/// `[upstreams.tls]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTls {
    /// PEM file of authorities trusted besides the public ones. Default none.
    pub ca: Option<PathBuf>,
}

fn connect_timeout() -> Period {
    Period::secs(1)
}

fn timeout() -> Period {
    Period::secs(10)
}

fn idle_timeout() -> Period {
    Period::secs(4)
}

fn max_idle() -> NonZeroU32 {
    super::at_least_one(256)
}
