//! What the queue door asks of the database, beside the [`Outbox`](crate::outbox::store::Outbox) that works what it
//! keeps.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::engine::ledger::StoreError;
use crate::entry::EntryId;
pub use crate::outbox::delivery::{QUEUE_PREFIX, attribute, queue_of, subscription_of};
use crate::outbox::event::NewEvent;

/// Most deliveries of one [`Deposits::deposit`]: bounds the transaction.
pub const MAX_DEPOSIT: usize = 1024;

/// The longest text of a column in bytes: topic, type, source, route, content type. Keys have
/// [`MAX_EVENT_KEY_BYTES`](crate::outbox::event::MAX_EVENT_KEY_BYTES).
pub const MAX_TEXT_BYTES: usize = 255;

/// `text` as a column takes it: at most [`MAX_TEXT_BYTES`] long and without NUL. A message whose type is a novel is
/// delivered all the same; the whole text is among its attributes.
#[must_use]
pub fn short(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].replace('\0', " ").into()
}

/// A message on its way into the work table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDelivery {
    /// The entry that its business key names: for people, and to find deliveries by their key. Zeros where it has
    /// none.
    pub entry: EntryId,
    /// What it says. The queue is [`queue_of`] the subscription, the lane that of its key there, the id
    /// [`EventId::of_delivery`], the route the subscription; what makes it park is that it has no usable key, or
    /// that it can't be understood.
    ///
    /// [`EventId::of_delivery`]: crate::outbox::event::EventId::of_delivery
    pub event: NewEvent,
}

/// A step of a consumer's cursor in an embedded queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The queue.
    pub queue: Box<str>,
    /// The topic.
    pub topic: Box<str>,
    /// Whose it is: the subscription's group.
    pub consumer: Box<str>,
    /// Where it was, as [`Deposits::position`] said.
    pub from: i64,
    /// The position of the last message that is deposited with it.
    pub to: i64,
}

/// A consumer of an embedded queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerId {
    /// The queue.
    pub queue: Box<str>,
    /// The topic.
    pub topic: Box<str>,
    /// Whose cursor it is: the subscription's group.
    pub consumer: Box<str>,
}

/// How far a consumer of an embedded queue has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whose cursor it is.
    pub id: ConsumerId,
    /// Of the last message that it has taken.
    pub position: i64,
    /// How many it has not: at most 10,000 are counted.
    pub left: u64,
}

/// What a deposit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deposited {
    /// All of them are there, of which so many were not before; the cursor is where it was to go.
    Done {
        /// How many were new.
        new: usize,
    },
    /// Nothing was written: somebody else has moved the cursor. Read its position again.
    Overtaken,
}

/// The state of an entity, as the messages count it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its number. Higher is later.
    pub number: i64,
    /// What tells two messages of the same number apart: at most 64 bytes, which the store does not look into.
    pub digest: Box<[u8]>,
}

/// Keeps what is received, and where receiving stands.
///
/// Implementations pass the contract suite in `tests/it/inbox/contract/`. Unless said otherwise, nothing is written
/// when a call fails, but for [`StoreError::CommitUnknown`]: then all of it is, or nothing, and the same call again
/// settles it.
pub trait Deposits: Send + Sync + 'static {
    /// Keeps `deliveries`, in their order and in one durable transaction; from its commit on they may be
    /// acknowledged. One whose id is there already is passed over.
    ///
    /// With a cursor the same transaction moves it from where it was. Where somebody else has moved it, nothing is
    /// written; where it is at its goal already, by this very call before, the deposit goes on.
    ///
    /// The queue of each must have been [opened](crate::outbox::store::Outbox::open).
    ///
    /// # Errors
    /// If the database can't be asked, or takes one of them not as it is ([`StoreError::Refused`]): deposit them one
    /// by one then, and that one without what it says, parked. Or if there are more than [`MAX_DEPOSIT`].
    fn deposit<'a>(
        &'a self,
        deliveries: &'a [NewDelivery],
        cursor: Option<&'a Cursor>,
    ) -> BoxFuture<'a, Result<Deposited, StoreError>>;

    /// Makes a consumer of an embedded queue known, at the beginning unless it is known already: from now on no message
    /// of the topic [leaves](crate::broker::embedded::Messages::trim) that it has not taken.
    ///
    /// # Errors
    /// If the database can't be asked. It may be called again at any time.
    fn enlist<'a>(&'a self, queue: &'a str, topic: &'a str, consumer: &'a str)
    -> BoxFuture<'a, Result<(), StoreError>>;

    /// The position after which a consumer of an embedded queue goes on; 0 before the first message.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn position<'a>(
        &'a self,
        queue: &'a str,
        topic: &'a str,
        consumer: &'a str,
    ) -> BoxFuture<'a, Result<i64, StoreError>>;

    /// The cursors of all embedded queues, in the order of their names.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn standings(&self) -> BoxFuture<'_, Result<Vec<Standing>, StoreError>>;

    /// Forgets a cursor, and says whether there was one.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn forget_cursor<'a>(&'a self, id: &'a ConsumerId) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// The version of `entity` that `subscription` has applied last, if any. `entity` is the delivery's line key.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn version<'a>(
        &'a self,
        subscription: &'a str,
        entity: &'a str,
    ) -> BoxFuture<'a, Result<Option<Version>, StoreError>>;

    /// Puts on record that `version` was applied, unless a higher or the same one is, and says which one is on
    /// record then. The same call again changes nothing.
    ///
    /// # Errors
    /// If the database can't be asked. It may be called again at any time.
    fn advance<'a>(
        &'a self,
        subscription: &'a str,
        entity: &'a str,
        version: &'a Version,
    ) -> BoxFuture<'a, Result<Version, StoreError>>;

    /// Notes that the version on record for `entity` was needed just now: it is kept as long as if it had been applied
    /// now.
    ///
    /// # Errors
    /// If the database can't be asked. It may be called again at any time.
    fn still_newer<'a>(&'a self, subscription: &'a str, entity: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Forgets up to `limit` entities of `subscription` whose last version was applied, or
    /// [needed](Self::still_newer), longer ago than `keep`, the oldest first, and says how many. None of which a
    /// delivery waits, for its turn or for a person: an older version may be sent again however late.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn forget_versions<'a>(
        &'a self,
        subscription: &'a str,
        keep: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, StoreError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_of_deliveries_names_its_subscription() {
        assert_eq!(&*queue_of("award-points"), "sub:award-points");
        assert_eq!(subscription_of("sub:award-points"), Some("award-points"));
        assert_eq!(subscription_of("default"), None);
    }

    #[test]
    fn texts_are_cut_as_columns_take_them() {
        assert_eq!(&*short("a\0b"), "a b");
        let long = "\u{20ac}".repeat(100);
        assert_eq!(short(&long).len(), 255);
        assert_eq!(short(&"\0".repeat(300)).len(), 255);
    }
}
