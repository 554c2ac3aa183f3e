//! What makes two deliveries the same message, and which of two is the newer one.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::entry::json;
use crate::entry::{EntryId, Key, KeyError, Namespace};

/// A message as a consumer's inbox tells it from others.
///
/// **The key decides.** Take it from the business (an order number, a payment's id), not from the transport: a
/// producer that sends again after a time-out gives the broker a new id, and the order is the same. Where one
/// number can have several messages, the key is the number and what happened to it: [`Self::composite`].
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub(crate) key: Key,
    pub(crate) id: Option<Key>,
    pub(crate) digest: Option<MessageDigest>,
    pub(crate) version: Option<Version>,
}

/// SHA-256 of what a message means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MessageDigest(pub [u8; 32]);

/// Which state of an entity a message carries.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) entity: Key,
    pub(crate) number: i64,
}

/// Why a message can't be told from others. It never can: dead-letter it, and never let an empty key stand for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// There is nothing to take a key from.
    #[error("the message has no key and no id")]
    NoKey,
    /// It is not what the consumer can read.
    #[error("the message can't be read")]
    Unreadable,
    /// Its key is empty, too long, or holds control characters. Keys are never truncated.
    #[error("the message's key can't be one: {0}")]
    Key(KeyError),
    /// So is its entity.
    #[error("the message's entity can't be one: {0}")]
    Entity(KeyError),
}

impl Message {
    /// A message known by its business `key`: 1 to 255 bytes, compared byte for byte.
    ///
    /// # Errors
    /// If that can't be a key.
    pub fn new(key: &str) -> Result<Self, MessageError> {
        Ok(Self::of_key(Key::from_business(key).map_err(MessageError::Key)?))
    }

    /// A message known by several values, as (order number, event type). No two lists spell the same key.
    ///
    /// # Errors
    /// If one of them is empty: it would make messages the same that have nothing in common.
    pub fn composite(parts: &[&str]) -> Result<Self, MessageError> {
        if parts.is_empty() || parts.iter().any(|part| part.trim().is_empty()) {
            return Err(MessageError::Key(KeyError::Empty));
        }
        Ok(Self::of_key(Key::composite(parts)))
    }

    fn of_key(key: Key) -> Self {
        Self { key, id: None, digest: None, version: None }
    }

    /// Compares what the message says as well: the same key with another `payload` is a
    /// [`Conflict`](super::Begun::Conflict), not a duplicate. JSON counts by its meaning (member order, white space
    /// and the writing of numbers do not matter), anything else by its bytes.
    ///
    /// Leave it out where a redelivery may differ in what does not matter, such as a time of sending.
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.digest = Some(MessageDigest::of(payload));
        self
    }

    /// Says that the message carries the whole state of `entity` as of its version `number`, which grows with each
    /// change: an older one that comes after a newer one is [`Stale`](super::Begun::Stale).
    ///
    /// # Errors
    /// If `entity` can't be a key.
    pub fn version(mut self, entity: &str, number: i64) -> Result<Self, MessageError> {
        let entity = Key::from_business(entity).map_err(MessageError::Entity)?;
        self.version = Some(Version { entity, number });
        Ok(self)
    }

    /// How its producer or its broker calls it. Decides nothing: a message that comes again under another id is
    /// counted (`oncegate_inbox_new_ids_total`), since its producer makes ids anew. One that could not be stored is
    /// left out.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        self.id = Key::from_business(id).ok();
        self
    }

    /// The key, as it was given or made.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// What it must be handled in order with: its entity, if it has one.
    pub(super) fn entity(&self) -> Option<&str> {
        self.version.as_ref().map(|version| version.entity.as_str())
    }

    /// The digest of who handles it and which it is. No namespace has a colon of its own, so that marks of inboxes
    /// and of requests never meet.
    pub(crate) fn record_id(&self, consumer: &Namespace) -> EntryId {
        EntryId::of_parts(&["inbox:", consumer.as_str(), self.key.as_str()])
    }
}

impl Version {
    pub(crate) fn entity_id(&self, consumer: &Namespace) -> EntryId {
        EntryId::of_parts(&["inbox:entity:", consumer.as_str(), self.entity.as_str()])
    }
}

impl MessageDigest {
    /// Of JSON by its meaning, of anything else by its bytes. The tags keep the two apart.
    #[must_use]
    pub fn of(payload: &[u8]) -> Self {
        let digest = match json::meaning(payload) {
            Some(meaning) => Sha256::new_with_prefix(b"J").chain_update(meaning),
            None => Sha256::new_with_prefix(b"B").chain_update(payload),
        };
        Self(digest.finalize().into())
    }
}

impl fmt::Debug for MessageDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}…", self.0[0], self.0[1])
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?}", self.number, self.entity)
    }
}

/// Shows no whole key.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, id, digest, version } = self;
        f.debug_struct("Message")
            .field("key", key)
            .field("id", id)
            .field("digest", digest)
            .field("version", version)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumer(name: &str) -> Namespace {
        Namespace::new(name).unwrap()
    }

    #[test]
    fn what_can_not_be_a_key_is_refused_and_never_cut() {
        for (key, error) in [("", KeyError::Empty), (" \t", KeyError::Empty), ("a\nb", KeyError::Malformed)] {
            assert_eq!(Message::new(key), Err(MessageError::Key(error)), "{key:?}");
        }
        let longest = "k".repeat(255);
        assert_eq!(Message::new(&longest).unwrap().key(), longest);
        assert_eq!(Message::new(&format!("{longest}k")), Err(MessageError::Key(KeyError::TooLong)));
        assert_eq!(Message::composite(&["1001", " "]), Err(MessageError::Key(KeyError::Empty)));
        assert_eq!(Message::composite(&[]), Err(MessageError::Key(KeyError::Empty)));
        let entity = Message::new("a").unwrap().version("", 1);
        assert_eq!(entity, Err(MessageError::Entity(KeyError::Empty)));
    }

    #[test]
    fn consumers_and_parts_never_meet() {
        let id = |consumer: &Namespace, parts: &[&str]| Message::composite(parts).unwrap().record_id(consumer);
        let (points, stock) = (consumer("points"), consumer("stock"));
        assert_ne!(id(&points, &["a", "bc"]), id(&points, &["ab", "c"]));
        assert_ne!(id(&points, &["a"]), id(&stock, &["a"]));
        let message = Message::new("a").unwrap().version("a", 1).unwrap();
        assert_ne!(message.record_id(&points), message.version.as_ref().unwrap().entity_id(&points));
    }

    /// Rows are found by it for as long as they are kept.
    #[test]
    fn the_ids_of_a_message_and_of_an_entity_are_stable_for_ever() {
        let message = Message::new("1001").unwrap().version("order-1001", 7).unwrap();
        let points = consumer("points");
        let ids = [message.record_id(&points), message.version.as_ref().unwrap().entity_id(&points)];
        assert_eq!(
            ids.map(EntryId::to_hex),
            [
                "0bde0725fde175013513862971c75b43319d0620d73c2a20b5b2fbe8a44987c2",
                "5559a34da95e9c2d9c66f3d71ab41cacffcb47dbd7a96fb1674bba07009cad17",
            ]
        );
    }

    #[test]
    fn json_is_compared_by_meaning_and_other_data_by_bytes() {
        let same = [r#"{"order": 1, "cents": 1.0e2}"#, r#"{"cents":100,"order":1}"#];
        assert_eq!(MessageDigest::of(same[0].as_bytes()), MessageDigest::of(same[1].as_bytes()));
        assert_ne!(MessageDigest::of(b"{\"cents\":100}"), MessageDigest::of(b"{\"cents\":101}"));
        assert_ne!(MessageDigest::of(b"<order id='1'/>"), MessageDigest::of(b"<order id='1' />"));
        // A member that comes twice can be read in two ways: it counts by bytes.
        assert_ne!(MessageDigest::of(b"{\"a\":1,\"a\":2}"), MessageDigest::of(b"{\"a\":1, \"a\":2}"));
    }

    #[test]
    fn debug_shows_a_part_of_the_key_only() {
        let message = Message::new("secret-order-1").unwrap().id("secret-id-1").version("secret-entity", 3).unwrap();
        let shown = format!("{message:?}");
        assert!(shown.contains("secr…") && !shown.contains("secret-"), "{shown}");
    }
}
