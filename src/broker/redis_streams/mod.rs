//! Publishes to Redis Streams.
//!
//! A topic is a stream's key. An event becomes an entry so: the [attributes](crate::broker::cloud_events) are
//! fields of their own names, `datacontenttype` among them, and the field `data` has the data as it is. (There is
//! no binding of CloudEvents for Redis.)
//!
//! **One batch at a time.** What is in line goes out in one pipeline, and while its answers are on their way the
//! next batch gathers. That keeps the order of the calls, also where a cluster moves a stream to another node and
//! the client goes after it, and costs little: a batch takes one round trip.
//!
//! **What a confirm means.** The server has the entry; whether it is on disk, is the server's configuration
//! (`appendfsync`). A replica may lack it and become the master: with `wait_replicas` an event counts as
//! confirmed when so many replicas have it. `min-replicas-to-write` of the server does not even take an event then.
//!
//! | the server | result | afterwards |
//! |---|---|---|
//! | takes it | `Ok` | |
//! | takes it, but too few replicas have it in time | `Unavailable` | it is published again: a copy with the same id |
//! | is a replica now, or another node has the stream | `Unavailable` | another connection, through the sentinels where there are some |
//! | loads its data, is out of memory, can't write to disk, lacks replicas, runs a script | `Unavailable` | the connection stays |
//! | does not know or allow the user | `Unavailable` | another connection |
//! | has something else under this key, or does not allow it | `Refused` | |
//! | cuts the connection over one of several | `Unavailable`, all | they are published one by one when they come again |
//! | takes no argument as long as the data (`proto-max-bulk-len`, which it is asked for; 512 MiB where it does not say) | `Never`, unsent | |
//! | calls it malformed | `Never` | another connection |
//! | says nothing until the deadline, or is gone | `Unavailable`, all that is under way or in line | the next event opens a connection |

mod entry;
mod reading;
pub mod subscriber;
mod work;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

pub use self::subscriber::{RedisStreamsSubscriber, RedisStreamsSubscriberOptions};

use self::work::Worker;
use super::line::Line;
use super::{OptionsError, Ordering, Published, Publisher};
use crate::outbox::event::Outgoing;
use crate::redis::Servers;
use crate::redis::dial::Dialer;

/// How a Redis is reached, and how its streams are written.
#[derive(Debug, Clone)]
pub struct RedisStreamsOptions {
    /// Which Redis.
    pub servers: Servers,
    /// About how many entries a stream keeps: the oldest leave, read or not. 0, the default: all, since what
    /// nobody has read must not vanish; then somebody else has to trim.
    pub max_len: u64,
    /// How many replicas must have an event before it counts as confirmed. 0, the default: the master alone.
    pub wait_replicas: u32,
    /// How long the server may take for an event, opening a connection included. 5 s: far above a slow disk's
    /// fsync, low enough that a dead connection is found before anybody looks.
    pub time_limit: Duration,
    /// How many events may be in line. 4096: some milliseconds' worth.
    pub in_line: usize,
}

impl RedisStreamsOptions {
    /// With the defaults.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            servers: Servers { url: url.into(), ..Servers::default() },
            max_len: 0,
            wait_replicas: 0,
            time_limit: Duration::from_secs(5),
            in_line: 4096,
        }
    }
}

/// Publishes to Redis Streams, over one connection.
#[derive(Debug)]
pub struct RedisStreams {
    line: Line,
}

impl RedisStreams {
    /// Does not connect: the first event does.
    ///
    /// # Errors
    /// If the options are wrong in themselves.
    pub fn new(options: RedisStreamsOptions) -> Result<Self, OptionsError> {
        let dialer = Dialer::new(&options.servers, options.time_limit / 2)
            .map_err(|error| OptionsError(format!("Redis: {error}")))?;
        let (dialer, time_limit, room) = (Arc::new(dialer), options.time_limit, options.in_line);
        let options = Arc::new(options);
        let start = move |jobs| Worker::new(Arc::clone(&dialer), Arc::clone(&options), jobs).run().boxed();
        Ok(Self { line: Line::new(time_limit, room, start) })
    }
}

impl Publisher for RedisStreams {
    fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published> {
        self.line.publish(event)
    }

    fn ordering(&self) -> Ordering {
        Ordering::ByCall
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.line.close().boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let mut options = RedisStreamsOptions::new("redis://:geheim@host");
        options.servers.password = Some("geheim".into());
        options.servers.sentinel_password = Some("geheim".into());
        assert!(!format!("{options:?}").contains("geheim"));
        assert!(!format!("{:?}", RedisStreams::new(options)).contains("geheim"));
    }

    /// No server listens there, and no runtime runs: nothing is connected before the first event.
    #[test]
    fn a_server_that_is_down_prevents_no_start() {
        for url in ["redis://localhost:1", "redis+cluster://localhost:1", "redis+sentinel://localhost:1/main"] {
            assert!(RedisStreams::new(RedisStreamsOptions::new(url)).is_ok(), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_in_itself_is_refused() {
        for url in ["", "redis", "amqp://host", "redis://host/x", "redis+sentinel://host"] {
            assert!(RedisStreams::new(RedisStreamsOptions::new(url)).is_err(), "{url}");
        }
    }
}
