//! RabbitMQ as a source: the contract, and what only RabbitMQ does.

use std::sync::Arc;

use lapin::options::{
    BasicPublishOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use oncegate::broker::Publisher;
use oncegate::broker::rabbitmq::{
    Declared, QueueKind, RabbitMq, RabbitMqOptions, RabbitMqSubscriber, RabbitMqSubscriberOptions, Topology,
};
use oncegate::broker::subscriber::{SubscribeError, Subscriber};

use super::super::contract::{LONG, events, ids as ids_of};
use super::super::{event, eventually, unique};
use super::{Fragile, Site, Source, contract, faults, next, publish, receipts, server, take};
use crate::servers::rabbitmq as servers;

/// A node, and an exchange of the test's own.
struct Rabbit {
    site: Site<servers::RabbitMq>,
    exchange: String,
    queues: QueueKind,
}

async fn shared() -> Rabbit {
    Rabbit { site: Site::shared(servers::shared_url()), exchange: unique("events"), queues: QueueKind::Quorum }
}

/// With classic queues: a quorum queue of one node that is killed in the seconds after it was made never works
/// again, which is RabbitMQ's own (3.10, any client).
async fn private() -> Rabbit {
    let node = servers::RabbitMq::start();
    let (url, port) = (node.url.clone(), node.port);
    Rabbit { site: Site::private(node, url, port).await, exchange: unique("events"), queues: QueueKind::Classic }
}

contract!(shared);
faults!(private);

impl Rabbit {
    fn options(&self, url: &str) -> RabbitMqOptions {
        RabbitMqOptions {
            exchange: self.exchange.clone(),
            topology: Topology::Declare(Declared { queues: self.queues, ..Declared::default() }),
            time_limit: self.site.limit() * 2,
            ..RabbitMqOptions::new(url)
        }
    }

    fn subscription(&self, topic: &str, group: &str) -> RabbitMqSubscriberOptions {
        // Queues are the server's, not the exchange's.
        let group = Some(format!("{topic}-{group}"));
        RabbitMqSubscriberOptions { group, ..RabbitMqSubscriberOptions::new(self.options(&self.site.by_way_of), topic) }
    }

    /// Makes a queue that gets `topic`.
    async fn make(&self, queue: &str, topic: &str) {
        let (connection, channel) = channel(&self.site.url).await;
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let exchange = self.exchange.as_str();
        channel.exchange_declare(exchange.into(), ExchangeKind::Topic, durable, FieldTable::default()).await.unwrap();
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let kind = if self.queues == QueueKind::Quorum { "quorum" } else { "classic" };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        channel.queue_declare(queue.into(), durable, arguments).await.unwrap();
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        channel.queue_bind(queue.into(), exchange.into(), topic.into(), options, none).await.unwrap();
        connection.close(200, "made".into()).await.unwrap();
    }
}

async fn channel(url: &str) -> (Connection, Channel) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

impl Source for Rabbit {
    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(RabbitMq::new(self.options(&self.site.url)).unwrap())
    }

    /// A queue gets what is published once it is bound.
    async fn topic(&self, groups: &[&str]) -> String {
        let topic = unique("payments");
        for group in groups {
            self.make(&format!("{topic}-{group}"), &topic).await;
        }
        topic
    }

    fn subscriber(&self, topic: &str, group: &str, prefetch: u16) -> Box<dyn Subscriber> {
        let options = RabbitMqSubscriberOptions { prefetch, ..self.subscription(topic, group) };
        Box::new(RabbitMqSubscriber::new(options).unwrap())
    }

    fn keeps_order_through_losses(&self) -> bool {
        true
    }
}

server!(servers::RabbitMq);

impl Fragile for Rabbit {
    type Server = servers::RabbitMq;

    fn site(&self) -> &Site<servers::RabbitMq> {
        &self.site
    }

    fn site_mut(&mut self) -> &mut Site<servers::RabbitMq> {
        &mut self.site
    }
}

/// What is there before the first subscriber: nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_made_and_bound_by_its_first_subscriber() {
    let rabbit = shared().await;
    let topic = unique("payments");
    for (pattern, group) in [(topic.clone(), "exact"), (format!("{topic}.*"), "pattern")] {
        let mut subscriber = rabbit.subscriber(&pattern, group, 10);
        let sent = event(&pattern.replace('*', "created"), "k", 0);
        let publisher = rabbit.publisher();
        // Refused, as long as no queue takes it.
        let published = eventually("it is bound", async || publisher.publish(sent.clone()).await.is_ok());
        let (received, ()) = tokio::join!(next(&mut *subscriber), published);
        super::assert_same(&sent, &received[0]);
        subscriber.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_default_exchange_the_topic_names_the_queue() {
    let rabbit = Rabbit { exchange: String::new(), ..shared().await };
    let (topic, options) = (unique("payments"), rabbit.options(&rabbit.site.url));
    let sent = events(&topic, 10, 1);
    publish(&rabbit, &sent).await;
    let options = RabbitMqSubscriberOptions::new(options, &topic);
    let mut subscriber = RabbitMqSubscriber::new(options.clone()).unwrap();
    take(&mut subscriber, &ids_of(&sent)).await;
    subscriber.close().await;
    let error = RabbitMqSubscriber::new(RabbitMqSubscriberOptions { group: Some("points".into()), ..options });
    assert!(error.unwrap_err().0.contains("needs an exchange"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_to_be_there_is_missed() {
    let rabbit = shared().await;
    let (topic, queue) = (unique("payments"), unique("points"));
    // The exchange is there, and the queue is not.
    rabbit.make(&unique("other"), &topic).await;
    for topology in [Topology::Verify, Topology::Given] {
        let connection = RabbitMqOptions { topology, ..rabbit.options(&rabbit.site.url) };
        let options = RabbitMqSubscriberOptions::new(connection, &topic);
        let options = RabbitMqSubscriberOptions { group: Some(queue.clone()), ..options };
        let mut subscriber = RabbitMqSubscriber::new(options).unwrap();
        let error = subscriber.receive().await.unwrap_err();
        assert!(matches!(&error, SubscribeError::Refused(reason) if reason.contains(&queue)), "{error}");
        rabbit.make(&queue, &topic).await;
        let sent = [event(&topic, "k", 0)];
        publish(&rabbit, &sent).await;
        take(&mut subscriber, &ids_of(&sent)).await;
        subscriber.close().await;
        let (connection, channel) = channel(&rabbit.site.url).await;
        channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
        connection.close(200, "deleted".into()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_deleted_is_told_and_made_again() {
    let rabbit = shared().await;
    let topic = rabbit.topic(&["points"]).await;
    let mut subscriber = rabbit.subscriber(&topic, "points", 10);
    publish(&rabbit, &[event(&topic, "k", 0)]).await;
    let received = next(&mut *subscriber).await;
    let (_connection, channel) = channel(&rabbit.site.url).await;
    let queue = format!("{topic}-points");
    let (told, deleted) = tokio::join!(
        async {
            subscriber.ack(&receipts(&received)).await.unwrap();
            subscriber.receive().await
        },
        channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()),
    );
    deleted.unwrap();
    let error = told.unwrap_err();
    assert!(matches!(&error, SubscribeError::Unavailable(reason) if reason.contains("cancelled")), "{error}");
    let sent = event(&topic, "k", 1);
    let publisher = rabbit.publisher();
    let published = eventually("it is bound again", async || publisher.publish(sent.clone()).await.is_ok());
    let (received, ()) = tokio::join!(next(&mut *subscriber), published);
    super::assert_same(&sent, &received[0]);
    subscriber.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_others_come_as_they_are() {
    let rabbit = shared().await;
    let topic = rabbit.topic(&["points"]).await;
    let (connection, channel) = channel(&rabbit.site.url).await;
    let mut headers = FieldTable::default();
    let long = |text: &[u8]| AMQPValue::LongString(text.to_vec().into());
    headers.insert("tenant".into(), long(b"acme"));
    headers.insert("tries".into(), AMQPValue::LongInt(3));
    headers.insert("broken".into(), long(b"\xff\xfe"));
    headers.insert("list".into(), AMQPValue::FieldTable(FieldTable::default()));
    let plain = BasicProperties::default().with_message_id("m-1".into()).with_headers(headers);
    let mut headers = FieldTable::default();
    headers.insert("cloudEvents:specversion".into(), long(b"1.0"));
    headers.insert("cloudEvents:id".into(), long(b"e-1"));
    headers.insert("cloudEvents:time".into(), AMQPValue::Timestamp(1_772_368_496));
    let event = BasicProperties::default().with_message_id("m-2".into()).with_headers(headers);
    let kind = "application/cloudevents+json; charset=utf-8";
    let structured = BasicProperties::default().with_content_type(kind.into());
    let garbage = BasicProperties::default().with_content_type(kind.into()).with_message_id("m-3".into());
    let document = br#"{"specversion":"1.0","id":"e-2","source":"/s","type":"t","data":{"n": 1.10}}"#;
    let messages: [(BasicProperties, &[u8]); 5] = [
        (plain, b"anything"),
        (event, b"x"),
        (structured, document),
        (garbage, b"\xff{"),
        (BasicProperties::default(), b""),
    ];
    for (properties, data) in messages {
        let (exchange, options) = (rabbit.exchange.as_str().into(), BasicPublishOptions::default());
        channel.basic_publish(exchange, topic.as_str().into(), options, data, properties).await.unwrap();
    }
    let mut subscriber = rabbit.subscriber(&topic, "points", 10);
    let mut all = Vec::new();
    while all.len() < 5 {
        let received = next(&mut *subscriber).await;
        subscriber.ack(&receipts(&received)).await.unwrap();
        all.extend(received);
    }
    let attributes = |place: usize| {
        let pairs = all[place].attributes.iter().map(|(name, value)| (&**name, &**value));
        pairs.collect::<Vec<_>>()
    };
    let ids: Vec<_> = all.iter().map(|message| message.id.as_deref()).collect();
    assert_eq!(ids, [Some("m-1"), Some("e-1"), Some("e-2"), Some("m-3"), None]);
    assert_eq!(attributes(0), [("tenant", "acme"), ("tries", "3")]);
    assert_eq!(attributes(1), [("specversion", "1.0"), ("time", "2026-03-01T12:34:56.000Z")]);
    assert_eq!(attributes(2), [("source", "/s"), ("specversion", "1.0"), ("type", "t")]);
    assert_eq!((&*all[2].data, all[2].content_type.as_deref()), (&b"{\"n\": 1.10}"[..], Some("application/json")));
    assert_eq!((&*all[3].data, all[3].content_type.as_deref()), (&b"\xff{"[..], Some(kind)));
    assert_eq!((&*all[4].data, all[4].content_type.as_deref()), (&b""[..], None));
    subscriber.close().await;
    connection.close(200, "done".into()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_and_a_user_with_a_password() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let node = servers::RabbitMq::start_with_tls();
    node.ctl(&["add_user", "cashier", "p@ss:w/rd"]);
    node.ctl(&["set_permissions", "cashier", ".*", ".*", ".*"]);
    let (port, certificate) = node.tls.clone().unwrap();
    let options = RabbitMqOptions {
        user: Some("cashier".into()),
        password: Some("p@ss:w/rd".into()),
        authorities: Some(std::fs::read(certificate).unwrap()),
        time_limit: LONG,
        ..RabbitMqOptions::new(format!("amqps://localhost:{port}"))
    };
    let topic = unique("payments");
    let sent = event(&topic, "k", 0);
    assert_eq!(RabbitMq::new(options.clone()).unwrap().publish(sent.clone()).await, oncegate::broker::CONFIRMED);
    let receive = async |options: RabbitMqOptions| {
        RabbitMqSubscriber::new(RabbitMqSubscriberOptions::new(options, &topic)).unwrap().receive().await
    };
    super::assert_same(&sent, &receive(options.clone()).await.unwrap()[0]);
    let refused = [
        RabbitMqOptions { password: Some("guess".into()), ..options.clone() },
        RabbitMqOptions { url: format!("amqps://localhost:{port}/other"), ..options.clone() },
    ];
    for options in refused {
        let told = receive(options).await;
        assert!(matches!(&told, Err(SubscribeError::Refused(reason)) if !reason.contains("p@ss")), "{told:?}");
    }
    let told = receive(RabbitMqOptions { authorities: None, ..options.clone() }).await;
    assert!(matches!(&told, Err(SubscribeError::Unavailable(_))), "{told:?}");
    node.ctl(&["set_permissions", "cashier", ".*", ".*", ""]);
    let told = receive(options).await;
    assert!(matches!(&told, Err(SubscribeError::Refused(_))), "{told:?}");
}
