//! Takes messages from a queue of RabbitMQ.
//!
//! **Which queue.** A group is a queue: its members share it, and each group has its own. Without a group the topic
//! names it, as it does for publishers to the default exchange. With [`Topology::Declare`] the queue is made, of the
//! configured kind, and bound to the exchange with the topic as routing key (wildcards work); with
//! [`Topology::Verify`] it must be there; with [`Topology::Given`] nothing is looked for.
//!
//! The broker sends as many messages as are not acknowledged at once ([`RabbitMqSubscriberOptions::prefetch`]), and
//! takes all of them back when the connection ends, however it does.
//!
//! | the broker | result | afterwards |
//! |---|---|---|
//! | closes, or is gone, or says nothing | `Unavailable` | the next call opens a connection; what is unacknowledged comes again over it, or elsewhere |
//! | has no such exchange, queue or virtual host, or does not let this user in | `Refused` | the same |
//! | cancels the consumer, because the queue was deleted, say | `Unavailable` | the next call makes or looks for the queue |
//!
//! Receipts are of one connection, as delivery tags are: the tags of a lost one name other messages on the next.

use std::fmt;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Consumer, Error, ErrorKind};
use tokio::time::timeout;

use super::dial::{Dialer, Dialled, SHORT_BYTES};
use super::{RabbitMqOptions, Topology, topology};
use crate::broker::OptionsError;
use crate::broker::held::{Held, Said};
use crate::broker::incoming::{self, Incoming};
use crate::broker::subscriber::{Receipt, Received, SubscribeError, Subscriber};

/// What is received from a RabbitMQ.
#[derive(Debug, Clone)]
pub struct RabbitMqSubscriberOptions {
    /// How it is reached, and what is there.
    pub connection: RabbitMqOptions,
    /// What the queue gets of the exchange, as its kind wants that spelled; and without a group, the queue's name.
    pub topic: String,
    /// The queue's name.
    pub group: Option<String>,
    /// How many messages may be unacknowledged: more keep the broker busy while a batch is made durable, fewer leave
    /// more to the other members. 256.
    pub prefetch: u16,
}

impl RabbitMqSubscriberOptions {
    /// With the defaults.
    #[must_use]
    pub fn new(connection: RabbitMqOptions, topic: impl Into<String>) -> Self {
        Self { connection, topic: topic.into(), group: None, prefetch: 256 }
    }

    fn queue(&self) -> &str {
        self.group.as_deref().unwrap_or(&self.topic)
    }

    fn check(&self) -> Result<(), OptionsError> {
        let wrong = |what: &str| Err(OptionsError(format!("RabbitMQ: {what}")));
        if self.queue().is_empty() {
            return wrong("a subscription needs a topic or a group: it names the queue");
        }
        if self.queue().len() > SHORT_BYTES || self.topic.len() > SHORT_BYTES {
            return wrong("a name is longer than 255 bytes");
        }
        if self.prefetch == 0 {
            return wrong("a subscription that may hold no message gets none");
        }
        let makes = matches!(self.connection.topology, Topology::Declare(_));
        if makes && self.connection.exchange.is_empty() && self.queue() != self.topic {
            return wrong(
                "a group needs an exchange: in the default one, events are in the queue that their topic names, \
                 and nowhere else",
            );
        }
        Ok(())
    }
}

/// Receives from one queue. See the [module](self).
pub struct RabbitMqSubscriber {
    dialer: Dialer,
    options: RabbitMqSubscriberOptions,
    /// `None`: the next call opens one.
    link: Option<Link>,
    /// By their delivery tags.
    held: Held<u64>,
}

struct Link {
    dialled: Dialled,
    consumer: Consumer,
}

impl RabbitMqSubscriber {
    /// Does not connect: the first call of `receive` does.
    ///
    /// # Errors
    /// If the options are wrong in themselves.
    pub fn new(options: RabbitMqSubscriberOptions) -> Result<Self, OptionsError> {
        options.check()?;
        let dialer = Dialer::new(options.connection.clone())?;
        Ok(Self { dialer, options, link: None, held: Held::default() })
    }

    async fn next(&mut self) -> Result<Vec<Received>, SubscribeError> {
        if let Some(again) = self.held.again() {
            return Ok(again);
        }
        let link = match &mut self.link {
            Some(link) => link,
            none => {
                let time_limit = self.options.connection.time_limit;
                let link = timeout(time_limit, open(&self.dialer, &self.options).boxed()).await;
                let link = link.map_err(|_elapsed| unavailable("not connected: no answer in time"))?;
                none.insert(link.map_err(|error| verdict(&error))?)
            }
        };
        // What is there when the first has come. From then on nothing is awaited, so nothing can be dropped.
        let mut deliveries = vec![link.consumer.next().await];
        while let Some(delivery) = link.consumer.next().now_or_never() {
            deliveries.push(delivery);
        }
        let deliveries = deliveries.into_iter().map(|delivery| match delivery {
            Some(Ok(delivery)) => Ok(delivery),
            Some(Err(error)) => Err(lost(&error)),
            None => Err(unavailable("it has cancelled the consumer")),
        });
        // With the connection gone the others come again.
        let deliveries: Vec<Delivery> = deliveries.collect::<Result<_, _>>().inspect_err(|_| self.lose())?;
        let place: Box<str> = self.options.queue().into();
        let received = deliveries.into_iter().map(|delivery| {
            let (tag, redelivered) = (delivery.delivery_tag, delivery.redelivered);
            self.held.hand_out(tag, place.clone(), redelivered, said(delivery))
        });
        Ok(received.collect())
    }

    async fn acknowledge(&mut self, receipts: &[Receipt]) -> Result<(), SubscribeError> {
        let Some(link) = &self.link else { return Ok(()) };
        let (first, others) = self.held.named(receipts);
        let all_up_to = first.last().map(|tag| (*tag, BasicAckOptions { multiple: true }));
        let alone = others.into_iter().map(|tag| (tag, BasicAckOptions { multiple: false }));
        let told = async {
            for (tag, options) in all_up_to.into_iter().chain(alone) {
                link.dialled.channel.basic_ack(tag, options).await?;
            }
            Ok::<_, Error>(())
        };
        let told = match timeout(self.options.connection.time_limit, told).await {
            Ok(told) => told.map_err(|error| lost(&error)),
            Err(_elapsed) => Err(unavailable("it takes no acknowledgement")),
        };
        match told {
            Ok(()) => self.held.forget(receipts),
            Err(_) => self.lose(),
        }
        told
    }

    fn lose(&mut self) {
        self.held.clear();
        if let Some(link) = self.link.take() {
            link.dialled.hang_up();
        }
    }
}

impl Subscriber for RabbitMqSubscriber {
    fn receive(&mut self) -> BoxFuture<'_, Result<Vec<Received>, SubscribeError>> {
        self.next().boxed()
    }

    fn ack<'a>(&'a mut self, receipts: &'a [Receipt]) -> BoxFuture<'a, Result<(), SubscribeError>> {
        self.acknowledge(receipts).boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.held.clear();
        let link = self.link.take();
        async move {
            if let Some(link) = link {
                link.dialled.end().await;
            }
        }
        .boxed()
    }
}

async fn open(dialer: &Dialer, options: &RabbitMqSubscriberOptions) -> Result<Link, Error> {
    let dialled = dialer.dial().await?;
    topology::source(&dialled.connection, &options.connection, options.queue(), &options.topic).await?;
    dialled.channel.basic_qos(options.prefetch, BasicQosOptions::default()).await?;
    let (queue, tag) = (ShortString::from(options.queue()), ShortString::default());
    let consume = dialled.channel.basic_consume(queue, tag, BasicConsumeOptions::default(), FieldTable::default());
    let consumer = consume.await?;
    Ok(Link { dialled, consumer })
}

fn said(delivery: Delivery) -> Said {
    let (properties, mut incoming) = (delivery.properties, Incoming::new(incoming::AMQP));
    if let Some(id) = properties.message_id() {
        incoming.id(id.as_str());
    }
    if let Some(content_type) = properties.content_type() {
        incoming.content_type(content_type.as_str());
    }
    for (name, value) in properties.headers().iter().flat_map(FieldTable::inner) {
        if let Some(text) = text(value) {
            incoming.header(name.as_str(), &text);
        }
    }
    incoming.read(delivery.data.into())
}

/// A header's value, where it is one that attributes may have.
fn text(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok()?.to_owned(),
        AMQPValue::ShortString(text) => text.as_str().to_owned(),
        AMQPValue::ByteArray(bytes) => std::str::from_utf8(bytes.as_slice()).ok()?.to_owned(),
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(number) => number.to_string(),
        AMQPValue::ShortShortUInt(number) => number.to_string(),
        AMQPValue::ShortInt(number) => number.to_string(),
        AMQPValue::ShortUInt(number) => number.to_string(),
        AMQPValue::LongInt(number) => number.to_string(),
        AMQPValue::LongUInt(number) => number.to_string(),
        AMQPValue::LongLongInt(number) => number.to_string(),
        AMQPValue::Timestamp(seconds) => incoming::time(*seconds),
        AMQPValue::Float(_)
        | AMQPValue::Double(_)
        | AMQPValue::DecimalValue(_)
        | AMQPValue::FieldArray(_)
        | AMQPValue::FieldTable(_)
        | AMQPValue::Void => return None,
    })
}

fn unavailable(what: &str) -> SubscribeError {
    SubscribeError::Unavailable(what.to_owned())
}

/// Whatever it is, another try tells whether it lasts.
fn lost(error: &Error) -> SubscribeError {
    SubscribeError::Unavailable(format!("the connection is lost: {error}"))
}

/// What it means that nothing can be consumed.
fn verdict(error: &Error) -> SubscribeError {
    let refused = match error.kind() {
        ErrorKind::ProtocolError(complaint) => match complaint.kind() {
            // No such exchange or queue, no right to it, a queue that somebody has for himself or made otherwise.
            AMQPErrorKind::Soft(soft) => match soft {
                AMQPSoftError::NOTFOUND
                | AMQPSoftError::ACCESSREFUSED
                | AMQPSoftError::PRECONDITIONFAILED
                | AMQPSoftError::RESOURCELOCKED => true,
                AMQPSoftError::CONTENTTOOLARGE | AMQPSoftError::NOROUTE | AMQPSoftError::NOCONSUMERS => false,
            },
            AMQPErrorKind::Hard(hard) => matches!(hard, AMQPHardError::NOTALLOWED | AMQPHardError::INVALIDPATH),
        },
        _ => false,
    };
    let text = format!("not connected: {error}");
    if refused { SubscribeError::Refused(text) } else { SubscribeError::Unavailable(text) }
}

impl fmt::Debug for RabbitMqSubscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqSubscriber").field("options", &self.options).finish_non_exhaustive()
    }
}
