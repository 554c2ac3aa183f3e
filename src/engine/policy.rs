//! What a route wants of the engine.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::entry::{Answer, EntryId, Identity, Namespace};
use crate::outbox::rule::EventRules;

/// What a route (or subscription) wants of the engine.
#[derive(Debug)]
pub struct Policy {
    /// The route's name: stored with the entry, so that a rescuer finds this policy.
    pub route: Box<str>,
    /// What kind of operation its keys belong to.
    pub namespace: Namespace,
    /// How long an answer is kept, from completion.
    pub retention: Duration,
    /// How much longer a key is remembered.
    pub tombstones: Tombstones,
    /// What settles an Unknown entry.
    pub on_unknown: OnUnknown,
    /// What is announced of its completed requests.
    pub events: EventRules,
    /// The longest that an execution takes to be told its outcome, with the margin for clocks: an
    /// execution is dispatched only if the lease lasts at least this long.
    pub budget: Duration,
}

/// How much longer than its answer a key is remembered, by where the key came from; `None` is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tombstones {
    /// Of a key that the client made up for the request.
    pub header: Option<Duration>,
    /// Of a business number: the same number a year later still is the same payment.
    pub business: Option<Duration>,
}

impl Tombstones {
    /// The tombstone of a key of this kind.
    #[must_use]
    pub fn of(&self, kind: KeyKind) -> Option<Duration> {
        match kind {
            KeyKind::Header => self.header,
            KeyKind::Business => self.business,
        }
    }
}

/// Where a key came from. Stored with the claim, since the settling after a crash needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// From the `Idempotency-Key` header.
    Header,
    /// An order number or the like, from the request itself.
    Business,
}

/// What settles an Unknown entry.
#[derive(Debug, Clone)]
pub enum OnUnknown {
    /// A late answer, or a person.
    Hold,
    /// Asking the upstream what became of it, in the background and when the request comes again.
    Lookup(LookupPolicy),
    /// Forwarding again with the same key, which the upstream honours, when the request comes again.
    Forward,
}

/// How the upstream is asked.
#[derive(Clone)]
pub struct LookupPolicy {
    /// Asks.
    pub lookup: Arc<dyn Lookup>,
    /// Whether the upstream knows business numbers only: about a key out of the header it would say "not here" whatever
    /// became of its request, or tell of another one. Such an entry is not asked about.
    pub business_keys_only: bool,
    /// Whether "the upstream does not have it" means that it was not executed, and how long after the
    /// outcome became unknown that may be believed: the first call may still be on its way. `None`: never.
    pub absent_means_not_executed_after: Option<Duration>,
    /// When the first lookup in the background is due.
    pub first: Duration,
    /// The longest time between two lookups; in between it doubles.
    pub max: Duration,
}

impl LookupPolicy {
    /// When the next lookup in the background is due after `lookups` without a result.
    #[must_use]
    pub fn next_after(&self, lookups: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(lookups)).min(self.max)
    }
}

impl fmt::Debug for LookupPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupPolicy").field("first", &self.first).field("max", &self.max).finish_non_exhaustive()
    }
}

/// Asks the upstream what became of a request. Changes nothing there.
pub trait Lookup: Send + Sync + 'static {
    /// Asks, within a bounded time.
    fn lookup<'a>(&'a self, id: EntryId, identity: &'a Identity) -> BoxFuture<'a, Found>;
}

/// What a lookup came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It happened; this is its answer from now on.
    Completed(Answer),
    /// The upstream does not have it (yet).
    Absent,
    /// The upstream can't tell now.
    Undecided,
}
