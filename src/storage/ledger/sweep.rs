//! What is found by state and time: orphans, an instance's own entries, due lookups, and entries whose time
//! is over. Each finds rows with a plain read and then changes them by guarded writes, like everybody else:
//! what changed in between is left alone.

use std::time::Duration;

use super::change::{self, Change};
use super::entry::{self, stored};
use super::release;
use crate::clock::{Timestamp, millis};
use crate::engine::ledger::{DueLookup, Guarded, InProgress, Reaped, Release, Released, StoreError};
use crate::entry::{EntryId, InstanceId, Nonce};
use crate::sealer::Sealer;
use crate::storage::Store;
use crate::storage::conn::{Row, unreadable};
use crate::storage::error::classify;
use crate::storage::text::Statement;
use crate::storage::transaction::{Transaction, within};

static ORPHANS: Statement = Statement::new(|_, _| {
    "SELECT e.id, e.nonce FROM entries AS e WHERE e.state = 1 AND NOT EXISTS \
     (SELECT 1 FROM instances AS i WHERE i.id = e.instance AND i.state = 1) LIMIT ?"
        .to_owned()
});

/// Many may be claimed in the same millisecond, so that the id belongs to a row's place.
static OWN: Statement = Statement::new(|dialect, _| {
    let now = dialect.now();
    format!(
        "SELECT e.id, e.nonce, e.due_at FROM entries AS e WHERE e.state = 1 AND e.due_at <= {now} - ? \
         AND e.due_at >= ? AND (e.due_at > ? OR e.id > ?) AND e.instance = ? ORDER BY e.due_at, e.id LIMIT ?"
    )
});

static DUE_LOOKUPS: Statement = Statement::new(|dialect, _| {
    let (columns, due_columns, now) = (entry::COLUMNS, entry::DUE_COLUMNS, dialect.now());
    format!(
        "SELECT {columns}, {due_columns} FROM entries AS e WHERE e.state = 2 AND e.due_at <= {now} \
         ORDER BY e.due_at LIMIT ?"
    )
});

static OVER: Statement = Statement::new(|_, _| {
    "SELECT e.id, e.nonce, e.due_at, e.tombstone_ms FROM entries AS e WHERE e.state = ? AND e.due_at <= ? \
     ORDER BY e.due_at LIMIT ?"
        .to_owned()
});

pub(super) async fn due_lookups(store: &Store, limit: u32) -> Result<Vec<DueLookup>, StoreError> {
    let rows = store.query(&DUE_LOOKUPS, &[i64::from(limit).into()]).await?;
    Ok(rows.iter().filter_map(|row| readable(row, &store.sealer)).collect())
}

/// One row that can't be read must not keep the others from their lookups.
fn readable(row: &Row, sealer: &Sealer) -> Option<DueLookup> {
    entry::read_due(row, sealer)
        .inspect_err(|error| tracing::error!(%error, "an Unknown entry can't be read and is not looked up"))
        .ok()
}

pub(super) async fn in_progress(
    store: &Store,
    instance: InstanceId,
    age: Duration,
    after: Option<InProgress>,
    limit: u32,
) -> Result<Vec<InProgress>, StoreError> {
    // No entry has the first id of all: it is no digest.
    let (EntryId(id), Timestamp(since)) = after.map_or((EntryId([0; 32]), Timestamp(0)), |row| (row.id, row.since));
    let (age, limit) = (millis(age).into(), i64::from(limit).into());
    let values = [age, since.into(), since.into(), (&id).into(), (&instance.0).into(), limit];
    let rows = store.query(&OWN, &values).await?;
    rows.iter().map(own).collect::<sqlx::Result<_>>().map_err(|error| classify(&error))
}

fn own(row: &Row) -> sqlx::Result<InProgress> {
    let (id, nonce) = target(row)?;
    Ok(InProgress { id, nonce, since: Timestamp(row.int(2)?) })
}

/// A dead instance never revives, so what was read stays true; an entry that somebody took over meanwhile
/// carries another nonce.
pub(super) async fn orphan(store: &Store, limit: u32) -> Result<u64, StoreError> {
    let orphans = store.query(&ORPHANS, &[i64::from(limit).into()]).await?;
    if orphans.is_empty() {
        return Ok(0);
    }
    let mut transaction = store.begin().await?;
    let work = within(store.statement_timeout, orphan_in(&mut transaction, &orphans)).await;
    transaction.end(work).await
}

async fn orphan_in(transaction: &mut Transaction<'_>, orphans: &[Row]) -> sqlx::Result<u64> {
    let (now, limit) = (transaction.now, transaction.statement_limit);
    let changes = orphans.iter().map(|row| Ok(orphaned(target(row)?))).collect::<sqlx::Result<Vec<_>>>()?;
    change::write(&mut transaction.conn(), limit, now, &changes).await
}

fn orphaned((id, nonce): (EntryId, Nonce)) -> Change {
    let from = (stored::IN_PROGRESS, stored::IN_PROGRESS);
    Change { due_in: Some(0), ..Change::to(stored::UNKNOWN, id, nonce, from) }
}

pub(super) async fn reap(store: &Store, limit: u32) -> Result<Reaped, StoreError> {
    let mut transaction = store.begin().await?;
    let work = within(store.statement_timeout, reap_in(&mut transaction, i64::from(limit))).await;
    transaction.end(work).await
}

/// Completed ones first: an entry that has no tombstone leaves in the same round.
async fn reap_in(transaction: &mut Transaction<'_>, limit: i64) -> sqlx::Result<Reaped> {
    let (now, statement_limit) = (transaction.now, transaction.statement_limit);
    let mut conn = transaction.conn();
    let over = OVER.text(conn.dialect(), 1);
    let tombstones = conn.query(over, &[stored::TOMBSTONE.into(), now.0.into(), limit.into()]).await?;
    let completed = conn.query(over, &[stored::COMPLETED.into(), now.0.into(), limit.into()]).await?;

    let mut changes = Vec::new();
    let mut releases = tombstones.iter().map(forgotten).collect::<sqlx::Result<Vec<_>>>()?;
    for row in &completed {
        let due_at = row.maybe_int(2)?.ok_or_else(|| unreadable(2, "completed without an end"))?;
        let forget_at = row.maybe_int(3)?.map(|tombstone_ms| due_at.saturating_add(tombstone_ms));
        if forget_at.is_some_and(|at| at <= now.0) {
            releases.push(forgotten(row)?);
        } else {
            let (id, nonce) = target(row)?;
            let from = (stored::COMPLETED, stored::COMPLETED);
            let due_in = forget_at.map(|at| at.saturating_sub(now.0));
            changes.push(Change { due_in, ..Change::to(stored::TOMBSTONE, id, nonce, from) });
        }
    }
    let tombstoned = change::write(&mut conn, statement_limit, now, &changes).await?;
    let removed = release::apply(&mut conn, now, &releases).await?;
    let removed = removed.iter().filter(|removed| **removed == Guarded::Done).count() as u64;
    Ok(Reaped { tombstoned, removed })
}

fn forgotten(row: &Row) -> sqlx::Result<Release> {
    let (id, nonce) = target(row)?;
    Ok(Release { id, nonce, of: Released::Forgotten })
}

fn target(row: &Row) -> sqlx::Result<(EntryId, Nonce)> {
    Ok((EntryId(row.array(0)?), Nonce(row.array(1)?)))
}
