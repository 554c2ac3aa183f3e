//! The queue door: its contracts on each database, and what stands on them.

mod contract;
mod reconcile;

use bytes::Bytes;
use oncegate::entry::EntryId;
use oncegate::inbox::store::{NewDelivery, attribute, queue_of};
use oncegate::outbox::event::{Envelope, EventId, NewEvent, OnFailure};

/// The subscription of the tests.
const SUBSCRIPTION: &str = "award-points";

/// A delivery of the message `id`, of a key, in lane 0.
fn delivery(id: &str, key: &str, data: &[u8]) -> NewDelivery {
    let event = Envelope {
        id: EventId::of_delivery(SUBSCRIPTION, "/payments", id, data),
        queue: queue_of(SUBSCRIPTION),
        topic: "payments".into(),
        key: key.into(),
        kind: "com.example.paid".into(),
        source: "/payments".into(),
        route: SUBSCRIPTION.into(),
        content_type: "application/json".into(),
        traceparent: Some("00-trace".into()),
        attributes: [(attribute::MESSAGE.into(), id.into()), ("subject".into(), "order \u{20ac}".into())].into(),
        data: Bytes::copy_from_slice(data),
    };
    let event = NewEvent { event, lane: 0, parked: None, on_failure: OnFailure::Hold };
    NewDelivery { entry: EntryId([7; 32]), event }
}
