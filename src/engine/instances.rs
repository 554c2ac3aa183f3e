//! The contract of ownership: leases of gateway processes, on the database's clock.

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::ledger::StoreError;
use crate::clock::Timestamp;
use crate::entry::InstanceId;

/// The table of gateway processes.
pub trait Instances: Send + Sync + 'static {
    /// Adds a live instance.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn register<'a>(&'a self, id: InstanceId, name: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Renews the lease of `id` by raising its counter, and says who else is alive. An expired id never
    /// revives.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn renew(&self, id: InstanceId) -> BoxFuture<'_, Result<Renewed, StoreError>>;

    /// Expires `peer` if its renewal counter still is what was observed; says whether it did.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn expire(&self, peer: Peer) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Ends `id` of its own will, at a clean shutdown with nothing in progress.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn retire(&self, id: InstanceId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Forgets instances that ended at least `age` ago and own nothing in progress.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn forget(&self, age: Duration) -> BoxFuture<'_, Result<u64, StoreError>>;
}

/// The answer to a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    /// The lease runs anew.
    Alive {
        /// The database's time.
        now: Timestamp,
        /// Everybody else who counts as alive.
        peers: Vec<Peer>,
    },
    /// Somebody has expired this instance. It must register under a new id.
    Expired,
}

/// Another instance as observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its id.
    pub id: InstanceId,
    /// Its renewal counter.
    pub renewals: i64,
    /// Whether it is certain that the process is gone, as a free file lock says on SQLite. Such a peer is
    /// expired at once, without waiting for its lease.
    pub dead: bool,
}
