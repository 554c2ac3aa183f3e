//! The ledger in a database: the contract of [`crate::engine::ledger`], each statement once.

mod at_once;
mod by_hand;
mod change;
mod claim;
mod desk;
mod emission;
mod entry;
mod evidence;
mod release;
mod rows;
mod sweep;

pub(super) use entry::stored;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::Store;
use super::conn::Conn;
use super::error::classify;
use super::text::Statement;
use super::transaction::{Transaction, TxConnection, within};
use crate::clock::Timestamp;
use crate::engine::desk::{Decision, EntryDesk, Filter, Order, Page, Place, Shown, Unsettled};
use crate::engine::ledger::{Applied, Batch, DueLookup, Guarded, InProgress, Ledger, Reaped, StoreError, Transition};
use crate::entry::{Entry, EntryId, InstanceId, Nonce};
use crate::sealer::Sealer;

/// A row in any case, so that the time comes along.
static READ: Statement = Statement::new(|dialect, _| {
    let (columns, now) = (entry::COLUMNS, dialect.now());
    format!("SELECT {columns}, {now} FROM (SELECT 1 AS one) AS t LEFT JOIN entries AS e ON e.id = ?")
});

const READ_NOW: usize = 14;

static NOW: Statement = Statement::new(|dialect, _| format!("SELECT {}", dialect.now()));

/// "A row is locked" is [`StoreError::Locked`] for the whole batch: nothing tells which row it was. The
/// committer finds it by halving the batch, and answers `Busy` for it.
impl Ledger for Store {
    fn apply<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Applied, StoreError>> {
        Box::pin(async move {
            if at_once::takes(self.connector.dialect(), batch)
                && let Some(applied) = at_once::apply(self, batch).await?
            {
                return Ok(applied);
            }
            let mut transaction = self.begin_batch().await?;
            let work = within(self.statement_timeout, write(&mut transaction, batch)).await;
            transaction.end(work).await
        })
    }

    fn read(&self, id: EntryId) -> BoxFuture<'_, Result<(Option<Entry>, Timestamp), StoreError>> {
        Box::pin(async move {
            let rows = self.query(&READ, &[(&id.0).into()]).await?;
            let row = rows.first().ok_or(sqlx::Error::RowNotFound).map_err(|error| classify(&error))?;
            let read = || {
                let now = Timestamp(row.int(READ_NOW)?);
                let is_absent = row.maybe_bytes(0)?.is_none();
                sqlx::Result::Ok((if is_absent { None } else { Some(entry::read(row, &self.sealer)?) }, now))
            };
            read().map_err(|error| classify(&error))
        })
    }

    fn keep_evidence(&self, id: EntryId, origin: Nonce, evidence: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { evidence::keep(self, id, origin, &evidence).await })
    }

    fn due_lookups(&self, limit: u32) -> BoxFuture<'_, Result<Vec<DueLookup>, StoreError>> {
        Box::pin(sweep::due_lookups(self, limit))
    }

    fn orphan(&self, limit: u32) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(sweep::orphan(self, limit))
    }

    fn in_progress(
        &self,
        instance: InstanceId,
        age: Duration,
        after: Option<InProgress>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<InProgress>, StoreError>> {
        Box::pin(sweep::in_progress(self, instance, age, after, limit))
    }

    fn reap(&self, limit: u32) -> BoxFuture<'_, Result<Reaped, StoreError>> {
        Box::pin(sweep::reap(self, limit))
    }
}

impl EntryDesk for Store {
    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<Place>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(desk::list(self, filter, after, limit))
    }

    fn find<'a>(&'a self, ids: &'a [EntryId]) -> BoxFuture<'a, Result<Page, StoreError>> {
        Box::pin(desk::find(self, ids))
    }

    fn show(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Shown>, StoreError>> {
        Box::pin(desk::show(self, id))
    }

    fn decisions(
        &self,
        of: Option<EntryId>,
        before: Option<i64>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Decision>, StoreError>> {
        Box::pin(desk::decisions(self, of, before, limit))
    }

    fn unsettled(&self, cap: u32) -> BoxFuture<'_, Result<Unsettled, StoreError>> {
        Box::pin(desk::unsettled(self, cap))
    }

    fn settle<'a>(&'a self, orders: &'a [Order]) -> BoxFuture<'a, Result<Vec<Guarded>, StoreError>> {
        Box::pin(by_hand::settle(self, orders))
    }
}

async fn write(transaction: &mut Transaction<'_>, batch: &Batch) -> sqlx::Result<Applied> {
    let (now, limit, sealer) = (transaction.now, transaction.statement_limit, transaction.sealer);
    let mut conn = transaction.conn();
    let transitions = change::apply(&mut conn, sealer, limit, now, &batch.transitions).await?;
    emission::apply(&mut conn, sealer, limit, now, &batch.transitions, &transitions).await?;
    let releases = release::apply(&mut conn, now, &batch.releases).await?;
    let claims = claim::apply(&mut conn, sealer, limit, now, &batch.claims).await?;
    Ok(Applied { now, transitions, releases, claims })
}

/// Applies `transition`, with its events, inside the transaction that the caller has open on `conn`: it commits or rolls back
/// with the caller's own rows. `sealer` is the store's own. Make it the last statement, since it holds the entry's row until the commit.
///
/// # Errors
/// If the database can't be asked. Nothing is committed or rolled back here either way; on PostgreSQL the
/// caller's transaction can then only roll back.
pub async fn apply_on(
    conn: &mut impl TxConnection,
    sealer: &Sealer,
    transition: &Transition,
) -> Result<Guarded, StoreError> {
    let mut conn = conn.as_conn();
    let guarded = apply_one(&mut conn, sealer, transition).await.map_err(|error| classify(&error))?;
    Ok(guarded)
}

async fn apply_one(conn: &mut Conn<'_>, sealer: &Sealer, transition: &Transition) -> sqlx::Result<Guarded> {
    let rows = conn.query(NOW.text(conn.dialect(), 1), &[]).await?;
    let now = Timestamp(rows.first().ok_or(sqlx::Error::RowNotFound)?.int(0)?);
    let transitions = std::slice::from_ref(transition);
    let guarded = change::apply(conn, sealer, usize::MAX, now, transitions).await?;
    emission::apply(conn, sealer, usize::MAX, now, transitions, &guarded).await?;
    Ok(guarded.first().copied().unwrap_or(Guarded::Fenced))
}
