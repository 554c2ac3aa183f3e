//! Entries as people see them, and what people decide about them.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sha2::{Digest as _, Sha256};

use super::ledger::{Guarded, Sealed, StoreError, To};
use crate::clock::Timestamp;
use crate::entry::{Answer, EntryId, Identity, Nonce, StoredResponse};

/// Most entries of one list, and of one order: bounds memory and the time that an order takes.
pub const MAX_LISTED: u32 = 1_000;

/// The ledger as people see it.
///
/// Implementations pass the contract suite in `tests/it/ledger/desk.rs`.
pub trait EntryDesk: Send + Sync + 'static {
    /// Up to `limit` entries, after `after` if it is given: those that are not over with the oldest first, by when they
    /// came into their state; completed ones with the one whose answer is kept longest first.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<Place>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Page, StoreError>>;

    /// Those of `ids` that there are.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn find<'a>(&'a self, ids: &'a [EntryId]) -> BoxFuture<'a, Result<Page, StoreError>>;

    /// Everything about one.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn show(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Shown>, StoreError>>;

    /// Up to `limit` decisions, the latest first: about one entry, or about all; before number `before` if it is given.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn decisions(
        &self,
        of: Option<EntryId>,
        before: Option<i64>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Decision>, StoreError>>;

    /// How many entries are Unknown, and since when. Neither counts nor looks beyond `cap` of them.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn unsettled(&self, cap: u32) -> BoxFuture<'_, Result<Unsettled, StoreError>>;

    /// Carries `orders` out in one durable transaction, each with its record, and tells by index whether it was. Only an
    /// Unknown entry that still carries the order's nonce is settled.
    ///
    /// Idempotent by the orders' ids: applied again after an unclear commit, it tells the same.
    ///
    /// # Errors
    /// Nothing is written unless the error is [`StoreError::CommitUnknown`]; then all of it is, or nothing.
    fn settle<'a>(&'a self, orders: &'a [Order]) -> BoxFuture<'a, Result<Vec<Guarded>, StoreError>>;
}

/// What nobody knows the outcome of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unsettled {
    /// How many entries are Unknown, up to the cap.
    pub count: u64,
    /// For how long the oldest of those counted has been.
    pub oldest: Option<Duration>,
}

/// Where in its life an entry is, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// An execution is under way.
    InProgress,
    /// It may or may not have happened.
    Unknown,
    /// It happened.
    Completed,
    /// It happened, longer ago than its answer is kept.
    Tombstone,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::InProgress, Self::Unknown, Self::Completed, Self::Tombstone];

    /// As people write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Unknown => "unknown",
            Self::Completed => "completed",
            Self::Tombstone => "tombstone",
        }
    }
}

/// Which entries. What is not given does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// In this state.
    pub stage: Stage,
    /// Of this namespace.
    pub namespace: Option<Box<str>>,
    /// Of this route.
    pub route: Option<Box<str>>,
    /// Of this scope, as it is stored.
    pub scope: Option<Box<str>>,
    /// Of this key.
    pub key: Option<Box<str>>,
    /// In their state for at least so long.
    pub older_than: Duration,
    /// Only those that an answer came for after they had been settled.
    pub contradicted: bool,
}

impl Filter {
    /// All of one state.
    #[must_use]
    pub const fn of(stage: Stage) -> Self {
        Self {
            stage,
            namespace: None,
            route: None,
            scope: None,
            key: None,
            older_than: Duration::ZERO,
            contradicted: false,
        }
    }

    /// Whether it names anything but a state.
    #[must_use]
    pub fn names_some(&self) -> bool {
        let named = [&self.namespace, &self.route, &self.scope, &self.key].into_iter().any(Option::is_some);
        named || !self.older_than.is_zero() || self.contradicted
    }
}

/// An entry's place in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// What the list is ordered by.
    pub at: i64,
    /// Of those that have that in common, which.
    pub id: EntryId,
}

/// Some entries, and the database's time.
#[derive(Debug, Clone)]
pub struct Page {
    /// In order.
    pub entries: Vec<Listed>,
    /// When they were like that.
    pub now: Timestamp,
}

/// An entry in a list. Its texts are shown as they are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The digest of its identity.
    pub id: EntryId,
    /// Who may write to it.
    pub nonce: Nonce,
    /// The nonce of the claim that made it.
    pub origin: Nonce,
    /// What kind of operation it is.
    pub namespace: Box<str>,
    /// Whose it is.
    pub scope: Box<str>,
    /// The client's key.
    pub key: Box<str>,
    /// The route (or subscription) that it came by.
    pub route: Box<str>,
    /// Where in its life it is.
    pub stage: Stage,
    /// Number of the latest execution.
    pub attempt: u32,
    /// When it was claimed first.
    pub created_at: Timestamp,
    /// When the latest execution was claimed.
    pub started_at: Timestamp,
    /// When it came into its state.
    pub changed_at: Timestamp,
    /// By state: when it was claimed; its next lookup; the end of its answer; when it is forgotten.
    pub due_at: Option<Timestamp>,
    /// Lookups made so far.
    pub lookups: u32,
    /// Of its answer.
    pub status: Option<u16>,
    /// Whether an answer came after it had been settled.
    pub contradicted: bool,
}

impl Listed {
    /// Its place in the list that it came from.
    #[must_use]
    pub fn place(&self) -> Place {
        let at = match self.stage {
            Stage::InProgress | Stage::Unknown => self.changed_at.0,
            Stage::Completed => self.due_at.map_or(i64::MAX, |due| due.0),
            Stage::Tombstone => 0,
        };
        Place { at, id: self.id }
    }

    /// What an order must name to be about what was seen. Tells no nonce.
    #[must_use]
    pub fn version(&self) -> Version {
        let digest = Sha256::new_with_prefix(b"entry version").chain_update(self.id.0).chain_update(self.nonce.0);
        let digest = digest.chain_update(self.stage.as_str()).finalize();
        let mut version = [0; 16];
        version.copy_from_slice(&digest[..16]);
        Version(version)
    }
}

/// What somebody has seen of an entry: changes whenever a decision about it would be about something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(pub [u8; 16]);

impl Version {
    /// Reads its form for people.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u128::from_str_radix(text, 16).ok())?.map(|number| Self(number.to_be_bytes()))
    }
}

/// 32 hexadecimal digits.
impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Everything about an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// What a list shows.
    pub listed: Listed,
    /// Its identity; `None` if this version can't read it.
    pub identity: Option<Identity>,
    /// What its claim kept for whoever settles it.
    pub context: Result<Option<Bytes>, Sealed>,
    /// What is left of its answer, once completed.
    pub answer: Option<Answer>,
    /// How much longer than its answer it is remembered; `None` is for ever. Once completed.
    pub tombstone_ms: Option<i64>,
    /// The process whose lease vouches for its latest execution.
    pub instance: Option<Vouching>,
    /// The answer of an execution that came after it had been settled.
    pub evidence: Option<StoredResponse>,
}

/// The process of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vouching {
    /// For people: address and process.
    pub name: Box<str>,
    /// Whether its lease is held.
    pub alive: bool,
}

/// Who decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// As they call themselves.
    pub name: Box<str>,
    /// What let them: a token, a shell at the database.
    pub authority: Box<str>,
}

/// A decision to be carried out, and its record.
#[derive(Debug, Clone)]
pub struct Order {
    /// Random: who finds it on record has been there before.
    pub id: [u8; 16],
    /// The entry as it was seen: Unknown.
    pub entry: Listed,
    /// What becomes of it.
    pub to: Ending,
    /// Who decides.
    pub actor: Actor,
    /// Why.
    pub reason: Box<str>,
}

/// What becomes of an Unknown entry.
#[derive(Debug, Clone)]
pub enum Ending {
    /// Completed: always [`To::Completed`], under a nonce of its own.
    Completed(To),
    /// Not executed: the key is new again.
    NotExecuted,
}

/// A decision that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// In the order of the decisions.
    pub number: i64,
    /// About which entry.
    pub entry: EntryId,
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its scope.
    pub scope: Box<str>,
    /// Its key.
    pub key: Box<str>,
    /// Its route.
    pub route: Box<str>,
    /// The number of its latest execution then.
    pub attempt: u32,
    /// Since when its outcome was unknown.
    pub unknown_since: Timestamp,
    /// `completed` or `not_executed`.
    pub outcome: Box<str>,
    /// Of the answer that was given.
    pub status: Option<u16>,
    /// Who has decided.
    pub actor: Actor,
    /// Why.
    pub reason: Box<str>,
    /// When.
    pub at: Timestamp,
    /// The answer of an execution that came after all.
    pub evidence: Option<StoredResponse>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(nonce: u8, stage: Stage) -> Listed {
        Listed {
            id: EntryId([1; 32]),
            nonce: Nonce([nonce; 16]),
            origin: Nonce([1; 16]),
            namespace: "pay".into(),
            scope: "global".into(),
            key: "1".into(),
            route: "pay".into(),
            stage,
            attempt: 1,
            created_at: Timestamp(0),
            started_at: Timestamp(0),
            changed_at: Timestamp(0),
            due_at: None,
            lookups: 0,
            status: None,
            contradicted: false,
        }
    }

    #[test]
    fn a_version_is_another_one_for_each_nonce_and_state_and_stays_while_lookups_are_made() {
        let seen = listed(1, Stage::Unknown);
        assert_ne!(seen.version(), listed(2, Stage::Unknown).version());
        assert_ne!(seen.version(), listed(1, Stage::InProgress).version());
        let asked_about = Listed { lookups: 7, due_at: Some(Timestamp(9)), ..seen.clone() };
        assert_eq!(seen.version(), asked_about.version());
        assert_eq!(Version::from_hex(&seen.version().to_string()), Some(seen.version()));
        assert_eq!(Version::from_hex("+0000000000000000000000000000000"), None);
    }
}
