//! Waking the relays of other processes: NOTIFY and LISTEN on PostgreSQL. Polling is the net everywhere.

use std::time::Duration;

use sqlx::Executor as _;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};

use super::rows::clean;
use crate::engine::ledger::StoreError;
use crate::outbox::store::Woken;
use crate::storage::Store;
use crate::storage::dialect::Dialect;
use crate::storage::text::Statement;
use crate::storage::transaction::within;

/// What relays listen on. The queue's name is the payload.
const CHANNEL: &str = "oncegate_outbox";

/// How long nothing may be heard before the connection is tried out: one that died silently tells nothing.
const QUIET: Duration = Duration::from_secs(10);

/// Before the connection is opened again.
const PAUSE: Duration = Duration::from_secs(1);

static NOTIFY: Statement = Statement::new(|_, _| format!("SELECT pg_notify('{CHANNEL}', ?)"));

pub(super) async fn notify(store: &Store, queue: &str) -> Result<(), StoreError> {
    match store.connector.dialect() {
        Dialect::Postgres => store.query(&NOTIFY, &[clean(queue).as_str().into()]).await.map(drop),
        Dialect::MySql | Dialect::Sqlite => Ok(()),
    }
}

pub(super) async fn listen(store: &Store, mut woken: Box<dyn FnMut(Woken) + Send>) {
    let Some(options) = store.connector.postgres() else { return };
    loop {
        let Err(error) = hear(options, store.statement_timeout, &mut *woken).await;
        tracing::debug!(%error, "the connection that wakes the relay broke");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Listens until the connection breaks.
async fn hear(
    options: &PgConnectOptions,
    timeout: Duration,
    woken: &mut (dyn FnMut(Woken) + Send),
) -> sqlx::Result<std::convert::Infallible> {
    // The listener wants a pool to take its connection from.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .acquire_timeout(timeout)
        .connect_lazy_with(options.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    // Opened again here, where somebody is told.
    listener.eager_reconnect(false);
    within(timeout, listener.listen(CHANNEL)).await?;
    woken(Woken::Any);
    loop {
        match tokio::time::timeout(QUIET, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => woken(Woken::Queue(notification.payload().into())),
            Ok(Ok(None)) => return Err(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())),
            Ok(Err(error)) => return Err(error),
            // Says nothing new, but fails on a connection that is dead.
            Err(_) => within(timeout, listener.execute("SELECT 1")).await.map(drop)?,
        }
    }
}
