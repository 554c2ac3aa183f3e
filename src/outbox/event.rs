//! Events: what is announced once an outcome is on record.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::clock::Timestamp;
use crate::entry::{Key, Nonce};

/// Names an event for ever: a retry or a takeover can't mint a second one, and a key that is used again after
/// its tombstone can't repeat an old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub [u8; 16]);

impl EventId {
    /// The id of the event that is configured as `name`, of the entry that was created under `origin`.
    #[must_use]
    pub fn of(origin: Nonce, name: &str) -> Self {
        Self::cut(Sha256::new().chain_update(origin.0).chain_update(name.as_bytes()))
    }

    /// The id of the delivery of a message to a subscription. A message that comes again is the same delivery.
    ///
    /// `source` and `message` are what its producer calls it (empty where there is no source), `data` what it says:
    /// a producer that uses an id twice for different things does not have the second one taken for the first.
    #[must_use]
    pub fn of_delivery(subscription: &str, source: &str, message: &str, data: &[u8]) -> Self {
        let digest = Sha256::new_with_prefix(b"delivery");
        let parts = [subscription.as_bytes(), source.as_bytes(), message.as_bytes(), data];
        Self::cut(
            parts
                .into_iter()
                .fold(digest, |digest, part| digest.chain_update((part.len() as u64).to_be_bytes()).chain_update(part)),
        )
    }

    /// The id of the same delivery where neither the message's id nor its data say which operation it is about: a
    /// producer that uses an id twice, with the same data and another key in a header, means two things.
    #[must_use]
    pub fn of_operation(self, key: &Key) -> Self {
        Self::cut(Sha256::new_with_prefix(b"operation").chain_update(self.0).chain_update(key.as_str()))
    }

    /// The id of the copy that goes to the dead letters when this one is parked after so many redrives.
    #[must_use]
    pub fn dead_letter(self, redrives: u32) -> Self {
        Self::cut(Sha256::new_with_prefix(b"dead").chain_update(self.0).chain_update(redrives.to_be_bytes()))
    }

    /// Reads its form for people.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u128::from_str_radix(text, 16).ok())?.map(|id| Self(id.to_be_bytes()))
    }

    fn cut(digest: Sha256) -> Self {
        let digest = digest.finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self(id)
    }
}

/// As the brokers and people see it: 32 hexadecimal digits.
impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// An event on its way into the outbox, in the transaction that records the outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// What it announces, and where it goes.
    pub event: Envelope,
    /// The lane of its key in its queue, from 0.
    pub lane: u32,
    /// Whether it is parked unpublished when its turn comes, and why: what it says, or whether it is to be sent at
    /// all, could not be found out.
    pub parked: Option<Box<str>>,
    /// What becomes of later events of its key should this one fail for good.
    pub on_failure: OnFailure,
}

/// What an event says, whatever the broker: the attributes of CloudEvents 1.0, and its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// CloudEvents `id`.
    pub id: EventId,
    /// The configured queue, by name.
    pub queue: Box<str>,
    /// Where in the queue: a routing key, topic, subject, stream or path, by the kind of broker.
    pub topic: Box<str>,
    /// What it is ordered by. At most [`MAX_EVENT_KEY_BYTES`].
    pub key: Box<str>,
    /// CloudEvents `type`.
    pub kind: Box<str>,
    /// CloudEvents `source`.
    pub source: Box<str>,
    /// The route that it came from: for people.
    pub route: Box<str>,
    /// CloudEvents `datacontenttype`.
    pub content_type: Box<str>,
    /// The trace of the request (W3C Trace Context), as stored when it was claimed.
    pub traceparent: Option<Box<str>>,
    /// What else is said.
    pub attributes: Attributes,
    /// What happened.
    pub data: Bytes,
}

/// More attributes of an event, by their names. Those that CloudEvents would take as extensions go out with it; any
/// other name is kept for people.
pub type Attributes = BTreeMap<Box<str>, Box<str>>;

/// The longest key of an event: what each database's index takes. A longer one is replaced by its digest.
pub const MAX_EVENT_KEY_BYTES: usize = 255;

/// What becomes of later events of a key when one has failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// They wait until a person has decided about it: nobody sees a later state without the earlier one.
    #[default]
    Hold,
    /// They go on.
    Skip,
}

/// An event as it lies in the outbox, on its way to its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// What it announces, and where it goes.
    pub event: Envelope,
    /// Grows with each event of a key whose commits do not overlap: a consumer can tell a late one.
    pub sequence: i64,
    /// The epoch of the relay that publishes it: of two relays that believe in the same lane, the later.
    pub epoch: i64,
    /// When it was committed. CloudEvents `time`.
    pub time: Timestamp,
    /// How often it was taken up and that counted, this time included.
    pub attempts: u32,
    /// Whether it was in hand before, and may have been published then.
    pub tried: bool,
    /// How often a person has had it published again.
    pub redrives: u32,
}

impl Outgoing {
    /// What a broker that passes over copies knows it by: its id, as in each try, but another one each time that a
    /// person wants it published again. The event says its own id all the same.
    #[must_use]
    pub fn copy_id(&self) -> String {
        match self.redrives {
            0 => self.event.id.to_string(),
            redrives => format!("{}.{redrives}", self.event.id),
        }
    }
}
