//! What people switch while gateways run: a route's mode, a subscription's pause. Kept in the database with who and why,
//! so that all gateways read it, and a restart forgets nothing.

use futures_util::future::BoxFuture;

use super::desk::Actor;
use super::ledger::StoreError;
use crate::clock::Timestamp;

/// The table of switches.
///
/// Implementations pass the contract suite in `tests/it/switches.rs`.
pub trait Switches: Send + Sync + 'static {
    /// All that are not as configured, in order.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn switched(&self) -> BoxFuture<'_, Result<Vec<Switch>, StoreError>>;

    /// Turns one, puts it on record, and tells what it was before. Of two people who turn the same one at the same time
    /// one comes after the other.
    ///
    /// # Errors
    /// Nothing is written unless the error is [`StoreError::CommitUnknown`]; then all of it is, or nothing.
    fn turn<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Turned, StoreError>>;

    /// Up to `limit` turns, the latest first: of one kind, or of all; before number `before` if it is given.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn turns(&self, of: Option<Kind>, before: Option<i64>, limit: u32) -> BoxFuture<'_, Result<Vec<Turn>, StoreError>>;
}

/// What has a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A route: its mode.
    Route,
    /// A subscription: whether it is paused.
    Subscription,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Route, Self::Subscription];

    /// As it is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Subscription => "subscription",
        }
    }
}

/// A switch that is not as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Of what.
    pub kind: Kind,
    /// Of which one.
    pub name: Box<str>,
    /// How it is set: a route's mode, or [`PAUSED`].
    pub setting: Box<str>,
    /// Who has set it.
    pub by: Actor,
    /// Why.
    pub reason: Box<str>,
    /// When.
    pub at: Timestamp,
}

/// How the switch of a paused subscription is set.
pub const PAUSED: &str = "paused";

/// Something for [`Switches::turn`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Of what.
    pub kind: Kind,
    /// Of which one.
    pub name: Box<str>,
    /// To what; `None`: as configured.
    pub setting: Option<Box<str>>,
    /// Who says so.
    pub by: Actor,
    /// Why.
    pub reason: Box<str>,
}

/// A turn on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// In the order of the turns.
    pub number: i64,
    /// Of what.
    pub kind: Kind,
    /// Of which one.
    pub name: Box<str>,
    /// How it was set before; `None`: as configured.
    pub was: Option<Box<str>>,
    /// To what; `None`: as configured.
    pub setting: Option<Box<str>>,
    /// Who has turned it.
    pub by: Actor,
    /// Why.
    pub reason: Box<str>,
    /// When.
    pub at: Timestamp,
}

/// What a turn did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turned {
    /// How it was set before; `None`: as configured.
    pub was: Option<Box<str>>,
    /// When it was turned.
    pub at: Timestamp,
}
