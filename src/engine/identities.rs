//! The contract of the identity guard: what gives requests their identity, per namespace, as the database
//! remembers it.
//!
//! A process that derives keys by other rules than yesterday's would find none of yesterday's entries, and
//! every retry would be a new payment. So the rules are kept as text beside the entries, and who is
//! configured otherwise answers 503 on the namespaces concerned until an operator accepts the change.

use futures_util::future::BoxFuture;

use super::ledger::StoreError;
use crate::clock::Timestamp;
use crate::entry::Namespace;

/// The table of accepted descriptions.
///
/// Implementations pass the contract suite in `tests/it/identities.rs`.
pub trait Identities: Send + Sync + 'static {
    /// Everything on record, by namespace.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn load_all(&self) -> BoxFuture<'_, Result<Vec<Described>, StoreError>>;

    /// Records `description` for a namespace that has none, and returns what is on record then: somebody
    /// else's, if they were first. Compare it.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn record_new<'a>(
        &'a self,
        namespace: &'a Namespace,
        description: &'a str,
    ) -> BoxFuture<'a, Result<Described, StoreError>>;

    /// Records `description` in place of whatever is on record, because an operator says so, and why.
    ///
    /// # Errors
    /// If the database can't be asked.
    fn accept<'a>(
        &'a self,
        namespace: &'a Namespace,
        description: &'a str,
        reason: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// What gives a namespace's requests their identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The namespace.
    pub namespace: Namespace,
    /// Canonical text of key sources, scope, auth mode and claims; compared byte for byte.
    pub description: String,
    /// When it was recorded or accepted.
    pub accepted_at: Timestamp,
    /// Why a change was accepted; `None` for the first description, which nobody had to accept.
    pub reason: Option<String>,
}
