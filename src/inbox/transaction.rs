//! The inbox of a consumer: what it has handled is recorded in the transaction of the effect.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use tokio_util::sync::CancellationToken;

use super::error::Error;
use super::filters::{Filter, Filters};
use super::message::{Message, MessageDigest};
use super::retention::{self, Records};
use super::verdict::Verdict;
use crate::engine::ledger::StoreError;
use crate::entry::{EntryId, Namespace, NamespaceError};
use crate::storage::{CallerTransaction, Told, TxConnection, begin_on};

/// A consumer's memory of what it has handled, in the consumer's own database. Cheap to clone.
///
/// [`Inbox::setup`] opens one. See [the module](super) for when to use it and what a crash leaves.
#[derive(Clone)]
pub struct Inbox {
    consumer: Namespace,
    shared: Arc<Shared>,
}

/// What an inbox consists of.
#[derive(Debug)]
pub struct Parts {
    /// What stands in front of the database, the nearest first.
    pub filters: Vec<Filter>,
    /// How it is used.
    pub options: Options,
}

/// What bounds an inbox.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How long rows are kept: see [`RETENTION`](retention::RETENTION).
    pub retention: Duration,
    /// How long the filters remember; at most half of the retention. Redeliveries come within seconds or minutes, and
    /// the longer it is, the more memory they take.
    pub remember: Duration,
    /// One of this many duplicates that a filter tells of goes to the database all the same, which finds filters that
    /// remember what the database has lost; 0 for none.
    pub verify_one_in: u32,
    /// How long [`Inbox::begin`] waits for somebody else's open transaction that has the message, on PostgreSQL. MySQL
    /// waits for `innodb_lock_wait_timeout` of the session (50 s unless it is set), SQLite for the connection's
    /// `busy_timeout`.
    pub wait: Duration,
}

struct Shared {
    filters: Filters,
    records: Arc<dyn Records>,
    options: Options,
}

/// What a message is, as [`Inbox::begin`] finds it.
#[derive(Debug)]
#[must_use = "only the first one may have an effect"]
pub enum Begun {
    /// Nobody has handled it. It is recorded as handled in this transaction: do what it asks for in the same one.
    First(Receipt),
    /// It was handled before, or earlier in this transaction. Acknowledge it.
    Duplicate,
    /// A newer version of its entity was handled before. Acknowledge it, and do nothing.
    Stale {
        /// The newest version.
        applied: i64,
    },
    /// It says something else than the message that was handled under its key, or under its entity's version. One of
    /// the two is wrong, and only a person knows which: keep it for one (dead-letter it), never call it a duplicate.
    Conflict,
}

/// The record of a first message, in a transaction that is still open.
#[derive(Debug)]
#[must_use = "what is never said to be committed is asked of the database each time it comes again"]
pub struct Receipt {
    inbox: Inbox,
    id: EntryId,
    nonce: i64,
    digest: Option<MessageDigest>,
    previous: Option<i64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            retention: retention::RETENTION,
            remember: Duration::from_secs(60 * 60),
            verify_one_in: 100,
            // Longer than a handler's transaction should take, shorter than brokers wait for an ack.
            wait: Duration::from_secs(5),
        }
    }
}

impl Inbox {
    /// The inbox of `consumer`, whose rows are in the database that `records` keeps. Two consumers each handle a
    /// message once.
    #[must_use]
    pub fn new(consumer: Namespace, records: Arc<dyn Records>, parts: Parts) -> Self {
        let Parts { filters, options } = parts;
        let filters = Filters::new(filters, options.remember, options.retention, options.verify_one_in);
        Self { consumer, shared: Arc::new(Shared { filters, records, options }) }
    }

    /// The inbox of another consumer on the same database.
    ///
    /// # Errors
    /// If the name is none.
    pub fn of(&self, consumer: &str) -> Result<Self, NamespaceError> {
        Ok(Self { consumer: Namespace::new(consumer)?, shared: Arc::clone(&self.shared) })
    }

    /// Whose it is.
    #[must_use]
    pub fn consumer(&self) -> &str {
        self.consumer.as_str()
    }

    /// Whether a filter knows that the message was handled: then it is a duplicate, and no transaction has to be
    /// opened for it. "No" says nothing: ask [`Self::begin`]. Never an error: a filter that is down knows nothing.
    pub fn seen<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let found = self.shared.filters.find(message.record_id(&self.consumer), message.digest).await;
            if let Some(filter) = found {
                self.count_duplicate(filter);
            }
            found.is_some()
        })
    }

    /// Records `message` as handled in the transaction that is open on `tx`, and tells whether it is the first one.
    ///
    /// 1. Call it before the effect: while the transaction is open, another delivery of the message waits here for its
    ///    end, and then is a [`Begun::Duplicate`], or the first one after a rollback.
    /// 2. On [`Begun::First`], do all that the message asks for on the same transaction, then commit it, best with
    ///    [`Receipt::commit`].
    /// 3. Everything else has left nothing in the transaction; commit it or roll it back.
    ///
    /// The transaction stays usable after every `Ok`.
    ///
    /// # Errors
    /// [`Error::Busy`] if somebody else's transaction has the message for longer than [`Options::wait`], and others if
    /// the database can't be asked. Roll back; the message may come again.
    pub fn begin<'a>(
        &'a self,
        tx: &'a mut impl TxConnection,
        message: &'a Message,
    ) -> BoxFuture<'a, Result<Begun, Error>> {
        Box::pin(async move {
            let mut begun = self.begin_many(tx, std::slice::from_ref(message)).await?;
            begun.pop().ok_or_else(|| Error::Misuse("a message without an answer".to_owned()))
        })
    }

    /// As [`Self::begin`], of several messages in one transaction: one answer for each, in their order. One that comes
    /// twice is first the first, then a duplicate. Apply the first ones in their order.
    ///
    /// # Errors
    /// As [`Self::begin`], for all of them.
    pub fn begin_many<'a>(
        &'a self,
        tx: &'a mut impl TxConnection,
        messages: &'a [Message],
    ) -> BoxFuture<'a, Result<Vec<Begun>, Error>> {
        Box::pin(async move {
            if !tx.is_in_transaction() {
                return Err(Error::Misuse("no transaction is open on this connection: begin one first".to_owned()));
            }
            let nonce = rand::random();
            let told = begin_on(tx, &self.consumer, messages, nonce, self.shared.options.wait).await?;
            Ok(messages.iter().zip(told).map(|(message, told)| self.begun(message, told, nonce)).collect())
        })
    }

    fn begun(&self, message: &Message, told: Told, nonce: i64) -> Begun {
        if told.is_under_new_id {
            metrics::counter!("oncegate_inbox_new_ids_total", "consumer" => self.label()).increment(1);
        }
        match told.verdict {
            Verdict::First { previous } => {
                let id = message.record_id(&self.consumer);
                Begun::First(Receipt { inbox: self.clone(), id, nonce, digest: message.digest, previous })
            }
            Verdict::Duplicate => {
                self.count_duplicate("database");
                Begun::Duplicate
            }
            Verdict::Stale { applied } => Begun::Stale { applied },
            Verdict::Conflict => Begun::Conflict,
        }
    }

    /// Commits `tx`, in which the messages of `receipts` were recorded, and lets the filters know. Checks before that
    /// the records still are there: a database may have rolled back what a caller believes to be open.
    ///
    /// Once this returns, the nearest filter knows; the others do soon, and nobody waits for them: what comes again
    /// before that is asked of the database.
    ///
    /// # Errors
    /// [`Error::RolledBack`] if it has: nothing was committed. After [`StoreError::CommitUnknown`] the message comes
    /// again, and [`Self::begin`] tells.
    pub fn commit<T: CallerTransaction>(&self, tx: T, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let records = receipts.iter().map(|receipt| (receipt.id, receipt.nonce)).collect();
            if !tx.commit_holding(records).await? {
                return Err(Error::RolledBack);
            }
            let mut told = join_all(receipts.into_iter().map(Receipt::committed));
            if (&mut told).now_or_never().is_none() {
                tokio::spawn(told);
            }
            Ok(())
        })
    }

    /// Lets the filters know that the transaction of `receipts` **was committed**, the outermost one. Said of one that
    /// was not, their messages are lost: use [`Self::commit`] where that is possible.
    pub fn committed(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            join_all(receipts.into_iter().map(Receipt::committed)).await;
        })
    }

    /// Lets the filters know of a message that [`Self::begin`] has called a duplicate, after the end of that
    /// transaction; of no message that was the first one in it. Saves the database the next question.
    pub fn remember<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, ()> {
        Box::pin(self.shared.filters.keep_known(message.record_id(&self.consumer), message.digest))
    }

    /// Forgets what is older than the retention, in small transactions on a connection of its own, and says how much
    /// that was.
    ///
    /// # Errors
    /// If the database can't be asked.
    pub async fn forget(&self) -> Result<u64, StoreError> {
        let mut forgotten = 0;
        loop {
            let Shared { records, options, .. } = &*self.shared;
            let batch = records.forget(&self.consumer, options.retention, retention::BATCH).await?;
            metrics::counter!("oncegate_inbox_forgotten_total", "consumer" => self.label()).increment(batch);
            forgotten += batch;
            if batch < u64::from(retention::BATCH) {
                return Ok(forgotten);
            }
        }
    }

    /// Calls [`Self::forget`] now and then until `stop`.
    pub async fn keep_tidy(&self, stop: &CancellationToken) {
        let mut ticks = tokio::time::interval(retention::PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut is_failing = false;
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            match stop.run_until_cancelled(self.forget()).await {
                Some(Err(error)) if !is_failing => {
                    tracing::warn!(%error, consumer = %self.consumer, "old records of the inbox can't be removed");
                    is_failing = true;
                }
                Some(Ok(_)) => is_failing = false,
                Some(Err(_)) | None => {}
            }
        }
    }

    /// What the database calls the message.
    pub(super) fn record_id(&self, message: &Message) -> EntryId {
        message.record_id(&self.consumer)
    }

    /// In which try each of these messages was last, of those on record.
    pub(super) async fn attempts(&self, ids: &[EntryId]) -> Result<HashMap<EntryId, u32>, StoreError> {
        if ids.is_empty() { Ok(HashMap::new()) } else { self.shared.records.attempts(ids).await }
    }

    /// Puts on record in which try messages are.
    pub(super) async fn note_attempts(&self, tries: &[(EntryId, u32)]) -> Result<(), StoreError> {
        if tries.is_empty() { Ok(()) } else { self.shared.records.note_attempts(&self.consumer, tries).await }
    }

    fn count_duplicate(&self, found_in: &'static str) {
        let labels = [("consumer", self.label()), ("found_in", found_in.to_owned())];
        metrics::counter!("oncegate_inbox_duplicates_total", &labels).increment(1);
    }

    pub(super) fn label(&self) -> String {
        self.consumer.as_str().to_owned()
    }
}

impl Receipt {
    /// The version of the message's entity that was applied before, if there was one. Where each version must follow
    /// on the one before, and this is not it, roll back: the message is to come again later.
    #[must_use]
    pub fn previous(&self) -> Option<i64> {
        self.previous
    }

    /// Commits `tx`, in which this message was recorded: see [`Inbox::commit`].
    ///
    /// # Errors
    /// As [`Inbox::commit`].
    pub fn commit<T: CallerTransaction>(self, tx: T) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            let inbox = self.inbox.clone();
            inbox.commit(tx, vec![self]).await
        })
    }

    /// Lets the filters know that the transaction **was committed**, the outermost one: see [`Inbox::committed`].
    pub fn committed(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Self { inbox, id, digest, .. } = self;
            if inbox.shared.filters.keep_committed(id, digest).await {
                // The database has let it be the first once more: it has lost that commit, and its effect with it.
                tracing::error!(message = ?id, consumer = %inbox.consumer, "the database has lost a commit: a message was handled again");
                metrics::counter!("oncegate_inbox_lost_commits_total", "consumer" => inbox.label()).increment(1);
            }
        })
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("consumer", &self.consumer.as_str())
            .field("filters", &self.shared.filters)
            .field("options", &self.shared.options)
            .finish()
    }
}
