//! `[store]`: the database with the ledger.

use std::num::NonZeroU32;

use serde::Deserialize;

use super::value::{ByteSize, Period, Secret, ServiceUrl};

/// `[store]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// `sqlite://…`, `postgres://…` or `mysql://…`. No default: where money is remembered is a decision.
    pub url: ServiceUrl,
    /// The password of the URL's user. Default none.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Connections that commit batches; SQLite always has one. Default 1: measured, more are slower below
    /// about 256 concurrent requests, since batches get smaller.
    #[serde(default = "writers")]
    pub writers: NonZeroU32,
    /// Connections that read. Default 4: replays come from the cache or the mark, so reads are few.
    #[serde(default = "readers")]
    pub readers: NonZeroU32,
    /// How long a starting gateway waits for a database that can't be reached. Default 60 s: started together,
    /// the database may need longer.
    #[serde(default = "start_timeout")]
    pub start_timeout: Period,
    /// How long a call may wait for a connection. Default 2 s: then the client is told 503 and retries.
    #[serde(default = "acquire_timeout")]
    pub acquire_timeout: Period,
    /// How long a statement or a commit may take. Default 5 s: beyond it the connection counts as dead,
    /// which is how a half-open one is noticed.
    #[serde(default = "statement_timeout")]
    pub statement_timeout: Period,
    /// How long a write may wait for a row that somebody's own transaction has locked. Default 250 ms: the
    /// rest of the batch waits with it. MySQL counts whole seconds.
    #[serde(default = "lock_timeout")]
    pub lock_timeout: Period,
    /// The most items of one transaction. Default 256: larger ones gain nothing and keep their rows
    /// locked for longer.
    #[serde(default = "batch_limit")]
    pub batch_limit: NonZeroU32,
    /// The most bytes of one transaction. Default 4 MiB: below the smallest packet limit, MySQL's 16 MiB.
    #[serde(default = "batch_bytes")]
    pub batch_bytes: ByteSize,
    /// The most claims that wait for a batch; more are refused with 503. Default 16384: about a second of
    /// work, longer than which no client should wait for a refusal. Completions are never refused.
    #[serde(default = "queue_limit")]
    pub queue_limit: NonZeroU32,
    /// Starts although the database may lose a confirmed commit in a crash (`synchronous_commit = off`
    /// and the like). Default false: a lost commit is a payment that may happen twice.
    #[serde(default)]
    pub allow_weak_durability: bool,
}

fn writers() -> NonZeroU32 {
    super::at_least_one(1)
}

fn readers() -> NonZeroU32 {
    super::at_least_one(4)
}

fn start_timeout() -> Period {
    Period::secs(60)
}

fn acquire_timeout() -> Period {
    Period::secs(2)
}

fn statement_timeout() -> Period {
    Period::secs(5)
}

fn lock_timeout() -> Period {
    Period::millis(250)
}

fn batch_limit() -> NonZeroU32 {
    super::at_least_one(256)
}

fn batch_bytes() -> ByteSize {
    ByteSize::mib(4)
}

fn queue_limit() -> NonZeroU32 {
    super::at_least_one(16_384)
}
