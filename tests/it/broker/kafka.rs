//! Kafka.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use oncegate::broker::kafka::{InvalidKafka, KafkaOptions, KafkaPublisher, KafkaTls};
use oncegate::broker::{CONFIRMED, PublishError, Publisher};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::confirms::{Wired, confirms};
use super::contract::{self as suite, Breakable, Broker, LONG, Received, SHORT};
use super::{PATIENCE, event, eventually, unique};
use crate::servers::kafka::{self, Kafka};
use crate::servers::process::free_port;
use crate::servers::wire::Wire;

suite::contract!(shared);
// The broker has its records in memory only: what it forgets when it is killed is not the publisher's doing. Crashes
// are those of the mock cluster, below.
suite::faults!(private:
    a_broker_that_is_not_there_yet_is_found
    a_broker_that_says_nothing_hangs_nobody
);
confirms!(wired);

/// A partition that gives nothing for so long has no more.
const QUIET: Duration = Duration::from_secs(2);

struct Server {
    broker: String,
    /// `None`: the shared one.
    process: Option<Kafka>,
    /// What everybody reaches it over, if it is not the broker itself.
    wire: Option<Wire>,
}

async fn shared() -> Server {
    Server { broker: kafka::broker().to_owned(), process: None, wire: None }
}

async fn private() -> Server {
    let process = Kafka::start();
    Server { broker: process.broker.clone(), process: Some(process), wire: None }
}

async fn wired() -> Server {
    let port = free_port();
    let wire = Wire::to(port).await;
    let process = Kafka::start_on(port, wire.port);
    Server { broker: process.broker.clone(), process: Some(process), wire: Some(wire) }
}

fn options(brokers: &str, time_limit: Duration) -> KafkaOptions {
    let brokers = brokers.split(',').map(str::to_owned).collect();
    KafkaOptions { delivery_timeout: time_limit, ..KafkaOptions::new(brokers) }
}

fn publisher(brokers: &str, time_limit: Duration) -> Arc<dyn Publisher> {
    Arc::new(KafkaPublisher::new(&options(brokers, time_limit)).unwrap())
}

impl Broker for Server {
    fn publisher(&self, time_limit: Duration) -> Arc<dyn Publisher> {
        publisher(&self.broker, time_limit)
    }

    async fn topic(&self) -> String {
        unique("events")
    }

    async fn received(&self, topic: &str) -> Vec<Received> {
        let (broker, topic) = (self.broker.clone(), topic.to_owned());
        tokio::task::spawn_blocking(move || read(&broker, &topic)).await.unwrap()
    }

    /// Topics are made by the first event.
    async fn dead_end(&self) -> Option<String> {
        None
    }

    fn too_many_bytes(&self) -> Option<usize> {
        Some(1_000_000)
    }
}

impl Breakable for Server {
    async fn kill(&mut self) {
        self.process.as_ref().unwrap().signal("KILL");
    }

    async fn start_again(&mut self) {
        self.process.as_mut().unwrap().start_again();
    }

    async fn pause(&self) {
        self.process.as_ref().unwrap().signal("STOP");
    }

    async fn resume(&self) {
        self.process.as_ref().unwrap().signal("CONT");
    }
}

impl Wired for Server {
    fn wire(&self) -> &Wire {
        self.wire.as_ref().unwrap()
    }

    /// A reader would be told nothing either: an answer that is lost is the one to what has been published.
    async fn has(&self, _: &str, _: usize) -> bool {
        self.wire().swallowed() > 0
    }

    fn asks_again(&self) -> bool {
        true
    }
}

/// All records of a topic, partition by partition.
fn read(brokers: &str, topic: &str) -> Vec<Received> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", unique("nobody"))
        .set("enable.auto.commit", "false")
        .create()
        .unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
    let mut received = Vec::new();
    for partition in metadata.topics()[0].partitions() {
        let (low, high) = consumer.fetch_watermarks(topic, partition.id(), PATIENCE).unwrap();
        if low == high {
            continue;
        }
        let mut all = TopicPartitionList::new();
        all.add_partition_offset(topic, partition.id(), Offset::Beginning).unwrap();
        consumer.assign(&all).unwrap();
        // The test broker's high watermark can be too low, so the end is where nothing comes any more.
        while let Some(message) = consumer.poll(QUIET) {
            received.push(parse(&message.unwrap()));
        }
    }
    received
}

fn parse(message: &BorrowedMessage<'_>) -> Received {
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
    let headers: BTreeMap<String, String> =
        message.headers().unwrap().iter().map(|header| (header.key.to_owned(), text(header.value))).collect();
    let attributes =
        headers.iter().filter_map(|(name, value)| Some((name.strip_prefix("ce_")?.to_owned(), value.clone())));
    let attributes: BTreeMap<_, _> = attributes.collect();
    assert_eq!(text(message.key()), attributes["partitionkey"]);
    let content_type = headers.get("content-type").cloned().unwrap_or_default();
    Received { attributes, content_type, data: message.payload().unwrap_or_default().to_vec() }
}

/// A cluster in this process that fails as told.
struct Mock {
    cluster: MockCluster<'static, DefaultProducerContext>,
    brokers: String,
    topic: String,
}

impl Mock {
    fn start() -> Self {
        Self::of(1)
    }

    fn of(brokers: i32) -> Self {
        let cluster = MockCluster::new(brokers).unwrap();
        let topic = unique("events");
        cluster.create_topic(&topic, 1, 1).unwrap();
        Self { brokers: cluster.bootstrap_servers(), cluster, topic }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_brokers_own_retries_are_no_failures_and_no_duplicates() {
    let mock = Mock::start();
    let publisher = publisher(&mock.brokers, LONG);
    let events = suite::events(&mock.topic, 100, 3);
    use RDKafkaRespErr::{
        RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS as FEW, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION as MOVED,
    };
    mock.cluster.request_errors(RDKafkaApiKey::Produce, &[FEW, MOVED, FEW]);
    let results = join_all(events.iter().map(|event| publisher.publish(event.clone()))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let received = read(&mock.brokers, &mock.topic);
    assert_eq!(received.len(), events.len());
    suite::assert_delivered(&events, &received);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_of_each_event_decides_about_it() {
    let mock = Mock::start();
    let publisher = publisher(&mock.brokers, LONG);
    assert_eq!(publisher.publish(event(&mock.topic, "k", 1)).await, CONFIRMED);
    for (error, refused) in [
        (RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, true),
        (RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, false),
    ] {
        mock.cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
        let result = publisher.publish(event(&mock.topic, "k", 2)).await;
        assert_eq!(matches!(result, Err(PublishError::Refused(_))), refused, "{result:?}");
        assert_eq!(matches!(result, Err(PublishError::Unavailable(_))), !refused, "{result:?}");
        eventually("the next one goes", async || publisher.publish(event(&mock.topic, "k", 3)).await.is_ok()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_exist_is_refused_and_holds_no_other_up() {
    let mock = Mock::start();
    let unknown = unique("nobody");
    mock.cluster.topic_error(&unknown, RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART).unwrap();
    let options = KafkaOptions { topic_patience: Duration::from_secs(1), ..options(&mock.brokers, LONG) };
    let publisher = KafkaPublisher::new(&options).unwrap();
    let lost = publisher.publish(event(&unknown, "lost", 1));
    assert_eq!(publisher.publish(event(&mock.topic, "k", 1)).await, CONFIRMED);
    let result = lost.await;
    assert!(matches!(result, Err(PublishError::Refused(_))), "{result:?}");
}

/// Its broker is down, and the other one of the cluster is not. Not even while one of its events waits in vain, but for
/// the moment when it is found out.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_down_holds_no_other_topic_up() {
    let mock = Mock::of(2);
    let (ill, well) = (unique("ill"), mock.topic.clone());
    mock.cluster.create_topic(&ill, 1, 1).unwrap();
    mock.cluster.partition_leader(&ill, 0, Some(2)).unwrap();
    mock.cluster.partition_leader(&well, 0, Some(1)).unwrap();
    let publisher = publisher(&mock.brokers, SHORT);
    let events = suite::events(&ill, 3, 1);
    assert_eq!(publisher.publish(events[0].clone()).await, CONFIRMED);
    mock.cluster.broker_down(2).unwrap();
    let first = publisher.publish(events[1].clone()).await;
    assert!(matches!(first, Err(PublishError::TopicUnavailable(_))), "{first:?}");
    for round in 0..2 {
        let mut waiting = publisher.publish(events[1].clone());
        let mut others = 0;
        let result = loop {
            tokio::select! {
                biased;
                result = &mut waiting => break result,
                result = publisher.publish(event(&well, "k", 1)) => {
                    assert_eq!(result, CONFIRMED, "{round}");
                    others += 1;
                }
            }
        };
        assert!(matches!(result, Err(PublishError::TopicUnavailable(_))), "{result:?}");
        assert!(others > 10, "{others}");
    }
    mock.cluster.broker_up(2).unwrap();
    suite::deliver(&*publisher, &events[1..]).await;
    suite::assert_delivered(&events, &read(&mock.brokers, &ill));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_a_report_may_be_there_and_comes_again_in_order() {
    let mock = Mock::start();
    let publisher = publisher(&mock.brokers, SHORT);
    let events = suite::events(&mock.topic, 600, 2);
    let mut next = 0;
    let mut round = 0;
    while next < events.len() {
        let window = &events[next..events.len().min(next + 200)];
        let calls: Vec<_> = window.iter().map(|event| publisher.publish(event.clone())).collect();
        if round < 2 {
            mock.cluster.broker_down(1).unwrap();
        }
        let results = join_all(calls).await;
        mock.cluster.broker_up(1).unwrap();
        for result in &results {
            assert!(matches!(result, Ok(_) | Err(PublishError::Unavailable(_))), "{result:?}");
        }
        next += results.iter().take_while(|result| result.is_ok()).count();
        round += 1;
    }
    suite::assert_delivered(&events, &read(&mock.brokers, &mock.topic));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_can_not_go_on_is_replaced() {
    let mock = Mock::start();
    let publisher = publisher(&mock.brokers, LONG);
    assert_eq!(publisher.publish(event(&mock.topic, "k", 1)).await, CONFIRMED);
    // The brokers have forgotten the producer, which is fatal to its idea of what is where.
    let fatal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    mock.cluster.request_errors(RDKafkaApiKey::Produce, &[fatal]);
    // Whether the client recovers by itself or fails, events go on.
    publisher.publish(event(&mock.topic, "k", 2)).await.ok();
    suite::works_again(&*publisher, &mock.topic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_events_are_turned_away_and_none_overtakes() {
    let mock = Mock::start();
    let publisher = KafkaPublisher::new(&KafkaOptions { queue: 10, ..options(&mock.brokers, LONG) }).unwrap();
    let events = suite::events(&mock.topic, 50, 1);
    let results = join_all(events.iter().map(|event| publisher.publish(event.clone())).collect::<Vec<_>>()).await;
    let taken = results.iter().take_while(|result| result.is_ok()).count();
    assert!(results[taken..].iter().all(|result| matches!(result, Err(PublishError::Unavailable(_)))), "{results:?}");
    assert!((1..50).contains(&taken), "{taken}");
    suite::assert_delivered(&events[..taken], &read(&mock.brokers, &mock.topic));
}

#[test]
fn what_cant_work_is_refused_at_the_start() {
    let wrong = |options: KafkaOptions| KafkaPublisher::new(&options).map(drop).unwrap_err();
    assert!(matches!(wrong(KafkaOptions::new(Vec::new())), InvalidKafka::NoBroker));
    assert!(matches!(wrong(KafkaOptions::new(vec!["a".to_owned()])), InvalidKafka::Broker(_)));
    if cfg!(not(feature = "kafka-ssl")) {
        let tls = KafkaOptions { tls: Some(KafkaTls::default()), ..options("a:9092", LONG) };
        assert!(matches!(wrong(tls), InvalidKafka::NoSsl(_)));
    }
}
