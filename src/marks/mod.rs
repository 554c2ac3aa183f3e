//! Stores of marks: [`memory`] for one process, [`redis`] for several.
//!
//! A mark store may be down, slow, restarted or emptied at any time, and the gateway may start without it:
//! every answer it does not give in time is [`Unavailable`], and the database decides.
//!
//! [`Unavailable`]: crate::engine::marks::Unavailable

pub mod breaker;
pub mod circuit;
pub mod encoding;
pub mod memory;
pub mod redis;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::circuit::CircuitOptions;
use self::memory::MemoryMarks;
use self::redis::RedisMarks;
use crate::engine::marks::Marks;
use crate::redis::ServersError;
use crate::sealer::Sealer;

/// Which mark store, and how it is used.
#[derive(Clone)]
pub struct MarksOptions {
    /// `memory:`, or one of
    /// `redis://host[:port][/db]`,
    /// `redis+sentinel://host[:port],host[:port]/master-name[/db]`,
    /// `redis+cluster://host[:port],host[:port]`.
    /// `rediss` in place of `redis` means TLS. `user[:password]@` may stand before the first host.
    pub url: String,
    /// The servers' password, in place of one in the URL.
    pub password: Option<String>,
    /// The sentinels' own password, where they have one.
    pub sentinel_password: Option<String>,
    /// PEM of the only authorities trusted for TLS; `None`: the public ones.
    pub authorities: Option<Vec<u8>>,
    /// First part of every key. Two installations that share a Redis each have their own.
    pub prefix: String,
    /// How long a call may take, connecting included.
    pub time_limit: Duration,
    /// When a store that does not answer is no longer asked, and for how long.
    pub circuit: CircuitOptions,
    /// How much memory `memory:` may take.
    pub memory_bytes: u64,
    /// Seals the answers that marks in Redis carry. Default: nothing is sealed.
    pub sealer: Arc<Sealer>,
}

/// What is wrong with the options. Says nothing of their secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MarksError {
    /// Neither `memory:` nor a kind of Redis.
    #[error("the mark store's URL begins with none of memory: redis: rediss: redis+sentinel: redis+cluster:")]
    Scheme,
    /// Not what follows such a beginning.
    #[error("the mark store's URL is malformed: {0}")]
    Malformed(&'static str),
    /// The client refuses them.
    #[error("the mark store can't be used as configured: {0}")]
    Refused(String),
}

impl From<ServersError> for MarksError {
    fn from(error: ServersError) -> Self {
        match error {
            ServersError::Scheme => Self::Scheme,
            ServersError::Malformed(what) => Self::Malformed(what),
            ServersError::Refused(reason) => Self::Refused(reason),
        }
    }
}

/// The mark store that `options` name. Does not connect: a store that is down is a hint less, no reason
/// not to start.
///
/// # Errors
/// If the options themselves are wrong.
pub fn connect(options: &MarksOptions) -> Result<Arc<dyn Marks>, MarksError> {
    if options.url == "memory:" {
        return Ok(Arc::new(MemoryMarks::new(options.memory_bytes)));
    }
    Ok(Arc::new(RedisMarks::new(options)?))
}

impl Default for MarksOptions {
    fn default() -> Self {
        Self {
            url: "memory:".into(),
            password: None,
            sentinel_password: None,
            authorities: None,
            prefix: "oncegate".into(),
            // Far above what a Redis near by needs (below 1 ms), far below what a caller notices.
            time_limit: Duration::from_millis(100),
            circuit: CircuitOptions::default(),
            // Some 100,000 requests in progress and as many small answers.
            memory_bytes: 128 << 20,
            sealer: Arc::default(),
        }
    }
}

/// Shows no secret; the URL may hold one.
impl fmt::Debug for MarksOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.url.split_once(':').map_or("", |(scheme, _)| scheme);
        f.debug_struct("MarksOptions")
            .field("scheme", &scheme)
            .field("prefix", &self.prefix)
            .field("time_limit", &self.time_limit)
            .field("circuit", &self.circuit)
            .field("memory_bytes", &self.memory_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let options = MarksOptions {
            url: "redis://:geheim@host".into(),
            password: Some("geheim".into()),
            sentinel_password: Some("geheim".into()),
            ..MarksOptions::default()
        };
        assert!(!format!("{options:?}").contains("geheim"));
    }

    #[test]
    fn only_known_stores_are_taken() {
        let connect = |url: &str| connect(&MarksOptions { url: url.into(), ..MarksOptions::default() }).err();
        assert_eq!(connect("memory:"), None);
        for url in ["", "memory", "memcached://host", "redis", "redis+sentinel", "http://host"] {
            assert_eq!(connect(url), Some(MarksError::Scheme), "{url}");
        }
    }

    /// No server listens there, and no runtime runs: nothing is connected before the first call.
    #[test]
    fn a_redis_that_is_down_prevents_no_start() {
        for url in ["redis://localhost:1", "redis+cluster://localhost:1", "redis+sentinel://localhost:1/main"] {
            assert!(connect(&MarksOptions { url: url.into(), ..MarksOptions::default() }).is_ok(), "{url}");
        }
    }
}
