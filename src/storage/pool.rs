//! Connections, lent out one at a time.
//!
//! Not sqlx's pool: that one asks the server about each connection that comes back, a round trip that a
//! writer's next batch would wait for, and it keeps a connection whose user was cancelled in the middle.
//! Here a connection comes back only when its user says that it is whole; else it is closed, and the server
//! ends its transaction.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::conn::{Conn, Connection};
use super::error::classify;
use super::options::{Access, Connector};
use crate::engine::ledger::StoreError;

/// Up to a number of connections of one kind.
#[derive(Debug)]
pub(super) struct Pool {
    connector: Connector,
    access: Access,
    /// The ones that nobody uses; the last one used is on top.
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
    acquire_timeout: Duration,
    /// How many were opened so far.
    opened: AtomicU64,
}

impl Pool {
    pub(super) fn new(connector: Connector, access: Access, size: usize, acquire_timeout: Duration) -> Self {
        let size = size.clamp(1, Semaphore::MAX_PERMITS);
        let (idle, permits, opened) = (Mutex::default(), Semaphore::new(size), AtomicU64::new(0));
        Self { connector, access, idle, permits, acquire_timeout, opened }
    }

    /// Lends an idle connection or opens one.
    pub(super) async fn lend(&self) -> Result<Lease<'_>, StoreError> {
        tokio::time::timeout(self.acquire_timeout, self.lend_patiently())
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable("no connection in time".to_owned())))
    }

    async fn lend_patiently(&self) -> Result<Lease<'_>, StoreError> {
        let permit = self.permits.acquire().await.map_err(|_| StoreError::Unavailable("closed".to_owned()))?;
        let idle = self.idle().pop();
        let is_fresh = idle.is_none();
        let connection = match idle {
            Some(connection) => connection,
            None => {
                let connection = self.connector.connect(self.access).await.map_err(|error| classify(&error))?;
                self.opened.fetch_add(1, Ordering::AcqRel);
                connection
            }
        };
        Ok(Lease { connection, is_fresh, pool: self, _permit: permit })
    }

    /// Lends no more and closes the idle ones; one on loan is closed when its user is done with it.
    pub(super) async fn close(&self) {
        self.permits.close();
        let idle = std::mem::take(&mut *self.idle());
        for connection in idle {
            if let Err(error) = connection.close().await {
                tracing::debug!(%error, "a database connection did not close cleanly");
            }
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection on loan. Dropped, it is closed: whoever was cancelled in the middle leaves nothing behind.
#[derive(Debug)]
pub(super) struct Lease<'p> {
    connection: Connection,
    /// Whether it was opened for this loan. An old one may have died while it lay idle.
    is_fresh: bool,
    pool: &'p Pool,
    _permit: SemaphorePermit<'p>,
}

impl Lease<'_> {
    pub(super) fn conn(&mut self) -> Conn<'_> {
        self.connection.borrow()
    }

    /// Grows whenever a connection is opened: as long as it is the same, no connection has been lost that was open
    /// when it was asked for before, and the server has not crashed.
    pub(super) fn session(&self) -> u64 {
        self.pool.opened.load(Ordering::Acquire)
    }

    /// Whether `error` says that the connection died while nobody used it, so that another one may do. A
    /// time-out does not: the whole server may be slow.
    pub(super) fn died_idle(&self, error: &sqlx::Error) -> bool {
        let timed_out = matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut);
        !self.is_fresh && !timed_out && matches!(classify(error), StoreError::Unavailable(_))
    }

    /// Gives a whole connection back: nothing on its way, no transaction open.
    pub(super) fn give_back(self) {
        if !self.pool.permits.is_closed() {
            self.pool.idle().push(self.connection);
        }
    }
}
