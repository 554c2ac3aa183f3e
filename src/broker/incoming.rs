//! A message as it comes, by the bindings of CloudEvents: the other direction of [`super::cloud_events`].
//!
//! | mode | told by | attributes | data |
//! |---|---|---|---|
//! | structured | the content type [`STRUCTURED`](cloud_events::STRUCTURED) | members of the document | its `data` or `data_base64` |
//! | binary | headers with the binding's prefix | those headers, without it | the message's |
//! | none | | | the message's |
//!
//! Whoever publishes may send anything: what can't be read as it should (a document that is none, a header that is
//! no text) is left as it is, or left out, and the message comes all the same.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde_json::value::RawValue;

use super::cloud_events::{self, DATA_CONTENT_TYPE};
use super::held::Said;
#[cfg(feature = "rabbitmq")]
use crate::clock::Timestamp;

/// The header of the content type, where it is a header.
const CONTENT_TYPE: &str = "content-type";

/// The attribute that says who it is, unless the broker has another place for it.
const ID: &str = "id";

/// The extension that says what it is ordered by, unless the broker has a place for it.
const PARTITION_KEY: &str = "partitionkey";

/// How a broker's messages spell attributes as headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Binding {
    prefixes: &'static [&'static str],
    /// Whether values are percent-encoded.
    encoded: bool,
}

/// AMQP 0-9-1. `:` is what the binding for AMQP 1.0 says, whose clients RabbitMQ also serves.
#[cfg(feature = "rabbitmq")]
pub(super) const AMQP: Binding = Binding { prefixes: &["cloudEvents_", "cloudEvents:"], encoded: false };

/// Kafka.
#[cfg(feature = "kafka")]
pub(super) const KAFKA: Binding = Binding { prefixes: &["ce_"], encoded: false };

/// NATS, whose headers are like those of HTTP.
#[cfg(any(feature = "nats", test))]
pub(super) const NATS: Binding = Binding { prefixes: &["ce-"], encoded: true };

/// Names that are attributes as they are.
pub(super) const BARE: Binding = Binding { prefixes: &[""], encoded: false };

/// No name is one of an attribute.
#[cfg(any(feature = "redis-streams", test))]
pub(super) const FOREIGN: Binding = Binding { prefixes: &[], encoded: false };

/// A message that is being read.
#[derive(Debug)]
pub(super) struct Incoming {
    binding: Binding,
    attributes: Vec<(Box<str>, Box<str>)>,
    others: Vec<(Box<str>, Box<str>)>,
    content_type: Option<Box<str>>,
    /// The id that its producer gave it in the broker's own way, for a message that is no CloudEvent.
    id: Option<Box<str>>,
    /// The broker's own key.
    key: Option<Box<str>>,
}

impl Incoming {
    pub(super) fn new(binding: Binding) -> Self {
        Self { binding, attributes: Vec::new(), others: Vec::new(), content_type: None, id: None, key: None }
    }

    /// The id that its producer gave it in the broker's own way.
    pub(super) fn id(&mut self, id: &str) {
        self.id = present(id);
    }

    /// The broker's own key.
    pub(super) fn key(&mut self, key: &str) {
        self.key = present(key);
    }

    /// The broker's own place for the content type.
    pub(super) fn content_type(&mut self, content_type: &str) {
        self.content_type = present(content_type);
    }

    /// A header. Of attributes that come twice the first counts.
    pub(super) fn header(&mut self, name: &str, value: &str) {
        if self.content_type.is_none() && name.eq_ignore_ascii_case(CONTENT_TYPE) {
            return self.content_type(self.decoded(value).into_owned().as_str());
        }
        let Some(attribute) = self.binding.prefixes.iter().find_map(|prefix| strip(name, prefix)) else {
            return self.others.push((name.into(), value.into()));
        };
        let attribute = attribute.to_ascii_lowercase();
        if !self.attributes.iter().any(|(before, _)| **before == attribute) {
            let value = self.decoded(value).into();
            self.attributes.push((attribute.into(), value));
        }
    }

    fn decoded<'a>(&self, value: &'a str) -> Cow<'a, str> {
        match percent_decode_str(value).decode_utf8() {
            Ok(decoded) if self.binding.encoded => decoded,
            Ok(_) | Err(_) => value.into(),
        }
    }

    /// All has been read but the data.
    pub(super) fn read(self, data: Bytes) -> Said {
        let is_structured = self.content_type.as_deref().is_some_and(is_structured);
        let document = if is_structured { document(&data) } else { None };
        let (mut attributes, content_type, data) = match document {
            Some(Document { attributes, content_type, data }) => (attributes, content_type, data),
            None => (self.attributes, self.content_type, data),
        };
        let content_type = take(&mut attributes, DATA_CONTENT_TYPE).or(content_type);
        let id = take(&mut attributes, ID).or(self.id);
        let partition_key = attributes.iter().find(|(name, _)| **name == *PARTITION_KEY);
        let key = self.key.or_else(|| partition_key.map(|(_, value)| value.clone()));
        attributes.extend(self.others);
        Said { id, key, content_type, attributes, data }
    }
}

/// A structured event.
struct Document {
    attributes: Vec<(Box<str>, Box<str>)>,
    /// What the data is where no attribute says so.
    content_type: Option<Box<str>>,
    data: Bytes,
}

/// `None`: it is none.
fn document(text: &[u8]) -> Option<Document> {
    let mut members: BTreeMap<Box<str>, &RawValue> = serde_json::from_slice(text).ok()?;
    let (data, base64) = (members.remove("data"), members.remove("data_base64"));
    let attributes = members.into_iter().filter_map(|(name, value)| Some((name, present(&as_text(value)?)?)));
    let attributes: Vec<_> = attributes.collect();
    match (data, base64) {
        (Some(_), Some(_)) => None,
        (None, None) => Some(Document { attributes, content_type: None, data: Bytes::new() }),
        (None, Some(base64)) => {
            let base64: String = serde_json::from_str(base64.get()).ok()?;
            let data = STANDARD.decode(base64).ok()?.into();
            Some(Document { attributes, content_type: None, data })
        }
        (Some(data), None) => {
            let declared = attributes.iter().find(|(name, _)| **name == *DATA_CONTENT_TYPE);
            let is_json = declared.is_none_or(|(_, kind)| cloud_events::is_json(kind));
            let data = match serde_json::from_str::<String>(data.get()) {
                // Text that is no JSON is a string here.
                Ok(text) if !is_json => text.into(),
                Ok(_) | Err(_) => Bytes::copy_from_slice(data.get().as_bytes()),
            };
            Some(Document { attributes, content_type: present("application/json"), data })
        }
    }
}

/// What may be an attribute's value: a string, a number or a boolean.
fn as_text(value: &RawValue) -> Option<Cow<'_, str>> {
    match value.get().as_bytes() {
        [b'"', ..] => serde_json::from_str::<String>(value.get()).ok().map(Cow::Owned),
        [b'{' | b'[' | b'n', ..] | [] => None,
        _ => Some(value.get().into()),
    }
}

fn is_structured(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case(cloud_events::STRUCTURED)
}

/// A point in time, of brokers that have a type for such.
#[cfg(feature = "rabbitmq")]
pub(super) fn time(seconds: u64) -> String {
    let millis = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000);
    Timestamp(millis).rfc3339()
}

/// An empty value is none, as CloudEvents have it.
fn present(value: &str) -> Option<Box<str>> {
    (!value.is_empty()).then(|| value.into())
}

fn take(attributes: &mut Vec<(Box<str>, Box<str>)>, name: &str) -> Option<Box<str>> {
    let place = attributes.iter().position(|(attribute, _)| **attribute == *name)?;
    present(&attributes.remove(place).1)
}

fn strip<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = name.split_at_checked(prefix.len())?;
    (start.eq_ignore_ascii_case(prefix) && !rest.is_empty()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::outbox::event::{Envelope, EventId, Outgoing};

    fn read(binding: Binding, headers: &[(&str, &str)], data: &[u8]) -> Said {
        let mut incoming = Incoming::new(binding);
        headers.iter().for_each(|(name, value)| incoming.header(name, value));
        incoming.read(Bytes::copy_from_slice(data))
    }

    fn structured(document: &str) -> Said {
        read(FOREIGN, &[("content-type", cloud_events::STRUCTURED), ("tenant", "acme")], document.as_bytes())
    }

    fn pairs(said: &Said) -> Vec<(&str, &str)> {
        said.attributes.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    fn outgoing(content_type: &str, data: &[u8], key: &str) -> Outgoing {
        let event = Envelope {
            id: EventId([0xab; 16]),
            queue: "default".into(),
            topic: "payments".into(),
            key: key.into(),
            kind: "com.example.paid".into(),
            source: "/payments".into(),
            route: "create-payment".into(),
            content_type: content_type.into(),
            traceparent: None,
            attributes: [].into(),
            data: Bytes::copy_from_slice(data),
        };
        let time = crate::clock::Timestamp(1_772_368_496_789);
        Outgoing { event, sequence: 42, epoch: 3, time, attempts: 1, tried: false, redrives: 0 }
    }

    fn assert_is(said: &Said, sent: &Outgoing) {
        let mut wanted: BTreeMap<_, _> = cloud_events::attributes(sent).into_iter().collect();
        assert_eq!(said.id.as_deref(), wanted.remove("id").as_deref());
        assert_eq!(said.key.as_deref().unwrap_or_default(), &*sent.event.key);
        assert_eq!(said.content_type.as_deref().unwrap_or_default(), &*sent.event.content_type);
        assert_eq!(said.data, sent.event.data);
        let wanted: BTreeMap<_, _> = wanted.iter().map(|(name, value)| (*name, &**value)).collect();
        assert_eq!(pairs(said).into_iter().collect::<BTreeMap<_, _>>(), wanted);
    }

    #[test]
    fn the_first_of_an_attribute_counts_and_case_does_not() {
        let said =
            read(NATS, &[("CE-ID", "1"), ("ce-id", "2"), ("Ce-Type", "a%20b"), ("ce-", "x"), ("id", "%20")], b"x");
        assert_eq!(said.id.as_deref(), Some("1"));
        assert_eq!(pairs(&said), [("type", "a b"), ("ce-", "x"), ("id", "%20")]);
    }

    #[test]
    fn without_an_attribute_the_brokers_own_words_count() {
        let mut incoming = Incoming::new(NATS);
        incoming.id("m-1");
        incoming.key("k");
        incoming.content_type("text/plain");
        incoming.header("ce-id", "");
        incoming.header("ce-partitionkey", "p");
        let said = incoming.read(Bytes::new());
        assert_eq!((said.id.as_deref(), said.key.as_deref()), (Some("m-1"), Some("k")));
        assert_eq!(said.content_type.as_deref(), Some("text/plain"));
    }

    #[test]
    fn a_documents_data_is_what_it_was() {
        let table = [
            (r#"{"data": { "a" : 1.10 }}"#, r#"{ "a" : 1.10 }"#, Some("application/json")),
            (r#"{"data": "text"}"#, r#""text""#, Some("application/json")),
            (r#"{"data": "text \u20ac", "datacontenttype": "text/plain"}"#, "text \u{20ac}", Some("text/plain")),
            (r#"{"data": {"a": 1}, "datacontenttype": "text/plain"}"#, r#"{"a": 1}"#, Some("text/plain")),
            (r#"{"data_base64": "dGV4dA==", "datacontenttype": "text/plain"}"#, "text", Some("text/plain")),
            (r#"{"data_base64": "dGV4dA=="}"#, "text", None),
            (r#"{"data": null}"#, "null", Some("application/json")),
            (r#"{"datacontenttype": "text/plain"}"#, "", Some("text/plain")),
            ("{}", "", None),
        ];
        for (document, data, content_type) in table {
            let said = structured(document);
            assert_eq!((&*said.data, said.content_type.as_deref()), (data.as_bytes(), content_type), "{document}");
        }
    }

    #[test]
    fn a_documents_attributes_are_text() {
        let said = structured(
            r#"{"id": 7, "type": "a\"b", "ok": true, "n": -1.50, "none": null, "list": [1], "object": {}, "empty": ""}"#,
        );
        assert_eq!(said.id.as_deref(), Some("7"));
        assert_eq!(pairs(&said), [("n", "-1.50"), ("ok", "true"), ("type", "a\"b"), ("tenant", "acme")]);
    }

    #[test]
    fn what_is_no_document_comes_as_it_is() {
        for text in [
            "",
            "{",
            "[]",
            "\"x\"",
            r#"{"data": 1, "data_base64": ""}"#,
            r#"{"data_base64": "?"}"#,
            r#"{"data_base64": 1}"#,
        ] {
            let said = structured(text);
            assert_eq!((&*said.data, said.content_type.as_deref()), (text.as_bytes(), Some(cloud_events::STRUCTURED)));
            assert_eq!((said.id.as_deref(), pairs(&said)), (None, vec![("tenant", "acme")]), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_published_comes_back(data: Vec<u8>, key: String, number: u32) {
            for content_type in ["application/json", "text/plain", "image/png", ""] {
                let number = number.to_string();
                for data in [&data[..], number.as_bytes(), b"{\"a\": [1, 1.0, \"\"]}"] {
                    let sent = outgoing(content_type, data, &key);
                    let document = cloud_events::structured(&sent);
                    let kind = [("Content-Type", cloud_events::STRUCTURED)];
                    assert_is(&read(FOREIGN, &kind, &document), &sent);
                    let mut incoming = Incoming::new(NATS);
                    for (name, value) in cloud_events::attributes(&sent) {
                        incoming.header(&format!("ce-{name}"), &cloud_events::header_text(&value));
                    }
                    incoming.header("content-type", &cloud_events::header_text(content_type));
                    assert_is(&incoming.read(sent.event.data.clone()), &sent);
                }
            }
        }

        #[test]
        fn nothing_panics(headers: Vec<(String, String)>, text: String, data: Vec<u8>) {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            for binding in [NATS, BARE, FOREIGN] {
                read(binding, &headers, &data);
                read(binding, &[("content-type", cloud_events::STRUCTURED)], text.as_bytes());
                read(binding, &[("content-type", cloud_events::STRUCTURED)], &data);
            }
        }
    }
}
