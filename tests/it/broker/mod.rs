//! Publishers and subscribers: their contracts on every broker, and what happens when a broker fails.
//!
//! A new broker implements [`contract::Broker`] (and [`contract::Breakable`], on a server of the test's own), and
//! calls `contract!` and `faults!`; with [`confirms::Wired`], on a server behind a wire, also `confirms!`.

mod confirms;
mod contract;
mod embedded;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
mod outages;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis-streams")]
mod redis_streams;
mod subscribers;
#[cfg(feature = "webhook")]
mod webhook;

use std::time::Duration;

use bytes::Bytes;
use oncegate::clock::{self, Timestamp};
use oncegate::outbox::event::{Attributes, Envelope, EventId, Outgoing};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// An event that no other test has.
fn event(topic: &str, key: &str, sequence: i64) -> Outgoing {
    let event = Envelope {
        id: EventId(rand::random()),
        queue: "default".into(),
        topic: topic.into(),
        key: key.into(),
        kind: "com.example.payment.created".into(),
        source: "/payments".into(),
        route: "create-payment".into(),
        content_type: "application/json".into(),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        attributes: Attributes::new(),
        data: Bytes::from(format!("{{\"n\": {sequence}}}")),
    };
    Outgoing { event, sequence, epoch: 3, time: Timestamp(1_772_368_496_789), attempts: 1, tried: false, redrives: 0 }
}

/// A name that no other test has.
fn unique(what: &str) -> String {
    format!("{what}-{:032x}", rand::random::<u128>())
}

/// Asks until `done`, a little apart. Panics when patience ends.
async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = clock::now() + PATIENCE;
    while !done().await {
        assert!(clock::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
