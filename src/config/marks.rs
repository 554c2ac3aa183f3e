//! `[marks]`: the fast hints. Nothing set here can make a request run twice.

use serde::Deserialize;

use super::value::{ByteSize, Period, Secret, ServiceUrl};

/// `[marks]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Marks {
    /// `memory:`, `redis://…`, `rediss://…`, `redis+sentinel://…` or `redis+cluster://…`. Default
    /// `memory:`: enough for one gateway; several tell each other through Redis.
    pub url: ServiceUrl,
    /// The password of the URL. Default none.
    pub password: Option<Secret>,
    /// What the keys in Redis begin with, for a Redis that is shared. Default `oncegate:`.
    pub prefix: String,
    /// How long one question to Redis may take before the database decides. Default 100 ms: many times a
    /// round trip, and an outage costs each request no more.
    pub timeout: Period,
    /// How long a mark lives unless it is extended, and how long a completed one stays (never longer than
    /// its entry's response). Default 10 m: most retries come sooner, later ones ask the ledger.
    pub ttl: Period,
    /// The largest encoded response that a completed mark carries. Default 16 KiB: a payment's answer fits,
    /// and 100,000 of them fit into 1.6 GB.
    pub small_response_limit: ByteSize,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            url: ServiceUrl::memory(),
            password: None,
            prefix: "oncegate:".to_owned(),
            timeout: Period::millis(100),
            ttl: Period::secs(600),
            small_response_limit: ByteSize::kib(16),
        }
    }
}
