//! From options to a store that may be relied on.

use std::sync::Arc;
use std::time::Duration;

use super::{Durability, Error, Store, StoreOptions, Weakness};
use crate::clock;
use crate::engine::ledger::StoreError;

/// Between two looks for a database that is not there yet.
const PAUSE: Duration = Duration::from_secs(1);

impl Store {
    /// Opens the store, brings its schema up to date as soon as the database can be reached and takes writes, for
    /// which it waits at most `patience`, and checks that it keeps what it has confirmed.
    ///
    /// # Errors
    /// If it can't be used, or may lose a confirmed commit without that being allowed.
    pub async fn ready(options: &StoreOptions, patience: Duration, durability: Durability) -> Result<Arc<Self>, Error> {
        let store = Self::open(options)?;
        store.wait(patience).await?;
        let weak = store.check_durability().await?;
        if !weak.is_empty() {
            let text = weak.iter().map(Weakness::to_string).collect::<Vec<_>>().join("; ");
            let error = Error::WeakDurability(text);
            match durability {
                Durability::Demanded => return Err(error),
                Durability::WeakAllowed => tracing::error!(%error, "the store may lose confirmed commits"),
            }
        }
        Ok(Arc::new(store))
    }

    async fn wait(&self, patience: Duration) -> Result<(), Error> {
        let give_up = clock::now() + patience;
        loop {
            match self.migrate_and_ping().await {
                Err(Error::Store(StoreError::Unavailable(text))) if clock::now() < give_up => {
                    tracing::warn!(error = %text, "the store can't be used yet, waiting for it");
                    tokio::time::sleep(PAUSE).await;
                }
                done => return done,
            }
        }
    }

    /// A standby may have nothing to migrate, and still takes no writes before it is promoted.
    async fn migrate_and_ping(&self) -> Result<(), Error> {
        self.migrate().await?;
        Ok(self.ping().await?)
    }
}
