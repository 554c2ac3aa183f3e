//! Publishes to RabbitMQ (AMQP 0-9-1), with publisher confirms.
//!
//! Messages are mandatory and persistent. (The client logs those that are returned whole, as warnings of
//! `lapin::returned_messages`; [`crate::telemetry`] keeps them out.) An event becomes a message so:
//!
//! | event | message |
//! |---|---|
//! | topic | routing key, in the configured exchange; in the default one, the name of a queue |
//! | id | `message-id` |
//! | content type | `content-type` |
//! | time | `timestamp`, in seconds |
//! | [attributes](crate::broker::cloud_events) | headers, with the prefix `cloudEvents_` (CloudEvents' own binding is for AMQP 1.0, and has a colon there, which AMQP 0-9-1 does not allow) |
//! | data | body, as it is |
//!
//! What becomes of an event:
//!
//! | the broker | result | afterwards |
//! |---|---|---|
//! | confirms | `Ok` | |
//! | confirms, but has returned the message: it is in no queue | `Refused` | |
//! | says nack (a full queue, a quorum lost) | `Refused` | |
//! | is blocked by an alarm | `Unavailable` at once; what is under way, at its deadline | the connection stays, and works when the alarm is over |
//! | says nothing until the deadline, and does not answer otherwise either | `Unavailable` | another connection, all that is under way fails |
//! | says nothing until the deadline, but answers otherwise (a quorum queue without its majority) | `TopicUnavailable` | the same, and the topic is set apart (`apart.rs`) |
//! | closes, or is gone | `Unavailable`, all that is under way or in line | the next event opens a connection |
//! | closes the channel over one of several messages | `Unavailable`, all | they are published one by one when they come again |
//! | closes the channel over the only message | by the reason: `Never` (too large), `Refused` (not allowed), `Unavailable` (no such exchange) | |

mod dial;
mod link;
mod message;
mod returns;
pub mod subscriber;
mod topology;
mod work;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

pub use self::subscriber::{RabbitMqSubscriber, RabbitMqSubscriberOptions};

use self::dial::Dialer;
use self::work::Worker;
use super::apart::Apart;
use super::line::Line;
use super::{OptionsError, Ordering, Published, Publisher};
use crate::outbox::event::Outgoing;
use crate::tls::ClientCertificate;

/// How a RabbitMQ is reached, and what is there.
#[derive(Clone)]
pub struct RabbitMqOptions {
    /// `amqp://[user@]host[:port][/vhost]`, or `amqps` for TLS. A virtual host is percent-encoded; none is `/`.
    pub url: String,
    /// The user's name, in place of one in the URL. `None` and none in the URL: `guest`, as RabbitMQ has it.
    pub user: Option<String>,
    /// The user's password, in place of one in the URL.
    pub password: Option<String>,
    /// PEM of the only authorities trusted for TLS; `None`: the public ones.
    pub authorities: Option<Vec<u8>>,
    /// What we show to a server that asks for a certificate.
    pub certificate: Option<ClientCertificate>,
    /// Where events are published. Empty, the default: the default exchange, where a topic is a queue's name.
    pub exchange: String,
    /// What is made or looked for when a connection is opened.
    pub topology: Topology,
    /// How long the broker may take for an event, opening a connection included. 10 s: far above a slow disk's
    /// fsync, low enough that a dead connection is found before anybody looks.
    pub time_limit: Duration,
    /// After twice this time without a sign of life a connection counts as dead. 10 s, since a lost connection
    /// usually is found sooner, by the events on it.
    pub heartbeat: Duration,
    /// How many events may be under way at once, and as many in line. 4096: some milliseconds' worth.
    pub in_flight: usize,
}

/// What there has to be before anything is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// Nothing is looked for. An event that no queue takes is refused all the same.
    Given,
    /// The exchange must be there, or no event is published.
    Verify,
    /// What is missing is made, durable; what is there is taken as it is. In the default exchange, the queue that
    /// an event's topic names is made as well.
    Declare(Declared),
}

/// What is made where it is missing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Declared {
    /// How the exchange routes.
    pub exchange: Routing,
    /// What kind of queues.
    pub queues: QueueKind,
    /// Queues, and which events of the exchange they get. In the default exchange: queues only.
    pub bindings: Vec<Binding>,
}

/// How an exchange routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Routing {
    /// By the words of the topic, with wildcards.
    #[default]
    Topic,
    /// By the topic as a whole.
    Direct,
    /// To every queue.
    Fanout,
    /// By the headers.
    Headers,
}

/// A kind of queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueKind {
    /// Kept by a majority of the cluster's nodes before it is confirmed.
    #[default]
    Quorum,
    /// On the disk of one node.
    Classic,
}

/// A queue and what it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The queue's name.
    pub queue: String,
    /// Which topics it gets, as its exchange's kind wants that spelled.
    pub routing_key: String,
}

impl RabbitMqOptions {
    /// With the defaults.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            user: None,
            password: None,
            authorities: None,
            certificate: None,
            exchange: String::new(),
            topology: Topology::Declare(Declared::default()),
            time_limit: Duration::from_secs(10),
            heartbeat: Duration::from_secs(10),
            in_flight: 4096,
        }
    }
}

/// Publishes to RabbitMQ, over one connection and one channel, which keeps the order of the calls.
#[derive(Debug)]
pub struct RabbitMq {
    connections: Apart,
}

/// One connection.
#[derive(Debug)]
struct OneConnection(Line);

impl RabbitMq {
    /// Does not connect: the first event does.
    ///
    /// # Errors
    /// If the options are wrong in themselves.
    pub fn new(options: RabbitMqOptions) -> Result<Self, OptionsError> {
        let dialer = Arc::new(Dialer::new(options)?);
        let (asks, opens) = (Arc::clone(&dialer), Arc::clone(&dialer));
        let ask = move |_: &str| {
            let dialer = Arc::clone(&asks);
            async move { dialer.is_answered().await }.boxed()
        };
        let open = move || -> Option<Arc<dyn Publisher>> { Some(Arc::new(OneConnection::new(Arc::clone(&opens)))) };
        Ok(Self { connections: Apart::new(Arc::new(OneConnection::new(dialer)), open, ask) })
    }
}

impl OneConnection {
    fn new(dialer: Arc<Dialer>) -> Self {
        let (time_limit, room) = (dialer.options.time_limit, dialer.options.in_flight);
        Self(Line::new(time_limit, room, move |jobs| Worker::new(Arc::clone(&dialer), jobs).run().boxed()))
    }
}

impl Publisher for OneConnection {
    fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published> {
        self.0.publish(event)
    }

    fn ordering(&self) -> Ordering {
        Ordering::ByCall
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.close().boxed()
    }
}

impl Publisher for RabbitMq {
    fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published> {
        self.connections.publish(event)
    }

    fn ordering(&self) -> Ordering {
        Ordering::ByCall
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.connections.close()
    }
}

/// Shows no secret; the URL may hold one.
impl fmt::Debug for RabbitMqOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.url.split_once(':').map_or("", |(scheme, _)| scheme);
        f.debug_struct("RabbitMqOptions")
            .field("scheme", &scheme)
            .field("exchange", &self.exchange)
            .field("topology", &self.topology)
            .field("time_limit", &self.time_limit)
            .field("heartbeat", &self.heartbeat)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let options =
            RabbitMqOptions { password: Some("geheim".into()), ..RabbitMqOptions::new("amqp://u:geheim@host") };
        assert!(!format!("{options:?}").contains("geheim"));
        assert!(!format!("{:?}", RabbitMq::new(options)).contains("geheim"));
    }

    /// No server listens there, and no runtime runs: nothing is connected before the first event.
    #[test]
    fn a_broker_that_is_down_prevents_no_start() {
        for url in ["amqp://localhost:1", "amqps://me@localhost:1/payments"] {
            assert!(RabbitMq::new(RabbitMqOptions::new(url)).is_ok(), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_in_itself_is_refused() {
        for url in ["", "amqp", "http://host", "amqp:host", "amqp://[::1]", "amqp://", "amqp://host?heartbeat=x"] {
            assert!(RabbitMq::new(RabbitMqOptions::new(url)).is_err(), "{url}");
        }
        let broken = [
            RabbitMqOptions { authorities: Some(b"no PEM".to_vec()), ..RabbitMqOptions::new("amqps://host") },
            RabbitMqOptions { exchange: "x".repeat(256), ..RabbitMqOptions::new("amqp://host") },
        ];
        for options in broken {
            assert!(RabbitMq::new(options.clone()).is_err(), "{options:?}");
        }
    }
}
