use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::entry::source::Sent;
use crate::outbox::data::Template;

const ENTRY: EntryId = EntryId([7; 32]);
const ORIGIN: Nonce = Nonce([1; 16]);
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn rule() -> EventRule {
    EventRule::new("created", "com.example.created", "payments")
}

fn at(pointer: &str) -> Pointer {
    Pointer::parse(pointer).unwrap()
}

fn answer_with(status: u16, headers: &[(&'static str, &'static str)], body: impl Into<Bytes>) -> Answer {
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect();
    let status = StatusCode::from_u16(status).unwrap();
    Answer::Response(Arc::new(StoredResponse { status, headers, body: body.into() }))
}

fn answer(body: &'static str) -> Answer {
    answer_with(201, &[("content-type", "application/json")], body)
}

fn rules(rules: Vec<EventRule>) -> EventRules {
    EventRules::new("pay", rules, &Lanes::default()).unwrap()
}

/// The seed of a request with `body`, sent as `application/json` in a trace.
fn seed(rules: &EventRules, body: &'static str) -> Seed {
    let body = Bytes::from_static(body.as_bytes());
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", HeaderValue::from_static(TRACE));
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let sent = Sent { body: Some(&body), ..Sent::default() };
    rules.seed(&Asked { sent, headers: &headers, body: &body }, [0; 24])
}

fn emitted(rule: EventRule, request: &'static str, answer: &Answer) -> Emission {
    let rules = rules(vec![rule]);
    let seed = seed(&rules, request);
    emit(&rules, Some(&seed), answer)
}

fn emit(rules: &EventRules, seed: Option<&Seed>, answer: &Answer) -> Emission {
    let key = Key::from_business("order-1").unwrap();
    rules.emit(&Subject { entry: ENTRY, origin: ORIGIN, key: &key, seed }, answer)
}

/// The one event, and what could not be had.
fn one(emission: Emission) -> (NewEvent, Vec<Unmet>) {
    let Emission { events, unmet } = emission;
    let [event] = <[NewEvent; 1]>::try_from(events).unwrap();
    (event, unmet.into_iter().map(|(_, unmet)| unmet).collect())
}

fn data(event: &NewEvent) -> &str {
    str::from_utf8(&event.event.data).unwrap()
}

#[test]
fn an_event_says_what_the_response_said_byte_for_byte() {
    let body = "{ \"amount\" : 1.10e2, \"amount\": 9007199254740993 }";
    let (event, unmet) = one(emitted(rule(), "{}", &answer(body)));
    let envelope = Envelope {
        id: EventId::of(ORIGIN, "created"),
        queue: "default".into(),
        topic: "payments".into(),
        key: "order-1".into(),
        kind: "com.example.created".into(),
        source: "/pay".into(),
        route: "pay".into(),
        content_type: "application/json".into(),
        traceparent: Some(TRACE.into()),
        attributes: Attributes::new(),
        data: Bytes::from_static(body.as_bytes()),
    };
    let lane = lane_of("order-1", Lanes::default().of("default").unwrap());
    assert_eq!(event, NewEvent { event: envelope, lane, parked: None, on_failure: OnFailure::Hold });
    assert_eq!(unmet, []);
    let text = answer_with(200, &[("content-type", "text/plain; charset=utf-8")], "paid");
    let (event, unmet) = one(emitted(rule(), "{}", &text));
    assert_eq!((&*event.event.content_type, data(&event), unmet), ("text/plain; charset=utf-8", "paid", vec![]));
}

#[test]
fn a_condition_decides_by_status_and_values() {
    let paid = || When::new((200..300).collect(), [(at("/status"), json!("paid")), (at("/amount"), json!(100))]);
    let table = [
        (201, r#"{"status":"paid","amount":1e2}"#, true),
        (201, r#"{"status":"paid","amount":100.0000000000000001}"#, false),
        (201, r#"{"status":"open","amount":100}"#, false),
        (201, r#"{"amount":100}"#, false),
        (402, r#"{"status":"paid","amount":100}"#, false),
        (201, r#"{"status":["paid"],"amount":100}"#, false),
    ];
    for (status, body, holds) in table {
        let when = EventRule { when: paid(), ..rule() };
        let emission = emitted(when, "{}", &answer_with(status, &[], body));
        assert_eq!((emission.events.len(), emission.unmet), (usize::from(holds), vec![]), "{status} {body}");
    }
    assert!(emitted(rule(), "{}", &answer_with(302, &[], "")).events.is_empty(), "every 2xx, nothing else");
}

#[test]
fn a_condition_that_nobody_can_decide_is_left_to_a_person() {
    let when = When::new((200..300).collect(), [(at("/status"), json!("paid"))]);
    let gzip = [("content-encoding", "gzip")];
    let table = [
        (Answer::StatusOnly(201), Unmet::ResponseNotKept),
        (answer("paid"), Unmet::ResponseNotJson),
        (answer(""), Unmet::ResponseNotJson),
        (answer(r#"{"status":"paid","status":"open"}"#), Unmet::ResponseAmbiguous),
        (answer(r#"{"status":{"a":1,"a":2}}"#), Unmet::ResponseAmbiguous),
        (answer_with(201, &gzip, "..."), Unmet::ResponseEncoded),
    ];
    for (answer, why) in table {
        let (event, unmet) = one(emitted(EventRule { when: when.clone(), ..rule() }, "{}", &answer));
        assert_eq!(event.parked.as_deref(), why.parks(), "{answer:?}");
        assert_eq!(unmet, [why], "{answer:?}");
    }
    let refused = emitted(EventRule { when, ..rule() }, "{}", &Answer::StatusOnly(402));
    assert_eq!(refused, Emission::default(), "the status decides it");
}

#[test]
fn a_value_that_is_certainly_another_decides_whatever_the_others_are() {
    let when = When::new((200..300).collect(), [(at("/a/b"), json!(1)), (at("/status"), json!("paid"))]);
    let body = r#"{"a":{"b":1,"b":1},"status":"open"}"#;
    assert_eq!(emitted(EventRule { when, ..rule() }, "{}", &answer(body)), Emission::default());
}

#[test]
fn what_the_data_needs_and_nobody_has_is_left_to_a_person() {
    let of = |pointer: fn(Pointer) -> Template| Data::Template(pointer(at("/id")));
    let gzip = || answer_with(201, &[("content-encoding", "gzip")], "...");
    let table = [
        (Data::Response, Answer::StatusOnly(201), vec![Unmet::ResponseNotKept]),
        (of(Template::Response), Answer::StatusOnly(201), vec![Unmet::ResponseNotKept]),
        (Data::both(), gzip(), vec![Unmet::ResponseEncoded]),
        (Data::Request, Answer::StatusOnly(201), vec![]),
        (of(Template::Request), gzip(), vec![]),
    ];
    for (data, answer, why) in table {
        let (event, unmet) = one(emitted(EventRule { data, ..rule() }, r#"{"id":1}"#, &answer));
        assert_eq!(event.parked.is_some(), !why.is_empty(), "{answer:?}");
        assert_eq!(unmet, why);
    }
    let rules = rules(vec![EventRule { data: Data::Request, ..rule() }]);
    let (event, unmet) = one(emit(&rules, None, &answer("{}")));
    assert!(event.parked.is_some(), "claimed by a gateway that kept nothing");
    assert_eq!((unmet, event.event.traceparent), (vec![Unmet::RequestNotKept], None));
}

#[test]
fn a_table_is_filled_with_values_as_they_are_written() {
    let template = Template::Object(vec![
        ("id".into(), Template::Response(at("/id"))),
        ("amount".into(), Template::Request(at("/amount"))),
        ("a \"name\"".into(), Template::Literal("[1]".into())),
        ("list".into(), Template::Array(vec![Template::Response(at("/none")), Template::Request(at("/none"))])),
    ]);
    let made = EventRule { data: Data::Template(template), ..rule() };
    let (event, unmet) = one(emitted(made, r#"{"amount":1.10e2}"#, &answer(r#"{"id":9007199254740993}"#)));
    assert_eq!(data(&event), r#"{"id":9007199254740993,"amount":1.10e2,"a \"name\"":[1],"list":[null,null]}"#);
    assert_eq!(&*event.event.content_type, "application/json");
    assert_eq!((unmet, event.parked), (vec![Unmet::InResponse, Unmet::InRequest], None));
    let (event, _) = one(emitted(EventRule { data: Data::both(), ..rule() }, "[1 ]", &answer("{}")));
    assert_eq!(data(&event), r#"{"request":[1 ],"response":{}}"#);
    let (event, unmet) = one(emitted(EventRule { data: Data::both(), ..rule() }, "a=1", &answer("paid")));
    assert_eq!(
        (data(&event), unmet),
        (r#"{"request":null,"response":null}"#, vec![Unmet::InRequest, Unmet::InResponse])
    );
}

#[test]
fn a_key_comes_from_where_the_rule_says_or_is_the_entrys_id() {
    let request = |sources: &str| EventKey::Request(serde_json::from_str(sources).unwrap());
    let hex = ENTRY.to_hex();
    let table = [
        (EventKey::Idempotency, "order-1", vec![]),
        (request(r#""body:/order_no""#), "A-1", vec![]),
        (request(r#""body:/none""#), &*hex, vec![Unmet::Key]),
        (EventKey::Response(at("/id")), "42", vec![]),
        (EventKey::Response(at("/text")), "x", vec![]),
        (EventKey::Response(at("/none")), &*hex, vec![Unmet::Key]),
        (EventKey::Response(at("/list")), &*hex, vec![Unmet::Key]),
        (EventKey::Response(at("/control")), &*hex, vec![Unmet::Key]),
    ];
    for (key, expected, unmet) in table {
        let body = r#"{"id":42,"text":"x","list":[],"control":"\u0000"}"#;
        let emission = emitted(EventRule { key, ..rule() }, r#"{"order_no":"A-1"}"#, &answer(body));
        let (event, found) = one(emission);
        assert_eq!((&*event.event.key, found), (expected, unmet));
        assert_eq!(event.parked, None);
        assert_eq!(event.lane, lane_of(expected, Lanes::default().of("default").unwrap()));
    }
}

#[test]
fn an_event_that_is_too_large_waits_with_what_it_says() {
    for (len, parked) in [(10, false), (11, true)] {
        let small = EventRule { max_bytes: 10, ..rule() };
        let (event, unmet) = one(emitted(small, "{}", &answer_with(200, &[], "x".repeat(len))));
        assert_eq!((event.parked.is_some(), event.event.data.len()), (parked, len));
        assert_eq!(unmet.is_empty(), !parked);
    }
}

#[test]
fn several_events_come_in_their_order_each_with_an_id_of_its_own() {
    let other =
        EventRule { on_failure: OnFailure::Skip, source: Some("/shop".into()), ..EventRule::new("b", "t", "p") };
    let rules = rules(vec![rule(), other, EventRule { when: When::new([409].into_iter().collect(), []), ..rule() }]);
    let Emission { events, .. } = emit(&rules, Some(&seed(&rules, "{}")), &answer("{}"));
    let told: Vec<_> = events.iter().map(|event| (event.event.id, &*event.event.source, event.on_failure)).collect();
    let (first, second) = (EventId::of(ORIGIN, "created"), EventId::of(ORIGIN, "b"));
    assert_eq!(told, [(first, "/pay", OnFailure::Hold), (second, "/shop", OnFailure::Skip)]);
    assert_ne!(first, second);
}

#[test]
fn a_rule_to_a_queue_that_there_is_not_is_refused() {
    let elsewhere = EventRule { queue: "elsewhere".into(), ..rule() };
    let refused = EventRules::new("pay", vec![elsewhere], &Lanes::default()).map(|_| ());
    assert_eq!(refused, Err(UnknownQueue("elsewhere".into())));
}

proptest! {
    /// Goal: whoever completes an entry, before a crash or after it, announces the same.
    #[test]
    fn a_stored_seed_makes_the_same_events(
        request in r#"\{"order_no":("[a-z]{0,3}"|[0-9]{1,3}|null),"n":[0-9.]{1,3}\}|[a-z]{0,3}"#,
        response in r#"\{"id":("[a-z]{0,3}"|[0-9]{1,3})\}|[a-z]{0,3}"#,
        status in prop_oneof![Just(200_u16), Just(201), Just(402)],
    ) {
        let of = |data, key: &str| EventRule {
            data,
            key: EventKey::Request(serde_json::from_str(key).unwrap()),
            ..EventRule::new(key, "t", "p")
        };
        let rules = rules(vec![
            of(Data::Request, r#""body:/order_no""#),
            of(Data::both(), r#"["body:/order_no","header"]"#),
            of(Data::Template(Template::Request(at("/n"))), r#""query:x""#),
            rule(),
        ]);
        let body = Bytes::from(request);
        let sent = Sent { body: Some(&body), ..Sent::default() };
        let seed = rules.seed(&Asked { sent, headers: &HeaderMap::new(), body: &body }, [3; 24]);
        let mut stored = bytes::BytesMut::new();
        seed.encode(&mut stored);
        let stored = Seed::decode(stored.freeze()).unwrap();
        let answer = answer_with(status, &[], response);
        let made = emit(&rules, Some(&seed), &answer);
        prop_assert_eq!(&emit(&rules, Some(&stored), &answer), &made);
        prop_assert!(made.events.iter().all(|event| !event.event.key.is_empty()));
        for event in &made.events[..made.events.len().min(3)] {
            if *event.event.content_type == *"application/json" {
                prop_assert!(json::is_json(&event.event.data), "{:?}", event.event.data);
            }
        }
    }
}
