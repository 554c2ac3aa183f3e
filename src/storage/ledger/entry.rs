//! Rows of the ledger read back as entries.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::engine::ledger::{DueLookup, Sealed};
use crate::entry::{Answer, Entry, EntryId, Fingerprint, Identity, InstanceId, Key, Namespace, Nonce, Scope};
use crate::entry::{State, StoredResponse};
use crate::sealer::{Place, Sealer, Unopened, What};
use crate::storage::conn::{Row, unopened, unreadable};

/// A row's state as stored.
pub(in crate::storage) mod stored {
    pub(in crate::storage) const IN_PROGRESS: i64 = 1;
    pub(in crate::storage) const UNKNOWN: i64 = 2;
    pub(in crate::storage) const COMPLETED: i64 = 3;
    pub(in crate::storage) const TOMBSTONE: i64 = 4;
}

/// What [`read`] reads, in its order.
pub(super) const COLUMNS: &str = "e.id, e.nonce, e.origin, e.attempt, e.fingerprint, e.state, e.instance, e.status, \
                                  e.response, e.tombstone_ms, e.lookups, e.started_at, e.changed_at, e.due_at";

/// What [`read_due`] reads after [`COLUMNS`].
pub(super) const DUE_COLUMNS: &str = "e.namespace, e.scope, e.idempotency_key, e.route, e.context";

const DUE_AT: usize = 13;

/// An entry from a row that has [`COLUMNS`] first.
pub(super) fn read(row: &Row, sealer: &Sealer) -> sqlx::Result<Entry> {
    let id = EntryId(row.array(0)?);
    let fingerprint = row.bytes(4)?;
    Ok(Entry {
        id,
        nonce: Nonce(row.array(1)?),
        origin: Nonce(row.array(2)?),
        attempt: small(row, 3)?,
        fingerprint: Fingerprint::decode(&fingerprint).ok_or_else(|| unreadable(4, "no fingerprint"))?,
        state: state(row, id, sealer)?,
        started_at: Timestamp(row.int(11)?),
        changed_at: Timestamp(row.int(12)?),
    })
}

/// A due lookup from a row that has [`COLUMNS`], then [`DUE_COLUMNS`].
pub(super) fn read_due(row: &Row, sealer: &Sealer) -> sqlx::Result<DueLookup> {
    const FIRST: usize = DUE_AT + 1;
    let scope = row.text(FIRST + 1)?;
    let identity = Identity {
        namespace: Namespace::from_stored(&row.text(FIRST)?),
        scope: Scope::from_stored(&scope).ok_or_else(|| unreadable(FIRST + 1, "no scope"))?,
        key: Key::from_business(&row.text(FIRST + 2)?).map_err(|error| unreadable(FIRST + 2, error))?,
    };
    let entry = read(row, sealer)?;
    let context = row.maybe_bytes(FIRST + 4)?;
    let context = context.map(|context| sealer.open(Place::new(What::Context, &entry.id.0), context)).transpose();
    let context = context.map_err(|error| {
        tracing::error!(entry = ?entry.id, %error, "what a claim kept of its request can't be read");
        Sealed
    });
    Ok(DueLookup { entry, identity, route: row.text(FIRST + 3)?.into(), context })
}

fn state(row: &Row, id: EntryId, sealer: &Sealer) -> sqlx::Result<State> {
    let due_at = row.maybe_int(DUE_AT)?.map(Timestamp);
    match row.int(5)? {
        stored::IN_PROGRESS => Ok(State::InProgress { instance: InstanceId(row.array(6)?) }),
        stored::UNKNOWN => Ok(State::Unknown { next_lookup: due_at, lookups: small(row, 10)? }),
        stored::COMPLETED => Ok(State::Completed {
            answer: answer(row, id, sealer)?,
            expires: due_at.ok_or_else(|| unreadable(DUE_AT, "completed without an end"))?,
            tombstone_ms: row.maybe_int(9)?,
        }),
        stored::TOMBSTONE => Ok(State::Tombstone { until: due_at }),
        other => Err(unreadable(5, format!("a state {other} of some other version"))),
    }
}

/// What is left of the answer. One that can't be read counts as not kept: the request happened, and nothing
/// must make it happen again. One whose key is not here may be read another time, or by another gateway.
fn answer(row: &Row, id: EntryId, sealer: &Sealer) -> sqlx::Result<Answer> {
    let status = small(row, 7)?;
    let Some(response) = row.maybe_bytes(8)? else { return Ok(Answer::StatusOnly(status)) };
    let not_kept = |error: &dyn std::fmt::Display| {
        tracing::error!(entry = ?id, %error, "a stored response can't be read and counts as not kept");
        Ok(Answer::StatusOnly(status))
    };
    match sealer.open(Place::new(What::Response, &id.0), response) {
        Ok(response) => match StoredResponse::decode(response) {
            Ok(response) => Ok(Answer::Response(Arc::new(response))),
            Err(error) => not_kept(&error),
        },
        Err(error @ Unopened::Damaged) => not_kept(&error),
        Err(error @ (Unopened::NoKey(_) | Unopened::Form(_))) => Err(unopened(error)),
    }
}

pub(super) fn small<T: TryFrom<i64>>(row: &Row, column: usize) -> sqlx::Result<T> {
    let value = row.int(column)?;
    T::try_from(value).map_err(|_| unreadable(column, format!("{value} is out of range")))
}
