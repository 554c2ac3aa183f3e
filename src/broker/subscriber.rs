//! The other direction: messages out of a queue.
//!
//! What a topic and a group are, to each kind of broker, and when what a member does not acknowledge comes again:
//!
//! | broker | topic | group | comes again |
//! |---|---|---|---|
//! | RabbitMQ | what the queue gets of the exchange; without a group, the queue | the queue, from its making on | when the connection ends |
//! | Kafka | the topic | the consumer group, from the topic's beginning on | when the partition has another owner: the group is left, or the session over |
//! | NATS JetStream | the subject that the consumer filters by | the durable consumer, from the stream's beginning on | after `ack_wait`; at once, when closed in good order |
//! | Redis Streams | the stream's key | the consumer group, from the stream's beginning on | to the same subscriber, with the next connection; to others, once it has been idle, or at once, when closed in good order |
//! | embedded | the topic | none: a position that the caller keeps | from there on |
//!
//! A webhook is no source: nothing can be received from one.
//!
//! **Order.** Messages come in the broker's order: a queue's, a partition's, a stream's. Where a connection is lost,
//! those of Kafka, RabbitMQ and Redis come again in their order; NATS goes on with others until `ack_wait` is over. With
//! several members only Kafka keeps the order of a key among them.

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::PublishError;

/// Receives one topic's messages as a member of a group, for one task that goes round: receive, make durable,
/// acknowledge.
///
/// Every message is delivered at least once: what is not acknowledged comes again, here (with the next
/// [`Self::receive`]) or at another member of the group, with the same [`Received::id`] if its producer gave it one.
/// Implementations pass the contract suite in `tests/it/broker/subscribers.rs`, on the real server.
pub trait Subscriber: Send + 'static {
    /// Waits for messages and returns what is there, in the broker's order: at least one, and at most as many as the
    /// adapter's options let it hold unacknowledged. What the last call returned and nobody has acknowledged is
    /// returned again, and nothing else before it. Connects if it has to. Dropping the future loses nothing: what was
    /// received is returned by the next call, or comes again.
    fn receive(&mut self) -> BoxFuture<'_, Result<Vec<Received>, SubscribeError>>;

    /// Tells the broker that these messages, of the last [`Self::receive`], may be forgotten. `Ok` says that it was
    /// told, and where it answers, that it has answered. After an error they come again.
    ///
    /// A receipt of a connection or assignment that is over is passed over: its message comes again.
    fn ack<'a>(&'a mut self, receipts: &'a [Receipt]) -> BoxFuture<'a, Result<(), SubscribeError>>;

    /// Leaves the group and ends the connection. What is not acknowledged comes again at once, to others.
    fn close(&mut self) -> BoxFuture<'_, ()>;
}

/// A message as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Acknowledges it.
    pub receipt: Receipt,
    /// Who it is: the CloudEvents `id` where it has one, else the id that its producer gave it in the broker's own
    /// way. What a broker numbers by itself is not one: a producer's retry gets another.
    pub id: Option<Box<str>>,
    /// Where it was in the broker, for people: a stream's sequence, a partition's offset.
    pub place: Box<str>,
    /// What its producer ordered it by: the broker's own key, else the CloudEvents `partitionkey`.
    pub key: Option<Box<str>>,
    /// What its data is.
    pub content_type: Option<Box<str>>,
    /// CloudEvents attributes but `id` and `datacontenttype`, by their names, and then what other headers are text.
    pub attributes: Vec<(Box<str>, Box<str>)>,
    /// What happened. Of a structured CloudEvent, its data alone.
    pub data: Bytes,
    /// Whether it was delivered before: here, or elsewhere by the broker's word.
    pub redelivered: bool,
}

/// Names a received message to its [`Subscriber`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Receipt(pub u64);

/// Why nothing is received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// The broker is not there, or the connection was lost. Again after a pause.
    #[error("the broker is not available: {0}")]
    Unavailable(String),
    /// What is asked for does not exist or is not allowed: a person must see to it. Again after a longer pause.
    #[error("the subscription can't be served: {0}")]
    Refused(String),
}

/// Of what publishing and subscribing have in common: connections, and what has to be there.
impl From<PublishError> for SubscribeError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Refused(reason) | PublishError::Never(reason) => Self::Refused(reason),
            // The others are of deliveries, and no connection's.
            error @ (PublishError::Judged { .. } | PublishError::Later(_) | PublishError::Early(_)) => {
                Self::Unavailable(error.to_string())
            }
            PublishError::Unavailable(reason) | PublishError::TopicUnavailable(reason) => Self::Unavailable(reason),
        }
    }
}
