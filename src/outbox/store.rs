//! The outbox's contract: what a relay asks of the database, in the relay's words.
//!
//! A queue's events are split into *lanes* by a hash of their key. A lane is leased to one relay under an
//! *epoch* that grows each time the lane changes hands; every mark names lane, owner and epoch. All times that
//! decide are the database's.
//!
//! States of an event, as the relay moves it:
//!
//! | from | to | by |
//! |---|---|---|
//! | (none) | ready | the transaction that recorded the outcome |
//! | ready, retrying (due), waiting (its turn) | in hand: ready under an epoch, attempts + 1 | [`Outbox::turn`] acquires |
//! | ready | waiting | [`Outbox::turn`]: an earlier one of its key stands in the way |
//! | in hand | sent, retrying, parked | [`How::Sent`], [`How::Retry`], [`How::Parked`] |
//! | in hand | retrying, attempts - 1 | [`How::Later`] |
//! | in hand | early, attempts - 1 | [`How::Early`] |
//! | early (due) | in hand; or early for a moment more: its key has a line | [`Outbox::turn`] |
//! | in hand | ready, attempts - 1 | [`How::GivenBack`] |
//! | in hand | waiting, attempts - 1 | [`How::Waiting`] |
//! | sent, discarded | (none) | [`Outbox::reap`], past its time |
//!
//! **The line of a key.** A retrying event, and a parked one that holds, stop their key. The store keeps the key's
//! line itself: who stops it, and who waits behind, in order. Whatever a turn meets of a stopped key waits, and
//! when the first of the line is gone (sent, discarded, parked without holding) the same transaction lets the next
//! ones go. A relay needs to remember no blocked keys, neither when it takes a lane nor later, and a line never
//! stands without somebody at its head who will be taken up.
//!
//! An early event is in no line: it waits for another one of its key, wherever that is. It is taken up when it is
//! due and nobody stops its key. It is due in time, and as soon as whom it waits for is sent ([`How::Sent`]).
//!
//! **A crash** leaves what was in hand under an epoch that is over. The next owner's turn finds it as such,
//! counts a death, and hands it out alone.

use std::time::Duration;

use futures_util::future::BoxFuture;

pub use super::backlog::Backlog;
use super::event::{EventId, OnFailure, Outgoing};
pub use super::late::Late;
pub use super::reach::Reach;
use crate::clock::Timestamp;
use crate::engine::ledger::{Guarded, StoreError};

/// Most lanes of a queue: what one statement names at once.
pub const MAX_LANES: u32 = 256;

/// Most conclusions of one turn, and most events that it acquires: bounds the transaction.
pub const MAX_TURN: usize = 4096;

/// The events of a database on their way to their queues.
///
/// Implementations pass the contract suite in `tests/it/outbox/contract/`. Unless said otherwise, nothing is
/// written when a call fails, but for [`StoreError::CommitUnknown`]: then all of it is, or nothing, and the
/// same call again settles it.
pub trait Outbox: Send + Sync + 'static {
    /// Makes the queue's lanes, if nobody has, and says how many there are. The database's number wins over
    /// `wanted` (1 to [`MAX_LANES`]): no event becomes unreachable and no key moves because a process is
    /// configured otherwise.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn open<'a>(&'a self, queue: &'a str, wanted: u32) -> BoxFuture<'a, Result<u32, StoreError>>;

    /// Renews the relay's heartbeat and all lanes that it owns, for `lease` from the database's now, and takes
    /// free or expired ones up to its fair share, as `taking` says. Takes none from a live owner.
    ///
    /// A lane that expired but that nobody has taken is renewed under its old epoch: what the relay has in hand
    /// still is its own. The relay compares [`Leased::held`] with what it knew: a lane that is missing, or that
    /// has another epoch, is lost with all that was in hand; a new pair of lane and epoch is one to work on. So
    /// an unclear commit is settled by the next call.
    ///
    /// `trouble` is why the broker takes nothing from this relay now, if it does not: for people, who see it at the
    /// [desk](super::desk::Desk::relays).
    ///
    /// # Errors
    /// If the database can't be asked.
    fn lease<'a>(
        &'a self,
        queue: &'a str,
        relay: RelayId,
        lease: Duration,
        taking: Taking,
        trouble: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Leased, StoreError>>;

    /// Lets go of `lanes` at once, where they still are the relay's under these epochs. What is in hand must
    /// have been concluded before: what is not looks like a death.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn release<'a>(
        &'a self,
        queue: &'a str,
        relay: RelayId,
        lanes: &'a [Lane],
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Lets go of all lanes and ends the relay's heartbeat, so that the others' shares grow at once.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn retire<'a>(&'a self, queue: &'a str, relay: RelayId) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Concludes, lets go what waited, and acquires, in this order and in one transaction, which holds the lanes'
    /// rows: a lane can't change hands in the middle of it.
    ///
    /// Once this returns, a crash of the relay's process forgets nothing of it. A crash of the database may forget a
    /// turn without conclusions, and whatever turns without conclusions came after it, as if they had never been
    /// applied: what they took up is ready again, is acquired once more, and its attempt is counted then. Nobody
    /// waits for a disk between a commit and its broker for that. A turn with conclusions is durable, and so is all
    /// that was before it: an event that is concluded is never in anybody's hands again.
    ///
    /// A relay has at most one turn on its way. After [`StoreError::CommitUnknown`] it applies the same turn
    /// again, with [`Turn::again`] set: conclusions that are already so are [`Guarded::Done`], and what the lost
    /// application acquired is handed out without being counted a second time.
    ///
    /// # Errors
    /// If the database can't be asked, or the turn is larger than [`MAX_TURN`].
    fn turn<'a>(&'a self, turn: &'a Turn) -> BoxFuture<'a, Result<Turned, StoreError>>;

    /// What of the queue is not sent, for metrics. Counts stop at `cap`.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn backlog<'a>(&'a self, queue: &'a str, cap: u32) -> BoxFuture<'a, Result<Backlog, StoreError>>;

    /// Removes up to about `limit` sent or discarded events of `lanes` whose time is over, and says how many.
    /// Never anything unsent or parked. The relay calls it for its own lanes now and then, and again at once
    /// while it removes `limit` or more.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn reap<'a>(&'a self, queue: &'a str, lanes: &'a [u32], limit: u32) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// Wakes the relays of other processes that [`Self::listen`]. Call it after the commit, outside of its
    /// transaction and not for every one: the caller coalesces. Does nothing where the database has no such
    /// thing.
    ///
    /// # Errors
    /// If the database can't be asked. Polling is the net.
    fn notify<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Calls `woken` whenever another process notifies, for ever, on a connection of its own that is opened
    /// again when it breaks. Ends at once where the database has no such thing. Dropping it ends it.
    fn listen(&self, woken: Box<dyn FnMut(Woken) + Send>) -> BoxFuture<'_, ()>;
}

/// One run of one queue's relay. Random, so that one that has ended never comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayId(pub [u8; 16]);

impl RelayId {
    /// A fresh one.
    #[must_use]
    pub fn random() -> Self {
        Self(crate::chance::random())
    }
}

/// A lane as a relay holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// Which of the queue's lanes, from 0.
    pub number: u32,
    /// Under which epoch. The guard of every mark.
    pub epoch: i64,
}

/// Whether a relay takes lanes that are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// Up to its fair share.
    Share,
    /// None, and its heartbeat is not renewed: it is about to leave, and the others' shares may grow.
    Nothing,
}

/// What a relay holds after a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leased {
    /// The database's time.
    pub now: Timestamp,
    /// How many lanes the queue has.
    pub lanes: u32,
    /// How many relays of the queue are alive, this one included if it takes its share.
    pub relays: u32,
    /// How many lanes are this relay's fair share, rounded up. Above it, it drains lanes and releases them.
    pub share: u32,
    /// The lanes that it holds now, in order of their numbers.
    pub held: Vec<Lane>,
}

/// What one transaction of a relay is to do.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The queue.
    pub queue: Box<str>,
    /// Who asks.
    pub relay: RelayId,
    /// What became of events in hand. Together with a failed event, those of its key that were published after
    /// it are concluded, in the same turn.
    pub conclusions: Vec<Conclusion>,
    /// From which lanes to acquire, and how many.
    pub wants: Vec<Want>,
    /// Most bytes of data to acquire; one event comes in any case. Bounds memory.
    pub bytes: u64,
    /// Whether an event that several relays have died of may be among them.
    pub suspects: Suspects,
    /// What is done besides for each event that it parks.
    pub parking: Parking,
    /// What becomes of events that were committed late.
    pub late: Late,
    /// Set when the same turn is applied again after an unclear commit: the positions that were in hand before
    /// it, its own conclusions included. What else is in hand under the lanes' epochs was acquired by the lost
    /// application.
    pub again: Option<Vec<i64>>,
}

/// What becomes of an event that is parked, beside its waiting for a person. Nothing, for events of the outbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parking {
    /// What is put on record as what came of it, where [`How::Parked`] says nothing.
    pub result: Option<&'static str>,
    /// Where a copy of it goes.
    pub dead_letter: Option<DeadLetter>,
}

/// Where copies of parked events go: as events of another queue, written in the transaction that parks.
///
/// A copy has an id of its own, which is derived from the original's and the number of times that a person has
/// retried it: parked again by the same turn, it is the same copy, parked after a redrive, another one. It says what
/// the original says, and why it was parked, as extensions of CloudEvents (`src/storage/outbox/bury.rs`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The queue. Its relay must run somewhere.
    pub queue: Box<str>,
    /// The topic.
    pub topic: Box<str>,
}

/// What to acquire of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// The lane. One that holds an event that came alone is not asked for until it is concluded.
    pub lane: Lane,
    /// Most events, in order of position. At least 1.
    pub limit: u32,
    /// Whether to look for retries that are due as well: when one is known to be, and each second for those of
    /// other relays.
    pub retries: Retries,
    /// Which of the ready ones.
    pub reach: Reach,
}

/// Whether to look for due retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retries {
    /// Those that are due are acquired, before the ready ones.
    Due,
    /// None is.
    Leave,
}

/// Whether events that are likely to kill their relay may be acquired.
///
/// An event that was in the hands of a relay that died comes alone: it is the only one acquired of its lane in
/// the turn. After a second death ([`Acquired::deaths`] of 2 or more) it also is the only one of its kind in the
/// turn, so that a killer is told from its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspects {
    /// One may. The relay has no event with two deaths or more in hand.
    Take,
    /// A lane whose next one has two deaths or more gives nothing.
    Leave,
}

/// What became of an event in hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conclusion {
    /// The lane, as when it was acquired.
    pub lane: Lane,
    /// The event.
    pub position: i64,
    /// The same, where it can be read. A database that has lost its last commits may give a position out again.
    pub id: Option<EventId>,
    /// What became of it.
    pub how: How,
}

/// What becomes of an event in hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// The broker has confirmed it. It is kept for a while, for people.
    Sent {
        /// How long.
        keep: Duration,
        /// What came of it, if there is more to say.
        result: Option<&'static str>,
        /// The version of its key that an early event may be whose time has come: the same transaction makes it due.
        frees: Option<i64>,
    },
    /// It was not taken; again later. Its key stops. The attempt counts, and deaths are forgotten: a relay has
    /// published it and lived.
    Retry {
        /// How long from now.
        after: Duration,
        /// What the broker said.
        reason: Box<str>,
    },
    /// Nothing is wrong with it, but it can't be now; again later. Its key stops. The attempt does not count, and
    /// deaths are forgotten.
    Later {
        /// How long from now.
        after: Duration,
        /// Why.
        reason: Box<str>,
    },
    /// As [`Self::Later`], but its key goes on: it waits for another one of it.
    Early {
        /// How long from now.
        after: Duration,
        /// Why.
        reason: Box<str>,
    },
    /// It has failed for good, and waits for a person. Its key stops if [`Acquired::on_failure`] says so.
    Parked {
        /// Why.
        reason: Box<str>,
        /// What came of it, if there is more to say.
        result: Option<&'static str>,
    },
    /// It was not tried, or the broker was not there: the attempt does not count.
    GivenBack,
    /// One of its key that comes before it has failed: it waits behind that one, and the attempt does not count.
    Waiting,
}

impl How {
    /// After which time it is taken up again, if that is known.
    pub(super) fn again_after(&self) -> Option<Duration> {
        match self {
            Self::Retry { after, .. } | Self::Later { after, .. } | Self::Early { after, .. } => Some(*after),
            Self::Sent { .. } | Self::Parked { .. } | Self::GivenBack | Self::Waiting => None,
        }
    }
}

/// What a turn did.
#[derive(Debug, Clone)]
pub struct Turned {
    /// The database's time.
    pub now: Timestamp,
    /// Lanes of the turn that are not the relay's (any more): none of their conclusions was written, nothing of
    /// them acquired, and what of them is in hand is somebody else's.
    pub lost: Vec<Lane>,
    /// One for each conclusion. [`Guarded::Fenced`] in a lane that is not lost: it is not in hand, nor as asked.
    pub concluded: Vec<Guarded>,
    /// What is in hand now, in order of position. Publish those of a key in this order.
    pub acquired: Vec<Acquired>,
    /// Lanes where there may be more, and where: limit, bytes or reach ended this look, or what it met had to wait.
    pub more: Vec<(Lane, Reach)>,
}

/// An event in the relay's hands.
#[derive(Debug, Clone, PartialEq)]
pub struct Acquired {
    /// Its lane, and the epoch that its conclusion names.
    pub lane: Lane,
    /// Names it in its conclusion.
    pub position: i64,
    /// The same, where it can be read.
    pub id: Option<EventId>,
    /// What it is ordered by.
    pub key: Box<str>,
    /// How often it has been taken up, this time included.
    pub attempts: u32,
    /// How often it was [`How::Later`] or [`How::Early`] since it was new or a person's.
    pub deferrals: u32,
    /// Whether it was [`How::Early`] the last time: so it is again if another one of its key is in hand.
    pub came_early: bool,
    /// How many relays did not live to conclude it. With one, it is alone in its lane: want nothing more of the
    /// lane until it is concluded. With as many as the relay allows, it is parked unpublished.
    pub deaths: u32,
    /// How often a person has had it published again.
    pub redrives: u32,
    /// What becomes of later ones of its key should it be parked.
    pub on_failure: OnFailure,
    /// What to publish; or why nobody can: then it is to be concluded [`How::Parked`] with this reason.
    pub event: Result<Outgoing, Box<str>>,
}

/// Why a relay is woken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Woken {
    /// Events were committed for this queue.
    Queue(Box<str>),
    /// For any queue, perhaps: the connection is new, and what came before it was not heard.
    Any,
}
