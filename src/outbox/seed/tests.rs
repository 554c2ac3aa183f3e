use http::HeaderValue;
use proptest::prelude::*;

use super::*;
use crate::entry::{Key, KeySource};
use crate::outbox::data::{Data, Template};

fn rule(name: &str) -> EventRule {
    EventRule::new(name, "t", "p")
}

fn template(pointers: &[&str]) -> Data {
    let parts = pointers.iter().map(|pointer| Template::Request(Pointer::parse(pointer).unwrap()));
    Data::Template(Template::Array(parts.collect()))
}

fn seed(rules: &[EventRule], headers: &[(&'static str, &'static str)], body: &Bytes) -> Seed {
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect();
    let key = Key::from_header(b"key").unwrap();
    let sent = Sent { header: Some(&key), path: &[("shop", "7".into())], query: Some("no=9"), body: Some(body) };
    Seed::of(rules.iter(), &Asked { sent, headers: &headers, body }, [9; 24])
}

fn json(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[test]
fn what_is_asked_for_is_kept_as_it_is_written_and_nothing_else() {
    let rules = [
        EventRule { data: template(&["/amount", "/lines", "/none"]), ..rule("a") },
        EventRule { data: template(&["/amount"]), ..rule("b") },
        rule("c"),
    ];
    let body = json(r#"{"amount": 1.10e2, "lines": [ 1 ], "card": "4242"}"#);
    let kept = seed(&rules, &[], &body);
    let part = |pointer: &str| kept.part(&Pointer::parse(pointer).unwrap());
    assert_eq!(part("/amount"), Ok(Some(&json("1.10e2"))));
    assert_eq!(part("/lines"), Ok(Some(&json("[ 1 ]"))));
    assert_eq!(part("/none"), Ok(None));
    assert_eq!(part("/card"), Err(Unmet::RequestNotKept), "nobody asked for it");
    assert_eq!(kept.request(), Err(Unmet::RequestNotKept));
    let mut encoded = BytesMut::new();
    kept.encode(&mut encoded);
    assert!(!encoded.windows(4).any(|window| window == b"4242"), "nor is it stored");
}

#[test]
fn a_whole_request_is_kept_with_its_content_type() {
    let rules = [EventRule { data: Data::Request, ..rule("a") }];
    type Fields = &'static [(&'static str, &'static str)];
    let table: [(Fields, &'static str, &str); 4] = [
        (&[("content-type", "application/x-www-form-urlencoded")], "a=1", "application/x-www-form-urlencoded"),
        (&[], "{}", "application/json"),
        (&[], "a=1", "application/octet-stream"),
        (&[], "", "application/octet-stream"),
    ];
    for (headers, body, content_type) in table {
        let content = Content { content_type: content_type.into(), bytes: json(body) };
        assert_eq!(seed(&rules, headers, &json(body)).request(), Ok(content), "{body}");
    }
}

#[test]
fn what_is_encoded_or_too_large_is_not_kept_and_told_apart() {
    let rules = [EventRule { data: Data::Request, ..rule("a") }, EventRule { data: template(&["/a"]), ..rule("b") }];
    let at = Pointer::parse("/a").unwrap();
    let encoded = seed(&rules, &[("content-encoding", "gzip")], &json(r#"{"a":1}"#));
    assert_eq!((encoded.request(), encoded.part(&at)), (Err(Unmet::RequestEncoded), Err(Unmet::RequestEncoded)));
    let plain = seed(&rules, &[("content-encoding", "identity")], &json(r#"{"a":1}"#));
    assert_eq!(plain.part(&at), Ok(Some(&json("1"))));

    let largest = |len: usize| Bytes::from(format!("\"{}\"", "x".repeat(len - 2)));
    let whole = [EventRule { data: Data::Request, ..rule("a") }];
    assert!(seed(&whole, &[], &largest(LARGEST_SEED)).request().is_ok());
    let beyond = seed(&whole, &[], &largest(LARGEST_SEED + 1));
    assert_eq!((beyond.request(), beyond.kept()), (Err(Unmet::TooLarge), 0));
    // Parts that overlap count each.
    let twice = [EventRule { data: template(&["", "/0"]), ..rule("a") }];
    let nested = Bytes::from(format!("[{}]", str::from_utf8(&largest(LARGEST_SEED / 2)).unwrap()));
    assert_eq!(seed(&twice, &[], &nested).part(&Pointer::root()), Err(Unmet::TooLarge));
}

#[test]
fn keys_are_taken_from_all_places_that_a_request_has() {
    let from = |sources: &str| {
        let key = EventKey::Request(serde_json::from_str(sources).unwrap());
        let kept = seed(&[EventRule { key, ..rule("a") }], &[], &json(r#"{"no":"A-1"}"#));
        kept.key_of("a").map(ToOwned::to_owned)
    };
    for (sources, key) in
        [(r#""body:/no""#, "A-1"), (r#""query:no""#, "9"), (r#""path:shop""#, "7"), (r#"["body:/x","header"]"#, "key")]
    {
        assert_eq!(from(sources).as_deref(), Some(key), "{sources}");
    }
    assert_eq!(from(r#""body:/none""#), None);
    assert_eq!(seed(&[EventRule { key: EventKey::Idempotency, ..rule("a") }], &[], &json("{}")).key_of("a"), None);
    assert_eq!(
        EventKey::Request(KeySource::Header.into()),
        EventKey::Request(serde_json::from_str("\"header\"").unwrap())
    );
}

fn round_trip(seed: &Seed) -> Option<Seed> {
    let mut encoded = BytesMut::new();
    seed.encode(&mut encoded);
    Seed::decode(encoded.freeze())
}

fn any_seed() -> impl Strategy<Value = Seed> {
    let text = || "[a-z/é]{1,9}".prop_map(Box::<str>::from);
    let bytes = || proptest::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
    let body = prop_oneof![
        Just(Body::NotKept),
        Just(Body::Encoded),
        Just(Body::TooLarge),
        (text(), bytes()).prop_map(|(content_type, bytes)| Body::Whole { content_type, bytes }),
    ];
    let keys = proptest::collection::vec((text(), text()), 0..4);
    let parts = proptest::collection::vec((text(), proptest::option::of(bytes())), 0..4);
    (proptest::option::of(text()), keys, parts, body).prop_map(|(traceparent, keys, parts, body)| Seed {
        traceparent,
        keys,
        parts,
        body,
    })
}

proptest! {
    #[test]
    fn a_seed_comes_back_as_it_was_stored(seed in any_seed()) {
        prop_assert_eq!(round_trip(&seed), Some(seed));
    }

    #[test]
    fn a_truncated_seed_is_none_and_any_bytes_are_read_without_panicking(
        seed in any_seed(), cut in 0_usize..40, noise in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut encoded = BytesMut::new();
        seed.encode(&mut encoded);
        let encoded = encoded.freeze();
        if cut < encoded.len() {
            prop_assert_eq!(Seed::decode(encoded.slice(..cut)), None);
        }
        drop(Seed::decode(Bytes::from([&[FORMAT], &noise[..]].concat())));
    }
}
