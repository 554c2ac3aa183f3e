//! The words and the pure rules: what a key is, whose it is, what a request means, and what an arriving
//! request is told. No I/O, no clock, no randomness; those come in as arguments.
//!
//! States of an entry (`-` is "no row"):
//!
//! | from | by | to |
//! |---|---|---|
//! | - | claim | in progress |
//! | in progress | completion under its nonce | completed |
//! | in progress | release under its nonce (first attempt only) | - |
//! | in progress | time-out, lost connection, dead owner | unknown |
//! | unknown | late completion under the same nonce; settling (lookup, operator) under a new nonce | completed |
//! | unknown | forward again under a new nonce, attempt + 1 | in progress |
//! | unknown | settled as not executed | - |
//! | completed | retention over | tombstone |
//! | tombstone | its time over | - |

pub mod admission;
pub mod fingerprint;
mod id;
pub mod json;
mod key;
mod number;
mod outcome;
mod pointer;
mod query;
pub mod response;
mod scope;
pub mod source;
mod spelling;

pub use admission::{Admission, admit};
pub use fingerprint::{Comparison, Fingerprint, Meaning};
pub use id::{EntryId, Identity, InstanceId, Nonce};
pub use key::{Key, KeyError, MAX_KEY_BYTES, MAX_NAMESPACE_BYTES, Namespace, NamespaceError};
pub use outcome::{Answer, Outcome};
pub use pointer::{MAX_POINTER_TOKENS, Pointer, PointerError};
pub use response::StoredResponse;
pub use scope::{MAX_OWNER_BYTES, Scope, ScopeError};
pub use source::{KeySource, KeySources, ResolvedKey};

use crate::clock::Timestamp;

/// One row of the ledger as the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Digest of the identity; the row's primary key.
    pub id: EntryId,
    /// Whose write is legal now: the nonce of the execution (or settling) that wrote the row last.
    pub nonce: Nonce,
    /// The nonce of the claim that created the row. Event ids derive from it, so no retry mints a second id.
    pub origin: Nonce,
    /// Number of the latest execution, from 1. Above 1 an earlier attempt was Unknown, so "not executed"
    /// no longer frees the key.
    pub attempt: u32,
    /// What the first request meant.
    pub fingerprint: Fingerprint,
    /// Where in its life the entry is.
    pub state: State,
    /// When the latest attempt was claimed. A lookup's `after` counts from here.
    pub started_at: Timestamp,
    /// When the entry came into its state.
    pub changed_at: Timestamp,
}

/// Where in its life an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// An execution is under way in `instance`, as far as anybody knows.
    InProgress {
        /// The process whose lease vouches for the execution.
        instance: InstanceId,
    },
    /// It may or may not have happened. Stays until something settles it.
    Unknown {
        /// When the next lookup in the background is due; `None` where only a person or a retry settles it.
        next_lookup: Option<Timestamp>,
        /// Lookups made so far, for the back-off.
        lookups: u32,
    },
    /// It happened, and this is what it answered.
    Completed {
        /// What is left of the answer.
        answer: Answer,
        /// Until when the answer is kept.
        expires: Timestamp,
        /// How much longer the key is remembered after that; `None` is for ever.
        tombstone_ms: Option<i64>,
    },
    /// It happened, longer ago than its answer is kept.
    Tombstone {
        /// When the key is forgotten; `None` is never.
        until: Option<Timestamp>,
    },
}
