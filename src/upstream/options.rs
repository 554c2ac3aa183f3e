//! What an upstream is configured with.

use std::path::PathBuf;
use std::time::Duration;

use super::targets::MAX_URLS;

/// Settings of one upstream.
#[derive(Debug, Clone)]
pub struct UpstreamOptions {
    /// Its name in routes, logs and metrics.
    pub name: Box<str>,
    /// Where it listens, `http://host[:port]` or `https://host[:port]`, taken in turns. Not more than 64.
    pub urls: Vec<String>,
    /// Bounds name look-up, TCP and TLS handshake together.
    pub connect_timeout: Duration,
    /// Bounds the wait for the head of a streamed answer. Guarded requests are bounded by their caller,
    /// who goes on listening after its own time-out.
    pub timeout: Duration,
    /// How long an unused connection is kept. Short, because sending on a connection that the upstream is
    /// just closing is the commonest way to an unknown outcome; most servers close after 5 s or more.
    pub idle_timeout: Duration,
    /// Speak HTTP/2 without negotiation: h2c on `http`, only `h2` in ALPN on `https`.
    pub http2_prior_knowledge: bool,
    /// Whom connections trust.
    pub trust: Trust,
    /// PEM files of our certificate, with its chain, and of its key, for those that ask for one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Unused HTTP/1.1 connections kept per URL, in each runtime that uses the upstream.
    pub max_idle_per_host: usize,
}

impl UpstreamOptions {
    /// The defaults, for `urls`.
    #[must_use]
    pub fn new(name: &str, urls: Vec<String>) -> Self {
        Self {
            name: name.into(),
            urls,
            connect_timeout: Duration::from_secs(1),
            timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(4),
            http2_prior_knowledge: false,
            trust: Trust::Public,
            certificate: None,
            max_idle_per_host: 256,
        }
    }
}

/// Whose certificates are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The public authorities'.
    Public,
    /// Theirs, and those of the authorities in this PEM file.
    PublicAnd(PathBuf),
    /// Those of the authorities in this PEM file.
    Only(PathBuf),
}

/// Why an upstream can't be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum InvalidUpstream {
    /// Not `http(s)://host[:port]`, or with user, path or query.
    #[error("upstream URL `{0}` is not http://host[:port] or https://host[:port]")]
    Url(String),
    /// No URL, or too many.
    #[error("an upstream has 1 to {MAX_URLS} URLs, not {0}")]
    UrlCount(usize),
    /// The file of certificate authorities can't be read.
    #[error("certificate authorities in {path} can't be used: {reason}")]
    Ca {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Our certificate or its key can't be used.
    #[error("TLS can't be set up: {0}")]
    Tls(String),
}
