//! The durable store on SQLite, PostgreSQL, MySQL or MariaDB.
//!
//! Each statement is written once; a dialect spells it, a connection runs it. The only module that knows
//! SQL.

mod bounds;
mod caller;
mod conn;
mod dedup;
mod dialect;
mod durability;
mod error;
mod events;
mod guards;
mod identities;
mod inbox;
mod instances;
mod ledger;
mod lockfiles;
mod messages;
mod migrate;
mod nodelay;
mod options;
mod outbox;
mod pool;
mod ready;
mod sealed;
mod switches;
mod text;
mod transaction;
mod value;

pub use caller::{CallerTransaction, TxPool};
pub(crate) use dedup::{Told, begin_on, end_attempts};
pub use durability::{Durability, Weakness};
pub use error::Error;
pub use guards::{Advanced, RowKey, StateMachine, Transitioned, Versioned};
pub use ledger::apply_on;
pub use options::{SQLITE_BUSY, StoreOptions};
pub use transaction::TxConnection;

use std::sync::Arc;
use std::time::Duration;

use conn::Row;
use dialect::Dialect;
use error::classify;
use lockfiles::LockFiles;
use options::{Access, Connector};
use pool::Pool;
use text::Statement;
use transaction::{Transaction, within};
use value::Value;

use crate::engine::ledger::StoreError;
use crate::sealer::Sealer;

/// A database that keeps the ledger, the instances and the identities. Cheap to share behind an `Arc`.
///
/// Every call answers within its time-outs; a connection that does not is closed and replaced.
#[derive(Debug)]
pub struct Store {
    connector: Connector,
    /// Committers' alone, so that a connection lives where its writer does; on SQLite, where only one can write,
    /// everybody's.
    batches: Option<Pool>,
    writers: Pool,
    /// The instances' alone, so that no queue at another connection costs a lease; on SQLite there is but one.
    leases: Option<Pool>,
    readers: Pool,
    statement_timeout: Duration,
    /// Seals what is stored of bodies and headers.
    sealer: Arc<Sealer>,
    /// The instances' lock files, on SQLite.
    locks: Option<LockFiles>,
}

/// Takes the way of a write and hits nothing.
static PING: Statement = Statement::new(|_, _| "UPDATE instances SET renewals = renewals WHERE id = ?".to_owned());

impl Store {
    /// Takes in where the database is. Connections are opened when they are needed, so that a gateway can
    /// start before its database.
    ///
    /// # Errors
    /// If the URL names no database that this build speaks to, or one in memory.
    pub fn open(options: &StoreOptions) -> Result<Self, Error> {
        let connector = Connector::new(options)?;
        let batches = (connector.dialect() != Dialect::Sqlite).then_some(options.writers);
        let pool = |access, size| Pool::new(connector.clone(), access, size, options.acquire_timeout);
        Ok(Self {
            // Twice: one for the batches, one for what waits for a locked row.
            batches: batches.map(|writers| pool(Access::Write, writers.saturating_mul(2))),
            writers: pool(Access::Write, 1),
            leases: (connector.dialect() != Dialect::Sqlite).then(|| pool(Access::Write, 1)),
            readers: pool(Access::Read, options.readers),
            statement_timeout: options.statement_timeout,
            sealer: Arc::clone(&options.sealer),
            locks: connector.file().map(LockFiles::beside),
            connector,
        })
    }

    /// Brings the schema up to date. Gateways that start at once wait for each other; a schema that is newer
    /// than this version is left as it is.
    ///
    /// # Errors
    /// If the database can't be reached or a migration fails.
    pub async fn migrate(&self) -> Result<(), Error> {
        migrate::run(&self.connector).await
    }

    /// Proves that the store takes writes: a replica, a read-only node or a full lock does not.
    ///
    /// # Errors
    /// If it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.execute(&PING, &[(&[0; 16]).into()]).await.map(drop)
    }

    /// Closes the idle connections and opens no more; one in use is closed when its call is done.
    pub async fn close(&self) {
        for pool in self.batches.iter().chain(&self.leases) {
            pool.close().await;
        }
        self.writers.close().await;
        self.readers.close().await;
    }

    async fn begin_batch(&self) -> Result<Transaction<'_>, StoreError> {
        self.begin_on(self.for_batches()).await
    }

    fn for_batches(&self) -> &Pool {
        self.batches.as_ref().unwrap_or(&self.writers)
    }

    async fn begin_lease(&self) -> Result<Transaction<'_>, StoreError> {
        self.begin_on(self.leases.as_ref().unwrap_or(&self.writers)).await
    }

    async fn begin(&self) -> Result<Transaction<'_>, StoreError> {
        self.begin_on(&self.writers).await
    }

    async fn begin_on<'s>(&'s self, pool: &'s Pool) -> Result<Transaction<'s>, StoreError> {
        Transaction::begin(pool, &self.sealer, self.statement_timeout).await
    }

    /// Asks one question, of the primary. A connection that died while it lay idle is replaced and the
    /// question asked again, which changes nothing.
    async fn query(&self, statement: &'static Statement, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        self.query_for(1, statement, values).await
    }

    /// As [`Self::query`], of a statement for `rows` rows.
    async fn query_for(
        &self,
        rows: usize,
        statement: &'static Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let text = statement.text(self.connector.dialect(), rows);
        loop {
            let mut lease = self.readers.lend().await?;
            let answer = within(self.statement_timeout, lease.conn().query(text, values)).await;
            match answer {
                Ok(rows) => {
                    lease.give_back();
                    return Ok(rows);
                }
                Err(error) if lease.died_idle(&error) => {}
                Err(error) => return Err(classify(&error)),
            }
        }
    }

    /// Runs one write in a transaction of its own and says how many rows it hit.
    async fn execute(&self, statement: &'static Statement, values: &[Value<'_>]) -> Result<u64, StoreError> {
        let text = statement.text(self.connector.dialect(), 1);
        let mut transaction = self.begin().await?;
        let work = within(self.statement_timeout, transaction.conn().execute(text, values)).await;
        transaction.end(work).await
    }
}
