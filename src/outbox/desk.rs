//! What people do with events: look at them, and decide about those that wait for them.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::event::{Attributes, EventId, OnFailure};
use crate::clock::Timestamp;
use crate::engine::desk::Actor;
use crate::engine::ledger::StoreError;
use crate::entry::EntryId;

/// Most events of one list, and of one order: bounds memory and the transaction.
pub const MAX_LISTED: u32 = 1_000;

/// The outbox as people see it.
///
/// Implementations pass the contract suite in `tests/it/outbox/contract/`.
pub trait Desk: Send + Sync + 'static {
    /// Up to `limit` events, the newest first, before position `before` if it is given.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        before: Option<i64>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Listed>, StoreError>>;

    /// Everything about one.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn show(&self, id: EventId) -> BoxFuture<'_, Result<Option<Shown>, StoreError>>;

    /// The relays that are alive, in order of their queues.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn relays(&self) -> BoxFuture<'_, Result<Vec<Seen>, StoreError>>;

    /// How many events and deliveries are parked. Counts neither beyond `cap`.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn parked(&self, cap: u32) -> BoxFuture<'_, Result<Parked, StoreError>>;

    /// Retries or discards, and puts on record by whom. Each event is changed, and its change put on record, once,
    /// however many people order the same at the same time. One that is in a relay's hands is left alone.
    ///
    /// A retried one keeps its id and its place, and its attempts begin anew. A discarded one lets those of its
    /// key that waited behind it go on.
    ///
    /// # Errors
    /// If the database can't be asked; then nothing is written. After [`StoreError::CommitUnknown`] look again.
    fn act_by<'a>(&'a self, order: &'a Order, by: Option<&'a Actor>) -> BoxFuture<'a, Result<Acted, StoreError>>;

    /// As [`Self::act_by`], by nobody in particular.
    ///
    /// # Errors
    /// As [`Self::act_by`].
    fn act<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Acted, StoreError>> {
        self.act_by(order, None)
    }
}

/// A relay, as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Whose events it publishes.
    pub queue: Box<str>,
    /// Why the broker takes nothing from it, and since when it takes nothing.
    pub trouble: Option<(Box<str>, Timestamp)>,
}

/// What waits for a person, up to a cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parked {
    /// Events that no queue has taken.
    pub events: u64,
    /// Deliveries that no handler has taken.
    pub deliveries: u64,
}

/// Where an event stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Taken up by the next turn of its relay, or in its hands.
    Ready,
    /// Was not taken by the broker, and is tried again.
    Retrying,
    /// Behind a retrying or held one of its key.
    Waiting,
    /// Waits for another one of its key, which may come behind it, and is tried again.
    Early,
    /// Has failed for good: a person decides.
    Parked,
    /// Confirmed by the broker.
    Sent,
    /// Given up by a person.
    Discarded,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Ready, Self::Retrying, Self::Waiting, Self::Early, Self::Parked, Self::Sent, Self::Discarded];

    /// As people write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Retrying => "retrying",
            Self::Waiting => "waiting",
            Self::Early => "early",
            Self::Parked => "parked",
            Self::Sent => "sent",
            Self::Discarded => "discarded",
        }
    }
}

/// What the rows of the work table are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Of {
    /// Events on their way to a queue.
    #[default]
    Events,
    /// Messages on their way to a subscription's handler.
    Deliveries,
}

/// Which events. What is not given does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of the outbox, or of subscriptions.
    pub of: Of,
    /// In one of these states; empty for all that are not done, which is all but sent and discarded.
    pub states: Vec<State>,
    /// Of this queue.
    pub queue: Option<Box<str>>,
    /// Of this topic.
    pub topic: Option<Box<str>>,
    /// Of this route.
    pub route: Option<Box<str>>,
    /// Of this key.
    pub key: Option<Box<str>>,
    /// Of this entry; with a key, those of either.
    pub entry: Option<EntryId>,
    /// With this on record as what came of it.
    pub result: Option<Box<str>>,
}

/// An event in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its sequence.
    pub position: i64,
    /// Its id in hexadecimal digits.
    pub id: Box<str>,
    /// The queue.
    pub queue: Box<str>,
    /// The queue's lane.
    pub lane: u32,
    /// What it is ordered by.
    pub key: Box<str>,
    /// Where it stands.
    pub state: State,
    /// Under which epoch a relay has it in its hands.
    pub in_hand: Option<i64>,
    /// How often it was taken up.
    pub attempts: u32,
    /// How often it could not be then.
    pub deferrals: u32,
    /// How many relays did not live to conclude it.
    pub deaths: u32,
    /// What becomes of later ones of its key while it is parked.
    pub on_failure: OnFailure,
    /// Why it was tried again, parked or discarded.
    pub reason: Option<Box<str>>,
    /// What came of it, if there is more to say than its state.
    pub result: Option<Box<str>>,
    /// When it was committed.
    pub created_at: Timestamp,
    /// When its state changed last.
    pub changed_at: Timestamp,
    /// When it is tried again, or until when it is kept.
    pub due_at: Option<Timestamp>,
    /// The route that it came from.
    pub route: Box<str>,
    /// Where in the queue.
    pub topic: Box<str>,
    /// CloudEvents `type`.
    pub kind: Box<str>,
    /// What else it says.
    pub attributes: Attributes,
}

impl Listed {
    /// When it came to its end, if it has.
    #[must_use]
    pub fn finished_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Parked | State::Sent | State::Discarded => Some(self.changed_at),
            State::Ready | State::Retrying | State::Waiting | State::Early => None,
        }
    }
}

/// Everything about an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// What a list shows.
    pub listed: Listed,
    /// The entry that it came from, in hexadecimal digits.
    pub entry: Box<str>,
    /// CloudEvents `source`.
    pub source: Box<str>,
    /// CloudEvents `datacontenttype`.
    pub content_type: Box<str>,
    /// The trace of the request.
    pub traceparent: Option<Box<str>>,
    /// What happened.
    pub data: Bytes,
    /// What people did to it, the earliest first.
    pub actions: Vec<Taken>,
}

/// Something that a person did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// What.
    pub action: Box<str>,
    /// In which state the event was.
    pub state: State,
    /// Who, if they said so.
    pub by: Option<Actor>,
    /// Why.
    pub reason: Box<str>,
    /// When.
    pub at: Timestamp,
}

/// What people can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Ready again: from parked or retrying, and from sent or discarded, which sends it once more.
    Retry,
    /// Never sent: from ready, retrying, waiting or parked.
    Discard {
        /// How long it is kept, for people.
        keep: Duration,
    },
}

impl Action {
    /// Discards, and keeps what is discarded for a week: time to notice a mistake.
    pub const DISCARD: Self = Self::Discard { keep: Duration::from_secs(7 * 24 * 60 * 60) };

    /// Whether it does something to an event in `state`.
    #[must_use]
    pub const fn is_for(self, state: State) -> bool {
        match (self, state) {
            (_, State::Parked | State::Retrying | State::Early)
            | (Self::Retry, State::Sent | State::Discarded)
            | (Self::Discard { .. }, State::Ready | State::Waiting) => true,
            (Self::Retry, State::Ready | State::Waiting) | (Self::Discard { .. }, State::Sent | State::Discarded) => {
                false
            }
        }
    }

    /// As it is put on record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Discard { .. } => "discard",
        }
    }
}

/// Something for [`Desk::act`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// What to do.
    pub action: Action,
    /// To which.
    pub to: Which,
    /// Why; kept on record with each.
    pub reason: Box<str>,
    /// Whether it is done.
    pub mode: Mode,
}

/// Which events an order is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// These, whatever their state as long as the action is for it. At most [`MAX_LISTED`].
    Ids(Vec<EventId>),
    /// The oldest that the filter finds, in states that it names.
    All {
        /// The filter.
        filter: Filter,
        /// How many, at most [`MAX_LISTED`].
        limit: u32,
    },
}

/// Whether an order is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only says what it would do.
    DryRun,
    /// It is done.
    Carry,
}

/// What an order did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acted {
    /// What was changed, as it was before.
    pub changed: Vec<Listed>,
    /// What was left alone: in a relay's hands, or in a state that the action is not for.
    pub left: Vec<Listed>,
}
