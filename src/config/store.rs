//! `[store]`: the database with the ledger.

use std::num::NonZeroU32;

use serde::Deserialize;

use super::value::{Secret, ServiceUrl};

/// `[store]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// `sqlite://…`, `postgres://…` or `mysql://…`. No default: where money is remembered is a decision.
    pub url: ServiceUrl,
    /// The password of the URL's user. Default none.
    #[serde(default)]
    pub password: Option<Secret>,
    /// The most connections, writers among them. Default 10: reads are few, since replays come from the
    /// cache or the mark.
    #[serde(default = "max_connections")]
    pub max_connections: NonZeroU32,
    /// Connections that commit batches. Default 1: measured, more are slower below about 256 concurrent
    /// requests, since batches get smaller.
    #[serde(default = "writers")]
    pub writers: NonZeroU32,
    /// The most items of one transaction. Default 512: larger ones gain nothing and keep their rows
    /// locked for longer.
    #[serde(default = "batch_limit")]
    pub batch_limit: NonZeroU32,
    /// The most items that wait for a batch; more are refused with 503. Default 10000: about a second of
    /// work, longer than which no client should wait for a refusal.
    #[serde(default = "queue_limit")]
    pub queue_limit: NonZeroU32,
    /// Starts although the database may lose a confirmed commit in a crash (`synchronous_commit = off`
    /// and the like). Default false: a lost commit is a payment that may happen twice.
    #[serde(default)]
    pub allow_weak_durability: bool,
}

fn max_connections() -> NonZeroU32 {
    super::at_least_one(10)
}

fn writers() -> NonZeroU32 {
    super::at_least_one(1)
}

fn batch_limit() -> NonZeroU32 {
    super::at_least_one(512)
}

fn queue_limit() -> NonZeroU32 {
    super::at_least_one(10_000)
}
