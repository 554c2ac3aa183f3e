//! Events that a handler announces itself.

use std::sync::Arc;

use bytes::Bytes;

use super::idempotency::Shared;
use crate::engine::Attempt;
use crate::entry::Answer;
use crate::outbox::event::{Attributes, Envelope, EventId, MAX_EVENT_KEY_BYTES, NewEvent, OnFailure};
use crate::outbox::lane::{DEFAULT_QUEUE, UnknownQueue, lane_of};

/// Something that happened, announced in the same commit: if the handler's transaction commits, it is published at
/// least once; if not, never.
///
/// 1. Its name makes its id, together with the entry: however often the handler runs, a consumer sees one id. Names
///    of one execution differ, and never change.
/// 2. Events of one key are published in the order of their commits. Without a key of its own it has the
///    request's idempotency key.
/// 3. It carries the trace of the request (`traceparent`), or a new one.
///
/// It goes out as a CloudEvent, through the gateway that relays its queue.
///
/// ```
/// use oncegate::layer::Event;
///
/// let placed = Event::new("placed", "com.example.order.placed", "orders")
///     .key("order-1001")
///     .json(&serde_json::json!({ "order_no": "1001", "cents": 1900 }))?;
/// # let _ = placed;
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "give it to `Execution::complete_in`"]
pub struct Event {
    name: Box<str>,
    kind: Box<str>,
    source: Option<Box<str>>,
    queue: Box<str>,
    topic: Box<str>,
    key: Option<Box<str>>,
    content_type: Box<str>,
    data: Bytes,
    on_failure: OnFailure,
}

/// Why an event can't be one: a mistake in the handler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// Another event of this execution has its name, so they would have one id.
    #[error("two events of one execution are called {0:?}")]
    NameTwice(Box<str>),
    /// It goes to a queue that was not named at [`Setup::queue`](crate::embed::Setup::queue).
    #[error(transparent)]
    Queue(#[from] UnknownQueue),
    /// A text is empty, too long, or holds a control character.
    #[error("the {what} has 1 to {MAX_EVENT_KEY_BYTES} bytes and no control characters")]
    Text {
        /// Which one.
        what: &'static str,
    },
}

impl Event {
    /// The event `name` of CloudEvents type `kind` (`com.example.order.placed`) to `topic` of the default queue:
    /// a routing key, topic, subject, stream or path, by the kind of broker. It says nothing (`null`) yet.
    pub fn new(name: impl Into<Box<str>>, kind: impl Into<Box<str>>, topic: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            kind: kind.into(),
            source: None,
            queue: DEFAULT_QUEUE.into(),
            topic: topic.into(),
            key: None,
            content_type: "application/json".into(),
            data: Bytes::from_static(b"null"),
            on_failure: OnFailure::default(),
        }
    }

    /// Where it happened: CloudEvents `source`, a URI reference. Default: `/` and the operation's name.
    pub fn source(mut self, source: impl Into<Box<str>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The queue that it goes to. Default: `default`.
    pub fn queue(mut self, queue: impl Into<Box<str>>) -> Self {
        self.queue = queue.into();
        self
    }

    /// What it is ordered by. Default: the idempotency key.
    pub fn key(mut self, key: impl Into<Box<str>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// What it says, as JSON.
    ///
    /// # Errors
    /// If `data` can't be spelled as JSON.
    pub fn json(self, data: &impl serde::Serialize) -> Result<Self, serde_json::Error> {
        Ok(self.data("application/json", serde_json::to_vec(data)?))
    }

    /// What it says, in bytes of this content type.
    pub fn data(mut self, content_type: impl Into<Box<str>>, data: impl Into<Bytes>) -> Self {
        self.content_type = content_type.into();
        self.data = data.into();
        self
    }

    /// What becomes of later events of its key should it fail for good. Default: they wait for a person.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    fn resolve(&self, attempt: &Attempt, shared: &Shared) -> Result<NewEvent, EventError> {
        let route = &shared.policy.route;
        let key = self.key.clone().unwrap_or_else(|| attempt.key().as_str().into());
        let event = Envelope {
            id: EventId::of(attempt.origin, &self.name),
            queue: self.queue.clone(),
            topic: checked("topic", &self.topic)?,
            key: checked("key", &key)?,
            kind: checked("type", &self.kind)?,
            source: checked("source", self.source.as_deref().unwrap_or(&format!("/{route}")))?,
            route: route.clone(),
            content_type: checked("content type", &self.content_type)?,
            traceparent: attempt.traceparent().map(Into::into),
            attributes: Attributes::new(),
            data: self.data.clone(),
        };
        let lane = lane_of(&event.key, shared.lanes.of(&event.queue)?);
        Ok(NewEvent { event, lane, parked: None, on_failure: self.on_failure })
    }
}

fn checked(what: &'static str, text: &str) -> Result<Box<str>, EventError> {
    let is_valid = (1..=MAX_EVENT_KEY_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
    if is_valid { Ok(text.into()) } else { Err(EventError::Text { what }) }
}

/// All that an execution announces that came to `answer`: what its operation does, then the handler's `own`.
pub(super) fn resolve(
    own: &[Event],
    attempt: &Attempt,
    shared: &Shared,
    answer: &Answer,
) -> Result<Arc<[NewEvent]>, EventError> {
    let rules = &shared.policy.events;
    for (index, event) in own.iter().enumerate() {
        if rules.has(&event.name) || own[..index].iter().any(|earlier| earlier.name == event.name) {
            return Err(EventError::NameTwice(event.name.clone()));
        }
    }
    let own = own.iter().map(|event| event.resolve(attempt, shared)).collect::<Result<Vec<_>, _>>()?;
    let configured = attempt.events(answer);
    Ok(if own.is_empty() { configured } else { configured.iter().cloned().chain(own).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_the_store_or_a_broker_would_refuse_is_refused_here() {
        let longest = "x".repeat(MAX_EVENT_KEY_BYTES);
        for text in ["x", &*longest] {
            assert_eq!(checked("topic", text).as_deref(), Ok(text));
        }
        for text in ["", "a\nb", "a\0", &*format!("{longest}x")] {
            assert_eq!(checked("topic", text), Err(EventError::Text { what: "topic" }), "{text:?}");
        }
    }
}
