//! One producer of the client library, from its making to its first failure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext, PurgeConfig};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{Shared, verdict};
use crate::broker::waiters::Waiter;
use crate::broker::{CONFIRMED, PublishError, cloud_events};
use crate::outbox::event::Outgoing;

/// How long the thread sleeps when there is no report, and so how soon it sees that it is to end.
const POLL: Duration = Duration::from_millis(100);

/// A producer, and the thread that hands its reports on.
#[derive(Clone)]
pub(super) struct Producer {
    inner: Arc<BaseProducer<Reports>>,
    retired: Arc<AtomicBool>,
}

/// What travels with an event and comes back with its report.
pub(super) struct Parcel {
    pub(super) waiter: Waiter,
    /// Dropped when the caller has been told.
    pub(super) _open: TaskTrackerToken,
}

/// Gets the reports.
pub(super) struct Reports {
    shared: Weak<Shared>,
    /// Of the producer that they are of.
    number: u64,
    /// What the client said last about its connections: a report knows no more than that an event was not taken in
    /// time.
    said: Mutex<Option<String>>,
}

impl Producer {
    /// Starts a producer. It connects by itself, and tries again by itself.
    pub(super) fn start(config: &ClientConfig, shared: Weak<Shared>, number: u64) -> Result<Self, PublishError> {
        let unavailable = |error: String| PublishError::Unavailable(format!("the client can't be started: {error}"));
        let inner: BaseProducer<Reports> = config
            .create_with_context(Reports { shared, number, said: Mutex::default() })
            .map_err(|error| unavailable(error.to_string()))?;
        let producer = Self { inner: Arc::new(inner), retired: Arc::default() };
        let thread = std::thread::Builder::new().name("kafka-reports".to_owned());
        let handed_on = producer.clone();
        thread.spawn(move || handed_on.hand_on()).map_err(|error| unavailable(error.to_string()))?;
        Ok(producer)
    }

    fn hand_on(&self) {
        while !self.retired.load(Ordering::Acquire) || self.inner.in_flight_count() > 0 {
            self.inner.poll(POLL);
        }
    }

    /// Queues an event behind all that were queued before it, or gives it back.
    pub(super) fn send(&self, event: &Outgoing, parcel: Parcel) -> Result<(), (PublishError, Parcel)> {
        let record = BaseRecord::with_opaque_to(&event.event.topic, Box::new(parcel))
            .key(&*event.event.key)
            .payload(&*event.event.data)
            .timestamp(event.time.0)
            .headers(headers(event));
        self.inner.send(record).map_err(|(error, record)| (verdict::of(&error), *record.delivery_opaque))
    }

    /// Fails all that has no report yet: of what is not on the wire now, nothing will be. It ends by itself.
    pub(super) fn give_up(&self) {
        self.inner.purge(PurgeConfig::default().queue().inflight());
        self.retire();
    }

    /// Has it end when everything has its report.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }
}

impl ClientContext for Reports {
    /// It comes again with each try to connect.
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka client");
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
    }
}

impl Reports {
    fn explained(&self, reason: String) -> String {
        match &*self.said.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(said) => format!("{said}; {reason}"),
            None => reason,
        }
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<Parcel>;

    fn delivery(&self, report: &DeliveryResult<'_>, parcel: Box<Parcel>) {
        let Err((error, _message)) = report else { return parcel.waiter.tell(CONFIRMED) };
        match (verdict::of(error), self.shared.upgrade()) {
            (PublishError::Unavailable(reason), Some(shared)) => {
                let failure = PublishError::Unavailable(self.explained(reason));
                shared.break_off(self.number, parcel.waiter, failure);
            }
            (PublishError::TopicUnavailable(reason), Some(shared)) => {
                let failure = PublishError::TopicUnavailable(self.explained(reason));
                shared.break_off(self.number, parcel.waiter, failure);
            }
            (failure, _) => parcel.waiter.tell(Err(failure)),
        }
    }
}

fn headers(event: &Outgoing) -> OwnedHeaders {
    let attributes = cloud_events::attributes(event);
    let mut headers = OwnedHeaders::new_with_capacity(attributes.len() + 1);
    for (name, value) in &attributes {
        headers = headers.insert(Header { key: &format!("ce_{name}"), value: Some(value.as_bytes()) });
    }
    if !event.event.content_type.is_empty() {
        headers = headers.insert(Header { key: "content-type", value: Some(event.event.content_type.as_bytes()) });
    }
    headers
}
