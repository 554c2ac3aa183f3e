//! The configured queues' publishers, and the subscriptions' subscribers. None connects before it is used: a broker
//! that is down stops no gateway.

mod access;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis-streams")]
mod redis_streams;
#[cfg(feature = "webhook")]
mod webhook;

use std::sync::Arc;

use self::access::Access;
use super::ServeError;
use crate::broker::Publisher;
use crate::broker::embedded::{Embedded, Messages};
use crate::broker::subscriber::Subscriber;
use crate::config::{Queue, QueueUrl, Subscription};

/// The publisher of `queue`; `messages` is where an embedded one lies.
pub(super) fn publisher(queue: &Queue, messages: Arc<dyn Messages>) -> Result<Arc<dyn Publisher>, ServeError> {
    match &queue.url {
        QueueUrl::Embedded => Ok(Arc::new(Embedded::new(queue.name.as_str(), messages))),
        #[cfg(feature = "rabbitmq")]
        QueueUrl::Rabbitmq(url) => rabbitmq::publisher(&Access::new(queue, url)),
        #[cfg(feature = "redis-streams")]
        QueueUrl::Redis(url) => redis_streams::publisher(&Access::new(queue, url)),
        #[cfg(feature = "nats")]
        QueueUrl::Nats(url) => nats::publisher(&Access::new(queue, url)),
        #[cfg(feature = "kafka")]
        QueueUrl::Kafka(url) => kafka::publisher(&Access::new(queue, url)),
        #[cfg(feature = "webhook")]
        QueueUrl::Webhook(url) => webhook::publisher(&Access::new(queue, url)),
        #[cfg(not(all(
            feature = "rabbitmq",
            feature = "redis-streams",
            feature = "nats",
            feature = "kafka",
            feature = "webhook"
        )))]
        other => Err(not_built(queue, other)),
    }
}

/// The subscriber of `subscription`, whose messages are in `queue`.
pub(super) fn subscriber(queue: &Queue, subscription: &Subscription) -> Result<Box<dyn Subscriber>, ServeError> {
    match &queue.url {
        #[cfg(feature = "rabbitmq")]
        QueueUrl::Rabbitmq(url) => rabbitmq::subscriber(&Access::new(queue, url), subscription),
        #[cfg(feature = "redis-streams")]
        QueueUrl::Redis(url) => redis_streams::subscriber(&Access::new(queue, url), subscription),
        #[cfg(feature = "nats")]
        QueueUrl::Nats(url) => nats::subscriber(&Access::new(queue, url), subscription),
        #[cfg(feature = "kafka")]
        QueueUrl::Kafka(url) => kafka::subscriber(&Access::new(queue, url), subscription),
        QueueUrl::Embedded | QueueUrl::Webhook(_) => Err(wrong(queue)("nothing can be received from it")),
        #[cfg(not(all(feature = "rabbitmq", feature = "redis-streams", feature = "nats", feature = "kafka")))]
        other => Err(not_built(queue, other)),
    }
}

/// The configuration's check has said so before.
#[cfg(not(all(
    feature = "rabbitmq",
    feature = "redis-streams",
    feature = "nats",
    feature = "kafka",
    feature = "webhook"
)))]
fn not_built(queue: &Queue, url: &QueueUrl) -> ServeError {
    wrong(queue)(format!("the feature {} is not built into this binary", url.feature().0))
}

/// What is wrong with `queue`.
fn wrong<T: ToString>(queue: &Queue) -> impl Fn(T) -> ServeError {
    move |text| ServeError::Queue { queue: queue.name.as_str().to_owned(), text: text.to_string() }
}

/// How many messages a subscriber may hold.
#[cfg(any(feature = "rabbitmq", feature = "redis-streams", feature = "nats", feature = "kafka"))]
fn prefetch(subscription: &Subscription) -> usize {
    usize::try_from(subscription.prefetch.get()).unwrap_or(usize::MAX)
}
