//! Publishes to Kafka, through librdkafka.
//!
//! An event's topic is its topic, and its key the record's key, so that events of a key are on one partition. The
//! record is the data, with the attributes of CloudEvents as `ce_` headers.
//!
//! The client itself queues events in the order of the calls, sends them in batches, and tries again by itself
//! without duplicates or holes (`enable.idempotence`), for as long as `delivery_timeout` lasts. Each event's own
//! delivery report decides about it, and it comes when every replica in sync has the event (`acks=all`).
//!
//! | report | result | what follows |
//! |---|---|---|
//! | delivered | `Ok` | |
//! | larger than `max_message_bytes`, or than the topic takes; a name that no topic can have | `Never` | |
//! | an unknown topic, one that we may not write to, a record that its rules forbid | `Refused` | |
//! | none in time, while no broker answers; an identity that the brokers refuse, a fatal error of the client | `Unavailable` | the producer is given up, and with it all that has no report |
//! | none in time, while a broker answers (a partition without a leader, too few replicas) | `TopicUnavailable` | the same, and the topic is set apart (`apart.rs`) |
//!
//! What got no report in time may have been stored: it is published again, with the same id. **Order**: with one
//! event failed, those behind it would go on and be there first when it is published again. So a producer ends
//! with its first failure, and the next event starts another.

mod assignment;
mod lag;
mod options;
mod producer;
pub mod subscriber;
mod verdict;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, Producer as _};
use tokio_util::task::TaskTracker;

pub use self::options::{InvalidKafka, KafkaLogin, KafkaMechanism, KafkaOptions, KafkaTls};
pub use self::subscriber::{KafkaSubscriber, KafkaSubscriberOptions};

use self::producer::{Parcel, Producer};
use super::apart::Apart;
use super::waiters::{Waiter, Waiters};
use super::{Answer, Ordering, PublishError, Publisher};
use crate::outbox::event::Outgoing;

/// How long brokers that are well may take to be found and to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Publishes to Kafka. See the [module](self).
#[derive(Debug)]
pub struct KafkaPublisher {
    producers: Apart,
}

/// Publishes over one producer at a time.
#[derive(Debug)]
struct OneProducer {
    shared: Arc<Shared>,
}

/// What calls and reports share.
pub(super) struct Shared {
    /// So that a producer's reports find back.
    this: Weak<Self>,
    config: ClientConfig,
    waiters: Waiters,
    /// Held while an event is queued, and while a producer is given up: nobody sees the one half done.
    current: Mutex<Current>,
    /// Events without a result.
    open: TaskTracker,
}

#[derive(Default)]
struct Current {
    /// `None`: the next event starts one.
    producer: Option<Producer>,
    /// How many have been started: the number of this one.
    number: u64,
}

impl KafkaPublisher {
    /// Does not connect: the first event does.
    ///
    /// # Errors
    /// If the options are wrong in themselves, or the client library does not take them.
    pub fn new(options: &KafkaOptions) -> Result<Self, InvalidKafka> {
        let config = options::producer(options)?;
        // Whether the library takes them is only known from a client. It is dropped before it has connected.
        config.create::<BaseProducer>().map_err(|error| InvalidKafka::Client(error.to_string()))?;
        let (asks, opens) = (config.clone(), config.clone());
        let time_limit = options.delivery_timeout.min(ANSWER);
        let ask = move |topic: &str| is_answered(asks.clone(), topic.to_owned(), time_limit).boxed();
        let open = move || -> Option<Arc<dyn Publisher>> { Some(Arc::new(OneProducer::new(opens.clone()))) };
        Ok(Self { producers: Apart::new(Arc::new(OneProducer::new(config)), open, ask) })
    }
}

/// Whether a broker answers somebody who asks about `topic`.
async fn is_answered(config: ClientConfig, topic: String, time_limit: Duration) -> bool {
    let ask = move || {
        let client = config.create::<BaseProducer>().ok()?;
        client.client().fetch_metadata(Some(&topic), time_limit).ok().map(drop)
    };
    tokio::task::spawn_blocking(ask).await.is_ok_and(|answer| answer.is_some())
}

impl Publisher for KafkaPublisher {
    fn publish(&self, event: Outgoing) -> Answer {
        self.producers.publish(event)
    }

    fn ordering(&self) -> Ordering {
        Ordering::ByCall
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.producers.close()
    }
}

impl OneProducer {
    fn new(config: ClientConfig) -> Self {
        let shared = Arc::new_cyclic(|this| Shared {
            this: Weak::clone(this),
            config,
            waiters: Waiters::default(),
            current: Mutex::default(),
            open: TaskTracker::new(),
        });
        Self { shared }
    }
}

impl Publisher for OneProducer {
    fn publish(&self, event: Outgoing) -> Answer {
        let shared = &self.shared;
        let mut current = shared.lock();
        let (waiter, answer) = match shared.waiters.join() {
            Ok(joined) => joined,
            Err(turned_away) => return turned_away,
        };
        if shared.open.is_closed() {
            waiter.tell(Err(PublishError::Unavailable("the publisher has been closed".to_owned())));
            return answer;
        }
        let parcel = Parcel { waiter, _open: shared.open.token() };
        match shared.producer(&mut current) {
            // A full queue or an impossible event: what is queued already stays.
            Ok(producer) => {
                if let Err((failure, parcel)) = producer.send(&event, parcel) {
                    parcel.waiter.tell(Err(failure));
                }
            }
            Err(failure) => parcel.waiter.tell(Err(failure)),
        }
        answer
    }

    fn ordering(&self) -> Ordering {
        Ordering::ByCall
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        {
            let _current = self.shared.lock();
            self.shared.open.close();
        }
        Box::pin(async {
            self.shared.open.wait().await;
            self.shared.retire();
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn producer<'a>(&self, current: &'a mut Current) -> Result<&'a Producer, PublishError> {
        if current.producer.is_none() {
            current.number += 1;
            current.producer = Some(Producer::start(&self.config, Weak::clone(&self.this), current.number)?);
        }
        current.producer.as_ref().ok_or_else(|| PublishError::Unavailable("no producer".to_owned()))
    }

    /// An event of producer `number` has failed for no fault of its own. Tells its caller, and gives the producer
    /// up with all that is behind the event.
    pub(super) fn break_off(&self, number: u64, waiter: Waiter, failure: PublishError) {
        let mut current = self.lock();
        if current.number == number
            && let Some(producer) = current.producer.take()
        {
            producer.give_up();
        }
        self.waiters.break_off(waiter, failure);
    }

    fn retire(&self) {
        if let Some(producer) = self.lock().producer.take() {
            producer.retire();
        }
    }
}

/// Its events go on to their reports.
impl Drop for OneProducer {
    fn drop(&mut self) {
        self.shared.retire();
    }
}

/// Shows no settings: a password is among them.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("waiters", &self.waiters).field("open", &self.open).finish_non_exhaustive()
    }
}
