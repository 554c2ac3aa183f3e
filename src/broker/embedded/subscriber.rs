//! Reads a topic of an embedded queue, from a position on that the caller keeps.
//!
//! An acknowledgement moves [`EmbeddedSubscriber::position`], up to where everything is acknowledged, and nothing
//! else: whoever wants to go on there after a restart keeps it, best in the transaction that makes the messages
//! durable. Nobody else is told what is read here, so a position has one reader.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::{Message, Messages};
use crate::broker::held::{Held, Said};
use crate::broker::incoming::{self, Incoming};
use crate::broker::subscriber::{Receipt, Received, SubscribeError, Subscriber};

/// What is read of an embedded queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedSubscriberOptions {
    /// The queue.
    pub queue: String,
    /// The topic.
    pub topic: String,
    /// The position of the last message that is done with; 0 before the first.
    pub after: i64,
    /// How many messages may be unacknowledged. 256.
    pub prefetch: u32,
    /// How often an empty table is looked at. 200 ms: five small queries a second.
    pub poll: Duration,
}

impl EmbeddedSubscriberOptions {
    /// With the defaults, from the beginning.
    #[must_use]
    pub fn new(queue: impl Into<String>, topic: impl Into<String>) -> Self {
        let (queue, topic) = (queue.into(), topic.into());
        Self { queue, topic, after: 0, prefetch: 256, poll: Duration::from_millis(200) }
    }
}

/// Reads one topic. See the [module](self).
pub struct EmbeddedSubscriber {
    messages: Arc<dyn Messages>,
    options: EmbeddedSubscriberOptions,
    /// Up to where it has been read.
    read: i64,
    /// By their positions.
    held: Held<i64>,
}

impl EmbeddedSubscriber {
    /// Reads nothing yet.
    #[must_use]
    pub fn new(messages: Arc<dyn Messages>, options: EmbeddedSubscriberOptions) -> Self {
        Self { messages, read: options.after, options, held: Held::default() }
    }

    /// Up to where everything is acknowledged.
    #[must_use]
    pub fn position(&self) -> i64 {
        self.held.names().next().map_or(self.read, |first| first - 1)
    }

    /// What is read.
    #[must_use]
    pub fn options(&self) -> &EmbeddedSubscriberOptions {
        &self.options
    }

    /// Forgets what was received, and goes on after `position`.
    pub fn go_on_after(&mut self, position: i64) {
        self.read = position;
        self.held.clear();
    }

    /// The positions of what was received and is not acknowledged, in order.
    pub fn positions(&self) -> impl Iterator<Item = i64> + '_ {
        self.held.names().copied()
    }

    /// What is there now, which may be nothing.
    ///
    /// # Errors
    /// If the messages can't be read.
    pub async fn look(&mut self) -> Result<Vec<Received>, SubscribeError> {
        if let Some(again) = self.held.again() {
            return Ok(again);
        }
        let EmbeddedSubscriberOptions { queue, topic, prefetch, .. } = &self.options;
        let stored = self.messages.tail(queue, Some(topic), self.read, (*prefetch).max(1)).await;
        let stored = stored.map_err(|error| SubscribeError::Unavailable(error.to_string()))?;
        self.read = stored.last().map_or(self.read, |last| last.position);
        let received = stored.into_iter().map(|stored| {
            let place = stored.position.to_string().into();
            self.held.hand_out(stored.position, place, false, said(stored.message))
        });
        Ok(received.collect())
    }

    async fn next(&mut self) -> Result<Vec<Received>, SubscribeError> {
        loop {
            let received = self.look().await?;
            if !received.is_empty() {
                return Ok(received);
            }
            sleep(self.options.poll).await;
        }
    }
}

impl Subscriber for EmbeddedSubscriber {
    fn receive(&mut self) -> BoxFuture<'_, Result<Vec<Received>, SubscribeError>> {
        self.next().boxed()
    }

    fn ack<'a>(&'a mut self, receipts: &'a [Receipt]) -> BoxFuture<'a, Result<(), SubscribeError>> {
        self.held.forget(receipts);
        std::future::ready(Ok(())).boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.read = self.position();
        self.held.clear();
        std::future::ready(()).boxed()
    }
}

fn said(message: Message) -> Said {
    let mut incoming = Incoming::new(incoming::BARE);
    incoming.id(&message.id);
    incoming.key(&message.key);
    incoming.content_type(&message.content_type);
    // Whoever appends writes an object of strings; what is none says nothing.
    let attributes: BTreeMap<String, String> = serde_json::from_str(&message.attributes).unwrap_or_default();
    for (name, value) in &attributes {
        incoming.header(name, value);
    }
    incoming.read(message.data)
}

impl fmt::Debug for EmbeddedSubscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedSubscriber").field("options", &self.options).finish_non_exhaustive()
    }
}
