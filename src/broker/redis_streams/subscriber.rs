//! Takes messages from a Redis Stream, as a consumer of a group.
//!
//! The topic is the stream's key. A stream or group that is missing is made; a new group begins at the stream's
//! beginning. Each subscriber is a consumer with a name of its own.
//!
//! What a consumer was given and has not acknowledged is pending in its name, for ever. So:
//! - after each new connection, and whenever an answer may have been lost, what is pending in our name comes first;
//! - every second, what others have left pending for `idle` is claimed;
//! - a subscriber that is closed in good order marks what it has left as idle, so that others claim it at once, and
//!   removes the names of consumers that are gone and have nothing pending.
//!
//! | the server | result | afterwards |
//! |---|---|---|
//! | closes, or is gone, or does not answer | `Unavailable` | the next call opens a connection |
//! | has something else under the key, or does not let us in | `Refused` | the same |
//! | has lost the stream or the group | `Unavailable` | the next call makes it |

use std::fmt;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, ErrorKind, RedisError, Value, cmd};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::{RedisStreamsOptions, reading};
use crate::broker::OptionsError;
use crate::broker::held::{Held, Said};
use crate::broker::subscriber::{Receipt, Received, SubscribeError, Subscriber};
use crate::clock::{self, Instant};
use crate::redis::dial::{Connection, Dialer};

/// How long the server waits for a message before it says that there is none: how late an idle subscriber looks
/// for what others have left, and how long a call after one that was dropped may have to wait.
const WAIT: Duration = Duration::from_secs(1);

/// How idle a message is marked that is left behind in good order: longer than anybody waits for.
const LEFT: Duration = Duration::from_secs(7 * 24 * 3600);

/// After what time a consumer that has nothing pending, and asks for nothing, is gone for good. Whoever lives asks
/// each [`WAIT`].
const GONE: Duration = Duration::from_secs(3600);

/// Removes consumers that have nothing pending, in one step with the look at it: ours, and those that are gone.
const TIDY: &str = "
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local is = {}
  for i = 1, #consumer, 2 do is[consumer[i]] = consumer[i + 1] end
  if is.pending == 0 and (is.name == ARGV[2] or is.idle > tonumber(ARGV[3])) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], is.name)
  end
end";

/// What is received from a Redis.
#[derive(Debug, Clone)]
pub struct RedisStreamsSubscriberOptions {
    /// How it is reached.
    pub connection: RedisStreamsOptions,
    /// The stream's key.
    pub topic: String,
    /// The consumer group.
    pub group: String,
    /// How many messages may be unacknowledged. 256.
    pub prefetch: usize,
    /// After what time others may have what a consumer has not acknowledged. 30 s: far above the time that a batch
    /// needs to be made durable.
    pub idle: Duration,
}

impl RedisStreamsSubscriberOptions {
    /// With the defaults.
    #[must_use]
    pub fn new(connection: RedisStreamsOptions, topic: impl Into<String>, group: impl Into<String>) -> Self {
        let (topic, group) = (topic.into(), group.into());
        Self { connection, topic, group, prefetch: 256, idle: Duration::from_secs(30) }
    }

    fn check(&self) -> Result<(), OptionsError> {
        let wrong = |what: &str| Err(OptionsError(format!("Redis: {what}")));
        if self.topic.is_empty() || self.group.is_empty() {
            return wrong("a subscription has a topic, the stream's key, and a group");
        }
        if self.prefetch == 0 {
            return wrong("a subscription that may hold no message gets none");
        }
        Ok(())
    }
}

/// Receives as a consumer of a group. See the [module](self).
pub struct RedisStreamsSubscriber {
    dialer: Dialer,
    options: RedisStreamsSubscriberOptions,
    /// Our name in the group.
    consumer: String,
    /// `None`: the next call opens one.
    connection: Option<Connection>,
    /// By their ids in the stream.
    held: Held<Box<str>>,
    /// Something may be pending in our name that is not held.
    in_doubt: bool,
    /// When to look for what others have left.
    claim_at: Instant,
    /// Where that look goes on.
    claim_from: String,
}

impl RedisStreamsSubscriber {
    /// Does not connect: the first call of `receive` does.
    ///
    /// # Errors
    /// If the options are wrong in themselves.
    pub fn new(options: RedisStreamsSubscriberOptions) -> Result<Self, OptionsError> {
        options.check()?;
        let dialer = Dialer::new(&options.connection.servers, options.connection.time_limit.max(WAIT * 2))
            .map_err(|error| OptionsError(format!("Redis: {error}")))?;
        let consumer = format!("oncegate-{:032x}", rand::random::<u128>());
        let (held, claim_from) = (Held::default(), "0-0".to_owned());
        Ok(Self {
            dialer,
            options,
            consumer,
            connection: None,
            held,
            in_doubt: true,
            claim_at: clock::now(),
            claim_from,
        })
    }

    async fn next(&mut self) -> Result<Vec<Received>, SubscribeError> {
        if let Some(again) = self.held.again() {
            return Ok(again);
        }
        let looked = self.look().await;
        let (entries, redelivered) = looked.inspect_err(|_| self.lose())?;
        let received = entries.into_iter().map(|(id, said)| self.held.hand_out(id.clone(), id, redelivered, said));
        Ok(received.collect())
    }

    /// The next entries, and whether they may have been delivered before.
    async fn look(&mut self) -> Result<(Entries, bool), SubscribeError> {
        if self.connection.is_none() {
            self.connect().await?;
        }
        loop {
            if self.in_doubt {
                let pending = self.pending().await?;
                if !pending.is_empty() {
                    return Ok((pending, true));
                }
                self.in_doubt = false;
            }
            // Until the answer is here nobody knows what is pending in our name.
            self.in_doubt = true;
            let claimed = if self.claim_at <= clock::now() { self.claim().await? } else { Entries::new() };
            let (entries, redelivered) =
                if claimed.is_empty() { (self.fresh().await?, false) } else { (claimed, true) };
            self.in_doubt = false;
            if !entries.is_empty() {
                return Ok((entries, redelivered));
            }
        }
    }

    async fn connect(&mut self) -> Result<(), SubscribeError> {
        let limit = self.options.connection.time_limit;
        let connection = timeout(limit, self.dialer.dial().boxed()).await;
        let connection = connection.map_err(|_elapsed| unavailable("not connected: no answer in time"))?;
        self.connection = Some(connection.map_err(|error| verdict(&error))?);
        (self.in_doubt, self.claim_at) = (true, clock::now());
        let mut create = cmd("XGROUP");
        create.arg("CREATE").arg(&self.options.topic).arg(&self.options.group).arg("0").arg("MKSTREAM");
        match self.send(&create).await {
            Err(SubscribeError::Refused(reason)) if reason.contains("BUSYGROUP") => Ok(()),
            made => made.map(drop),
        }
    }

    /// What is pending in our name. An entry that was trimmed off the stream meanwhile is lost, and let go.
    async fn pending(&mut self) -> Result<Entries, SubscribeError> {
        loop {
            let answer = self.send(self.read("0", None)).await?;
            let (entries, gone) = reading::entries(answer).map_err(unavailable)?;
            if gone.is_empty() {
                return Ok(entries);
            }
            tracing::warn!(
                stream = self.options.topic,
                number = gone.len(),
                "entries were trimmed before they were acknowledged"
            );
            self.send(&self.xack(&gone)).await?;
        }
    }

    async fn fresh(&mut self) -> Result<Entries, SubscribeError> {
        let answer = self.send(self.read(">", Some(WAIT))).await?;
        reading::entries(answer).map(|(entries, _gone)| entries).map_err(unavailable)
    }

    /// What others have left.
    async fn claim(&mut self) -> Result<Entries, SubscribeError> {
        let mut claim = cmd("XAUTOCLAIM");
        claim.arg(&self.options.topic).arg(&self.options.group).arg(&self.consumer);
        claim.arg(millis(self.options.idle)).arg(&self.claim_from).arg("COUNT").arg(self.options.prefetch);
        let answer = self.send(&claim).await?;
        let (next, entries) = reading::claimed(answer).map_err(unavailable)?;
        // Once round the whole group: then there is a pause.
        if &*next == "0-0" {
            self.claim_at = clock::now() + WAIT;
        }
        self.claim_from = next.into();
        Ok(entries)
    }

    async fn acknowledge(&mut self, receipts: &[Receipt]) -> Result<(), SubscribeError> {
        let (first, others) = self.held.named(receipts);
        let ids: Vec<_> = first.into_iter().chain(others).collect();
        if !ids.is_empty() {
            self.send(&self.xack(&ids)).await.inspect_err(|_| self.lose())?;
        }
        self.held.forget(receipts);
        Ok(())
    }

    /// Has others claim at once what is not acknowledged, and leaves no name behind without a reason.
    async fn leave(&mut self) -> Result<(), SubscribeError> {
        self.held.clear();
        if self.connection.is_none() {
            return Ok(());
        }
        let pending = self.pending().await?;
        let (topic, group) = (&self.options.topic, &self.options.group);
        if !pending.is_empty() {
            let mut left = cmd("XCLAIM");
            left.arg(topic).arg(group).arg(&self.consumer).arg(0);
            for (id, _) in &pending {
                left.arg(&**id);
            }
            left.arg("IDLE").arg(millis(LEFT)).arg("JUSTID");
            self.send(&left).await?;
        }
        let (topic, group) = (&self.options.topic, &self.options.group);
        let mut tidy = cmd("EVAL");
        tidy.arg(TIDY).arg(1).arg(topic).arg(group).arg(&self.consumer).arg(millis(GONE));
        self.send(&tidy).await.map(drop)
    }

    fn read(&self, after: &str, wait: Option<Duration>) -> Cmd {
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.options.group).arg(&self.consumer).arg("COUNT").arg(self.options.prefetch);
        if let Some(wait) = wait {
            read.arg("BLOCK").arg(millis(wait));
        }
        read.arg("STREAMS").arg(&self.options.topic).arg(after);
        read
    }

    fn xack(&self, ids: &[Box<str>]) -> Cmd {
        let mut ack = cmd("XACK");
        ack.arg(&self.options.topic).arg(&self.options.group);
        for id in ids {
            ack.arg(&**id);
        }
        ack
    }

    async fn send(&mut self, command: impl std::borrow::Borrow<Cmd>) -> Result<Value, SubscribeError> {
        let connection = self.connection.as_mut().ok_or_else(|| unavailable("not connected"))?;
        // A call that was dropped may have left the server waiting for its message.
        let limit = self.options.connection.time_limit + WAIT;
        match timeout(limit, connection.send(command.borrow())).await {
            Ok(Ok(Value::ServerError(error))) => Err(verdict(&error.into())),
            Ok(answer) => answer.map_err(|error| verdict(&error)),
            Err(_elapsed) => Err(unavailable("no answer in time")),
        }
    }

    /// What is unacknowledged is pending in our name, and comes again with the next connection.
    fn lose(&mut self) {
        self.held.clear();
        self.connection = None;
    }
}

type Entries = Vec<(Box<str>, Said)>;

impl Subscriber for RedisStreamsSubscriber {
    fn receive(&mut self) -> BoxFuture<'_, Result<Vec<Received>, SubscribeError>> {
        self.next().boxed()
    }

    fn ack<'a>(&'a mut self, receipts: &'a [Receipt]) -> BoxFuture<'a, Result<(), SubscribeError>> {
        self.acknowledge(receipts).boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        async {
            // What it does not take is claimed once it has been idle.
            if let Err(error) = self.leave().await {
                tracing::debug!(%error, "leaving a group of a Redis stream");
            }
            self.lose();
        }
        .boxed()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn unavailable(what: &str) -> SubscribeError {
    SubscribeError::Unavailable(what.to_owned())
}

fn verdict(error: &RedisError) -> SubscribeError {
    let text = error.to_string();
    if error.kind() == ErrorKind::AuthenticationFailed {
        return SubscribeError::Refused(text);
    }
    match error.code() {
        Some("WRONGTYPE" | "NOPERM" | "NOAUTH" | "WRONGPASS" | "BUSYGROUP" | "ERR") => SubscribeError::Refused(text),
        Some(_) | None => SubscribeError::Unavailable(text),
    }
}

impl fmt::Debug for RedisStreamsSubscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStreamsSubscriber")
            .field("options", &self.options)
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}
