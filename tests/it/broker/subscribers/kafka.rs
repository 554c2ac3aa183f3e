//! Kafka as a source: the contract, and what only Kafka does.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use oncegate::broker::Publisher;
use oncegate::broker::kafka::{
    InvalidKafka, KafkaOptions, KafkaPublisher, KafkaSubscriber, KafkaSubscriberOptions, KafkaTls,
};
use oncegate::broker::subscriber::{Received, SubscribeError, Subscriber};
use oncegate::outbox::event::Outgoing;
use oncegate::telemetry;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::net::TcpListener;

use super::super::contract::{LONG, events, ids as ids_of};
use super::super::{PATIENCE, unique};
use super::{Fragile, Proxy, Site, Source, contract, faults, ids, next, publish, receipts, server, take};
use crate::servers::kafka::{self, Kafka};
use crate::servers::process::{free_port, given};

/// The shortest that brokers take.
const SESSION: Duration = Duration::from_secs(6);

struct Server {
    site: Site<Kafka>,
}

async fn shared() -> Server {
    Server { site: Site::shared(kafka::broker()) }
}

/// The broker tells its clients where it is, so they all go through the proxy.
async fn private() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free_port();
    let process = Kafka::start_on(port, listener.local_addr().unwrap().port());
    let proxy = Proxy::start_on(listener, port);
    let site = Site::shared(&*process.broker);
    Server { site: Site { private: Some((process, proxy)), ..site } }
}

contract!(shared);
// The broker has its records and groups in memory only: what it forgets when it is killed is not the subscriber's
// doing. Restarts are those of the mock cluster, below.
faults!(private:
    what_was_in_hand_when_the_connection_was_cut_comes_again
    all_arrive_over_many_lost_connections
    a_broker_that_is_not_there_yet_is_found
    a_broker_that_says_nothing_hangs_no_acknowledgement
);

fn options(brokers: &str) -> KafkaOptions {
    KafkaOptions { delivery_timeout: LONG / 2, ..KafkaOptions::new(vec![brokers.to_owned()]) }
}

fn subscription(brokers: &str, topic: &str, group: &str) -> KafkaSubscriberOptions {
    // Groups are the broker's, and a topic's tests have a topic each.
    let group = format!("{topic}-{group}");
    KafkaSubscriberOptions { session_timeout: SESSION, ..KafkaSubscriberOptions::new(options(brokers), topic, group) }
}

async fn create(brokers: &str, topic: &str, partitions: i32) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
    let topics = [NewTopic::new(topic, partitions, TopicReplication::Fixed(1))];
    let created = admin.create_topics(&topics, &AdminOptions::new().operation_timeout(Some(LONG))).await.unwrap();
    assert!(created.iter().all(Result::is_ok), "{created:?}");
}

impl Source for Server {
    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(KafkaPublisher::new(&options(&self.site.url)).unwrap())
    }

    async fn topic(&self, _groups: &[&str]) -> String {
        let topic = unique("events");
        create(&self.site.url, &topic, 3).await;
        topic
    }

    fn subscriber(&self, topic: &str, group: &str, prefetch: u16) -> Box<dyn Subscriber> {
        let options =
            KafkaSubscriberOptions { prefetch: prefetch.into(), ..subscription(&self.site.url, topic, group) };
        Box::new(KafkaSubscriber::new(options).unwrap())
    }

    fn keeps_order_through_losses(&self) -> bool {
        true
    }
}

server!(Kafka);

impl Fragile for Server {
    type Server = Kafka;

    fn site(&self) -> &Site<Kafka> {
        &self.site
    }

    fn site_mut(&mut self) -> &mut Site<Kafka> {
        &mut self.site
    }
}

/// The parts of a place: `topic[partition]@offset`.
fn partition(message: &Received) -> &str {
    message.place.rsplit_once('[').unwrap().1.split_once(']').unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_in_hand_of_a_partition_that_is_taken_away_is_its_new_owners() {
    let server = shared().await;
    let topic = server.topic(&["points"]).await;
    let sent = events(&topic, 90, 30);
    publish(&server, &sent).await;
    let mut first = server.subscriber(&topic, "points", 90);
    let in_hand = next(&mut *first).await;
    let (joined, told) = tokio::sync::oneshot::channel();
    let mut second = server.subscriber(&topic, "points", 90);
    let wanted = ids_of(&sent);
    let second = tokio::spawn(async move {
        let mut all = next(&mut *second).await;
        second.ack(&receipts(&all)).await.unwrap();
        joined.send(partition(&all[0]).to_owned()).unwrap();
        let missing: Vec<String> = wanted.into_iter().filter(|wanted| !ids(&all).contains(wanted)).collect();
        all.extend(take(&mut *second, &missing).await);
        second.close().await;
        all
    });
    // It has nothing acknowledged; receiving is what lets the group go on.
    let mut old = receipts(&in_hand);
    let mut told = std::pin::pin!(told);
    let theirs = loop {
        tokio::select! {
            theirs = &mut told => break theirs.unwrap(),
            received = next(&mut *first) => old.extend(receipts(&received)),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let mine = next(&mut *first).await;
    assert!(mine.iter().all(|message| partition(message) != theirs), "{theirs} is the other's");
    assert_eq!(first.ack(&old).await, Ok(()), "passed over");
    first.close().await;
    // Were one of the old ones committed, it would be missing here.
    let all = second.await.unwrap();
    assert_eq!(ids(&all).into_iter().collect::<BTreeSet<_>>(), ids_of(&sent).into_iter().collect());
}

/// Says nothing to the group when it goes.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_member_had_in_hand_goes_to_the_others() {
    let server = shared().await;
    let topic = server.topic(&["points"]).await;
    let sent = events(&topic, 60, 10);
    publish(&server, &sent).await;
    let member = "broker::subscribers::kafka::a_member_that_another_test_kills";
    let mut member = Command::new(std::env::current_exe().unwrap())
        .args([member, "--exact", "--ignored", "--nocapture"])
        .env(MEMBER, format!("{} {topic}", server.site.url))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(member.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains(IN_HAND)), "it ended before it had anything");
    let mut survivor = server.subscriber(&topic, "points", 60);
    // In the group before the other is dead, or not: it is not told.
    drop(tokio::time::timeout(Duration::from_secs(1), survivor.receive()).await);
    member.kill().unwrap();
    member.wait().unwrap();
    take(&mut *survivor, &ids_of(&sent)).await;
    survivor.close().await;
}

/// Tells [`a_member_that_another_test_kills`] where to go.
const MEMBER: &str = "ONCEGATE_TEST_MEMBER";

const IN_HAND: &str = "in hand";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of another test, in a process of its own"]
async fn a_member_that_another_test_kills() {
    let Some(place) = given(MEMBER) else { return };
    let (broker, topic) = place.split_once(' ').unwrap();
    let mut member = KafkaSubscriber::new(subscription(broker, topic, "points")).unwrap();
    let received = next(&mut member).await;
    println!("{IN_HAND}: {}", received.len());
    tokio::time::sleep(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_others_come_as_they_are() {
    let server = shared().await;
    let topic = unique("events");
    create(&server.site.url, &topic, 1).await;
    let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", &server.site.url).create().unwrap();
    let header = |key, value: &'static [u8]| Header { key, value: Some(value) };
    let plain = OwnedHeaders::new()
        .insert(header("tenant", b"acme"))
        .insert(header("broken", b"\xff"))
        .insert(Header::<&[u8]> { key: "none", value: None });
    let event = OwnedHeaders::new().insert(header("ce_id", b"e-1")).insert(header("Content-Type", b"text/plain"));
    let kind = b"application/cloudevents+json";
    let structured = OwnedHeaders::new().insert(header("content-type", kind));
    let document: &[u8] = br#"{"specversion":"1.0","id":"e-2","source":"/s","type":"t","data":[1.0]}"#;
    let none = || None::<OwnedHeaders>;
    type Parts<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, Option<OwnedHeaders>);
    let messages: [Parts<'_>; 5] = [
        (Some(b"k"), Some(b"anything"), Some(plain)),
        (Some(b"\xff"), Some(b"x"), Some(event)),
        (None, Some(document), Some(structured)),
        (Some(b"gone"), None, none()),
        (None, Some(b"\xff"), none()),
    ];
    for (key, payload, headers) in messages {
        let mut record = BaseRecord::<[u8], [u8]>::to(&topic);
        record.key = key;
        record.payload = payload;
        record.headers = headers;
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
    let mut subscriber = server.subscriber(&topic, "points", 10);
    let mut all = Vec::new();
    while all.len() < 5 {
        let received = next(&mut *subscriber).await;
        subscriber.ack(&receipts(&received)).await.unwrap();
        all.extend(received);
    }
    let of = |part: fn(&Received) -> Option<&str>| all.iter().map(part).collect::<Vec<_>>();
    assert_eq!(of(|message| message.id.as_deref()), [None, Some("e-1"), Some("e-2"), None, None]);
    assert_eq!(of(|message| message.key.as_deref()), [Some("k"), None, None, Some("gone"), None]);
    let kinds = [None, Some("text/plain"), Some("application/json"), None, None];
    assert_eq!(of(|message| message.content_type.as_deref()), kinds);
    assert_eq!(all[0].attributes, [("tenant".into(), "acme".into())]);
    assert_eq!(
        all.iter().map(|message| &*message.data).collect::<Vec<_>>(),
        [b"anything", &b"x"[..], b"[1.0]", b"", b"\xff"]
    );
    assert_eq!(&*all[4].place, format!("{topic}[0]@4"));
    subscriber.close().await;
}

/// A cluster in this process that fails as told, and keeps its records.
struct Mock {
    cluster: MockCluster<'static, DefaultProducerContext>,
    topic: String,
    sent: Vec<Outgoing>,
}

impl Mock {
    async fn start() -> (Self, KafkaSubscriber) {
        let cluster = MockCluster::new(1).unwrap();
        let topic = unique("events");
        cluster.create_topic(&topic, 2, 1).unwrap();
        let (brokers, sent) = (cluster.bootstrap_servers(), events(&topic, 40, 4));
        let publisher = KafkaPublisher::new(&options(&brokers)).unwrap();
        super::deliver(&publisher, &sent).await;
        let subscriber = KafkaSubscriber::new(subscription(&brokers, &topic, "points")).unwrap();
        (Self { cluster, topic, sent }, subscriber)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_come_back_know_where_the_group_stood() {
    let (mock, mut subscriber) = Mock::start().await;
    let first = next(&mut subscriber).await;
    assert_eq!(subscriber.ack(&receipts(&first[..1])).await, Ok(()));
    mock.cluster.broker_down(1).unwrap();
    let told = subscriber.ack(&receipts(&first[1..2])).await;
    assert!(matches!(told, Err(SubscribeError::Unavailable(_))), "{told:?}");
    mock.cluster.broker_up(1).unwrap();
    let wanted: Vec<String> = ids_of(&mock.sent).into_iter().filter(|wanted| *wanted != ids(&first)[0]).collect();
    let received = take(&mut subscriber, &wanted).await;
    assert!(!ids(&received).contains(&ids(&first)[0]), "it was acknowledged");
    subscriber.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_refused_is_told_and_comes_again() {
    let (mock, mut subscriber) = Mock::start().await;
    let first = next(&mut subscriber).await;
    let refusal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION;
    mock.cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[refusal]);
    let told = subscriber.ack(&receipts(&first)).await;
    assert!(matches!(told, Err(SubscribeError::Unavailable(_))), "{told:?}");
    take(&mut subscriber, &ids_of(&mock.sent)).await;
    subscriber.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_exist_is_refused_and_found_when_it_does() {
    let (mock, _) = Mock::start().await;
    let unknown = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    mock.cluster.topic_error(&mock.topic, unknown).unwrap();
    let brokers = mock.cluster.bootstrap_servers();
    let mut subscriber = KafkaSubscriber::new(subscription(&brokers, &mock.topic, "points")).unwrap();
    let told = subscriber.receive().await;
    assert!(matches!(told, Err(SubscribeError::Refused(_))), "{told:?}");
    mock.cluster.topic_error(&mock.topic, RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).unwrap();
    let deadline = oncegate::clock::now() + PATIENCE;
    while subscriber.receive().await.is_err() {
        assert!(oncegate::clock::now() < deadline);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    take(&mut subscriber, &ids_of(&mock.sent)).await;
}

#[test]
fn what_cant_work_is_refused_at_the_start() {
    let wrong = |options: KafkaSubscriberOptions| KafkaSubscriber::new(options).map(drop).unwrap_err();
    for (topic, group) in [("", "g"), ("^a.*", "g"), ("a b", "g"), (&*"a".repeat(250), "g"), ("a", "")] {
        let error = wrong(KafkaSubscriberOptions::new(options("a:1"), topic, group));
        assert!(matches!(error, InvalidKafka::Subscription(_)), "{topic} {group}");
    }
    let none = KafkaSubscriberOptions { prefetch: 0, ..KafkaSubscriberOptions::new(options("a:1"), "a", "g") };
    assert!(matches!(wrong(none), InvalidKafka::Subscription(_)));
    assert!(matches!(wrong(KafkaSubscriberOptions::new(options("a"), "a", "g")), InvalidKafka::Broker(_)));
    let tls = KafkaOptions { tls: Some(KafkaTls::default()), ..options("a:1") };
    let needy = KafkaSubscriber::new(KafkaSubscriberOptions::new(tls, "a", "g"));
    assert_eq!(matches!(needy, Err(InvalidKafka::NoSsl(_))), cfg!(not(feature = "kafka-ssl")));
}

/// Handlers that run side by side end in any order.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_acknowledged_without_a_gap_is_committed() {
    let (broker, topic) = (kafka::broker(), unique("gaps"));
    create(broker, &topic, 1).await;
    let sent = events(&topic, 6, 1);
    publish(&Server { site: Site::shared(broker) }, &sent).await;
    let open = || KafkaSubscriber::new(subscription(broker, &topic, "points")).unwrap();
    let mut member = open();
    let received = loop {
        // What is not acknowledged comes again, with more.
        let received = next(&mut member).await;
        if received.len() == sent.len() {
            break received;
        }
    };
    let receipts = receipts(&received);
    assert_eq!(member.ack(&[receipts[5], receipts[2], receipts[0]]).await, Ok(()));
    assert_eq!(member.ack(&receipts[3..5]).await, Ok(()));
    member.close().await;
    let mut other = open();
    let again = take(&mut other, &ids_of(&sent[1..])).await;
    assert_eq!(ids(&again)[0], ids(&received)[1], "from the first gap on");
    assert!(!ids(&again).contains(&ids(&received)[0]));
    other.close().await;
}

/// By the messages that there are.
#[tokio::test(flavor = "multi_thread")]
async fn how_far_behind_a_member_is_is_measured() {
    telemetry::keep_metrics();
    let (broker, topic) = (kafka::broker(), unique("lag"));
    create(broker, &topic, 1).await;
    let sent = events(&topic, 30, 1);
    publish(&Server { site: Site::shared(broker) }, &sent).await;
    let options = subscription(broker, &topic, "points");
    let measure = Duration::from_millis(100);
    let mut member = KafkaSubscriber::new(KafkaSubscriberOptions { prefetch: 10, measure, ..options }).unwrap();
    let behind = || {
        let text = telemetry::metrics();
        let line = text.lines().find(|line| line.starts_with("oncegate_kafka_behind{") && line.contains(&topic))?;
        line.rsplit(' ').next()?.parse::<u64>().ok()
    };
    let deadline = oncegate::clock::now() + PATIENCE;
    // Nothing is acknowledged, so no more than ten are received.
    while behind().is_none_or(|count| count < 20) {
        assert!(oncegate::clock::now() < deadline, "{:?}", behind());
        next(&mut member).await;
    }
    let mut left = sent.len();
    while left > 0 {
        let received = next(&mut member).await;
        assert_eq!(member.ack(&receipts(&received)).await, Ok(()));
        left -= received.len();
    }
    while behind() != Some(0) {
        assert!(oncegate::clock::now() < deadline, "{:?}", behind());
        // The client measures while it is asked.
        drop(tokio::time::timeout(measure, member.receive()).await);
    }
    member.close().await;
}
