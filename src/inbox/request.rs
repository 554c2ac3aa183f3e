//! The request that delivers a message.
//!
//! ```text
//! POST /points HTTP/1.1
//! content-type: application/json
//! idempotency-key: 7358d55d0ff655fddec3429ab862be6ce4a3c940346332131f7f3c0138b768b0
//! oncegate-attempt: 1
//! traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//! ce-specversion: 1.0
//! ce-id: 8f14e45fceea167a5a36dedd4bea2543
//! ce-source: /payments
//! ce-type: com.example.payment.paid
//! ```
//!
//! The body is the message's data, byte for byte. A message that is no CloudEvent (no `type` and `source`) has no
//! `ce-` fields. The engine adds `Idempotency-Key` and `Oncegate-Attempt`, which depend on the attempt.

use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request};

use super::store::attribute;
use super::subscription::Subscription;
use crate::broker::cloud_events::header_text;
use crate::outbox::event::Envelope;
use crate::outbox::trace::TRACEPARENT;

/// The longest name that CloudEvents recommends for an attribute.
const MAX_NAME: usize = 20;

/// The head of the request that delivers `event`.
pub(super) fn head(subscription: &Subscription, event: &Envelope) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = Method::POST;
    parts.uri = subscription.target.clone();
    // First, so that ours win.
    parts.headers.clone_from(&subscription.headers);
    put(&mut parts.headers, header::CONTENT_TYPE, &event.content_type);
    put(&mut parts.headers, TRACEPARENT.clone(), event.traceparent.as_deref().unwrap_or_default());
    if is_cloud_event(event) {
        put_attributes(&mut parts.headers, event);
    }
    parts
}

fn is_cloud_event(event: &Envelope) -> bool {
    !event.kind.is_empty() && !event.source.is_empty()
}

fn put_attributes(headers: &mut HeaderMap, event: &Envelope) {
    let delivery = event.id.to_string();
    let id = event.attributes.get(attribute::MESSAGE).map_or(&*delivery, |id| id);
    let own = [("specversion", "1.0"), ("source", &*event.source), ("type", &*event.kind), ("id", id)];
    // Behind them, the message's own: where a column has cut one, all of it is here.
    let said = event.attributes.iter().map(|(name, value)| (&**name, &**value));
    for (name, value) in own.into_iter().chain(said.filter(|(name, _)| is_attribute(name))) {
        if let Ok(name) = HeaderName::try_from(format!("ce-{name}")) {
            put(headers, name, &header_text(value));
        }
    }
}

/// Whether it is a name that CloudEvents allows. Others are headers that came with the message.
fn is_attribute(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain) && name != "traceparent"
}

/// What is empty, or can't be sent, is left out: no message is refused for it.
fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value)
        && !value.is_empty()
    {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;

    use super::*;
    use crate::inbox::subscription::fixture;
    use crate::outbox::event::EventId;

    fn event(attributes: &[(&str, &str)]) -> Envelope {
        Envelope {
            id: EventId([0xab; 16]),
            queue: "sub:points".into(),
            topic: "payments".into(),
            key: "A-1".into(),
            kind: "com.example.paid".into(),
            source: "/payments".into(),
            route: "points".into(),
            content_type: "application/json".into(),
            traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
            attributes: attributes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            data: Bytes::from_static(b"{}"),
        }
    }

    fn fields(event: &Envelope) -> BTreeMap<String, String> {
        let parts = head(&fixture::subscription(r#""body:/no""#), event);
        assert_eq!((parts.method, parts.uri.path()), (Method::POST, "/points"));
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        parts.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    #[test]
    fn a_cloud_event_is_delivered_in_binary_mode() {
        let event = event(&[
            ("oncegate-message", "m 1"),
            ("oncegate-place", "17"),
            ("subject", "\u{20ac}"),
            ("x-broker-header", "1"),
            ("traceparent", "another"),
        ]);
        let expected = [
            ("ce-id", "m%201"),
            ("ce-source", "/payments"),
            ("ce-specversion", "1.0"),
            ("ce-subject", "%E2%82%AC"),
            ("ce-type", "com.example.paid"),
            ("content-type", "application/json"),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ];
        let expected: BTreeMap<_, _> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(fields(&event), expected);
    }

    #[test]
    fn what_a_column_has_cut_is_sent_whole() {
        let fields = fields(&event(&[("type", "the whole of it")]));
        assert_eq!(fields["ce-type"], "the%20whole%20of%20it");
        assert_eq!(fields["ce-id"], "ab".repeat(16), "without an id, ours");
    }

    #[test]
    fn what_is_no_cloud_event_has_none_of_its_fields() {
        let plain = Envelope { kind: "".into(), content_type: "".into(), ..event(&[("subject", "A")]) };
        assert_eq!(fields(&plain).into_keys().collect::<Vec<_>>(), ["traceparent"]);
    }
}
