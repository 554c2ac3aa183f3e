//! What is found by state and time: orphans, an instance's own entries, due lookups, and entries whose time
//! is over. Each finds rows with a plain read and then changes them by guarded writes, like everybody else:
//! what changed in between is left alone.

use std::time::Duration;

use super::change::{self, Change};
use super::entry::{self, stored};
use super::release;
use crate::clock::millis;
use crate::engine::ledger::{DueLookup, Guarded, Reaped, Release, Released, StoreError};
use crate::entry::{EntryId, InstanceId, Nonce};
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

static OWN: Statement = Statement::new(|dialect, _| {
    let now = dialect.now();
    format!(
        "SELECT e.id, e.nonce FROM entries AS e WHERE e.state = 1 AND e.due_at <= {now} - ? AND e.instance = ? \
         ORDER BY e.due_at LIMIT ?"
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
    Ok(rows.iter().filter_map(readable).collect())
}

/// One row that can't be read must not keep the others from their lookups.
fn readable(row: &Row) -> Option<DueLookup> {
    entry::read_due(row)
        .inspect_err(|error| tracing::error!(%error, "an Unknown entry can't be read and is not looked up"))
        .ok()
}

pub(super) async fn in_progress(
    store: &Store,
    instance: InstanceId,
    age: Duration,
    limit: u32,
) -> Result<Vec<(EntryId, Nonce)>, StoreError> {
    let values = [millis(age).into(), (&instance.0).into(), i64::from(limit).into()];
    let rows = store.query(&OWN, &values).await?;
    rows.iter().map(target).collect::<sqlx::Result<_>>().map_err(|error| classify(&error))
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
    let changes = orphans.iter().map(|row| Ok(orphaned(target(row)?, now.0))).collect::<sqlx::Result<Vec<_>>>()?;
    change::write(&mut transaction.conn(), limit, now, &changes).await
}

fn orphaned((id, nonce): (EntryId, Nonce), now: i64) -> Change {
    let from = (stored::IN_PROGRESS, stored::IN_PROGRESS);
    Change { due_at: Some(now), ..Change::to(stored::UNKNOWN, id, nonce, from) }
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
            changes.push(Change { due_at: forget_at, ..Change::to(stored::TOMBSTONE, id, nonce, from) });
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
