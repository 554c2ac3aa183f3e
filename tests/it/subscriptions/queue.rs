//! The queues that messages come from, and a producer of the test's own.

use std::sync::Arc;

use bytes::Bytes;
use oncegate::broker::embedded::Embedded;
use oncegate::broker::{PublishError, Published, Publisher};
use oncegate::clock::Timestamp;
use oncegate::outbox::event::{Attributes, Envelope, EventId, Outgoing};
use serde_json::Value;

use crate::servers::database::Database;

/// A kind of queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broker {
    Embedded,
    #[cfg(feature = "rabbitmq")]
    Rabbitmq,
    #[cfg(feature = "kafka")]
    Kafka,
    #[cfg(feature = "nats")]
    Nats,
    #[cfg(feature = "redis-streams")]
    Redis,
}

/// A topic of a queue that no other test has.
pub(crate) struct Queue {
    pub(crate) url: String,
    pub(crate) topic: String,
    /// What else `[queue]` says.
    pub(super) more: String,
    producer: Arc<dyn Publisher>,
    /// A broker of its own, where what other tests do to their groups would stop this one's.
    #[cfg(feature = "kafka")]
    _own: Option<crate::servers::kafka::Kafka>,
}

impl Queue {
    /// On the servers that all tests share; the embedded one in `database`, whose schema must be there.
    pub(crate) async fn create(broker: Broker, database: &Database) -> Self {
        let topic = format!("t{:032x}", rand::random::<u128>());
        match broker {
            Broker::Embedded => {
                let store = database.open();
                store.migrate().await.unwrap();
                let producer = Arc::new(Embedded::new("default", Arc::new(store)));
                Self::new("embedded:".to_owned(), topic, producer)
            }
            #[cfg(feature = "rabbitmq")]
            Broker::Rabbitmq => Self::on_rabbitmq(crate::servers::rabbitmq::shared_url(), topic),
            #[cfg(feature = "kafka")]
            Broker::Kafka => {
                use oncegate::broker::kafka::{KafkaOptions, KafkaPublisher};
                let own = crate::servers::kafka::Kafka::start();
                let (url, options) = (format!("kafka://{}", own.broker), KafkaOptions::new(vec![own.broker.clone()]));
                let producer = Arc::new(KafkaPublisher::new(&options).unwrap());
                Self { _own: Some(own), ..Self::new(url, topic, producer) }
            }
            #[cfg(feature = "nats")]
            Broker::Nats => {
                use oncegate::broker::nats::{MissingStream, NatsOptions, NatsPublisher, NatsStream};
                let url = crate::servers::nats::url().to_owned();
                let missing =
                    MissingStream::Create { replicas: 1, duplicate_window: std::time::Duration::from_secs(60) };
                let subjects = [topic.clone(), format!("{topic}.dead")];
                let more = format!("nats = {{ stream = '{topic}', subjects = {subjects:?}, replicas = 1 }}");
                let stream = NatsStream { name: topic.clone(), subjects: subjects.into(), missing };
                let options = NatsOptions { stream: Some(stream), ..NatsOptions::new(vec![url.clone()]) };
                let producer = Arc::new(NatsPublisher::new(options).unwrap());
                Self { more, ..Self::new(url, topic, producer) }
            }
            #[cfg(feature = "redis-streams")]
            Broker::Redis => Self::on_redis(&crate::servers::redis::single().url, topic),
        }
    }

    #[cfg(feature = "rabbitmq")]
    pub(super) fn on_rabbitmq(url: &str, topic: String) -> Self {
        use oncegate::broker::rabbitmq::{Declared, QueueKind, RabbitMq, RabbitMqOptions, Topology};
        let topology = Topology::Declare(Declared { queues: QueueKind::Classic, ..Declared::default() });
        let options = RabbitMqOptions { topology, ..RabbitMqOptions::new(url) };
        let producer = Arc::new(RabbitMq::new(options).unwrap());
        // The product takes a password from its configuration only.
        let (scheme, rest) = url.split_once("://").unwrap();
        let (user, host) = rest.split_once('@').unwrap_or(("guest:guest", rest));
        let (user, _) = user.split_once(':').unwrap_or((user, ""));
        let more = "rabbitmq = { queues = 'classic' }\npassword = 'env:QUEUE_PASSWORD'".to_owned();
        Self { more, ..Self::new(format!("{scheme}://{user}@{host}"), topic, producer) }
    }

    #[cfg(feature = "redis-streams")]
    pub(super) fn on_redis(url: &str, topic: String) -> Self {
        use oncegate::broker::redis_streams::{RedisStreams, RedisStreamsOptions};
        let producer = Arc::new(RedisStreams::new(RedisStreamsOptions::new(url)).unwrap());
        Self::new(url.to_owned(), topic, producer)
    }

    fn new(url: String, topic: String, producer: Arc<dyn Publisher>) -> Self {
        Self {
            url,
            topic,
            more: String::new(),
            producer,
            #[cfg(feature = "kafka")]
            _own: None,
        }
    }

    /// `[queue]`.
    pub(super) fn toml(&self) -> String {
        format!("[queue]\nurl = '{}'\n{}\n", self.url, self.more)
    }

    /// Publishes a message that says `data`, with a fresh id.
    pub(super) async fn send(&self, data: &Value) {
        self.send_as(rand::random(), data).await;
    }

    /// Publishes it with an id.
    pub(super) async fn send_as(&self, id: [u8; 16], data: &Value) {
        self.publish(id, &data.to_string()).await;
    }

    /// Publishes any text.
    pub(crate) async fn send_text(&self, text: &str) {
        self.publish(rand::random(), text).await;
    }

    async fn publish(&self, id: [u8; 16], text: &str) {
        let event = Envelope {
            id: EventId(id),
            queue: "default".into(),
            topic: (*self.topic).into(),
            key: "".into(),
            kind: "com.example.payment.paid".into(),
            source: "/payments".into(),
            route: "create-payment".into(),
            content_type: "application/json".into(),
            traceparent: Some(TRACE.into()),
            attributes: Attributes::new(),
            data: Bytes::copy_from_slice(text.as_bytes()),
        };
        let time = Timestamp(1_772_368_496_789);
        let outgoing = Outgoing { event, sequence: 1, epoch: 1, time, attempts: 1, tried: false, redrives: 0 };
        // A producer sends again what was not confirmed.
        let publish = async || self.producer.publish(outgoing.clone()).await;
        let is_told = |told: &Published| !matches!(told, Err(PublishError::Unavailable(_)));
        super::eventually("the queue takes it", publish, is_told).await.unwrap();
    }
}

pub(super) const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
