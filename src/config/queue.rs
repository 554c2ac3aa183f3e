//! `[queue]` and `[[queues]]`: where events go.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Deserialize;

use super::value::{ByteSize, Name, Period, QueueUrl, Secret};
use crate::outbox::lane::{DEFAULT_LANES, DEFAULT_QUEUE};
use crate::outbox::rule::DEFAULT_EVENT_BYTES;

/// `[queue]`, the queue called `default`, or one of `[[queues]]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// What events call it. `default` for `[queue]`, another name for each of `[[queues]]`. It stands in the
    /// outbox: another name is another queue.
    pub name: Name,
    /// Where it is. Default `embedded:`: a table of the store.
    pub url: QueueUrl,
    /// Who connects, where the URL does not say. Default none.
    pub username: Option<String>,
    /// The user's password, the token of NATS, or the whole value of a webhook's `Authorization`. Default none.
    pub password: Option<Secret>,
    /// PEM file of the only authorities trusted for TLS. Default none: the public ones.
    pub ca: Option<PathBuf>,
    /// PEM file of the certificate that we show to servers that ask for one, with its chain. Default none.
    pub cert: Option<PathBuf>,
    /// PEM file of its private key. Default none.
    pub key: Option<PathBuf>,
    /// Secrets of a webhook's signatures, each of which signs: to rotate, add the new one, wait until the receiver
    /// has it, drop the old one. Default none.
    pub signing: Vec<Secret>,
    /// How often an event is tried that the broker refuses, before it waits for a person. Default 20: with the
    /// back-off, from 1 s up to 4 h, about a day. While the broker is away nothing counts.
    pub attempts: NonZeroU32,
    /// The largest event, in bytes of its data; a larger one waits for a person. Default 900 KiB: below the 1 MB of
    /// Kafka and NATS.
    pub max_event_bytes: ByteSize,
    /// Into how many parts its events are split, each published by one process at a time. Default 32: as many
    /// processes can share the work. Only the first process that uses the queue sets it: the store keeps the
    /// number, so that no event is lost between two of them.
    pub partitions: NonZeroU32,
    /// How long published events are kept, for people and for a broker that loses some. Default 24 h.
    pub keep_sent: Period,
    /// How long the embedded queue keeps messages, read or not. Default 7 d: a consumer that is down over a weekend
    /// misses nothing.
    pub retention: Period,
    /// What a RabbitMQ has.
    pub rabbitmq: Rabbitmq,
    /// What the streams of a Redis are like.
    pub redis: Redis,
    /// What a NATS server has.
    pub nats: Nats,
    /// What Kafka's brokers want.
    pub kafka: Kafka,
    /// How long a process has a part of the queue for itself without renewing. Default 15 s: what a crash delays
    /// the events of that part.
    pub lease: Period,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            name: Name::from_static(DEFAULT_QUEUE),
            url: QueueUrl::Embedded,
            username: None,
            password: None,
            ca: None,
            cert: None,
            key: None,
            signing: Vec::new(),
            attempts: super::at_least_one(20),
            max_event_bytes: ByteSize::kib(DEFAULT_EVENT_BYTES >> 10),
            partitions: DEFAULT_LANES,
            keep_sent: Period::days(1),
            retention: Period::days(7),
            rabbitmq: Rabbitmq::default(),
            redis: Redis::default(),
            nats: Nats::default(),
            kafka: Kafka::default(),
            lease: Period::secs(15),
        }
    }
}

/// `[queue.rabbitmq]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rabbitmq {
    /// Where events are published, with the topic as routing key. Default empty: the default exchange, where a topic
    /// is a queue's name.
    pub exchange: String,
    /// What is made or looked for. Default "declare".
    pub topology: RabbitmqTopology,
    /// What kind of queues are made. Default "quorum".
    pub queues: RabbitmqQueues,
    /// Queues of the exchange that are made, and which topics they get. Default none.
    pub bindings: Vec<RabbitmqBinding>,
}

/// What there has to be before anything is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RabbitmqTopology {
    /// What is missing is made, durable: the exchange (by topic) and the bindings' queues; in the default exchange,
    /// the queue that an event's topic names.
    #[default]
    Declare,
    /// The exchange must be there.
    Verify,
    /// Nothing is looked for.
    Given,
}

/// A kind of queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RabbitmqQueues {
    /// Kept by a majority of the cluster's nodes.
    #[default]
    Quorum,
    /// On the disk of one node.
    Classic,
}

/// A queue and what it gets.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RabbitmqBinding {
    /// The queue's name.
    pub queue: String,
    /// Which topics it gets, with the exchange's wildcards.
    pub topic: String,
}

/// `[queue.redis]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Redis {
    /// About how many entries a stream keeps. Default 0: all, and somebody else trims.
    pub max_len: u64,
    /// How many replicas must have an event before it counts as confirmed. Default 0: the master alone.
    pub wait_replicas: u32,
    /// The sentinels' own password. Default none.
    pub sentinel_password: Option<Secret>,
}

/// `[queue.kafka]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kafka {
    /// How the password is shown. Default "scram-sha-512": nobody on the way learns it.
    pub mechanism: SaslMechanism,
}

/// A SASL mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum SaslMechanism {
    /// As it is.
    #[serde(rename = "plain")]
    Plain,
    /// By challenge.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// By challenge, with the longer digest.
    #[default]
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

/// `[queue.nats]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nats {
    /// The JetStream stream that takes the events. Default none: whatever streams there are.
    pub stream: Option<String>,
    /// What it takes, such as `payments.>`. Default none.
    pub subjects: Vec<String>,
    /// How many copies it has where it is made. Default 0: it is not made; one that is missing stops the queue.
    pub replicas: usize,
    /// The seed of an NKey (`SU...`), which signs the server's challenge, in place of a password. Default none.
    pub nkey: Option<Secret>,
    /// A file with a JWT and the seed of its NKey (`.creds`), in place of a password. Read for each connection, so that
    /// a new one needs no restart. Default none.
    pub credentials: Option<PathBuf>,
}
