//! The brokers, as a gateway is configured to reach them.

use std::sync::Arc;

use oncegate::broker::Publisher;
use oncegate::broker::rabbitmq::{Binding, Declared, RabbitMqOptions, Topology};
use oncegate::broker::redis_streams::RedisStreamsOptions;

use crate::private::rabbitmq::RabbitMq;
use crate::private::redis::Redis;

/// Where events go.
pub(crate) const TOPIC: &str = "payments";

/// Where no broker takes events: no queue of RabbitMQ is bound to it, and in Redis something else is there.
pub(crate) const REFUSED: &str = "nowhere";

/// An exchange of RabbitMQ: in the default one a topic's queue would be made.
const EXCHANGE: &str = "events";

/// Entries of the stream: what lies there shall not grow with the rounds.
const MAX_LEN: u64 = 100_000;

/// A server of its own.
#[derive(Debug)]
pub(crate) enum Broker {
    /// With its defaults: a quorum queue, whose confirms come after a flush.
    RabbitMq(RabbitMq),
    /// In memory, as Redis is unless it is configured otherwise: the fastest to publish to one by one.
    Redis(Redis),
}

impl Broker {
    pub(crate) fn rabbitmq() -> Self {
        Self::RabbitMq(RabbitMq::start())
    }

    pub(crate) fn redis() -> Self {
        let redis = Redis::start();
        redis.cli(&["SET", REFUSED, "something else"]);
        Self::Redis(redis)
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::RabbitMq(_) => "RabbitMQ",
            Self::Redis(_) => "Redis",
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::RabbitMq(server) => server.port,
            Self::Redis(server) => server.port,
        }
    }

    /// What publishes to it, over `port`.
    pub(crate) fn publisher(&self, port: u16) -> Arc<dyn Publisher> {
        match self {
            Self::RabbitMq(_) => {
                let bindings = vec![Binding { queue: TOPIC.to_owned(), routing_key: TOPIC.to_owned() }];
                let options = RabbitMqOptions {
                    exchange: EXCHANGE.to_owned(),
                    topology: Topology::Declare(Declared { bindings, ..Declared::default() }),
                    ..RabbitMqOptions::new(format!("amqp://127.0.0.1:{port}"))
                };
                Arc::new(oncegate::broker::rabbitmq::RabbitMq::new(options).unwrap())
            }
            Self::Redis(_) => {
                let options = RedisStreamsOptions {
                    max_len: MAX_LEN,
                    ..RedisStreamsOptions::new(format!("redis://127.0.0.1:{port}"))
                };
                Arc::new(oncegate::broker::redis_streams::RedisStreams::new(options).unwrap())
            }
        }
    }

    /// The gateway's settings of the same, over `port`.
    pub(crate) fn settings(&self, port: u16) -> String {
        match self {
            Self::RabbitMq(_) => format!(
                "url = \"amqp://127.0.0.1:{port}\"\n\
                 rabbitmq = {{ exchange = \"{EXCHANGE}\", bindings = [{{ queue = \"{TOPIC}\", topic = \"{TOPIC}\" }}] }}"
            ),
            Self::Redis(_) => format!("url = \"redis://127.0.0.1:{port}\"\nredis = {{ max_len = {MAX_LEN} }}"),
        }
    }
}
