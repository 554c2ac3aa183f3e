//! Webhooks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::StatusCode;
use oncegate::broker::webhook::{InvalidWebhook, WebhookOptions, WebhookPublisher, WebhookSecret};
use oncegate::broker::{CONFIRMED, Hidden, PublishError, Published, Publisher};
use oncegate::clock;
use serde_json::value::RawValue;
use sha2::Sha256;

use super::contract::{self as suite, Breakable, Broker, LONG, Received, SHORT};
use super::{event, unique};
use crate::servers::endpoint::{BODY_LIMIT, Behaviour, Endpoint, Posted};

suite::contract!(fresh);
// A pause is not among them: an endpoint that takes a request and does not answer may choke on just this event,
// so that is no outage, see below.
suite::faults!(fresh:
    an_outage_is_told_in_time_and_over_when_the_broker_is_back
    a_broker_that_is_not_there_yet_is_found
    a_crash_in_the_middle_of_a_batch_loses_nothing_and_keeps_the_order
);

const KEY: [u8; 32] = [7; 32];

async fn fresh() -> Endpoint {
    Endpoint::start().await
}

fn secret(key: &[u8]) -> WebhookSecret {
    WebhookSecret::parse(&format!("whsec_{}", STANDARD.encode(key))).unwrap()
}

fn options(url: &str, time_limit: Duration) -> WebhookOptions {
    let options = WebhookOptions::new("hooks", Hidden::new(url), vec![secret(&KEY)]);
    WebhookOptions { timeout: time_limit, connect_timeout: time_limit, ..options }
}

impl Broker for Endpoint {
    fn publisher(&self, time_limit: Duration) -> Arc<dyn Publisher> {
        Arc::new(WebhookPublisher::new(options(&format!("{}/hooks", self.url()), time_limit)).unwrap())
    }

    async fn topic(&self) -> String {
        unique("of")
    }

    async fn received(&self, topic: &str) -> Vec<Received> {
        self.posted(&format!("/hooks/{topic}")).iter().map(parse).collect()
    }

    async fn dead_end(&self) -> Option<String> {
        let topic = unique("nobody");
        self.behave(&format!("/hooks/{topic}"), Behaviour::Answer(StatusCode::NOT_FOUND, Vec::new()));
        Some(topic)
    }

    fn too_many_bytes(&self) -> Option<usize> {
        Some(BODY_LIMIT)
    }
}

impl Breakable for Endpoint {
    async fn kill(&mut self) {
        Self::kill(self).await;
    }

    async fn start_again(&mut self) {
        Self::start_again(self).await;
    }

    async fn pause(&self) {
        Self::pause(self, true);
    }

    async fn resume(&self) {
        Self::pause(self, false);
    }
}

fn parse(posted: &Posted) -> Received {
    assert_eq!(posted.headers["content-type"], "application/cloudevents+json");
    assert_signed(posted, &KEY, 0);
    let document: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&posted.body).unwrap();
    let text = |value: &RawValue| serde_json::from_str::<String>(value.get()).unwrap();
    let mut received = Received { attributes: BTreeMap::new(), content_type: String::new(), data: Vec::new() };
    for (name, value) in document {
        match &*name {
            "data" => received.data = value.get().as_bytes().to_vec(),
            "data_base64" => received.data = STANDARD.decode(text(&value)).unwrap(),
            "datacontenttype" => received.content_type = text(&value),
            _ => {
                received.attributes.insert(name, text(&value));
            }
        }
    }
    assert_eq!(posted.headers["webhook-id"], received.attributes["id"]);
    received
}

/// As an endpoint checks it that has only the specification.
fn assert_signed(posted: &Posted, key: &[u8], place: usize) {
    let header = |name: &str| posted.headers[name].to_str().unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(format!("{}.{}.", header("webhook-id"), header("webhook-timestamp")).as_bytes());
    mac.update(&posted.body);
    let signature = header("webhook-signature").split(' ').nth(place).unwrap().strip_prefix("v1,").unwrap();
    mac.verify_slice(&STANDARD.decode(signature).unwrap()).unwrap();
    let age = clock::wall().0 / 1000 - header("webhook-timestamp").parse::<i64>().unwrap();
    assert!((0..300).contains(&age), "{age}");
}

#[tokio::test]
async fn each_secret_signs_while_they_change() {
    let endpoint = fresh().await;
    let secrets = vec![secret(&KEY), secret(&[8; 24])];
    let authorization = Some(Hidden::new("Bearer hunter2"));
    let options = WebhookOptions { secrets, authorization, ..options(&format!("{}/?a=1", endpoint.url()), LONG) };
    assert!(!format!("{options:?}").contains("hunter2"));
    let publisher = WebhookPublisher::new(options).unwrap();
    // Without a topic the URL is taken as it is.
    assert_eq!(publisher.publish(event("", "k", 1)).await, CONFIRMED);
    let posted = &endpoint.posted("/?a=1")[0];
    assert_signed(posted, &KEY, 0);
    assert_signed(posted, &[8; 24], 1);
    assert_eq!(posted.headers["authorization"], "Bearer hunter2");
}

/// The results of three tries to post to an endpoint that behaves so.
async fn tries(behaviour: Behaviour, time_limit: Duration) -> (Vec<Published>, Endpoint) {
    let endpoint = fresh().await;
    endpoint.behave("/hooks/topic", behaviour);
    let publisher = endpoint.publisher(time_limit);
    let event = event("topic", "k", 1);
    let mut results = Vec::new();
    for _ in 0..3 {
        results.push(publisher.publish(event.clone()).await);
    }
    (results, endpoint)
}

#[tokio::test]
async fn refusals_are_told_with_what_the_endpoint_wants_and_without_what_it_says() {
    for (status, field, part) in [
        (429, ("retry-after", "120"), "Retry-After: 120"),
        (500, ("x", "y"), "500"),
        (404, ("x", "y"), "404"),
        (302, ("location", "/elsewhere"), "redirects are not followed"),
        (307, ("location", "/elsewhere"), "redirects are not followed"),
    ] {
        let behaviour = Behaviour::Answer(StatusCode::from_u16(status).unwrap(), vec![field]);
        let (results, endpoint) = tries(behaviour, LONG).await;
        for result in results {
            let Err(PublishError::Refused(text)) = result else { panic!("{status}: {result:?}") };
            assert!(text.contains(part) && !text.contains("secret"), "{text}");
        }
        assert!(endpoint.posted("/elsewhere").is_empty());
    }
}

#[tokio::test]
async fn an_endpoint_that_has_looked_at_the_event_and_can_never_take_it_is_believed() {
    let json = vec![("content-type", "application/problem+json")];
    for (status, fields) in [(422, Vec::new()), (413, Vec::new()), (400, json)] {
        let (results, _) = tries(Behaviour::Answer(StatusCode::from_u16(status).unwrap(), fields), LONG).await;
        assert!(matches!(results[0], Err(PublishError::Never(_))), "{status}: {results:?}");
    }
}

#[tokio::test]
async fn an_endpoint_that_hangs_or_cuts_costs_an_attempt_in_bounded_time() {
    let start = clock::now();
    let (hanging, _) = tries(Behaviour::Hang, SHORT).await;
    assert!(clock::now() - start < SHORT * 3 + Duration::from_secs(10));
    let (cut, endpoint) = tries(Behaviour::Cut, LONG).await;
    for result in hanging.into_iter().chain(cut) {
        assert!(matches!(result, Err(PublishError::Refused(_))), "{result:?}");
    }
    // Each was sent once more, to find out whether the endpoint is there at all.
    assert_eq!(endpoint.posted("/hooks/topic").len(), 6);
}

/// Whatever becomes of others meanwhile: each path may lead to another service.
#[tokio::test]
async fn a_path_where_nothing_is_taken_costs_its_events_no_attempts_and_holds_no_other_up() {
    let endpoint = fresh().await;
    let behave = |status| endpoint.behave("/hooks/a", Behaviour::Answer(status, Vec::new()));
    let publisher = endpoint.publisher(LONG);
    let publish = async |topic| publisher.publish(event(topic, topic, 1)).await;
    for status in [429, 502, 503, 504] {
        behave(StatusCode::from_u16(status).unwrap());
        let first = publish("a").await;
        assert!(matches!(first, Err(PublishError::Refused(_))), "it may be this event: {first:?}");
        for _ in 0..3 {
            assert_eq!(publish("b").await, CONFIRMED);
            let away = publish("a").await;
            assert!(matches!(away, Err(PublishError::TopicUnavailable(_))), "{status}: {away:?}");
        }
        behave(StatusCode::OK);
        assert_eq!(publish("a").await, CONFIRMED);
    }
}

#[tokio::test]
async fn an_answer_counts_once_its_head_is_there() {
    let start = clock::now();
    let (results, _) = tries(Behaviour::Endless, LONG).await;
    assert_eq!(results, [CONFIRMED, CONFIRMED, CONFIRMED]);
    assert!(clock::now() - start < LONG);
}

#[tokio::test]
async fn a_hanging_topic_holds_no_other_topic_up() {
    let endpoint = fresh().await;
    endpoint.behave("/hooks/hanging", Behaviour::Hang);
    let publisher = endpoint.publisher(LONG);
    let hanging = publisher.publish(event("hanging", "k", 1));
    assert_eq!(publisher.publish(event("topic", "other", 1)).await, CONFIRMED);
    drop(hanging);
}

#[tokio::test]
async fn more_requests_than_there_is_room_for_wait_within_their_time() {
    let endpoint = fresh().await;
    endpoint.behave("/hanging", Behaviour::Hang);
    let options = WebhookOptions { in_flight: 1, ..options(&endpoint.url(), SHORT) };
    let publisher = WebhookPublisher::new(options).unwrap();
    let hanging = [1, 2].map(|place| publisher.publish(event("hanging", "k", place)));
    let [first, second] = futures_util::future::join_all(hanging).await.try_into().unwrap();
    assert!(matches!(first, Err(PublishError::Refused(_))), "{first:?}");
    assert!(matches!(second, Err(PublishError::Unavailable(_) | PublishError::Refused(_))), "{second:?}");
    assert_eq!(publisher.publish(event("topic", "k", 3)).await, CONFIRMED);
}

#[tokio::test]
async fn a_topic_that_is_no_path_never_goes() {
    let publisher = WebhookPublisher::new(options("http://127.0.0.1:1", SHORT)).unwrap();
    let result = publisher.publish(event("a/../b", "k", 1)).await;
    assert!(matches!(result, Err(PublishError::Never(_))), "{result:?}");
}

#[test]
fn what_cant_work_is_refused_at_the_start() {
    let wrong = |options: WebhookOptions| WebhookPublisher::new(options).map(drop).unwrap_err();
    assert!(matches!(wrong(options("ftp://a", LONG)), InvalidWebhook::Url));
    let unsigned = WebhookOptions { secrets: Vec::new(), ..options("http://a", LONG) };
    assert!(matches!(wrong(unsigned), InvalidWebhook::NoSecret));
    let closed = WebhookOptions { in_flight: 0, ..options("http://a", LONG) };
    assert!(matches!(wrong(closed), InvalidWebhook::NoRoom));
    let lines = WebhookOptions { authorization: Some(Hidden::new("a\nb")), ..options("http://a", LONG) };
    assert!(matches!(wrong(lines), InvalidWebhook::Authorization));
}
