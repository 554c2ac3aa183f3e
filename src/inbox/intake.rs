//! A received message as the delivery that is kept of it. Pure.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::rules::{Rules, Understood, Unusable};
use super::store::{NewDelivery, attribute, queue_of, short};
use super::subscription::Subscription;
use crate::broker::subscriber::Received;
use crate::entry::source::Said;
use crate::entry::{EntryId, Identity, Key, Namespace, Scope};
use crate::outbox::event::{Attributes, Envelope, EventId, NewEvent};
use crate::outbox::lane::lane_of;
use crate::outbox::trace::{TRACEPARENT, traceparent};

/// What names of the door's own begin with. A message's own attributes have no such names.
const OWN: &str = "oncegate-";

/// The extension of CloudEvents that says what a message is ordered by.
const PARTITION_KEY: &str = "partitionkey";

/// A message as it is kept, and how it was understood.
pub(super) struct Intake {
    pub(super) delivery: NewDelivery,
    /// `None` for one that can't be handled: it is kept with the reason.
    pub(super) understood: Option<Understood>,
}

/// What is kept of `received`. `fresh` stands for what it lacks: an id, a trace.
pub(super) fn intake(subscription: &Subscription, lanes: NonZeroU32, received: Received, fresh: [u8; 24]) -> Intake {
    let Received { receipt: _, id, place, key, content_type, attributes, data, redelivered: _ } = received;
    let mut attributes = own_attributes(attributes, key);
    let traceparent = trace(attributes.remove(TRACEPARENT.as_str()).as_deref(), fresh);
    let content_type = content_type.unwrap_or_default();
    let said = Said { id: id.as_deref(), attributes: &attributes, data: &data };

    let text = |name: &str| attributes.get(name).map_or_else(|| "".into(), |value| short(value));
    let (kind, source) = (text("type"), text("source"));
    // Without an id nobody can tell a message that comes again from another one that says the same: its key does.
    let named = id.as_deref().map_or_else(|| format!("{:x}", u128::from_be_bytes(first_16(fresh))), str::to_owned);
    let (id_of_delivery, understood) =
        identify(&subscription.name, &subscription.rules, &named, &said, &content_type, &data);

    let line: Box<str> = match &understood {
        Ok(understood) => understood.line.as_str().into(),
        Err(_) => id_of_delivery.to_string().into(),
    };
    let namespace = &subscription.policy.namespace;
    // Of the business key alone, also where a version is a part of what the engine knows: people look for that one.
    let entry = understood.as_ref().map_or(EntryId([0; 32]), |understood| entry(namespace, &understood.business));
    let (understood, parked) = match understood {
        Ok(understood) => (Some(understood), None),
        Err(unusable) => (None, Some(reason(&unusable))),
    };
    note(&mut attributes, attribute::PLACE, Some(&place));
    note(&mut attributes, attribute::MESSAGE, id.as_deref());
    if let Some(Understood { business, version, .. }) = &understood {
        note(&mut attributes, attribute::KEY, Some(business.as_str()));
        note(&mut attributes, attribute::VERSION, version.map(|version| version.to_string()).as_deref());
    }
    let event = Envelope {
        id: id_of_delivery,
        queue: queue_of(&subscription.name),
        topic: short(&subscription.topic),
        kind,
        source,
        route: subscription.name.clone(),
        content_type: short(&content_type),
        traceparent: Some(traceparent),
        attributes,
        data,
        key: line.clone(),
    };
    let event = NewEvent { lane: lane_of(&line, lanes), event, parked, on_failure: subscription.on_failure };
    Intake { delivery: NewDelivery { entry, event }, understood }
}

/// What the message says of itself. Of several headers of a name the first counts, here and for the handler.
fn own_attributes(said: Vec<(Box<str>, Box<str>)>, key: Option<Box<str>>) -> Attributes {
    let mut attributes = BTreeMap::new();
    for (name, value) in said {
        if !name.starts_with(OWN) {
            attributes.entry(name).or_insert(value);
        }
    }
    if let Some(key) = key {
        attributes.entry(PARTITION_KEY.into()).or_insert(key);
    }
    attributes
}

/// The message's trace; a new one where it has none, or what is none.
fn trace(sent: Option<&str>, fresh: [u8; 24]) -> Box<str> {
    let mut headers = HeaderMap::new();
    if let Some(Ok(value)) = sent.map(HeaderValue::try_from) {
        headers.insert(&TRACEPARENT, value);
    }
    traceparent(&headers, fresh)
}

/// Which delivery the message called `message` is to a subscription, and how it is understood.
pub(super) fn identify(
    subscription: &str,
    rules: &Rules,
    message: &str,
    said: &Said<'_>,
    content_type: &str,
    data: &Bytes,
) -> (EventId, Result<Understood, Unusable>) {
    let understood = rules.understand(said, content_type, data);
    let producer = said.attributes.get("source").map(|source| &**source).unwrap_or_default();
    let id = EventId::of_delivery(subscription, producer, message, data);
    let id = match &understood {
        Ok(understood) if !rules.go_by_data() => id.of_operation(&understood.key.key),
        Ok(_) | Err(_) => id,
    };
    (id, understood)
}

/// The entry that a key of a subscription names.
pub(super) fn entry(namespace: &Namespace, key: &Key) -> EntryId {
    Identity { namespace: namespace.clone(), scope: Scope::Global, key: key.clone() }.id()
}

fn reason(unusable: &Unusable) -> Box<str> {
    unusable.to_string().into()
}

fn note(attributes: &mut Attributes, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        attributes.insert(name.into(), value.into());
    }
}

fn first_16(bytes: [u8; 24]) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&bytes[..16]);
    first
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::broker::subscriber::Receipt;
    use crate::inbox::subscription::fixture::subscription;

    const LANES: NonZeroU32 = NonZeroU32::new(32).unwrap();
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn received(id: Option<&str>, attributes: &[(&str, &str)], data: &str) -> Received {
        Received {
            receipt: Receipt(0),
            id: id.map(Into::into),
            place: "17".into(),
            key: Some("A".into()),
            content_type: Some("application/json".into()),
            attributes: attributes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            data: Bytes::copy_from_slice(data.as_bytes()),
            redelivered: false,
        }
    }

    fn take(key: &str, received: Received) -> Intake {
        intake(&subscription(key), LANES, received, [9; 24])
    }

    fn id(message: Received) -> EventId {
        take(r#""body:/no""#, message).delivery.event.event.id
    }

    #[test]
    fn a_delivery_says_what_the_message_says() {
        let attributes = [("type", "paid"), ("source", "/payments"), ("traceparent", TRACE), ("subject", "A-1")];
        let Intake { delivery, understood } = take(r#""body:/no""#, received(Some("m-1"), &attributes, r#"{"no":7}"#));
        let event = delivery.event.event;
        assert_eq!((&*event.queue, &*event.topic, &*event.route), ("sub:points", "payments", "points"));
        assert_eq!((&*event.kind, &*event.source, &*event.key), ("paid", "/payments", "7"));
        assert_eq!(event.traceparent.as_deref(), Some(TRACE));
        let kept: Vec<(&str, &str)> = event.attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
        let expected = [
            ("oncegate-key", "7"),
            ("oncegate-message", "m-1"),
            ("oncegate-place", "17"),
            ("partitionkey", "A"),
            ("source", "/payments"),
            ("subject", "A-1"),
            ("type", "paid"),
        ];
        assert_eq!(kept, expected);
        let key = understood.unwrap().key.key;
        let identity =
            Identity { namespace: crate::entry::Namespace::from_stored("sub:points"), scope: Scope::Global, key };
        assert_eq!((delivery.entry, delivery.event.parked), (identity.id(), None));
        assert_eq!(delivery.event.lane, lane_of("7", LANES));
    }

    #[test]
    fn a_message_that_comes_again_is_the_same_delivery_and_another_one_is_not() {
        let message = |id, data| received(Some(id), &[("source", "/a")], data);
        let first = id(message("m-1", r#"{"no":7}"#));
        assert_eq!(id(Received { place: "18".into(), redelivered: true, ..message("m-1", r#"{"no":7}"#) }), first);
        assert_ne!(id(message("m-2", r#"{"no":7}"#)), first);
        assert_ne!(id(message("m-1", r#"{"no":8}"#)), first, "an id that is used twice");
        assert_ne!(id(received(Some("m-1"), &[("source", "/b")], r#"{"no":7}"#)), first, "another producer's");
    }

    #[test]
    fn what_the_data_does_not_say_of_the_key_tells_deliveries_apart() {
        let of = |key, order| {
            let message = received(Some("1"), &[("source", "/a"), ("order", order)], "{}");
            take(key, message).delivery.event.event.id
        };
        let by_attribute = r#""attribute:order""#;
        assert_ne!(of(by_attribute, "A"), of(by_attribute, "B"), "an id that is used twice");
        assert_eq!(of(by_attribute, "A"), of(by_attribute, "A"));
        assert_eq!(of(r#""id""#, "A"), EventId::of_delivery("points", "/a", "1", b"{}"));
        assert_ne!(of(by_attribute, "A"), of(r#""id""#, "A"));
    }

    #[test]
    fn without_an_id_each_copy_is_a_delivery_and_its_key_decides() {
        let subscription = subscription(r#""body:/no""#);
        let taken = |fresh| intake(&subscription, LANES, received(None, &[], r#"{"no":7}"#), [fresh; 24]).delivery;
        let (one, other) = (taken(1), taken(2));
        assert_ne!(one.event.event.id, other.event.event.id);
        assert_eq!(one.entry, other.entry);
    }

    #[test]
    fn versions_of_a_business_key_are_found_by_it() {
        let mut subscription = subscription(r#""body:/no""#);
        subscription.rules.version = Some("body:/version".parse().unwrap());
        let taken = |data| intake(&subscription, LANES, received(Some("m"), &[], data), [1; 24]);
        let (one, other) = (taken(r#"{"no":"A-1","version":1}"#), taken(r#"{"no":"A-1","version":2}"#));
        let business = entry(&subscription.policy.namespace, &Key::from_business("A-1").unwrap());
        assert_eq!([one.delivery.entry, other.delivery.entry], [business; 2]);
        assert_ne!(one.understood.unwrap().key, other.understood.unwrap().key);
    }

    #[test]
    fn what_can_not_be_handled_is_kept_with_the_reason_in_a_line_of_its_own() {
        let taken = |id| take(r#""id""#, received(id, &[], "{}")).delivery;
        let (one, other) = (taken(Some("")), taken(None));
        for delivery in [&one, &other] {
            let reason = delivery.event.parked.as_deref();
            assert_eq!(reason, Some(r#"it has no key: none of ["id"] is there"#));
            assert_eq!(*delivery.event.event.key, *delivery.event.event.id.to_string());
            assert_eq!(delivery.entry, EntryId([0; 32]));
        }
        assert_ne!(one.event.event.key, other.event.event.key, "never one key for all");
    }

    #[test]
    fn names_of_ours_are_taken_from_no_message_and_the_first_of_several_counts() {
        let attributes = [("oncegate-key", "forged"), ("tenant", "a"), ("tenant", "b"), ("partitionkey", "own")];
        let event = take(r#""attribute:tenant""#, received(Some("m"), &attributes, "{}")).delivery.event.event;
        assert_eq!(&*event.attributes["oncegate-key"], "a");
        assert_eq!((&*event.attributes["partitionkey"], &*event.key), ("own", "a"));
    }

    #[test]
    fn a_wrong_trace_is_replaced_and_long_texts_are_cut_in_columns_only() {
        let long = "x".repeat(300);
        let attributes = [("traceparent", "00-nonsense"), ("type", &long)];
        let event = take(r#""body:/no""#, received(Some("m"), &attributes, r#"{"no":7}"#)).delivery.event.event;
        assert_eq!(event.traceparent.as_deref(), Some("00-09090909090909090909090909090909-0909090909090909-00"));
        assert_eq!((event.kind.len(), event.attributes["type"].len()), (255, 300));
    }
}
