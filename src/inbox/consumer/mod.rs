//! The loop of a consumer: receive, handle in a transaction, commit, acknowledge.
//!
//! What a crash leaves, by the last step done. "Comes again" is to this group, here or elsewhere:
//!
//! | # | step | a crash after it leaves |
//! |---|---|---|
//! | 1 | messages are received | nothing; they come again |
//! | 2 | no filter knows the message. If it failed or was received before, in which try it is is committed | the same, and that one try more was made |
//! | 3 | a transaction is open, and the message recorded in it: [`Inbox::begin`] | the same: the database rolls back. Who waits for that row goes on |
//! | 4 | the handler has done its part in the transaction | the same |
//! | 5 | the commit | effect and record. The message comes again, and is a duplicate by the database |
//! | 6 | the filters know | the same, and the duplicate is found without the database |
//! | 7 | the ack | nothing that comes again |
//!
//! A message that is given up: 4 is a rollback, 5 the commit of [`Handler::dead_letter`], and there is no 6. A crash
//! between that and the ack brings it again: it is tried again, and given up again.
//!
//! **Attempts survive a crash.** The first try of a message that nobody had before costs nothing. Later ones are on
//! record before they begin; so is each try of what the broker calls redelivered, and of what a consumer receives first
//! (after its start, or once the broker is back), since not every broker says so. What is on record as tried when it is
//! received was in the hands of a process that died. All that comes with it is then handled one by one: so a message
//! that ends its process is told from its neighbours, which lose one try at most, and it is given up at last.

mod batch;
mod policy;
mod single;
mod tries;

pub use policy::{Policy, Transactions};

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use super::handler::{Handler, Reason};
use super::message::{Message, MessageError};
use super::transaction::Inbox;
use crate::broker::subscriber::{Receipt, Received, SubscribeError, Subscriber};
use crate::storage::TxPool;

/// Most receipts of one ack: those that are finished at about the same time.
const ACKS: usize = 64;

/// Receives messages and has each handled once, in the order of their keys.
pub struct Consumer<P, H> {
    inbox: Inbox,
    pool: P,
    handler: H,
    policy: Policy,
    /// Whether something was received since the start, and since the broker was away.
    is_in_touch: AtomicBool,
}

/// A received message and what it was taken for.
struct Item {
    received: Received,
    message: Result<Message, MessageError>,
    /// Whether somebody may have had it before: tries are put on record.
    is_suspect: bool,
    /// Tries on record when it was received.
    tried: u32,
}

/// How a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Applied,
    Duplicate,
    Stale,
    DeadLettered(&'static str),
}

impl Item {
    /// What it is handled in order with: its entity, or what its producer ordered it by, or its key.
    fn line(&self) -> &str {
        let message = self.message.as_ref().ok();
        let entity = message.and_then(Message::entity);
        entity.or(self.received.key.as_deref()).or(message.map(Message::key)).unwrap_or_default()
    }
}

impl<P: TxPool, H: Handler<P::Connection>> Consumer<P, H> {
    /// A consumer that records in `inbox` what `handler` does in transactions of `pool`, which is of the same database.
    #[must_use]
    pub fn new(inbox: Inbox, pool: P, handler: H) -> Self {
        Self { inbox, pool, handler, policy: Policy::default(), is_in_touch: AtomicBool::new(false) }
    }

    /// Goes about it by `policy`.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Handles what `subscriber` receives until `stop`. What is in hand then is finished; what waits for its next try
    /// is not acknowledged, and comes again. Forgets old records meanwhile.
    pub fn run<'a>(&'a self, subscriber: &'a mut dyn Subscriber, stop: &'a CancellationToken) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            tokio::join!(self.consume(subscriber, stop), self.inbox.keep_tidy(stop));
            subscriber.close().await;
        })
    }

    async fn consume(&self, subscriber: &mut dyn Subscriber, stop: &CancellationToken) {
        let mut failures = 0;
        while !stop.is_cancelled() {
            let Err(error) = self.step(subscriber, stop).await else {
                failures = 0;
                continue;
            };
            failures += 1;
            if failures == 1 {
                tracing::warn!(%error, consumer = self.inbox.consumer(), "nothing can be received");
            }
            let pause = self.policy.outage.pause(failures, rand::random());
            stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }

    /// Waits for messages, handles them, and acknowledges each that has ended.
    ///
    /// # Errors
    /// If nothing can be received. An ack that fails is no error: the message comes again, and is a duplicate.
    pub async fn step(&self, subscriber: &mut dyn Subscriber, stop: &CancellationToken) -> Result<(), SubscribeError> {
        let Some(received) = stop.run_until_cancelled(subscriber.receive()).await else { return Ok(()) };
        let is_first = !self.is_in_touch.swap(received.is_ok(), Ordering::Relaxed);
        let mut items: Vec<_> = received?.into_iter().map(|received| self.identify(received, is_first)).collect();
        if !self.recall_tries(&mut items, stop).await {
            return Ok(());
        }
        let chunk = match self.policy.transactions {
            _ if items.iter().any(|item| item.tried > 0) => 1,
            Transactions::PerMessage => items.len().max(1),
            Transactions::Batched(size) => size.get(),
        };
        for chunk in items.chunks(chunk) {
            let mut rest: Vec<&Item> = chunk.iter().collect();
            if let Transactions::Batched(_) = self.policy.transactions {
                let ended = self.handle_together(&mut rest).await;
                self.ack(subscriber, ended).await;
            }
            self.handle_in_lines(rest, subscriber, stop).await;
        }
        Ok(())
    }

    /// A message that makes the handler panic is one that can't be read.
    fn identify(&self, received: Received, is_first: bool) -> Item {
        let message = std::panic::catch_unwind(AssertUnwindSafe(|| self.handler.message(&received)));
        let (message, is_suspect) =
            (message.unwrap_or(Err(MessageError::Unreadable)), is_first || received.redelivered);
        Item { received, message, is_suspect, tried: 0 }
    }

    /// Each key's in order, several keys at a time.
    async fn handle_in_lines(&self, items: Vec<&Item>, subscriber: &mut dyn Subscriber, stop: &CancellationToken) {
        let mut all: Vec<BoxFuture<'_, Vec<Receipt>>> = Vec::new();
        for line in lines(items) {
            all.push(self.handle_line(line, stop).boxed());
        }
        let mut ended = stream::iter(all).buffer_unordered(self.policy.concurrency.get()).ready_chunks(ACKS);
        while let Some(ended) = ended.next().await {
            self.ack(subscriber, ended.concat()).await;
        }
    }

    async fn handle_line(&self, line: Vec<&Item>, stop: &CancellationToken) -> Vec<Receipt> {
        let mut ended = Vec::with_capacity(line.len());
        for item in line {
            let Some(ending) = self.handle_one(item, stop).await else { break };
            self.count(ending);
            ended.push(item.received.receipt);
        }
        ended
    }

    async fn ack(&self, subscriber: &mut dyn Subscriber, ended: Vec<Receipt>) {
        if ended.is_empty() {
            return;
        }
        if let Err(error) = subscriber.ack(&ended).await {
            let (messages, consumer) = (ended.len(), self.inbox.consumer());
            tracing::warn!(%error, messages, consumer, "an ack failed: messages come again, and are duplicates");
        }
    }

    fn count(&self, ending: Ending) {
        let result = match ending {
            Ending::Applied => "applied",
            Ending::Duplicate => "duplicate",
            Ending::Stale => "stale",
            Ending::DeadLettered(reason) => reason,
        };
        let labels = [("consumer", self.inbox.label()), ("result", result.to_owned())];
        metrics::counter!("oncegate_inbox_messages_total", &labels).increment(1);
    }
}

/// `items` by what orders them, each line in the order of arrival, and the lines in the order of their first ones.
fn lines(items: Vec<&Item>) -> Vec<Vec<&Item>> {
    let mut places = HashMap::new();
    let mut lines: Vec<Vec<&Item>> = Vec::new();
    for item in items {
        let place = *places.entry(item.line()).or_insert(lines.len());
        match lines.get_mut(place) {
            Some(line) => line.push(item),
            None => lines.push(vec![item]),
        }
    }
    lines
}

impl Reason {
    const fn as_str(&self) -> &'static str {
        match self {
            Self::Unidentified(_) => "unidentified",
            Self::Conflict => "conflict",
            Self::Rejected(_) => "rejected",
            Self::AttemptsUsedUp { .. } => "attempts_used_up",
        }
    }
}

impl<P, H> fmt::Debug for Consumer<P, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("inbox", &self.inbox).field("policy", &self.policy).finish_non_exhaustive()
    }
}
