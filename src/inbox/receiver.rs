//! Receives a subscription's messages: keeps them, then acknowledges them.
//!
//! | # | step | a crash after it leaves |
//! |---|---|---|
//! | 1 | the queue hands messages out | they come again, here or elsewhere |
//! | 2 | what the cache or a mark knows as done, with the same meaning, is passed over | the same |
//! | 3 | the others are deposited in one commit | the same; the next deposit finds their ids, and passes over them |
//! | 4 | all are acknowledged | deliveries, which are the relay's |
//!
//! Nothing is acknowledged that is not kept or known as done. A queue or a store that is down costs a pause. Above
//! [`ReceiverOptions::max_backlog`] nothing is asked for: what waits is better off in the queue. What waits for another
//! one of its key does not count there: one key that stands still would stop all others. It has a bound of its own,
//! [`ReceiverOptions::max_waiting`], at which people are told.
//!
//! An embedded queue's messages are a table of the same database: the deposit moves the cursor, and that is the
//! acknowledgement. Of several receivers with one cursor one moves it, and the others look again.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::alert::Alerts;
use super::intake::{Intake, intake};
use super::meters::Receipts;
use super::result::DeliveryResult;
use super::source::{Batch, Piece, Source};
use super::store::{Deposited, Deposits, MAX_DEPOSIT, NewDelivery, queue_of};
use super::subscription::Subscription;
use crate::broker::subscriber::{Received, SubscribeError};
use crate::chance;
use crate::engine::ledger::StoreError;
use crate::engine::{Engine, Verdict};
use crate::entry::Scope;
use crate::outbox::relay::{Backoff, Wake};
use crate::outbox::store::{Backlog, Outbox};

/// Most bytes of data in one deposit, but for a single larger message: bounds the transaction.
const MAX_DEPOSIT_BYTES: usize = 4 << 20;

/// What bounds and times a receiver.
#[derive(Debug, Clone)]
pub struct ReceiverOptions {
    /// Above so many deliveries that could be made, nothing is received.
    pub max_backlog: u32,
    /// Above so many that wait for another one of their key, nothing is received: bounds the table.
    pub max_waiting: u32,
    /// How often a backlog above that is looked at.
    pub backlog_pause: Duration,
    /// The pauses while the queue or the store is not there.
    pub outage: Backoff,
    /// The pauses while what is asked for does not exist or is not allowed, or a message can't be kept: a person has
    /// to see to it.
    pub refused: Backoff,
    /// How long a stop waits for the queue to hear of the last acknowledgements.
    pub farewell: Duration,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self {
            max_backlog: 10_000,
            max_waiting: 1_000_000,
            backlog_pause: Duration::from_secs(1),
            outage: Backoff { first: Duration::from_millis(200), max: Duration::from_secs(10) },
            refused: Backoff { first: Duration::from_secs(2), max: Duration::from_secs(60) },
            farewell: Duration::from_secs(5),
        }
    }
}

/// What a receiver is made of, beside where it receives from.
pub struct ReceiverParts {
    /// What is received, and how it is understood.
    pub subscription: Arc<Subscription>,
    /// Knows what is done.
    pub engine: Arc<Engine>,
    /// Keeps what is received.
    pub deposits: Arc<dyn Deposits>,
    /// Says how much waits.
    pub outbox: Arc<dyn Outbox>,
    /// The relay that delivers.
    pub wake: Wake,
    /// How many lanes its queue has.
    pub lanes: NonZeroU32,
    /// Tells people.
    pub alerts: Alerts,
}

/// Receives one subscription's messages in one process. See the [module](self).
pub struct Receiver {
    source: Source,
    keeper: Keeper,
    options: ReceiverOptions,
    /// How many more may be deposited before the backlog is measured again.
    room: u64,
    /// Failures in a row.
    failures: u32,
    /// Whether people know that it can't go on.
    is_stuck: bool,
    /// Whether it is told that as many deliveries wait as may.
    is_full: bool,
}

/// Makes durable what was received.
struct Keeper {
    parts: ReceiverParts,
    meters: Receipts,
}

impl fmt::Debug for ReceiverParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverParts").field("subscription", &self.subscription.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("parts", &self.keeper.parts).finish_non_exhaustive()
    }
}

/// Why nothing was received, and what to do about it.
#[derive(Debug)]
enum Trouble {
    /// The queue or the store is not there.
    Outage(String),
    /// A person has to see to it.
    Refused(String),
    /// A message can't be kept: nothing goes on before it is.
    Stuck(String),
    /// Somebody else was faster. Look again.
    Overtaken,
}

impl Receiver {
    /// A receiver that has received nothing yet.
    #[must_use]
    pub fn new(source: Source, parts: ReceiverParts, options: ReceiverOptions) -> Self {
        let keeper = Keeper { meters: Receipts::new(&parts.subscription.name), parts };
        Self { source, keeper, options, room: 0, failures: 0, is_stuck: false, is_full: false }
    }

    /// Receives until `stop`, and then leaves: what is received by then is kept and acknowledged.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.step(&stop).await;
        }
        if tokio::time::timeout(self.options.farewell, self.source.close()).await.is_err() {
            tracing::warn!(subscription = self.name(), "the queue did not hear of the end in time");
        }
    }

    /// Receives once: what is there is kept and acknowledged. Ends early where `stop` comes while nothing is there.
    pub async fn step(&mut self, stop: &CancellationToken) {
        let Some(done) = self.attempt(stop).await else { return };
        match done {
            Ok(()) => self.well(),
            Err(trouble) => {
                let pause = self.note(&trouble);
                stop.run_until_cancelled(tokio::time::sleep(pause)).await;
            }
        }
    }

    /// `None`: it was stopped while nothing was there, or nothing may be received now.
    async fn attempt(&mut self, stop: &CancellationToken) -> Option<Result<(), Trouble>> {
        if self.room == 0 {
            match self.keeper.measure(&self.options).await {
                Ok(Room::None) => {
                    if !std::mem::replace(&mut self.is_full, true) {
                        let (subscription, most) = (self.name(), self.options.max_backlog);
                        tracing::warn!(subscription, most, "so many deliveries wait that nothing more is received");
                    }
                    stop.run_until_cancelled(tokio::time::sleep(self.options.backlog_pause)).await;
                    return None;
                }
                Ok(Room::TooManyWait) => {
                    let most = self.options.max_waiting;
                    return Some(Err(Trouble::Stuck(format!("{most} messages wait for others of their keys"))));
                }
                Ok(Room::For(room)) => (self.room, self.is_full) = (room, false),
                Err(error) => return Some(Err(Trouble::of(error))),
            }
        }
        // Dropped while it waits it loses nothing; from then on nothing is dropped.
        let received = match stop.run_until_cancelled(self.source.receive()).await? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error.into())),
        };
        Some(self.take(received).await)
    }

    /// Keeps and acknowledges what was received, in pieces.
    async fn take(&mut self, mut batch: Batch) -> Result<(), Trouble> {
        self.keeper.meters.received.increment(batch.messages.len() as u64);
        while let Some(piece) = batch.next_piece(MAX_DEPOSIT, MAX_DEPOSIT_BYTES) {
            let receipts: Vec<_> = piece.messages.iter().map(|message| message.receipt).collect();
            let kept = self.keeper.keep(piece).await?;
            self.room = self.room.saturating_sub(kept);
            self.source.ack(&receipts).await?;
        }
        Ok(())
    }

    fn name(&self) -> &str {
        &self.keeper.parts.subscription.name
    }

    fn well(&mut self) {
        if self.failures > 0 {
            tracing::info!(subscription = self.name(), "messages are received again");
        }
        self.failures = 0;
        self.is_stuck = false;
    }

    /// Says once what is wrong, and how long to wait.
    fn note(&mut self, trouble: &Trouble) -> Duration {
        let (subscription, is_first) = (self.name(), self.failures == 0);
        let backoff = match trouble {
            Trouble::Overtaken => return Duration::ZERO,
            Trouble::Outage(reason) => {
                if is_first {
                    tracing::warn!(subscription, %reason, "nothing is received; messages wait in the queue");
                }
                self.options.outage
            }
            Trouble::Refused(reason) => {
                if is_first {
                    tracing::error!(subscription, %reason, "nothing is received until a person has seen to it");
                }
                self.options.refused
            }
            Trouble::Stuck(reason) => {
                if !std::mem::replace(&mut self.is_stuck, true) {
                    self.keeper.parts.alerts.stuck(reason);
                }
                self.options.refused
            }
        };
        self.failures = self.failures.saturating_add(1);
        backoff.pause(self.failures, chance::random())
    }
}

/// What more may be kept.
#[derive(Debug, PartialEq, Eq)]
enum Room {
    /// So many deliveries.
    For(u64),
    /// Nothing, until some of them are made.
    None,
    /// Nothing, until somebody sees to the keys that others wait for.
    TooManyWait,
}

impl Room {
    fn of(backlog: &Backlog, options: &ReceiverOptions) -> Self {
        let left = |most: u32, taken: u64| u64::from(most).saturating_sub(taken);
        let to_make = left(options.max_backlog, backlog.unsent.saturating_sub(backlog.waiting));
        let to_wait = left(options.max_waiting, backlog.waiting);
        match (to_make, to_wait) {
            (_, 0) => Self::TooManyWait,
            (0, _) => Self::None,
            _ => Self::For(to_make.min(to_wait)),
        }
    }
}

impl Keeper {
    /// How many more deliveries may be kept.
    async fn measure(&self, options: &ReceiverOptions) -> Result<Room, StoreError> {
        let name = &self.parts.subscription.name;
        // Counts stop there; their sum must not.
        let cap = options.max_backlog.saturating_add(options.max_waiting);
        let room = Room::of(&self.parts.outbox.backlog(&queue_of(name), cap).await?, options);
        let receives = if matches!(room, Room::For(_)) { 1.0 } else { 0.0 };
        metrics::gauge!("oncegate_subscription_receiving", "subscription" => name.to_string()).set(receives);
        Ok(room)
    }

    /// Makes the messages durable, but those that are known as done; says how many are new.
    async fn keep(&self, piece: Piece) -> Result<u64, Trouble> {
        let Piece { messages, cursor } = piece;
        let Sorted { deliveries, filtered } = self.sort(messages).await;
        self.meters.filtered.increment(filtered);
        (0..filtered).for_each(|_| self.meters.results.count(DeliveryResult::Duplicate));
        if deliveries.is_empty() && cursor.is_none() {
            return Ok(0);
        }
        let new = match self.parts.deposits.deposit(&deliveries, cursor.as_ref()).await {
            Ok(Deposited::Done { new }) => new as u64,
            Ok(Deposited::Overtaken) => return Err(Trouble::Overtaken),
            Err(error) => return Err(Trouble::of(error)),
        };
        self.meters.known.increment((deliveries.len() as u64).saturating_sub(new));
        if new > 0 {
            self.parts.wake.committed();
        }
        Ok(new)
    }

    /// Tells what is to be kept from what is known as done, without a question to the database.
    async fn sort(&self, messages: Vec<Received>) -> Sorted {
        let ReceiverParts { subscription, lanes, .. } = &self.parts;
        let taken = messages.into_iter().map(|message| intake(subscription, *lanes, message, chance::random()));
        let taken: Vec<Intake> = taken.collect();
        let known = join_all(taken.iter().map(|intake| self.is_done(intake))).await;
        let filtered = known.iter().filter(|is_done| **is_done).count() as u64;
        let left = taken.into_iter().zip(known).filter(|(_, is_done)| !is_done);
        Sorted { deliveries: left.map(|(intake, _)| intake.delivery).collect(), filtered }
    }

    /// Whether it was handled before and meant the same, as far as cache and marks know. Anything else is decided
    /// when it is delivered.
    async fn is_done(&self, intake: &Intake) -> bool {
        let ReceiverParts { subscription, engine, .. } = &self.parts;
        let Some(understood) = &intake.understood else { return false };
        if !subscription.identity.holds() {
            return false;
        }
        let (key, meaning) = (&understood.key, understood.meaning.clone());
        let arrival = engine.arrival(&subscription.policy, Scope::Global, key, meaning, Duration::ZERO);
        matches!(engine.recall(&arrival).await, Some(Verdict::Replay { .. } | Verdict::NotKept { .. }))
    }
}

/// What is to be kept, and how many need not be.
struct Sorted {
    deliveries: Vec<NewDelivery>,
    filtered: u64,
}

impl Trouble {
    fn of(error: StoreError) -> Self {
        match error {
            // It is lost if it is acknowledged, and in nobody's way but its queue's if it is not.
            StoreError::Refused(reason) => Self::Stuck(reason),
            error @ (StoreError::Conflict(_)
            | StoreError::Locked(_)
            | StoreError::Unavailable(_)
            | StoreError::CommitUnknown(_)) => Self::Outage(error.to_string()),
        }
    }
}

impl From<SubscribeError> for Trouble {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::Unavailable(reason) => Self::Outage(reason),
            SubscribeError::Refused(reason) => Self::Refused(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_another_one_of_its_key_has_a_bound_of_its_own() {
        let options = ReceiverOptions { max_backlog: 10, max_waiting: 30, ..ReceiverOptions::default() };
        let room = |unsent, waiting| Room::of(&Backlog { unsent, waiting, ..Backlog::default() }, &options);
        for (unsent, waiting, expected) in [
            (0, 0, Room::For(10)),
            (9, 0, Room::For(1)),
            (10, 0, Room::None),
            (25, 25, Room::For(5)),
            (34, 25, Room::For(1)),
            (35, 25, Room::None),
            (30, 30, Room::TooManyWait),
            (40, 40, Room::TooManyWait),
        ] {
            assert_eq!(room(unsent, waiting), expected, "{unsent} of which {waiting} wait");
        }
    }
}
