//! Events as CloudEvents 1.0: the same attributes whatever the broker, in binary mode as names and values, in
//! structured mode as one JSON document.
//!
//! | attribute | is |
//! |---|---|
//! | `specversion` | `1.0` |
//! | `id` | the event's id, 32 hexadecimal digits: the same in each try and on each broker |
//! | `source`, `type` | as configured |
//! | `subject` | what the event is ordered by, which is what it is about (an order number, say) |
//! | `time` | when it was committed, in UTC |
//! | `partitionkey` | as `subject`, by the extension *partitioning* |
//! | `sequence` | its place among the events of its key, by the extension *sequence*: 19 digits, since values are compared as text |
//! | `oncegateepoch` | the epoch of the relay that published it: of two copies, the one with the higher epoch is the later |
//! | `traceparent` | the request's trace, by the extension *distributed tracing*, where there is one |
//! | `datacontenttype` | the media type of the data |
//!
//! An event may have attributes of its own, which go out as extensions.
//!
//! An attribute with an empty value is left out, as the specification wants.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::outbox::event::Outgoing;

/// The content type of [`structured`].
pub const STRUCTURED: &str = "application/cloudevents+json";

/// The attribute that brokers with a place of their own for the content type do not repeat.
pub const DATA_CONTENT_TYPE: &str = "datacontenttype";

/// The longest name of an attribute that is passed on. The specification advises 20 characters; brokers take more.
const MAX_NAME: usize = 64;

/// What the text of a header may not have as it is, by the HTTP binding: all but printable ASCII, and the
/// space, the quote and the percent sign.
const NOT_IN_HEADERS: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// All attributes but [`DATA_CONTENT_TYPE`], in an order that never changes.
#[must_use]
pub fn attributes(outgoing: &Outgoing) -> Vec<(&str, Cow<'_, str>)> {
    let event = &outgoing.event;
    let mut attributes = vec![
        ("specversion", "1.0".into()),
        ("id", event.id.to_string().into()),
        ("source", Cow::Borrowed(&*event.source)),
        ("type", Cow::Borrowed(&*event.kind)),
        ("subject", Cow::Borrowed(&*event.key)),
        ("time", outgoing.time.rfc3339().into()),
        ("partitionkey", Cow::Borrowed(&*event.key)),
        ("sequence", format!("{:019}", outgoing.sequence).into()),
        ("oncegateepoch", outgoing.epoch.to_string().into()),
        ("traceparent", Cow::Borrowed(event.traceparent.as_deref().unwrap_or_default())),
    ];
    let more = event.attributes.iter().map(|(name, value)| (&**name, Cow::Borrowed(&**value)));
    attributes.extend(more.filter(|(name, _)| is_extension(name)));
    attributes.retain(|(_, value)| !value.is_empty());
    attributes
}

/// Whether an event's own attribute may go out under this name: one that CloudEvents knows, and that is not ours.
fn is_extension(name: &str) -> bool {
    const OURS: [&str; 13] = [
        "specversion",
        "id",
        "source",
        "type",
        "subject",
        "time",
        "partitionkey",
        "sequence",
        "oncegateepoch",
        "traceparent",
        DATA_CONTENT_TYPE,
        "data",
        "data_base64",
    ];
    let is_name = (1..=MAX_NAME).contains(&name.len());
    is_name && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) && !OURS.contains(&name)
}

/// `value` as the text of a header, for bindings whose headers are ASCII (HTTP, NATS).
#[must_use]
pub fn header_text(value: &str) -> Cow<'_, str> {
    utf8_percent_encode(value, NOT_IN_HEADERS).into()
}

/// The event as one JSON document, with JSON data as it is and any other in Base64.
#[must_use]
pub fn structured(outgoing: &Outgoing) -> Bytes {
    // Strings and a valid piece of JSON always can be written.
    serde_json::to_vec(&Document(outgoing)).map(Bytes::from).unwrap_or_default()
}

struct Document<'a>(&'a Outgoing);

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = &self.0.event;
        let mut members = serializer.serialize_map(None)?;
        for (name, value) in attributes(self.0) {
            members.serialize_entry(name, &value)?;
        }
        if !event.content_type.is_empty() {
            members.serialize_entry(DATA_CONTENT_TYPE, &event.content_type)?;
        }
        match json(&event.content_type, &event.data) {
            Some(data) => members.serialize_entry("data", data)?,
            None => members.serialize_entry("data_base64", &STANDARD.encode(&event.data))?,
        }
        members.end()
    }
}

/// The data, where it is JSON not by its name only: what is broken travels as it is.
fn json<'a>(content_type: &str, data: &'a [u8]) -> Option<&'a RawValue> {
    if is_json(content_type) { serde_json::from_slice(data).ok() } else { None }
}

/// Whether data of this type is JSON, by its name.
pub(super) fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type.split_once('/').is_some_and(|(_, subtype)| subtype == "json" || subtype.ends_with("+json"))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::clock::Timestamp;
    use crate::outbox::event::{Attributes, Envelope, EventId};

    pub(in crate::broker) fn outgoing(content_type: &str, data: &'static [u8]) -> Outgoing {
        let event = Envelope {
            id: EventId([0xab; 16]),
            queue: "default".into(),
            topic: "payments".into(),
            key: "order 7".into(),
            kind: "com.example.paid".into(),
            source: "/payments".into(),
            route: "create-payment".into(),
            content_type: content_type.into(),
            traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
            attributes: Attributes::new(),
            data: Bytes::from_static(data),
        };
        Outgoing {
            event,
            sequence: 42,
            epoch: 3,
            time: Timestamp(1_772_368_496_789),
            attempts: 1,
            tried: false,
            redrives: 0,
        }
    }

    fn document(outgoing: &Outgoing) -> Value {
        serde_json::from_slice(&structured(outgoing)).unwrap()
    }

    #[test]
    fn structured_mode_has_the_attributes_of_binary_mode_and_the_data() {
        let outgoing = outgoing("application/json", br#"{"amount": 1.10}"#);
        let Value::Object(mut document) = document(&outgoing) else { panic!("no object") };
        assert_eq!(document.remove("data"), Some(json!({ "amount": 1.10 })));
        assert_eq!(document.remove(DATA_CONTENT_TYPE), Some("application/json".into()));
        let attributes: serde_json::Map<_, _> =
            attributes(&outgoing).into_iter().map(|(name, value)| (name.to_owned(), (*value).into())).collect();
        assert_eq!(document, attributes);
        assert_eq!(document["time"], "2026-03-01T12:34:56.789Z");
        assert_eq!(document["sequence"], "0000000000000000042");
        assert_eq!(document["subject"], "order 7");
    }

    #[test]
    fn json_data_is_passed_on_as_it_is_written() {
        let text = br#"{ "a" : 1.10, "a" : 100000000000000000000001 }"#;
        for content_type in ["application/json", "application/vnd.example+json; charset=utf-8", "Text/JSON"] {
            let document = structured(&outgoing(content_type, text));
            assert!(document.windows(text.len()).any(|part| part == text), "{content_type}");
        }
    }

    #[test]
    fn other_data_and_broken_json_are_base64() {
        for (content_type, data) in
            [("application/json", &b"{\"cut"[..]), ("text/plain", b"1"), ("", b"1"), ("image/png", b"\x89\0\xff")]
        {
            let document = document(&outgoing(content_type, data));
            assert_eq!(document.get("data"), None, "{content_type}");
            let encoded = document["data_base64"].as_str().unwrap();
            assert_eq!(STANDARD.decode(encoded).unwrap(), data, "{content_type}");
        }
    }

    #[test]
    fn attributes_without_a_value_are_left_out() {
        let mut outgoing = outgoing("", b"");
        outgoing.event.key = "".into();
        outgoing.event.traceparent = None;
        let names: Vec<_> = attributes(&outgoing).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["specversion", "id", "source", "type", "time", "sequence", "oncegateepoch"]);
        assert_eq!(document(&outgoing).get(DATA_CONTENT_TYPE), None);
    }

    #[test]
    fn an_events_own_attributes_go_out_unless_they_are_no_ones_or_ours() {
        let mut outgoing = outgoing("application/json", b"{}");
        let long = "a".repeat(65);
        let own = [
            ("oncegatereason", "too large"),
            ("traceparent", "theirs"),
            ("subject", "theirs"),
            ("data", "theirs"),
            ("oncegate-key", "order-7"),
            ("Upper", "x"),
            ("", "x"),
            (&*long, "x"),
            ("empty", ""),
            ("x2", "\u{20ac}"),
        ];
        outgoing.event.attributes = own.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let added: Vec<_> = attributes(&outgoing).split_off(10);
        assert_eq!(added, [("oncegatereason", "too large".into()), ("x2", "\u{20ac}".into())]);
        let document = document(&outgoing);
        assert_eq!((&document["oncegatereason"], &document["subject"]), (&"too large".into(), &"order 7".into()));
    }

    #[test]
    fn text_of_headers_is_ascii_and_comes_back() {
        for (value, text) in
            [("plain", "plain"), ("Euro \u{20ac}", "Euro%20%E2%82%AC"), ("100%\"\r\n", "100%25%22%0D%0A")]
        {
            assert_eq!(header_text(value), text);
            assert_eq!(percent_encoding::percent_decode_str(text).decode_utf8().unwrap(), value);
        }
    }
}
