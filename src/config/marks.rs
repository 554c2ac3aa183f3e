//! `[marks]`: the fast hints. Nothing set here can make a request run twice.

use std::path::PathBuf;

use serde::Deserialize;

use super::value::{ByteSize, Period, Secret, ServiceUrl};

/// `[marks]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Marks {
    /// `memory:`, `redis://…`, `redis+sentinel://…` or `redis+cluster://…`, with `rediss` for TLS. Default
    /// `memory:`: enough for one gateway; several tell each other through Redis.
    pub url: ServiceUrl,
    /// The password of the URL. Default none.
    pub password: Option<Secret>,
    /// The sentinels' own password, where they have one. Default none.
    pub sentinel_password: Option<Secret>,
    /// PEM file of the only authorities trusted for TLS. Default none: the public ones.
    pub ca: Option<PathBuf>,
    /// What the keys in Redis begin with, for a Redis that is shared. Default `oncegate`.
    pub prefix: String,
    /// How long one question to Redis may take before the database decides. Default 100 ms: many times a
    /// round trip, and an outage costs each request no more.
    pub timeout: Period,
    /// How long the mark of a running execution lasts unless it is extended. Default 15 s. Longer: a key
    /// whose gateway died answers "processing" longer. Shorter: a slow Redis loses marks, and more requests
    /// ask the database.
    pub ttl: Period,
    /// The largest encoded response that a completed mark carries. Default 4 KiB: a payment's answer fits,
    /// in a few network packets.
    pub small_response_limit: ByteSize,
    /// The most memory for the marks of `memory:`. Default 128 MiB: some 100,000 requests in progress and
    /// as many small answers.
    pub memory: ByteSize,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            url: ServiceUrl::memory(),
            password: None,
            sentinel_password: None,
            ca: None,
            prefix: "oncegate".to_owned(),
            timeout: Period::millis(100),
            ttl: Period::secs(15),
            small_response_limit: ByteSize::kib(4),
            memory: ByteSize::mib(128),
        }
    }
}
