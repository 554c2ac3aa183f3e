//! NATS JetStream as a source: the contract, and what only NATS does.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::Config;
use async_nats::jetstream::{self, Context};
use oncegate::broker::nats::{
    InvalidNats, MissingStream, NatsCredentials, NatsOptions, NatsPublisher, NatsStream, NatsSubscriber,
    NatsSubscriberOptions,
};
use oncegate::broker::subscriber::{SubscribeError, Subscriber};
use oncegate::broker::{Hidden, Publisher};

use super::super::contract::{LONG, events, ids as ids_of};
use super::super::{event, eventually, unique};
use super::{Fragile, SOON, Site, Source, contract, faults, next, publish, receipts, server, take};
use crate::servers::nats::{self, Nats};

/// A server, and one client of the test's own, which connects again by itself.
struct Server {
    site: Site<Nats>,
    js: Context,
}

async fn shared() -> Server {
    Server::on(Site::shared(nats::url())).await
}

async fn private() -> Server {
    let process = Nats::start();
    let (url, port) = (process.url.clone(), process.port);
    Server::on(Site::private(process, url, port).await).await
}

contract!(shared);
faults!(private);

impl Server {
    async fn on(site: Site<Nats>) -> Self {
        let js = jetstream::new(async_nats::connect(&site.url).await.unwrap());
        Self { site, js }
    }

    fn options(&self, url: &str) -> NatsOptions {
        let limit = self.site.limit();
        NatsOptions { publish_timeout: limit, connect_timeout: limit, ..NatsOptions::new(vec![url.to_owned()]) }
    }

    fn subscription(&self, topic: &str, group: &str) -> NatsSubscriberOptions {
        let options = NatsSubscriberOptions::new(self.options(&self.site.by_way_of), topic, group);
        NatsSubscriberOptions { ack_wait: SOON, ..options }
    }
}

impl Source for Server {
    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(NatsPublisher::new(self.options(&self.site.url)).unwrap())
    }

    async fn topic(&self, _groups: &[&str]) -> String {
        let name = unique("events");
        let config = Config { name: name.clone(), subjects: vec![name.clone()], ..Config::default() };
        self.js.create_stream(config).await.unwrap();
        name
    }

    fn subscriber(&self, topic: &str, group: &str, prefetch: u16) -> Box<dyn Subscriber> {
        let options = NatsSubscriberOptions { prefetch: prefetch.into(), ..self.subscription(topic, group) };
        Box::new(NatsSubscriber::new(options).unwrap())
    }

    /// What the server had sent comes again after `ack_wait`, and others go on meanwhile.
    fn keeps_order_through_losses(&self) -> bool {
        false
    }
}

server!(Nats);

impl Fragile for Server {
    type Server = Nats;

    fn site(&self) -> &Site<Nats> {
        &self.site
    }

    fn site_mut(&mut self) -> &mut Site<Nats> {
        &mut self.site
    }

    async fn works(&self) {
        let answers = async || match self.js.get_stream("none").await {
            Ok(_) => true,
            Err(error) => matches!(error.kind(), GetStreamErrorKind::JetStream(_)),
        };
        eventually("JetStream answers", answers).await;
    }
}

#[tokio::test]
async fn what_does_not_exist_is_refused_and_found_when_it_does() {
    let server = shared().await;
    let topic = unique("events");
    let mut subscriber = server.subscriber(&topic, "points", 10);
    let refused = async |subscriber: &mut dyn Subscriber, why: &str| {
        let error = subscriber.receive().await.unwrap_err();
        assert!(matches!(&error, SubscribeError::Refused(reason) if reason.contains(why)), "{error}");
    };
    refused(&mut *subscriber, "the stream that takes").await;
    let stream = NatsStream { name: topic.clone(), subjects: vec![topic.clone()], missing: MissingStream::Fail };
    let mut options = server.subscription(&topic, "points");
    options.connection.stream = Some(stream);
    let mut named = NatsSubscriber::new(options).unwrap();
    refused(&mut named, "stream").await;

    let config = Config { name: topic.clone(), subjects: vec![topic.clone()], ..Config::default() };
    let stream = server.js.create_stream(config).await.unwrap();
    // Somebody else's, with the same name.
    for (config, why) in [
        (pull::Config { filter_subject: format!("{topic}.other"), ..pull::Config::default() }, "filter"),
        (
            pull::Config { filter_subject: topic.clone(), ack_policy: AckPolicy::None, ..pull::Config::default() },
            "acknowledged",
        ),
    ] {
        let config = pull::Config { durable_name: Some("points".into()), ..config };
        if stream.create_consumer(config).await.is_ok() {
            refused(&mut *subscriber, why).await;
            stream.delete_consumer("points").await.unwrap();
        }
    }
    let sent = events(&topic, 10, 1);
    publish(&server, &sent[..5]).await;
    take(&mut *subscriber, &ids_of(&sent[..5])).await;
    subscriber.close().await;
    publish(&server, &sent[5..]).await;
    take(&mut named, &ids_of(&sent[5..])).await;
    named.close().await;
}

#[tokio::test]
async fn a_queues_own_stream_is_made_and_its_subjects_may_be_patterns() {
    let server = shared().await;
    let topic = unique("own");
    let stream = NatsStream {
        name: topic.clone(),
        subjects: vec![format!("{topic}.>")],
        missing: MissingStream::Create { replicas: 1, duplicate_window: LONG },
    };
    let mut options = server.subscription(&format!("{topic}.*"), "points");
    options.connection.stream = Some(stream);
    let mut subscriber = NatsSubscriber::new(options).unwrap();
    let sent = events(&format!("{topic}.created"), 10, 1);
    let publisher = server.publisher();
    let published = eventually("the stream is made", async || publisher.publish(sent[0].clone()).await.is_ok());
    let first = ids_of(&sent[..1]);
    let (_, ()) = tokio::join!(take(&mut subscriber, &first), published);
    publish(&server, &sent).await;
    take(&mut subscriber, &ids_of(&sent[1..])).await;
    subscriber.close().await;
}

#[tokio::test]
async fn a_consumer_that_is_deleted_is_told_and_made_again() {
    let server = shared().await;
    let topic = server.topic(&["points"]).await;
    let sent = events(&topic, 10, 1);
    publish(&server, &sent).await;
    let mut subscriber = server.subscriber(&topic, "points", 20);
    take(&mut *subscriber, &ids_of(&sent)).await;
    let stream = server.js.get_stream(&topic).await.unwrap();
    let (told, deleted) = tokio::join!(subscriber.receive(), stream.delete_consumer("points"));
    deleted.unwrap();
    assert!(matches!(&told, Err(SubscribeError::Unavailable(_))), "{told:?}");
    // It begins again, as a new group does.
    take(&mut *subscriber, &ids_of(&sent)).await;
    subscriber.close().await;
}

#[tokio::test]
async fn what_is_left_behind_in_good_order_need_not_be_waited_for() {
    let server = shared().await;
    let topic = server.topic(&["points"]).await;
    let sent = events(&topic, 30, 1);
    publish(&server, &sent).await;
    let hour = Duration::from_secs(3600);
    let patient = NatsSubscriberOptions { ack_wait: hour, prefetch: 10, ..server.subscription(&topic, "points") };
    let mut leaving = NatsSubscriber::new(patient.clone()).unwrap();
    let in_hand = next(&mut leaving).await;
    assert_eq!(leaving.ack(&receipts(&in_hand[..1])).await, Ok(()));
    leaving.close().await;
    let mut other = NatsSubscriber::new(patient).unwrap();
    take(&mut other, &ids_of(&sent[1..])).await;
    other.close().await;
}

#[tokio::test]
async fn messages_of_others_come_as_they_are() {
    let server = shared().await;
    let topic = server.topic(&["points"]).await;
    let headers = |pairs: &[(&str, &str)]| {
        let mut headers = HeaderMap::new();
        pairs.iter().for_each(|(name, value)| headers.append(*name, *value));
        headers
    };
    let document = br#"{"specversion":"1.0","id":"e-2","source":"/s","type":"t","data_base64":"AAH/"}"#;
    let messages: [(HeaderMap, &[u8]); 4] = [
        (headers(&[("Nats-Msg-Id", "m-1"), ("tenant", "acme"), ("tenant", "100%")]), b"anything"),
        (headers(&[("Ce-Id", "e-1"), ("CE-Subject", "100%25 %ff"), ("Content-Type", "text/plain")]), b"x"),
        (headers(&[("content-type", "application/cloudevents+json")]), document),
        (HeaderMap::new(), b"\xff"),
    ];
    for (headers, data) in messages {
        let published = server.js.publish_with_headers(topic.clone(), headers, data.into()).await.unwrap();
        published.await.unwrap();
    }
    let mut subscriber = server.subscriber(&topic, "points", 10);
    let mut all = Vec::new();
    while all.len() < 4 {
        let received = next(&mut *subscriber).await;
        subscriber.ack(&receipts(&received)).await.unwrap();
        all.extend(received);
    }
    let ids: Vec<_> = all.iter().map(|message| message.id.as_deref()).collect();
    assert_eq!(ids, [Some("m-1"), Some("e-1"), Some("e-2"), None]);
    let attributes = |place: usize| {
        let pairs = all[place].attributes.iter().map(|(name, value)| (&**name, &**value));
        pairs.collect::<Vec<_>>()
    };
    assert_eq!(attributes(0), [("tenant", "acme"), ("tenant", "100%")]);
    // What can't be decoded is left as it is.
    assert_eq!((attributes(1), all[1].content_type.as_deref()), (vec![("subject", "100%25 %ff")], Some("text/plain")));
    assert_eq!((&*all[2].data, all[2].content_type.as_deref()), (&[0, 1, 255][..], None));
    assert_eq!((&*all[3].data, attributes(3)), (&b"\xff"[..], vec![]));
    assert_eq!(&*all[3].place, format!("{topic}:4"));
    subscriber.close().await;
}

#[tokio::test]
async fn credentials_and_tls_are_the_publishers() {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = key.cert.pem();
    let files = [("cert.pem", certificate.as_str()), ("key.pem", &key.signing_key.serialize_pem())];
    let config = "authorization { user: gate, password: hunter2 }\n\
                  tls { cert_file: \"cert.pem\", key_file: \"key.pem\" }";
    let process = Nats::start_with(config, &files);
    let dir = tempfile::tempdir().unwrap();
    let ca_file = dir.path().join("ca.pem");
    std::fs::write(&ca_file, &certificate).unwrap();
    let topic = unique("events");
    let password = |password| NatsCredentials::Password { user: "gate".to_owned(), password: Hidden::new(password) };
    let options = NatsOptions {
        credentials: password("hunter2"),
        ca_file: Some(ca_file),
        stream: Some(NatsStream {
            name: topic.clone(),
            subjects: vec![topic.clone()],
            missing: MissingStream::Create { replicas: 1, duplicate_window: LONG },
        }),
        ..NatsOptions::new(vec![process.url.replace("nats://127.0.0.1", "tls://localhost")])
    };
    let sent = event(&topic, "k", 1);
    assert_eq!(NatsPublisher::new(options.clone()).unwrap().publish(sent.clone()).await, oncegate::broker::CONFIRMED);
    let receive = async |connection: NatsOptions| {
        NatsSubscriber::new(NatsSubscriberOptions::new(connection, &topic, "points")).unwrap().receive().await
    };
    super::assert_same(&sent, &receive(options.clone()).await.unwrap()[0]);
    let told = receive(NatsOptions { credentials: password("hunter3"), ..options.clone() }).await;
    assert!(matches!(&told, Err(SubscribeError::Refused(reason)) if !reason.contains("hunter")), "{told:?}");
    let told = receive(NatsOptions { ca_file: None, ..options }).await;
    assert!(matches!(&told, Err(SubscribeError::Unavailable(_))), "{told:?}");
}

#[test]
fn what_cant_work_is_refused_at_the_start() {
    let wrong = |topic: &str, group: &str| {
        let connection = NatsOptions::new(vec!["nats://a".to_owned()]);
        NatsSubscriber::new(NatsSubscriberOptions::new(connection, topic, group)).map(drop).unwrap_err()
    };
    for (topic, group) in [("", "g"), ("a b", "g"), ("a.>.b", "g"), ("a", ""), ("a", "g.h"), ("a", "g h"), ("a", "*")] {
        assert!(matches!(wrong(topic, group), InvalidNats::Subscription(_)), "{topic} {group}");
    }
}
