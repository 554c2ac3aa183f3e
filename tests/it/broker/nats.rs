//! NATS JetStream.

mod leaders;

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use bytes::Bytes;
use futures_util::{StreamExt as _, future::join_all};
use oncegate::broker::nats::{InvalidNats, MissingStream, NatsCredentials, NatsOptions, NatsPublisher, NatsStream};
use oncegate::broker::{CONFIRMED, Hidden, PublishError, Publisher};

use super::confirms::{Wired, confirms};
use super::contract::{self as suite, Breakable, Broker, LONG, Received, SHORT};
use super::{event, eventually, unique};
use crate::servers::nats::{self, Nats};
use crate::servers::wire::{Mode, Wire};

suite::contract!(shared);
suite::faults!(private);
confirms!(wired);

/// A server, and a client of the test's own.
struct Server {
    url: String,
    js: Context,
    process: Option<Nats>,
    /// What publishers reach it over, if it is not the server itself.
    wire: Option<Wire>,
}

async fn shared() -> Server {
    Server::of(nats::url().to_owned(), None).await
}

async fn private() -> Server {
    let process = Nats::start();
    Server::of(process.url.clone(), Some(process)).await
}

async fn wired() -> Server {
    let server = private().await;
    let wire = Wire::to(server.process.as_ref().unwrap().port).await;
    Server { url: format!("nats://127.0.0.1:{}", wire.port), wire: Some(wire), ..server }
}

fn options(url: &str, time_limit: Duration) -> NatsOptions {
    NatsOptions { publish_timeout: time_limit, connect_timeout: time_limit, ..NatsOptions::new(vec![url.to_owned()]) }
}

impl Server {
    async fn of(url: String, process: Option<Nats>) -> Self {
        let js = jetstream::new(async_nats::connect(&url).await.unwrap());
        Self { url, js, process, wire: None }
    }

    fn options(&self) -> NatsOptions {
        options(&self.url, LONG)
    }

    /// A stream of `config` that takes one subject, named like it.
    async fn stream(&self, config: Config) -> String {
        let name = unique("events");
        let config = Config { name: name.clone(), subjects: vec![name.clone()], ..config };
        self.js.create_stream(config).await.unwrap();
        name
    }

    fn process(&mut self) -> &mut Nats {
        self.process.as_mut().expect("a private server")
    }
}

impl Broker for Server {
    fn publisher(&self, time_limit: Duration) -> Arc<dyn Publisher> {
        Arc::new(NatsPublisher::new(options(&self.url, time_limit)).unwrap())
    }

    async fn topic(&self) -> String {
        self.stream(Config::default()).await
    }

    async fn received(&self, topic: &str) -> Vec<Received> {
        let stream = self.js.get_stream(topic).await.unwrap();
        let number = usize::try_from(stream.cached_info().state.messages).unwrap();
        let config =
            pull::Config { deliver_policy: DeliverPolicy::All, ack_policy: AckPolicy::None, ..pull::Config::default() };
        let consumer = stream.create_consumer(config).await.unwrap();
        let mut messages = consumer.messages().await.unwrap().take(number);
        let mut received = Vec::new();
        while let Some(message) = messages.next().await {
            received.push(parse(&message.unwrap()));
        }
        received
    }

    async fn dead_end(&self) -> Option<String> {
        Some(unique("nobody"))
    }

    fn too_many_bytes(&self) -> Option<usize> {
        Some(1024 * 1024)
    }
}

impl Breakable for Server {
    async fn kill(&mut self) {
        self.process().signal("KILL");
    }

    async fn start_again(&mut self) {
        self.process().start_again();
        let answers = async || match self.js.get_stream("none").await {
            Ok(_) => true,
            Err(error) => matches!(error.kind(), GetStreamErrorKind::JetStream(_)),
        };
        eventually("JetStream answers", answers).await;
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
}

fn parse(message: &jetstream::Message) -> Received {
    let headers = message.headers.as_ref().unwrap();
    let value = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let attributes = headers.iter().filter_map(|(name, values)| {
        let name = AsRef::<str>::as_ref(name).strip_prefix("ce-")?;
        Some((name.to_owned(), value(values[0].as_str())))
    });
    let attributes: std::collections::BTreeMap<_, _> = attributes.collect();
    assert!(headers.get("Nats-Msg-Id").unwrap().as_str().starts_with(&attributes["id"]));
    let content_type = headers.get("content-type").map_or(String::new(), |text| value(text.as_str()));
    Received { attributes, content_type, data: message.payload.to_vec() }
}

#[tokio::test]
async fn an_event_that_was_stored_but_not_confirmed_is_confirmed_as_a_duplicate() {
    let server = shared().await;
    let topic = server.topic().await;
    let event = event(&topic, "k", 1);
    // Two gateways, since one of them may have died between the confirm and its mark.
    for _ in 0..2 {
        assert_eq!(server.publisher(LONG).publish(event.clone()).await, CONFIRMED);
    }
    assert_eq!(server.received(&topic).await.len(), 1);
}

#[tokio::test]
async fn a_full_stream_refuses_and_takes_more_when_there_is_room() {
    let server = shared().await;
    let full = Config { max_messages: 3, discard: DiscardPolicy::New, ..Config::default() };
    let topic = server.stream(full).await;
    let publisher = server.publisher(LONG);
    let events = suite::events(&topic, 5, 1);
    let results = join_all(events.iter().map(|event| publisher.publish(event.clone()))).await;
    assert_eq!(results[..3], [CONFIRMED, CONFIRMED, CONFIRMED]);
    for result in &results[3..] {
        assert!(matches!(result, Err(PublishError::Refused(_))), "{result:?}");
    }
    server.js.get_stream(&topic).await.unwrap().purge().await.unwrap();
    assert_eq!(publisher.publish(events[3].clone()).await, CONFIRMED);
}

#[tokio::test]
async fn a_message_above_the_streams_own_limit_never_goes() {
    let server = shared().await;
    let topic = server.stream(Config { max_message_size: 2000, ..Config::default() }).await;
    let mut large = event(&topic, "k", 1);
    large.event.data = Bytes::from(vec![b'x'; 2001]);
    let result = server.publisher(LONG).publish(large).await;
    assert!(matches!(result, Err(PublishError::Never(_))), "{result:?}");
}

#[tokio::test]
async fn subjects_that_cant_be_are_told_without_a_server() {
    let publisher = NatsPublisher::new(options("nats://127.0.0.1:1", SHORT)).unwrap();
    for subject in ["", "a b", "a.>", "*"] {
        let result = publisher.publish(event(subject, "k", 1)).await;
        assert!(matches!(result, Err(PublishError::Never(_))), "{subject}: {result:?}");
    }
}

#[tokio::test]
async fn a_stream_that_was_deleted_costs_a_refusal_and_what_comes_back_is_stored_anew() {
    let server = shared().await;
    let topic = server.topic().await;
    let publisher = server.publisher(LONG);
    let event = event(&topic, "k", 1);
    assert_eq!(publisher.publish(event.clone()).await, CONFIRMED);
    server.js.delete_stream(&topic).await.unwrap();
    let result = publisher.publish(event.clone()).await;
    assert!(matches!(result, Err(PublishError::Refused(_))), "{result:?}");
    let config = Config { name: topic.clone(), subjects: vec![topic.clone()], ..Config::default() };
    server.js.create_stream(config).await.unwrap();
    // Inside the window of the old stream, which knew the id.
    assert_eq!(publisher.publish(event).await, CONFIRMED);
    assert_eq!(server.received(&topic).await.len(), 1);
}

#[tokio::test]
async fn a_queues_own_stream_is_made_and_made_again() {
    let server = shared().await;
    let topic = unique("own");
    let stream = NatsStream {
        name: topic.clone(),
        subjects: vec![topic.clone()],
        missing: MissingStream::Create { replicas: 1, duplicate_window: Duration::from_secs(300) },
    };
    let options = NatsOptions { stream: Some(stream), ..server.options() };
    // Both want to make it.
    let publishers = [(); 2].map(|()| NatsPublisher::new(options.clone()).unwrap());
    let results = join_all(publishers.iter().map(|publisher| publisher.publish(event(&topic, "k", 1)))).await;
    assert_eq!(results, [CONFIRMED, CONFIRMED]);
    let info = server.js.get_stream(&topic).await.unwrap().cached_info().config.clone();
    assert_eq!(info.duplicate_window, Duration::from_secs(300));

    server.js.delete_stream(&topic).await.unwrap();
    let event = event(&topic, "k", 2);
    let result = publishers[0].publish(event.clone()).await;
    assert!(matches!(result, Err(PublishError::Refused(_))), "{result:?}");
    assert_eq!(publishers[0].publish(event).await, CONFIRMED);
}

#[tokio::test]
async fn a_queues_stream_that_is_missing_or_of_no_use_takes_no_attempts() {
    let server = shared().await;
    let name = unique("wanted");
    let stream = NatsStream { name: name.clone(), subjects: vec![name.clone()], missing: MissingStream::Fail };
    let options = NatsOptions { stream: Some(stream), ..server.options() };
    let publisher = NatsPublisher::new(options).unwrap();
    let unavailable = async |why: &str| match publisher.publish(event(&name, "k", 1)).await {
        Err(PublishError::Unavailable(text)) => assert!(text.contains(why), "{text}"),
        other => panic!("{other:?}"),
    };
    unavailable("stream not found").await;
    let other = Config { name: name.clone(), subjects: vec![format!("{name}.other")], ..Config::default() };
    server.js.create_stream(other).await.unwrap();
    unavailable("does not take").await;
    let deaf = Config { name: name.clone(), subjects: vec![name.clone()], no_ack: true, ..Config::default() };
    server.js.update_stream(deaf.clone()).await.unwrap();
    unavailable("no_ack").await;
    server.js.update_stream(Config { no_ack: false, ..deaf }).await.unwrap();
    assert_eq!(publisher.publish(event(&name, "k", 1)).await, CONFIRMED);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_a_work_queue_may_get_an_event_again_but_loses_none() {
    let mut server = private().await;
    let topic = server.stream(Config { retention: RetentionPolicy::WorkQueue, ..Config::default() }).await;
    let publisher = server.publisher(SHORT);
    let event = event(&topic, "k", 1);
    assert_eq!(publisher.publish(event.clone()).await, CONFIRMED);
    let consumed = async || {
        let stream = server.js.get_stream(&topic).await.unwrap();
        let config = pull::Config { durable_name: Some("worker".to_owned()), ..pull::Config::default() };
        let consumer = stream.get_or_create_consumer("worker", config).await.unwrap();
        let mut messages = consumer.messages().await.unwrap();
        let message = messages.next().await.unwrap().unwrap();
        message.double_ack().await.unwrap();
        parse(&message).id().to_owned()
    };
    assert_eq!(consumed().await, event.event.id.to_string());
    server.kill().await;
    server.start_again().await;
    // Its confirm was lost with the gateway: the event comes again. A message that was consumed takes its id
    // along when the server starts.
    eventually("the retry is confirmed", async || publisher.publish(event.clone()).await.is_ok()).await;
    let messages = server.js.get_stream(&topic).await.unwrap().cached_info().state.messages;
    assert!(messages <= 1, "{messages}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_key_never_overtake_each_other_over_many_lost_connections() {
    let mut server = private().await;
    let topic = server.topic().await;
    let publisher = server.publisher(SHORT);
    let events = suite::events(&topic, 3_000, 1);
    let (mut next, mut round) = (0, 0);
    while next < events.len() {
        round += 1;
        // A relay that calls on until it hears of the first failure, whatever happens meanwhile.
        let window = &events[next..events.len().min(next + 400)];
        let calls = tokio::spawn({
            let (publisher, window) = (Arc::clone(&publisher), window.to_vec());
            async move {
                let mut calls = Vec::new();
                for event in window {
                    calls.push(publisher.publish(event));
                    tokio::task::yield_now().await;
                }
                join_all(calls).await
            }
        });
        if round <= 4 {
            server.kill().await;
            server.start_again().await;
        }
        next += calls.await.unwrap().iter().take_while(|result| result.is_ok()).count();
    }
    suite::assert_delivered(&events, &server.received(&topic).await);
}

/// The client is busy with connecting again when the second one is called.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_does_not_overtake_one_that_went_down_with_the_connection() {
    let server = wired().await;
    let (wire, publisher, topic) = (server.wire(), server.publisher(LONG), server.topic().await);
    let sent = suite::events(&topic, 3, 1);
    assert_eq!(publisher.publish(sent[0].clone()).await, CONFIRMED);
    wire.set(Mode::Dead);
    let first = publisher.publish(sent[1].clone());
    eventually("it is under way", async || wire.swallowed() > 0).await;
    wire.cut();
    eventually("the client has noticed", async || wire.connections() == 2).await;
    wire.set_next(Mode::Whole);
    let second = publisher.publish(sent[2].clone());
    let (second, first) = (second.await, first.await);
    suite::assert_unavailable(&[first, second]);
    suite::deliver(&*publisher, &sent[1..]).await;
    suite::assert_delivered(&sent, &server.received(&topic).await);
}

#[tokio::test]
async fn passwords_and_tokens_and_keys_are_shown_to_the_server() {
    let keys = nkeys::KeyPair::new_user();
    let user = format!("authorization {{ users = [ {{ nkey: {} }} ] }}", keys.public_key());
    let password = "authorization { user: gate, password: hunter2 }".to_owned();
    let token = "authorization { token: hunter2 }".to_owned();
    let hidden = || Hidden::new("hunter2");
    let credentials = [
        (password.clone(), NatsCredentials::Password { user: "gate".to_owned(), password: hidden() }),
        (token, NatsCredentials::Token(hidden())),
        (user, NatsCredentials::NKey(Hidden::new(keys.seed().unwrap()))),
    ];
    for (config, credentials) in credentials {
        let process = Nats::start_with(&config, &[]);
        let topic = unique("events");
        let stream = NatsStream {
            name: topic.clone(),
            subjects: vec![topic.clone()],
            missing: MissingStream::Create { replicas: 1, duplicate_window: Duration::from_secs(120) },
        };
        let options = NatsOptions { credentials, stream: Some(stream), ..options(&process.url, LONG) };
        assert_eq!(NatsPublisher::new(options).unwrap().publish(event(&topic, "k", 1)).await, CONFIRMED, "{config}");
    }
    let process = Nats::start_with(&password, &[]);
    let wrong = NatsCredentials::Password { user: "gate".to_owned(), password: Hidden::new("hunter3") };
    let publisher = NatsPublisher::new(NatsOptions { credentials: wrong, ..options(&process.url, LONG) }).unwrap();
    match publisher.publish(event("a", "k", 1)).await {
        Err(PublishError::Unavailable(text)) => assert!(!text.contains("hunter"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn tls_trusts_the_given_authorities_and_no_others() {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = key.cert.pem();
    let files = [("cert.pem", certificate.as_str()), ("key.pem", &key.signing_key.serialize_pem())];
    let process = Nats::start_with("tls { cert_file: \"cert.pem\", key_file: \"key.pem\" }", &files);
    let url = process.url.replace("nats://127.0.0.1", "tls://localhost");
    let dir = tempfile::tempdir().unwrap();
    let ca_file = dir.path().join("ca.pem");
    std::fs::write(&ca_file, &certificate).unwrap();

    let trusting = NatsPublisher::new(NatsOptions { ca_file: Some(ca_file), ..options(&url, LONG) }).unwrap();
    // It got through to the server, which has no stream.
    let result = trusting.publish(event("nobody", "k", 1)).await;
    assert!(matches!(result, Err(PublishError::Refused(_))), "{result:?}");
    let strange = NatsPublisher::new(options(&url, LONG)).unwrap();
    let result = strange.publish(event("nobody", "k", 1)).await;
    assert!(matches!(result, Err(PublishError::Unavailable(_))), "{result:?}");
}

#[test]
fn what_cant_work_is_refused_at_the_start() {
    let wrong = |options: NatsOptions| NatsPublisher::new(options).map(drop).unwrap_err();
    assert!(matches!(wrong(NatsOptions::new(Vec::new())), InvalidNats::NoServer));
    assert!(matches!(wrong(NatsOptions::new(vec!["nats://u:p@a".to_owned()])), InvalidNats::Server));
    let options = NatsOptions::new(vec!["nats://a".to_owned()]);
    assert!(matches!(wrong(NatsOptions { queue: 0, ..options.clone() }), InvalidNats::NoRoom));
    let credentials = NatsCredentials::NKey(Hidden::new("hunter2"));
    assert!(matches!(wrong(NatsOptions { credentials, ..options }), InvalidNats::NKey));
}
