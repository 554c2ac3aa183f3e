//! Takes messages from a stream of NATS JetStream, as a durable pull consumer.
//!
//! The topic is the subject that the consumer filters by (wildcards work), the group its name. The stream is the
//! queue's ([`NatsOptions::stream`](super::NatsOptions::stream)), or else the one that takes the topic. A consumer
//! that is missing is made: from the stream's first message on, with explicit acknowledgements. One that exists is
//! taken as it is, if it has the same filter and wants acknowledgements.
//!
//! Each acknowledgement is awaited. What is not acknowledged comes again after `ack_wait`, or at once when the
//! subscriber is closed in good order. As many as [`NatsSubscriberOptions::prefetch`] are asked for at a time, and
//! no more before all of them are acknowledged.
//!
//! **Order** lasts as long as the connection and the process do. What was on its way or in hand when one of them ended
//! comes again once `ack_wait` is over, and not before; meanwhile the server hands out what lies behind it. So for that
//! time a message may be overtaken by later ones of its key. What was kept before its acknowledgement got lost is not
//! concerned: it is known when it comes again. Where that matters, give messages a version.
//!
//! | the server | result | afterwards |
//! |---|---|---|
//! | closes, or is gone, or gives no sign of life | `Unavailable` | the next call dials; what is unacknowledged comes again after `ack_wait` |
//! | has no such stream; has the consumer, but with another filter, or without acknowledgements; does not let us in | `Refused` | the same |
//! | says that the consumer is gone | `Unavailable` | the next call makes it again |

use std::fmt;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::consumer::pull::{BatchConfig, Config};
use async_nats::jetstream::consumer::{AckPolicy, Consumer};
use async_nats::jetstream::context::GetStreamByNameErrorKind;
use async_nats::jetstream::message::AckKind;
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{ConnectErrorKind, HeaderMap, ServerAddr, StatusCode, Subject};
use futures_util::future::{BoxFuture, try_join_all};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::timeout;

use super::link::Link;
use super::options::{InvalidNats, MissingStream};
use super::subscription::{EXPIRES, NatsSubscriberOptions};
use super::verdict;
use crate::broker::held::{Held, Said};
use crate::broker::incoming::{self, Incoming};
use crate::broker::subscriber::{Receipt, Received, SubscribeError, Subscriber};

/// The header that producers set to the id of a message.
const MESSAGE_ID: &str = "Nats-Msg-Id";

/// What the subjects begin with that acknowledgements go to.
const ACKS: &str = "$JS.ACK.";

/// Receives as a durable consumer. See the [module](self).
pub struct NatsSubscriber {
    addresses: Vec<ServerAddr>,
    options: NatsSubscriberOptions,
    /// `None`: the next call dials.
    source: Option<Source>,
    /// By the subjects that their acknowledgements go to.
    held: Held<Subject>,
}

/// A connection, and the consumer on it.
struct Source {
    link: Link,
    consumer: Consumer<Config>,
    /// Where messages come.
    inbox: async_nats::Subscriber,
    address: Subject,
    /// How many the server is asked for at a time.
    batch: usize,
    /// How many it has been asked for and has not sent.
    asked: usize,
}

/// What comes to the inbox.
enum Sign {
    Message(async_nats::Message),
    /// The server lives.
    Alive,
    /// It sends no more for the last request.
    Over,
    /// It can't be asked like that, or not any more.
    Gone(String),
}

impl NatsSubscriber {
    /// Does not connect: the first call of `receive` does.
    ///
    /// # Errors
    /// If the options are wrong in themselves.
    pub fn new(options: NatsSubscriberOptions) -> Result<Self, InvalidNats> {
        options.check()?;
        Ok(Self { addresses: options.connection.addresses()?, options, source: None, held: Held::default() })
    }

    async fn next(&mut self) -> Result<Vec<Received>, SubscribeError> {
        if let Some(again) = self.held.again() {
            return Ok(again);
        }
        let source = match &mut self.source {
            Some(source) => source,
            none => none.insert(open(&self.addresses, &self.options).await?),
        };
        match source.messages(&self.options).await {
            Ok(messages) => {
                let context = source.link.context().clone();
                let received = messages.into_iter().map(|message| hand_out(&mut self.held, context.clone(), message));
                Ok(received.collect())
            }
            Err(error) => {
                self.source = None;
                Err(error)
            }
        }
    }

    async fn acknowledge(&mut self, receipts: &[Receipt]) -> Result<(), SubscribeError> {
        let Some(source) = &self.source else { return Ok(()) };
        let (first, others) = self.held.named(receipts);
        let client = source.link.context().client();
        let acks = first.into_iter().chain(others).map(|subject| client.request(subject, AckKind::Ack.into()));
        match try_join_all(acks).await {
            Ok(_answers) => {
                self.held.forget(receipts);
                Ok(())
            }
            Err(error) => {
                self.held.clear();
                self.source = None;
                Err(SubscribeError::Unavailable(format!("an acknowledgement was not taken: {error}")))
            }
        }
    }

    /// Gives back what is not acknowledged, so that others need not wait for it.
    async fn leave(&mut self) {
        let held: Vec<Subject> = self.held.names().cloned().collect();
        self.held.clear();
        let Some(mut source) = self.source.take() else { return };
        let client = source.link.context().client();
        let given_back = async {
            let mut back = held;
            while let Some(Some(message)) = source.inbox.next().now_or_never() {
                back.extend(message.reply);
            }
            // Or it would get them itself.
            drop(source.inbox.unsubscribe().await);
            client.flush().await?;
            for subject in back {
                drop(client.publish(subject, AckKind::Nak(None).into()).await);
            }
            client.flush().await
        };
        // What it does not take comes again after `ack_wait`.
        drop(timeout(self.options.connection.publish_timeout, given_back).await);
    }
}

impl Source {
    /// What is there, once there is something. Nothing is awaited while messages are in hand, so nothing can be
    /// dropped.
    async fn messages(&mut self, options: &NatsSubscriberOptions) -> Result<Vec<async_nats::Message>, SubscribeError> {
        let (heartbeat, mut messages) = (options.heartbeat(), Vec::new());
        while messages.is_empty() {
            if self.asked == 0 {
                self.ask(heartbeat).await?;
            }
            let Ok(first) = timeout(heartbeat * 3, self.inbox.next()).await else {
                return Err(SubscribeError::Unavailable("it gives no sign of life".to_owned()));
            };
            let mut next = Some(first);
            while let Some(message) = next {
                let message =
                    message.ok_or_else(|| SubscribeError::Unavailable("the connection is lost".to_owned()))?;
                match sign(message) {
                    Sign::Message(message) => {
                        self.asked = self.asked.saturating_sub(1);
                        messages.push(message);
                    }
                    Sign::Alive => {}
                    Sign::Over => self.asked = 0,
                    Sign::Gone(reason) => return Err(SubscribeError::Unavailable(reason)),
                }
                next = self.inbox.next().now_or_never();
            }
        }
        Ok(messages)
    }

    async fn ask(&mut self, heartbeat: Duration) -> Result<(), SubscribeError> {
        if self.link.context().client().connection_state() != State::Connected {
            return Err(SubscribeError::Unavailable("the connection is lost".to_owned()));
        }
        let request = BatchConfig {
            batch: self.batch,
            expires: Some(EXPIRES),
            idle_heartbeat: heartbeat,
            ..BatchConfig::default()
        };
        let asked = self.consumer.request_batch(request, self.address.clone()).await;
        asked.map_err(|error| SubscribeError::Unavailable(format!("it can't be asked: {error}")))?;
        self.asked = self.batch;
        Ok(())
    }
}

impl Subscriber for NatsSubscriber {
    fn receive(&mut self) -> BoxFuture<'_, Result<Vec<Received>, SubscribeError>> {
        self.next().boxed()
    }

    fn ack<'a>(&'a mut self, receipts: &'a [Receipt]) -> BoxFuture<'a, Result<(), SubscribeError>> {
        self.acknowledge(receipts).boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.leave().boxed()
    }
}

async fn open(addresses: &[ServerAddr], options: &NatsSubscriberOptions) -> Result<Source, SubscribeError> {
    let mut link = Link::dial(addresses, &options.connection).await.map_err(|error| match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            SubscribeError::Refused(format!("can't connect: {error}"))
        }
        ConnectErrorKind::ServerParse
        | ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Tls
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => SubscribeError::Unavailable(format!("can't connect: {error}")),
    })?;
    let stream = stream(&mut link, options).await?;
    let consumer = consumer(&link, &stream, options).await?;
    let client = link.context().client();
    let address = Subject::from(client.new_inbox());
    let inbox = client.subscribe(address.clone()).await;
    let inbox = inbox.map_err(|error| SubscribeError::Unavailable(format!("can't listen: {error}")))?;
    // One that exists may allow fewer.
    let limit = usize::try_from(consumer.cached_info().config.max_batch).ok().filter(|limit| *limit > 0);
    let batch = limit.unwrap_or(options.prefetch).min(options.prefetch);
    Ok(Source { link, consumer, inbox, address, batch, asked: 0 })
}

/// The name of the stream.
async fn stream(link: &mut Link, options: &NatsSubscriberOptions) -> Result<String, SubscribeError> {
    if let Some(wanted) = &options.connection.stream {
        // One that is not to be made is missed by the consumer.
        if matches!(wanted.missing, MissingStream::Create { .. }) {
            link.ensure(Some(wanted)).await?;
        }
        return Ok(wanted.name.clone());
    }
    link.context().stream_by_subject(&options.topic).await.map_err(|error| {
        let text = format!("the stream that takes {}: {error}", options.topic);
        match error.kind() {
            GetStreamByNameErrorKind::NotFound | GetStreamByNameErrorKind::InvalidSubject => {
                SubscribeError::Refused(text)
            }
            GetStreamByNameErrorKind::Request => SubscribeError::Unavailable(text),
            GetStreamByNameErrorKind::JetStream(error) => verdict::of_server(&error).into(),
        }
    })
}

async fn consumer(
    link: &Link,
    stream: &str,
    options: &NatsSubscriberOptions,
) -> Result<Consumer<Config>, SubscribeError> {
    let (context, wanted) = (link.context(), options.consumer());
    let what = format!("consumer {} of stream {stream}", options.group);
    let told = |error: async_nats::jetstream::stream::ConsumerError| match error.kind() {
        ConsumerErrorKind::JetStream(server) => match verdict::of_server(&server).into() {
            SubscribeError::Unavailable(reason) => SubscribeError::Unavailable(format!("{what}: {reason}")),
            SubscribeError::Refused(reason) => SubscribeError::Refused(format!("{what}: {reason}")),
        },
        ConsumerErrorKind::InvalidConsumerType | ConsumerErrorKind::InvalidName => {
            SubscribeError::Refused(format!("{what}: {error}"))
        }
        ConsumerErrorKind::TimedOut | ConsumerErrorKind::Request | ConsumerErrorKind::Other => {
            SubscribeError::Unavailable(format!("{what}: {error}"))
        }
    };
    let there: Consumer<Config> = match context.get_consumer_from_stream(&options.group, stream).await {
        Ok(there) => there,
        Err(error) if is_missing(&error.kind()) => {
            context.create_consumer_on_stream(wanted.clone(), stream).await.map_err(told)?
        }
        Err(error) => return Err(told(error)),
    };
    let config = &there.cached_info().config;
    if config.filter_subject != wanted.filter_subject || !config.filter_subjects.is_empty() {
        return Err(SubscribeError::Refused(format!("{what} does not filter by {}", wanted.filter_subject)));
    }
    if config.ack_policy != AckPolicy::Explicit {
        return Err(SubscribeError::Refused(format!("{what} does not want each message acknowledged")));
    }
    Ok(there)
}

fn is_missing(kind: &ConsumerErrorKind) -> bool {
    matches!(kind, ConsumerErrorKind::JetStream(error) if error.error_code() == ErrorCode::CONSUMER_NOT_FOUND)
}

fn sign(message: async_nats::Message) -> Sign {
    match message.status {
        None | Some(StatusCode::OK) => match &message.reply {
            Some(reply) if reply.starts_with(ACKS) => Sign::Message(message),
            // Somebody has written to the inbox.
            Some(_) | None => Sign::Alive,
        },
        Some(StatusCode::IDLE_HEARTBEAT) => Sign::Alive,
        Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => Sign::Over,
        Some(status) => {
            let reason = message.description.unwrap_or_default();
            Sign::Gone(format!("it sends no messages: {status} {reason}"))
        }
    }
}

fn hand_out(held: &mut Held<Subject>, context: Context, message: async_nats::Message) -> Received {
    let message = jetstream::Message { message, context };
    let (place, redelivered) = match message.info() {
        Ok(info) => (format!("{}:{}", info.stream, info.stream_sequence), info.delivered > 1),
        Err(_) => (String::new(), false),
    };
    let reply = message.reply.clone().unwrap_or_else(|| Subject::from_static(""));
    held.hand_out(reply, place.into(), redelivered, said(message.message))
}

fn said(message: async_nats::Message) -> Said {
    let mut incoming = Incoming::new(incoming::NATS);
    // The client has them in no order.
    let mut headers: Vec<(&str, _)> =
        message.headers.iter().flat_map(HeaderMap::iter).map(|(name, values)| (name.as_ref(), values)).collect();
    headers.sort_unstable_by_key(|(name, _)| *name);
    for (name, values) in headers {
        for value in values {
            if name.eq_ignore_ascii_case(MESSAGE_ID) {
                incoming.id(value.as_str());
            } else {
                incoming.header(name, value.as_str());
            }
        }
    }
    incoming.read(message.payload)
}

impl fmt::Debug for NatsSubscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSubscriber").field("options", &self.options).finish_non_exhaustive()
    }
}
