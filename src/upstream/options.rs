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
    /// PEM file of certificate authorities that are trusted besides the public ones.
    pub ca_file: Option<PathBuf>,
    /// Unused HTTP/1.1 connections kept per URL.
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
            ca_file: None,
            max_idle_per_host: 256,
        }
    }
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
    /// The TLS library refuses its own defaults.
    #[error("TLS can't be set up: {0}")]
    Tls(#[from] rustls::Error),
}
