//! RabbitMQ: the contract, and what only RabbitMQ does.

mod topics;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapin::options::{BasicGetOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, ConnectionProperties};
use oncegate::broker::rabbitmq::{Binding, Declared, QueueKind, RabbitMq, RabbitMqOptions, Routing, Topology};
use oncegate::broker::{CONFIRMED, PublishError, Publisher};
use oncegate::clock;

use super::confirms::{Wired, confirms};
use super::contract::{
    Breakable, Broker, LONG, Received, SHORT, assert_delivered, contract, events, faults, works_again,
};
use super::{event, eventually, unique};
use crate::servers::rabbitmq::{self as servers, MAX_MESSAGE_BYTES};
use crate::servers::wire::Wire;

/// A node and a queue for each topic.
struct Rabbit {
    /// Where publishers connect.
    url: String,
    /// Where the queues are read.
    read: String,
    topology: Topology,
    /// `None`: shared.
    node: Option<servers::RabbitMq>,
    /// What was in the queues when they were looked at.
    taken: Mutex<HashMap<String, Vec<Received>>>,
    /// What publishers reach it over, if it is not the node itself.
    wire: Option<Wire>,
}

async fn shared() -> Rabbit {
    Rabbit::at(servers::shared_url(), QueueKind::Quorum)
}

/// With classic queues: a quorum queue of one node that is killed in the seconds after it was made never works
/// again, which is RabbitMQ's own (3.10, any client).
async fn private() -> Rabbit {
    let node = servers::RabbitMq::start();
    let rabbit = Rabbit::at(&node.url, QueueKind::Classic);
    Rabbit { node: Some(node), ..rabbit }
}

async fn wired() -> Rabbit {
    let rabbit = private().await;
    let wire = Wire::to(rabbit.node().port).await;
    Rabbit { url: format!("amqp://127.0.0.1:{}", wire.port), wire: Some(wire), ..rabbit }
}

fn of_kind(queues: QueueKind) -> Topology {
    Topology::Declare(Declared { queues, ..Declared::default() })
}

contract!(shared);
faults!(private);
confirms!(wired);

impl Rabbit {
    fn at(url: &str, queues: QueueKind) -> Self {
        let (url, topology) = (url.to_owned(), of_kind(queues));
        Self { read: url.clone(), url, topology, node: None, taken: Mutex::default(), wire: None }
    }

    fn node(&self) -> &servers::RabbitMq {
        self.node.as_ref().expect("a private node")
    }

    fn options(&self) -> RabbitMqOptions {
        RabbitMqOptions { topology: self.topology.clone(), time_limit: LONG, ..RabbitMqOptions::new(&self.url) }
    }
}

impl Broker for Rabbit {
    fn publisher(&self, time_limit: Duration) -> Arc<dyn Publisher> {
        Arc::new(RabbitMq::new(RabbitMqOptions { time_limit, ..self.options() }).unwrap())
    }

    async fn topic(&self) -> String {
        unique("payments")
    }

    async fn received(&self, topic: &str) -> Vec<Received> {
        let new = taken(&self.read, topic).await;
        let mut taken = self.taken.lock().unwrap();
        let all = taken.entry(topic.to_owned()).or_default();
        all.extend(new);
        all.clone()
    }

    /// Too long for a name, since here every other topic gets its queue.
    async fn dead_end(&self) -> Option<String> {
        Some("x".repeat(256))
    }

    fn too_many_bytes(&self) -> Option<usize> {
        Some(MAX_MESSAGE_BYTES + 1)
    }
}

impl Breakable for Rabbit {
    async fn kill(&mut self) {
        self.node().signal("KILL");
    }

    async fn start_again(&mut self) {
        self.node.as_mut().unwrap().start_again();
    }

    async fn pause(&self) {
        self.node().signal("STOP");
    }

    async fn resume(&self) {
        self.node().signal("CONT");
    }
}

impl Wired for Rabbit {
    fn wire(&self) -> &Wire {
        self.wire.as_ref().unwrap()
    }
}

async fn channel(url: &str) -> (Connection, Channel) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

/// Takes all that a queue has; a queue that does not exist has nothing. To leave it there would be to put it
/// back, and a quorum queue puts back in any order.
async fn taken(url: &str, queue: &str) -> Vec<Received> {
    let (connection, channel) = channel(url).await;
    let mut all = Vec::new();
    while let Ok(Some(message)) = channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await {
        assert_eq!(*message.properties.delivery_mode(), Some(2), "persistent");
        let headers = message.properties.headers().clone().unwrap();
        let attribute = |(name, value): (&ShortString, &AMQPValue)| match value {
            AMQPValue::LongString(value) => {
                Some((name.as_str().strip_prefix("cloudEvents_")?.to_owned(), value.to_string()))
            }
            _ => None,
        };
        let attributes: BTreeMap<_, _> = headers.inner().iter().filter_map(attribute).collect();
        assert_eq!(message.properties.message_id().as_ref().unwrap().as_str(), attributes["id"]);
        let content_type = message.properties.content_type().as_ref().unwrap().to_string();
        all.push(Received { attributes, content_type, data: message.delivery.data });
    }
    drop(connection.close(200, "read".into()).await);
    all
}

/// On a queue that exists beside many that do not: the broker returns, and confirms many at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_returned_is_refused_and_no_neighbour_is_taken_for_it() {
    let rabbit = shared().await;
    let topic = rabbit.topic().await;
    works_again(&*rabbit.publisher(LONG), &topic).await;
    let given = RabbitMqOptions { topology: Topology::Given, ..rabbit.options() };
    let publisher = RabbitMq::new(given).unwrap();
    for lost in [1, 2, 7, 50] {
        let (mut sent, mut calls) = (events(&topic, 300, 3), Vec::new());
        for (place, event) in sent.iter_mut().enumerate() {
            if place % lost == 0 {
                event.event.topic = unique("nowhere").into();
            }
            calls.push(publisher.publish(event.clone()));
        }
        for (place, call) in calls.into_iter().enumerate() {
            let result = call.await;
            if place % lost == 0 {
                assert!(matches!(result, Err(PublishError::Refused(_))), "{lost}, {place}: {result:?}");
            } else {
                assert_eq!(result, CONFIRMED, "{lost}, {place}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_and_takes_again_when_there_is_room() {
    let rabbit = shared().await;
    let (topic, (connection, channel)) = (rabbit.topic().await, channel(&rabbit.url).await);
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(2));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(topic.as_str().into(), durable, arguments).await.unwrap();
    // It takes the queue as it is, though it would have made another kind.
    let publisher = rabbit.publisher(LONG);
    let sent = events(&topic, 10, 1);
    let mut results = Vec::new();
    for event in &sent {
        results.push(publisher.publish(event.clone()).await);
    }
    assert_eq!(results[..2], [CONFIRMED, CONFIRMED]);
    assert!(matches!(results[9], Err(PublishError::Refused(_))), "{:?}", results[9]);
    assert!(channel.basic_get(topic.as_str().into(), BasicGetOptions { no_ack: true }).await.unwrap().is_some());
    works_again(&*publisher, &topic).await;
    connection.close(200, "done".into()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_and_its_queues_are_made_and_route() {
    let rabbit = shared().await;
    let exchange = unique("events");
    let (all, some) = (unique("all"), unique("some"));
    let binding = |queue: &str, key: &str| Binding { queue: queue.into(), routing_key: key.into() };
    let declared = Declared {
        exchange: Routing::Topic,
        queues: QueueKind::Classic,
        bindings: vec![binding(&all, "#"), binding(&some, "payments.*")],
    };
    let options = |topology| RabbitMqOptions { exchange: exchange.clone(), topology, ..rabbit.options() };
    // Nothing is there yet, and nothing is published anywhere else.
    let verifying = RabbitMq::new(options(Topology::Verify)).unwrap();
    let early = verifying.publish(event("payments.created", "k", 0)).await;
    assert!(matches!(&early, Err(PublishError::Unavailable(reason)) if reason.contains("NOT")), "{early:?}");
    let given = RabbitMq::new(options(Topology::Given)).unwrap();
    let early = given.publish(event("payments.created", "k", 0)).await;
    assert!(matches!(&early, Err(PublishError::Unavailable(_))), "{early:?}");

    let sent = [event("payments.created", "k", 0), event("refunds.created", "k", 1)];
    // Made, then found.
    for publisher in [options(Topology::Declare(declared.clone())), options(Topology::Declare(declared))] {
        let publisher = RabbitMq::new(publisher).unwrap();
        for event in &sent {
            assert_eq!(publisher.publish(event.clone()).await, CONFIRMED);
        }
    }
    assert_delivered(&sent, &taken(&rabbit.url, &all).await);
    assert_delivered(&sent[..1], &taken(&rabbit.url, &some).await);
    for publisher in [verifying, given] {
        assert_eq!(publisher.publish(event("payments.created", "k", 2)).await, CONFIRMED);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_without_a_topic_are_told_so() {
    let publisher = shared().await.publisher(LONG);
    for topic in [String::new(), "x".repeat(256)] {
        let result = publisher.publish(event(&topic, "k", 0)).await;
        assert!(matches!(result, Err(PublishError::Never(_))), "{result:?}");
    }
}

/// A content type that does not fit its property travels as a header.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_content_type_is_no_reason_not_to_publish() {
    let rabbit = shared().await;
    let (publisher, topic) = (rabbit.publisher(LONG), rabbit.topic().await);
    let mut sent = event(&topic, "k", 0);
    sent.event.content_type = format!("multipart/mixed; boundary={}", "x".repeat(300)).into();
    assert_eq!(publisher.publish(sent.clone()).await, CONFIRMED);
    let (_connection, channel) = channel(&rabbit.url).await;
    let message = channel.basic_get(topic.as_str().into(), BasicGetOptions { no_ack: true }).await.unwrap().unwrap();
    let headers = message.properties.headers().clone().unwrap();
    let kept = headers.inner().get("cloudEvents_datacontenttype");
    assert_eq!(kept, Some(&AMQPValue::LongString(sent.event.content_type.as_bytes().into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_queues_lose_nothing_in_a_crash_either() {
    let rabbit = Rabbit { topology: of_kind(QueueKind::Quorum), ..private().await };
    super::outages::a_crash_in_the_middle_of_a_batch_loses_nothing_and_keeps_the_order(rabbit).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_makes_it_unavailable_until_it_is_lifted() {
    let rabbit = private().await;
    let (publisher, topic) = (rabbit.publisher(SHORT), rabbit.topic().await);
    let sent = event(&topic, "k", 0);
    assert_eq!(publisher.publish(sent.clone()).await, CONFIRMED);
    rabbit.node().ctl(&["set_vm_memory_high_watermark", "0.0000001"]);
    let mut told = Vec::new();
    eventually("it says that it is blocked", async || {
        let start = clock::now();
        match publisher.publish(event(&topic, "k", 1)).await {
            CONFIRMED => false,
            Err(PublishError::Unavailable(reason)) => {
                assert!(reason.contains("blocked"), "{reason}");
                told.push(clock::now() - start);
                // The first was under way, the others are told at once.
                told.len() == 3
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert!(told[2] < SHORT / 2, "{told:?}");
    rabbit.node().ctl(&["set_vm_memory_high_watermark", "0.4"]);
    works_again(&*publisher, &topic).await;
    assert_eq!(
        rabbit.received(&topic).await.first().map(|first| first.id().to_owned()),
        Some(sent.event.id.to_string())
    );
    publisher.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_and_a_user_with_a_password_and_a_virtual_host() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let node = servers::RabbitMq::start_with_tls();
    node.ctl(&["add_user", "cashier", "p@ss:w/rd"]);
    node.ctl(&["add_vhost", "shop/1"]);
    node.ctl(&["set_permissions", "-p", "shop/1", "cashier", ".*", ".*", ".*"]);
    let (port, certificate) = node.tls.clone().unwrap();
    let options = RabbitMqOptions {
        user: Some("cashier".into()),
        password: Some("p@ss:w/rd".into()),
        authorities: Some(std::fs::read(certificate).unwrap()),
        time_limit: LONG,
        ..RabbitMqOptions::new(format!("amqps://localhost:{port}/shop%2F1"))
    };
    let (topic, sent) = (unique("payments"), event("payments", "k", 0));
    let publish = async |options: RabbitMqOptions| RabbitMq::new(options).unwrap().publish(sent.clone()).await;
    assert_eq!(publish(options.clone()).await, CONFIRMED);
    // It trusts these authorities only, and knows whom it talks to.
    for wrong in [
        RabbitMqOptions { authorities: None, ..options.clone() },
        RabbitMqOptions { url: format!("amqps://127.0.0.1:{port}/shop%2F1"), ..options.clone() },
        RabbitMqOptions { password: Some("guess".into()), ..options.clone() },
        RabbitMqOptions { url: format!("amqps://localhost:{port}/other"), ..options.clone() },
    ] {
        let result = publish(wrong).await;
        assert!(matches!(&result, Err(PublishError::Unavailable(reason)) if !reason.contains("p@ss")), "{result:?}");
    }
    // Not allowed to make queues: a matter of the event.
    node.ctl(&["set_permissions", "-p", "shop/1", "cashier", "", ".*", ".*"]);
    let publisher = RabbitMq::new(options).unwrap();
    let refused = publisher.publish(event(&topic, "k", 0)).await;
    assert!(matches!(refused, Err(PublishError::Refused(_))), "{refused:?}");
    // The channel was closed over it: another event may have to come again.
    eventually("others are taken", async || publisher.publish(sent.clone()).await == CONFIRMED).await;
}
