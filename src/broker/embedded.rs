//! `embedded:`, a queue that is a table of the gateway's own database: nothing to install, and nothing that can
//! be down while the outbox is up.

pub mod subscriber;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub use self::subscriber::{EmbeddedSubscriber, EmbeddedSubscriberOptions};

use super::waiters::{Waiter, Waiters};
use super::{CONFIRMED, Ordering, PublishError, Published, Publisher, cloud_events};
use crate::clock::Timestamp;
use crate::engine::ledger::StoreError;
use crate::outbox::event::Outgoing;

/// Most messages of one commit. More gain nothing and keep the database's writer for longer.
const MAX_BATCH: usize = 256;

/// Most bytes of data in one commit, but for a single larger message: below the smallest packet limit, MySQL's
/// 16 MiB.
const MAX_BATCH_BYTES: usize = 4 << 20;

/// How often a batch is written that lost against somebody else, or whose commit is unclear. It is idempotent.
const TRIES: u32 = 3;

/// The table, as this module asks for it.
///
/// Within a queue, positions are committed in order, however many processes publish: what [`Self::tail`] has not
/// shown comes after what it has. So a consumer needs to remember one position and misses nothing.
pub trait Messages: Send + Sync + 'static {
    /// Appends `messages` in order, in one durable transaction. One whose id the queue has is passed over.
    ///
    /// # Errors
    /// If nothing was written; or, after [`StoreError::CommitUnknown`], all or nothing.
    fn append<'a>(&'a self, queue: &'a str, messages: &'a [Message]) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Up to `limit` messages after position `after`, in order; of a topic, or of all.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn tail<'a>(
        &'a self,
        queue: &'a str,
        topic: Option<&'a str>,
        after: i64,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Stored>, StoreError>>;

    /// Removes up to `limit` messages, of each topic the oldest first, that are older than `keep`; but none that a
    /// [known](crate::inbox::store::Deposits::enlist) consumer of its topic has not taken.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn trim<'a>(&'a self, queue: &'a str, keep: Duration, limit: u32) -> BoxFuture<'a, Result<Trimmed, StoreError>>;
}

/// What a trim did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// How many messages were removed.
    pub removed: u64,
    /// Consumers that keep messages from being removed whose time is over.
    pub behind: Vec<Behind>,
}

/// A consumer that has not taken what is older than it should get.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Behind {
    /// The topic.
    pub topic: Box<str>,
    /// Whose cursor it is.
    pub consumer: Box<str>,
}

/// A message for the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// By which a copy is known; the attributes have CloudEvents `id`, which it is but for
    /// [redrives](Outgoing::copy_id).
    pub id: Box<str>,
    /// Where in the queue.
    pub topic: Box<str>,
    /// What it is ordered by.
    pub key: Box<str>,
    /// CloudEvents `datacontenttype`.
    pub content_type: Box<str>,
    /// The other attributes, as a JSON object of strings.
    pub attributes: Box<str>,
    /// What happened.
    pub data: Bytes,
}

/// A message in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Where it is.
    pub position: i64,
    /// When it was published.
    pub created_at: Timestamp,
    /// What it says.
    pub message: Message,
}

impl Message {
    fn of(outgoing: &Outgoing) -> Self {
        let event = &outgoing.event;
        let attributes = cloud_events::attributes(outgoing).into_iter();
        let attributes: Map<String, Value> =
            attributes.map(|(name, value)| (name.to_owned(), Value::String(value.into_owned()))).collect();
        Self {
            id: outgoing.copy_id().into(),
            topic: event.topic.clone(),
            key: event.key.clone(),
            content_type: event.content_type.clone(),
            attributes: Value::Object(attributes).to_string().into(),
            data: event.data.clone(),
        }
    }
}

/// Publishes to one embedded queue. What comes while a commit is on its way shares the next one.
pub struct Embedded {
    /// `None` once it is closed. Unbounded: the relay bounds what it has in flight.
    line: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    waiters: Waiters,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// A message in line, and who waits for its result.
struct Job {
    message: Message,
    waiter: Waiter,
}

impl Job {
    fn unavailable(self, reason: &str) {
        self.waiter.conclude(Err(PublishError::Unavailable(reason.to_owned())));
    }

    /// The job, unless something before it has failed and it has to fail as well.
    fn still_wanted(self) -> Option<Self> {
        if self.waiter.is_too_late() {
            self.unavailable("a message before it failed just now");
            return None;
        }
        Some(self)
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}

impl Embedded {
    /// A publisher to `queue`. Must be called on a runtime, which its task lives on.
    #[must_use]
    pub fn new(queue: &str, messages: Arc<dyn Messages>) -> Self {
        let (line, jobs) = mpsc::unbounded_channel();
        let writer = Writer { queue: queue.into(), messages, jobs };
        let task = Mutex::new(Some(tokio::spawn(writer.run())));
        Self { line: Mutex::new(Some(line)), waiters: Waiters::default(), task }
    }
}

impl Publisher for Embedded {
    fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published> {
        let (waiter, answer) = match self.waiters.join() {
            Ok(joined) => joined,
            Err(turned_away) => return turned_away,
        };
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = &*line {
            // Where its task is gone, the waiter is dropped, and says so.
            drop(line.send(Job { message: Message::of(&event), waiter }));
        }
        answer
    }

    fn ordering(&self) -> Ordering {
        Ordering::ByCall
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        drop(self.line.lock().unwrap_or_else(PoisonError::into_inner).take());
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move {
            if let Some(task) = task
                && let Err(error) = task.await
            {
                tracing::error!(%error, "the embedded queue's writer ended badly");
            }
        })
    }
}

/// Works off the line.
struct Writer {
    queue: Box<str>,
    messages: Arc<dyn Messages>,
    jobs: mpsc::UnboundedReceiver<Job>,
}

impl Writer {
    async fn run(mut self) {
        let mut next = None;
        loop {
            let first = match next.take() {
                Some(job) => job,
                None => match self.jobs.recv().await {
                    Some(job) => job,
                    None => return,
                },
            };
            let Some(first) = first.still_wanted() else { continue };
            let batch = self.gather(first, &mut next);
            self.write(batch, &mut next).await;
        }
    }

    /// `first` and what has come meanwhile; `next` is the one that did not fit.
    fn gather(&mut self, first: Job, next: &mut Option<Job>) -> Vec<Job> {
        let mut bytes = first.message.data.len();
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH
            && let Some(job) = self.next_in_line()
        {
            bytes += job.message.data.len();
            if bytes > MAX_BATCH_BYTES {
                *next = Some(job);
                break;
            }
            batch.push(job);
        }
        batch
    }

    async fn write(&mut self, batch: Vec<Job>, next: &mut Option<Job>) {
        let messages: Vec<Message> = batch.iter().map(|job| job.message.clone()).collect();
        match self.append(&messages).await {
            Ok(()) => batch.into_iter().for_each(|job| job.waiter.conclude(CONFIRMED)),
            Err(PublishError::Unavailable(reason)) => {
                // Those in line were called before anybody knew: none of them may pass one that failed.
                for job in batch.into_iter().chain(self.in_line(next)) {
                    job.unavailable(&reason);
                }
            }
            Err(_) => {
                let line: Vec<Job> = batch.into_iter().chain(self.in_line(next)).collect();
                self.write_one_by_one(line).await;
            }
        }
    }

    /// One of `line` can't be written as it is. Those of its key behind it are not written either, so that the
    /// relay decides what becomes of them.
    async fn write_one_by_one(&mut self, line: Vec<Job>) {
        let mut failed: HashSet<Box<str>> = HashSet::new();
        let mut unavailable = None;
        for job in line {
            let result = match &unavailable {
                Some(reason) => Err(PublishError::Unavailable(String::clone(reason))),
                None if failed.contains(&job.message.key) => {
                    Err(PublishError::Refused("an earlier one of its key was not taken".to_owned()))
                }
                None => self.append(std::slice::from_ref(&job.message)).await,
            };
            match &result {
                Ok(()) => {}
                Err(PublishError::Unavailable(reason)) => unavailable = Some(reason.clone()),
                Err(_) => {
                    failed.insert(job.message.key.clone());
                }
            }
            job.waiter.conclude(result.and(CONFIRMED));
        }
    }

    fn in_line(&mut self, next: &mut Option<Job>) -> Vec<Job> {
        let mut line: Vec<Job> = next.take().into_iter().collect();
        while let Some(job) = self.next_in_line() {
            line.push(job);
        }
        line
    }

    fn next_in_line(&mut self) -> Option<Job> {
        loop {
            let job = self.jobs.try_recv().ok()?;
            if let Some(job) = job.still_wanted() {
                return Some(job);
            }
        }
    }

    async fn append(&self, messages: &[Message]) -> Result<(), PublishError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.messages.append(&self.queue, messages).await {
                Ok(()) => return Ok(()),
                Err(StoreError::Refused(reason)) => return Err(PublishError::Never(reason)),
                Err(StoreError::Unavailable(reason)) => return Err(PublishError::Unavailable(reason)),
                Err(error) if tries == TRIES => return Err(PublishError::Unavailable(error.to_string())),
                Err(StoreError::Conflict(_) | StoreError::Locked(_) | StoreError::CommitUnknown(_)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering as Memory};

    use tokio::sync::Notify;

    use super::*;
    use crate::broker::cloud_events::tests::outgoing;

    /// A table that is away for the first one who writes.
    #[derive(Default)]
    struct AwayOnce {
        was_away: AtomicBool,
        failed: Notify,
    }

    impl Messages for AwayOnce {
        fn append<'a>(&'a self, _: &'a str, _: &'a [Message]) -> BoxFuture<'a, Result<(), StoreError>> {
            Box::pin(async {
                if self.was_away.swap(true, Memory::SeqCst) {
                    return Ok(());
                }
                self.failed.notify_one();
                Err(StoreError::Unavailable("gone".to_owned()))
            })
        }

        fn tail<'a>(
            &'a self,
            _: &'a str,
            _: Option<&'a str>,
            _: i64,
            _: u32,
        ) -> BoxFuture<'a, Result<Vec<Stored>, StoreError>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn trim<'a>(&'a self, _: &'a str, _: Duration, _: u32) -> BoxFuture<'a, Result<Trimmed, StoreError>> {
            Box::pin(async { Ok(Trimmed::default()) })
        }
    }

    #[tokio::test]
    async fn a_later_message_does_not_pass_one_whose_caller_has_not_heard_that_it_failed() {
        let table = Arc::new(AwayOnce::default());
        let publisher = Embedded::new("default", table.clone());
        let first = publisher.publish(outgoing("", b""));
        table.failed.notified().await;
        let second = publisher.publish(outgoing("", b""));
        for failed in [second.await, first.await] {
            assert!(matches!(failed, Err(PublishError::Unavailable(_))), "{failed:?}");
        }
        assert_eq!(publisher.publish(outgoing("", b"")).await, CONFIRMED);
    }
}
