//! What is received of a stream, and how.

use std::time::Duration;

use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};

use super::is_filter;
use super::options::{InvalidNats, NatsOptions};

/// How long the server keeps a request for messages. Longer saves requests, shorter forgets dead members sooner.
pub(super) const EXPIRES: Duration = Duration::from_secs(30);

/// How many members' worth of messages the whole group may hold, so that those of one that died do not stop the
/// others until `ack_wait` is over.
const MEMBERS: usize = 8;

/// What is received from a NATS.
#[derive(Debug, Clone)]
pub struct NatsSubscriberOptions {
    /// How it is reached, and the stream.
    pub connection: NatsOptions,
    /// The subject, or with wildcards several of them.
    pub topic: String,
    /// The durable consumer's name.
    pub group: String,
    /// How many messages may be unacknowledged here. 256.
    pub prefetch: usize,
    /// After what time a message that nobody has acknowledged comes again. Of a consumer that is made; 30 s: far
    /// above the time that a batch needs to be made durable.
    pub ack_wait: Duration,
}

impl NatsSubscriberOptions {
    /// With the defaults.
    #[must_use]
    pub fn new(connection: NatsOptions, topic: impl Into<String>, group: impl Into<String>) -> Self {
        let (topic, group) = (topic.into(), group.into());
        Self { connection, topic, group, prefetch: 256, ack_wait: Duration::from_secs(30) }
    }

    pub(super) fn check(&self) -> Result<(), InvalidNats> {
        let unfit = |char: char| char.is_whitespace() || char.is_control() || ".*>/\\".contains(char);
        if self.group.is_empty() || self.group.contains(unfit) {
            return Err(InvalidNats::Subscription("has a group without `.`, `*`, `>`, `/`, `\\` and spaces"));
        }
        if !is_filter(&self.topic) {
            return Err(InvalidNats::Subscription("has a topic that is a subject"));
        }
        if self.prefetch == 0 {
            return Err(InvalidNats::Subscription("that may hold no message gets none"));
        }
        Ok(())
    }

    pub(super) fn consumer(&self) -> Config {
        Config {
            durable_name: Some(self.group.clone()),
            filter_subject: self.topic.clone(),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            max_ack_pending: i64::try_from(self.prefetch.saturating_mul(MEMBERS)).unwrap_or(i64::MAX),
            ..Config::default()
        }
    }

    /// How often the server gives a sign of life when it has no message: a second silent one is a dead server.
    pub(super) fn heartbeat(&self) -> Duration {
        (self.connection.publish_timeout / 2).clamp(Duration::from_millis(500), EXPIRES / 4)
    }
}
