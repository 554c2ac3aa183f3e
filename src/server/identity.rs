//! The identity guard: what gives requests their identity must be what the store has on record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::identities::Identities;
use crate::engine::ledger::StoreError;
use crate::entry::Namespace;
use crate::http::route::IdentityCheck;

/// How often the record is read again, so that an operator's word takes effect without a restart.
const EVERY: Duration = Duration::from_secs(5);

/// Compares this process's configuration with the store's record.
pub(super) struct IdentityGuard {
    store: Arc<dyn Identities>,
    configured: BTreeMap<String, String>,
    checks: BTreeMap<String, IdentityCheck>,
}

impl IdentityGuard {
    pub(super) fn new(
        store: Arc<dyn Identities>,
        configured: BTreeMap<String, String>,
        checks: BTreeMap<String, IdentityCheck>,
    ) -> Self {
        Self { store, configured, checks }
    }

    /// Records what is new, and closes the namespaces whose record is another.
    pub(super) async fn step(&self) -> Result<(), StoreError> {
        let on_record = self.store.load_all().await?;
        for (name, description) in &self.configured {
            let namespace = Namespace::from_stored(name);
            let recorded = match on_record.iter().find(|described| described.namespace == namespace) {
                Some(described) => described.clone(),
                None => self.store.record_new(&namespace, description).await?,
            };
            self.note(name, recorded.description == *description, &recorded.description, description);
        }
        Ok(())
    }

    fn note(&self, namespace: &str, holds: bool, recorded: &str, configured: &str) {
        let Some(check) = self.checks.get(namespace) else { return };
        if holds != check.holds() && holds {
            tracing::info!(namespace, identity = configured, "namespace is open");
        }
        if !holds {
            tracing::error!(
                namespace,
                recorded,
                configured,
                "namespace is closed: its requests would get another identity than on record, and every retry would be a new payment. \
                 Put the configuration back, or accept the change: oncegate identity accept"
            );
        }
        check.set(holds);
    }

    pub(super) async fn run(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
            if let Err(error) = self.step().await {
                tracing::warn!(%error, "identities could not be compared");
            }
        }
    }
}
