//! Brokers: one small contract, one file for each kind.

#[cfg(any(feature = "rabbitmq", feature = "kafka"))]
mod apart;
pub mod cloud_events;
pub mod embedded;
mod held;
mod hidden;
mod incoming;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(any(feature = "rabbitmq", feature = "redis-streams"))]
mod line;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis-streams")]
pub mod redis_streams;
pub mod subscriber;
mod waiters;
#[cfg(feature = "webhook")]
pub mod webhook;

use futures_util::future::BoxFuture;

pub use self::hidden::Hidden;

use crate::outbox::event::Outgoing;

/// What came of publishing an event.
pub type Published = Result<Confirmed, PublishError>;

/// The broker has the event, and has said nothing else about it.
pub const CONFIRMED: Published = Ok(Confirmed { result: None, frees: None });

/// What a caller awaits.
type Answer = BoxFuture<'static, Published>;

/// Publishes events to one queue.
///
/// Implementations pass the contract suite in `tests/it/broker/contract.rs`, on the real server.
pub trait Publisher: Send + Sync + 'static {
    /// Publishes an event. `Ok` means that **the broker has confirmed it**: from then on it may be forgotten
    /// here. The future must end within a bounded time, whatever happens to the broker, and each event gets its
    /// own result.
    ///
    /// Where [`Self::ordering`] is [`Ordering::ByCall`], events reach the broker in the order of the *calls*,
    /// whether or not earlier futures have ended: the call itself takes the event's place in the line, before the
    /// future is polled. A dropped future cancels nothing.
    fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published>;

    /// How later events of a key may follow.
    fn ordering(&self) -> Ordering;

    /// Ends connections, after what has been published is confirmed or has failed.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// How a later event of a key may follow an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ordering {
    /// At once: the broker takes events in the order of the calls.
    ByCall,
    /// Once the earlier one is confirmed.
    OneByOne,
}

/// The broker's statement that it has an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Confirmed {
    /// What came of it, in a word, where whoever took the event has said so: put on record with it, for people. No
    /// broker does; deliveries have a [`DeliveryResult`](crate::inbox::result::DeliveryResult).
    pub result: Option<&'static str>,
    /// The version of its key for which the time has come, should an [early](PublishError::Early) one be it. Said of
    /// deliveries as well.
    pub frees: Option<i64>,
}

/// Why an event is not confirmed. It may have been published all the same: what is tried again keeps its id.
///
/// The last three are no broker's: they are said of deliveries, by whoever publishes into a handler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The broker is not there or takes nothing at all now (not reachable, connection lost, blocked by an alarm,
    /// time-out): nothing is wrong with the event, and its attempts do not count.
    #[error("the broker is not available: {0}")]
    Unavailable(String),
    /// Where this event goes takes nothing now, while the broker is there and may take what goes elsewhere (a queue
    /// without its majority, a partition without a leader, a path where nobody answers): nothing is wrong with the
    /// event, and its attempts do not count. Its key stops and its topic rests; events of other topics do not wait.
    #[error("its topic is not available: {0}")]
    TopicUnavailable(String),
    /// This event was not taken, and may be later (a nack, a full queue, 429, a topic that does not exist yet).
    #[error("the broker did not take the event: {0}")]
    Refused(String),
    /// This event is never taken as it is (too large, a topic that can't exist, 400): a person must decide.
    #[error("the broker never takes this event: {0}")]
    Never(String),
    /// As [`Self::Never`], and what came of it is known in a word, which is put on record.
    #[error("{reason}")]
    Judged {
        /// As [`Confirmed::result`].
        result: &'static str,
        /// Why.
        reason: String,
    },
    /// Nothing is wrong with the event, but it can't be now (it is in progress elsewhere, its outcome is unknown):
    /// again after a pause, which grows. Its key stops, and the attempt does not count. Others do not wait.
    #[error("not now: {0}")]
    Later(String),
    /// It came before its time: it waits for another one of its key, which may come behind it. As [`Self::Later`],
    /// but its key goes on.
    #[error("too early: {0}")]
    Early(String),
}

/// What is wrong with a publisher's options, for people. Says nothing of their secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionsError(pub String);
