//! The contract of `inbox::store`, on each database.

mod cursors;
mod deposits;
mod versions;

use std::time::Duration;

use oncegate::inbox::store::{Deposited, Deposits as _, NewDelivery, queue_of};
use oncegate::outbox::store::{
    Acquired, Late, Outbox as _, Parking, Reach, RelayId, Retries, Suspects, Taking, Turn, Want,
};
use oncegate::storage::Store;

use super::SUBSCRIPTION;
use crate::servers::database::{Database, Kind, fresh};

const HOUR: Duration = Duration::from_secs(3600);

/// A database with the subscription's queue, of one lane.
struct Ground {
    database: Database,
    store: Store,
}

impl Ground {
    async fn new(kind: Kind) -> Self {
        let (database, store) = fresh(kind).await;
        store.open(&queue_of(SUBSCRIPTION), 1).await.unwrap();
        Self { database, store }
    }

    /// Keeps them, and says how many are new.
    async fn deposit(&self, deliveries: &[NewDelivery]) -> usize {
        match self.store.deposit(deliveries, None).await.unwrap() {
            Deposited::Done { new } => new,
            Deposited::Overtaken => panic!("there is no cursor"),
        }
    }

    async fn count(&self) -> i64 {
        self.database.stranger().await.number("SELECT COUNT(*) FROM events").await
    }

    /// What a relay takes up.
    async fn acquire(&self) -> Vec<Acquired> {
        let (queue, relay) = (queue_of(SUBSCRIPTION), RelayId::random());
        let lanes = self.store.lease(&queue, relay, HOUR, Taking::Share, None).await.unwrap().held;
        let want = |lane| Want { lane, limit: 4000, retries: Retries::Due, reach: Reach::WHOLE };
        let turn = Turn {
            queue,
            relay,
            conclusions: Vec::new(),
            wants: lanes.into_iter().map(want).collect(),
            bytes: 1 << 30,
            suspects: Suspects::Take,
            parking: Parking::default(),
            late: Late::Goes,
            again: None,
        };
        self.store.turn(&turn).await.unwrap().acquired
    }
}
