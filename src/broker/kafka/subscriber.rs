//! Takes messages from a topic of Kafka, as a member of a consumer group, through librdkafka.
//!
//! A new group begins at the topic's beginning. Nothing is committed by the client itself: an acknowledgement
//! commits, of each partition, the place up to which everything is acknowledged, and waits for the answer. What is
//! behind a gap is committed with what fills it.
//!
//! **Rebalances.** The client hands partitions out and takes them away while `receive` waits, and never between a
//! `receive` and its `ack`. What is unacknowledged of a partition that was taken away is forgotten: its new owner gets
//! it, and nothing is committed for it here. Who does not come back to `receive` within
//! `max.poll.interval.ms` (5 min) has left the group; the group does not wait for it.
//!
//! **Again.** Where the last messages are not all acknowledged, or a commit has failed, the next `receive` goes back
//! to the first unacknowledged one of each partition, without leaving the group.
//!
//! | the brokers | result | afterwards |
//! |---|---|---|
//! | are all gone, or do not answer | `Unavailable` | the client finds them again by itself |
//! | have no such topic; do not let us in, or to the topic or group | `Refused` | the next call asks again |
//! | do not take a commit, since the group is being rebalanced, say | `Unavailable` | as above |

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rdkafka::consumer::{CommitMode, Consumer as _, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::time::timeout;

use super::assignment::Assignment;
use super::options::{self, InvalidKafka, KafkaOptions};
use crate::broker::held::Said;
use crate::broker::incoming::{self, Incoming};
use crate::broker::subscriber::{Receipt, Received, SubscribeError, Subscriber};

/// The longest name of a topic.
const TOPIC_BYTES: usize = 249;

/// Kibibytes that the client may have fetched ahead.
const AHEAD_KBYTES: u32 = 16 << 10;

/// What is received from a Kafka.
#[derive(Debug, Clone)]
pub struct KafkaSubscriberOptions {
    /// How it is reached. `delivery_timeout` bounds a commit.
    pub connection: KafkaOptions,
    /// The topic.
    pub topic: String,
    /// The consumer group.
    pub group: String,
    /// How many messages may be unacknowledged. 256.
    pub prefetch: usize,
    /// After what silence a member is dead to the group, which then divides its partitions. 15 s, since what beats
    /// is a thread of the client's own; brokers take 6 s or more.
    pub session_timeout: Duration,
    /// How often it is measured how far behind the member is. 10 s: as often as metrics are usually scraped.
    pub measure: Duration,
}

impl KafkaSubscriberOptions {
    /// With the defaults.
    #[must_use]
    pub fn new(connection: KafkaOptions, topic: impl Into<String>, group: impl Into<String>) -> Self {
        let (topic, group) = (topic.into(), group.into());
        let (session_timeout, measure) = (Duration::from_secs(15), Duration::from_secs(10));
        Self { connection, topic, group, prefetch: 256, session_timeout, measure }
    }

    fn check(&self) -> Result<(), InvalidKafka> {
        // One that begins with `^` would be an expression.
        let fit = |char: char| char.is_ascii_alphanumeric() || "._-".contains(char);
        if self.topic.is_empty() || self.topic.len() > TOPIC_BYTES || !self.topic.chars().all(fit) {
            return Err(InvalidKafka::Subscription("has a topic of at most 249 letters, digits, `.`, `_` and `-`"));
        }
        if self.group.is_empty() || self.group.contains('\0') {
            return Err(InvalidKafka::Subscription("has a group"));
        }
        if self.prefetch == 0 {
            return Err(InvalidKafka::Subscription("that may hold no message gets none"));
        }
        Ok(())
    }

    fn config(&self) -> Result<ClientConfig, InvalidKafka> {
        let millis = |duration: Duration| duration.as_millis().to_string();
        let mut config = options::client(&self.connection)?;
        config
            .set("group.id", &self.group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            // A partition that stays is not taken away in between.
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", millis(self.session_timeout))
            .set("heartbeat.interval.ms", millis(self.session_timeout / 5))
            .set("statistics.interval.ms", millis(self.measure))
            .set("queued.min.messages", self.prefetch.saturating_mul(4).clamp(1000, 1_000_000).to_string())
            .set("queued.max.messages.kbytes", AHEAD_KBYTES.to_string())
            // What was fetched ahead is used up in no time.
            .set("fetch.queue.backoff.ms", "20")
            // A topic that is made later is found soon.
            .set("topic.metadata.refresh.interval.ms", "30000");
        Ok(config)
    }
}

type Client = Arc<StreamConsumer<Assignment>>;

/// Receives as a member of a group. See the [module](self).
pub struct KafkaSubscriber {
    options: KafkaSubscriberOptions,
    config: ClientConfig,
    assignment: Assignment,
    /// `None`: the next call starts one.
    client: Option<Client>,
    /// Whether the brokers have to be asked for the topic before anything is awaited of them.
    in_doubt: bool,
}

impl KafkaSubscriber {
    /// Does not connect: the first call of `receive` does.
    ///
    /// # Errors
    /// If the options are wrong in themselves, or the client library does not take them.
    pub fn new(options: KafkaSubscriberOptions) -> Result<Self, InvalidKafka> {
        options.check()?;
        let config = options.config()?;
        // Whether the library takes them is only known from a client. Without a group it does not join one.
        let mut alone = config.clone();
        alone.remove("group.id");
        let client: KafkaResult<rdkafka::consumer::BaseConsumer> = alone.create();
        client.map_err(|error| InvalidKafka::Client(error.to_string()))?;
        let assignment = Assignment::of(&options.topic, &options.group);
        Ok(Self { options, config, assignment, client: None, in_doubt: true })
    }

    async fn next(&mut self) -> Result<Vec<Received>, SubscribeError> {
        let client = self.started()?;
        self.ask(&client).await?;
        self.rewind(&client).await?;
        let mut received = Vec::new();
        while received.is_empty() {
            // From the first message on nothing is awaited, so nothing can be dropped.
            let mut next = Some(client.recv().await);
            while let Some(message) = next {
                match message {
                    Ok(message) => received.push(self.hand_out(&message)),
                    Err(error) => self.heed(&error)?,
                }
                next = if received.len() < self.options.prefetch { client.recv().now_or_never() } else { None };
            }
        }
        Ok(received)
    }

    fn started(&mut self) -> Result<Client, SubscribeError> {
        if let Some(client) = &self.client {
            return Ok(Arc::clone(client));
        }
        let unavailable =
            |error: KafkaError| SubscribeError::Unavailable(format!("the client can't be started: {error}"));
        let client: StreamConsumer<Assignment> =
            self.config.create_with_context(self.assignment.clone()).map_err(unavailable)?;
        client.subscribe(&[&self.options.topic]).map_err(unavailable)?;
        let client = Arc::new(client);
        self.client = Some(Arc::clone(&client));
        self.in_doubt = true;
        Ok(client)
    }

    /// The client looks for brokers for ever and says little. So they are asked, if there is a doubt that they are
    /// there and have the topic.
    async fn ask(&mut self, client: &Client) -> Result<(), SubscribeError> {
        if !self.in_doubt {
            return Ok(());
        }
        let (client, topic, limit) = (Arc::clone(client), self.options.topic.clone(), self.time_limit());
        let asked = blocking(limit, move || {
            let metadata = client.fetch_metadata(Some(&topic), limit)?;
            let error = metadata.topics().iter().find_map(|topic| topic.error());
            error.map_or(Ok(()), |error| Err(KafkaError::MetadataFetch(error.into())))
        });
        asked.await.map_err(|error| verdict(&error))?;
        self.in_doubt = false;
        Ok(())
    }

    /// Goes back to what is not acknowledged.
    async fn rewind(&mut self, client: &Client) -> Result<(), SubscribeError> {
        let places = self.assignment.unacknowledged();
        if places.is_empty() {
            return Ok(());
        }
        let (list, client, limit) = (self.list(&places), Arc::clone(client), self.time_limit());
        let sought = blocking(limit, move || {
            let sought = client.seek_partitions(list?, limit)?;
            sought.elements().iter().try_for_each(|element| element.error())
        });
        match sought.await {
            Ok(()) => {
                self.assignment.rewound();
                Ok(())
            }
            Err(error) => {
                self.give_up();
                Err(SubscribeError::Unavailable(format!("can't go back to what is not acknowledged: {error}")))
            }
        }
    }

    async fn acknowledge(&mut self, receipts: &[Receipt]) -> Result<(), SubscribeError> {
        let Some(client) = self.client.clone() else { return Ok(()) };
        let commits = self.assignment.commits(receipts);
        if !commits.is_empty() {
            let list = self.list(&commits);
            let committed = blocking(self.time_limit(), move || client.commit(&list?, CommitMode::Sync));
            committed.await.map_err(|error| SubscribeError::Unavailable(format!("not committed: {error}")))?;
        }
        self.assignment.forget(receipts);
        Ok(())
    }

    fn list(&self, places: &BTreeMap<i32, i64>) -> KafkaResult<TopicPartitionList> {
        let mut list = TopicPartitionList::with_capacity(places.len());
        for (partition, offset) in places {
            list.add_partition_offset(&self.options.topic, *partition, Offset::Offset(*offset))?;
        }
        Ok(list)
    }

    fn hand_out(&self, message: &BorrowedMessage<'_>) -> Received {
        let (partition, offset) = (message.partition(), message.offset());
        let place = format!("{}[{partition}]@{offset}", self.options.topic);
        self.assignment.hand_out((partition, offset), place.into(), said(message))
    }

    /// `Ok`: the client goes on by itself.
    fn heed(&mut self, error: &KafkaError) -> Result<(), SubscribeError> {
        use RDKafkaErrorCode as Code;
        if matches!(error, KafkaError::MessageConsumptionFatal(_)) {
            self.give_up();
            return Err(SubscribeError::Unavailable(error.to_string()));
        }
        let verdict = verdict(error);
        let stops = match &verdict {
            SubscribeError::Refused(_) => true,
            // One broker of several, a rebalance, a pause that was too long: the client goes on, and has logged it.
            SubscribeError::Unavailable(_) => error.rdkafka_error_code() == Some(Code::AllBrokersDown),
        };
        if !stops {
            return Ok(());
        }
        self.in_doubt = true;
        Err(verdict)
    }

    fn time_limit(&self) -> Duration {
        self.options.connection.delivery_timeout
    }

    /// Ends the client, in the background since it says goodbye to the group.
    fn give_up(&mut self) {
        self.assignment.clear();
        if let Some(client) = self.client.take() {
            let leaving = std::thread::Builder::new().name("kafka-goodbye".to_owned());
            // Without a thread it is dropped here.
            drop(leaving.spawn(move || drop(client)));
        }
    }
}

impl Subscriber for KafkaSubscriber {
    fn receive(&mut self) -> BoxFuture<'_, Result<Vec<Received>, SubscribeError>> {
        self.next().boxed()
    }

    fn ack<'a>(&'a mut self, receipts: &'a [Receipt]) -> BoxFuture<'a, Result<(), SubscribeError>> {
        self.acknowledge(receipts).boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.assignment.clear();
        let (client, limit) = (self.client.take(), self.time_limit());
        let closed = async move {
            // Whoever does not answer has the session run out.
            drop(timeout(limit, tokio::task::spawn_blocking(move || drop(client))).await);
        };
        closed.boxed()
    }
}

impl Drop for KafkaSubscriber {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Does what blocks, elsewhere, and waits for it so long.
async fn blocking(limit: Duration, work: impl FnOnce() -> KafkaResult<()> + Send + 'static) -> KafkaResult<()> {
    match timeout(limit, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => Err(KafkaError::Canceled),
        Err(_elapsed) => Err(KafkaError::Global(RDKafkaErrorCode::OperationTimedOut)),
    }
}

fn verdict(error: &KafkaError) -> SubscribeError {
    use RDKafkaErrorCode as Code;
    let refused = matches!(
        error.rdkafka_error_code(),
        Some(
            Code::UnknownTopic
                | Code::UnknownTopicOrPartition
                | Code::InvalidTopic
                | Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::Authentication
                | Code::SaslAuthenticationFailed
                | Code::InvalidGroupId
                | Code::InconsistentGroupProtocol
        )
    );
    let text = error.to_string();
    if refused { SubscribeError::Refused(text) } else { SubscribeError::Unavailable(text) }
}

fn said(message: &BorrowedMessage<'_>) -> Said {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let mut incoming = Incoming::new(incoming::KAFKA);
    if let Some(key) = message.key().and_then(text) {
        incoming.key(key);
    }
    for header in message.headers().iter().flat_map(|headers| headers.iter()) {
        if let Some(value) = header.value.and_then(text) {
            incoming.header(header.key, value);
        }
    }
    incoming.read(message.payload().unwrap_or_default().to_vec().into())
}

/// Shows no settings: a password is among them.
impl fmt::Debug for KafkaSubscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSubscriber").field("options", &self.options).finish_non_exhaustive()
    }
}
