//! Guarded changes of existing rows: one statement for every kind of transition.

use std::time::Duration;

use bytes::Bytes;

use super::entry::stored;
use super::rows::{self, Peek};
use crate::clock::{Timestamp, millis};
use crate::engine::ledger::{FromState, Guarded, To, Transition};
use crate::entry::{Answer, EntryId, InstanceId, Nonce};
use crate::sealer::{Place, Sealer, What};
use crate::storage::bounds::check_size;
use crate::storage::conn::Conn;
use crate::storage::dialect::{Dialect, MAX_ROWS};
use crate::storage::text::Statement;
use crate::storage::value::{Column, Value};

pub(super) const COLUMNS: [Column; 13] = [
    Column::bytes("v_id"),
    Column::bytes("v_guard"),
    Column::int("v_lowest"),
    Column::int("v_highest"),
    Column::int("v_state"),
    Column::bytes("v_nonce"),
    Column::bytes("v_instance"),
    Column::int("v_due_in"),
    Column::int("v_lookups"),
    Column::int("v_status"),
    Column::bytes("v_response"),
    Column::int("v_tombstone_ms"),
    Column::now("v_now"),
];

/// `changed_at` comes first: should a database assign from left to right, it still sees the old state. The
/// context goes with the completion: nothing needs it any more, and it may hold what should not be kept.
static CHANGE: Statement = Statement::new(text);

/// The statement that makes `size` changes.
pub(super) fn text(dialect: Dialect, size: usize) -> String {
    dialect.update(
        &COLUMNS,
        size,
        "changed_at = CASE WHEN e.state = v.v_state THEN e.changed_at ELSE v.v_now END, \
         started_at = CASE WHEN v.v_state = 1 THEN v.v_now ELSE e.started_at END, \
         attempt = e.attempt + CASE WHEN v.v_state = 1 THEN 1 ELSE 0 END, \
         context = CASE WHEN v.v_state >= 3 THEN NULL ELSE e.context END, \
         instance = COALESCE(v.v_instance, e.instance), \
         nonce = v.v_nonce, due_at = v.v_now + v.v_due_in, lookups = v.v_lookups, status = v.v_status, \
         response = v.v_response, tombstone_ms = v.v_tombstone_ms, state = v.v_state",
        "e.nonce = v.v_guard AND e.state >= v.v_lowest AND e.state <= v.v_highest",
    )
}

/// Longest retention, tombstone or wait: a thousand years. Keeps sums of times far from overflowing.
const LONGEST_MS: i64 = 1_000 * 366 * 24 * 60 * 60 * 1_000;

/// One row's change.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) id: EntryId,
    /// The nonce that the row must carry.
    pub(super) guard: Nonce,
    /// The states that the row must be in, from and to.
    pub(super) from: (i64, i64),
    pub(super) state: i64,
    pub(super) nonce: Nonce,
    /// How many milliseconds from the change on it is due.
    pub(super) due_in: Option<i64>,
    /// `None` leaves the row's.
    pub(super) instance: Option<InstanceId>,
    pub(super) lookups: u32,
    pub(super) status: Option<u16>,
    pub(super) response: Option<Bytes>,
    pub(super) tombstone_ms: Option<i64>,
}

impl Change {
    /// What `transition` asks for.
    pub(super) fn new(transition: &Transition, sealer: &Sealer) -> Self {
        let from = match transition.from {
            FromState::InProgress => (stored::IN_PROGRESS, stored::IN_PROGRESS),
            FromState::Unknown => (stored::UNKNOWN, stored::UNKNOWN),
            FromState::Unfinished => (stored::IN_PROGRESS, stored::UNKNOWN),
        };
        let to = |state| Self::to(state, transition.id, transition.nonce, from);
        let change = match &transition.to {
            To::InProgress { instance, .. } => {
                Self { instance: Some(*instance), due_in: Some(0), ..to(stored::IN_PROGRESS) }
            }
            To::Unknown { next_lookup, lookups } => {
                Self { due_in: next_lookup.map(bounded_ms), lookups: *lookups, ..to(stored::UNKNOWN) }
            }
            To::Completed { answer, retention, tombstone, .. } => {
                let (status, response) = match answer {
                    Answer::Response(response) => {
                        let place = Place::new(What::Response, &transition.id.0);
                        (response.status.as_u16(), Some(sealer.seal_bytes(place, response.encode())))
                    }
                    Answer::StatusOnly(status) => (*status, None),
                };
                let due_in = Some(bounded_ms(*retention));
                let tombstone_ms = tombstone.map(bounded_ms);
                Self { due_in, status: Some(status), response, tombstone_ms, ..to(stored::COMPLETED) }
            }
        };
        Self { nonce: transition.nonce_after(), ..change }
    }

    /// Into `state` while the row carries `nonce` and is in one of the states `from`, with nothing else set.
    pub(super) fn to(state: i64, id: EntryId, nonce: Nonce, from: (i64, i64)) -> Self {
        Self {
            id,
            guard: nonce,
            from,
            state,
            nonce,
            due_in: None,
            instance: None,
            lookups: 0,
            status: None,
            response: None,
            tombstone_ms: None,
        }
    }

    fn row(&self, now: Option<Timestamp>) -> [Value<'_>; 13] {
        [
            (&self.id.0).into(),
            (&self.guard.0).into(),
            self.from.0.into(),
            self.from.1.into(),
            self.state.into(),
            (&self.nonce.0).into(),
            self.instance.as_ref().map(|instance| &instance.0[..]).into(),
            self.due_in.into(),
            i64::from(self.lookups).into(),
            self.status.map(i64::from).into(),
            self.response.as_deref().into(),
            self.tombstone_ms.into(),
            now.map(|now| now.0).into(),
        ]
    }
}

fn bounded_ms(duration: Duration) -> i64 {
    millis(duration).min(LONGEST_MS)
}

/// Writes `changes` and says how many rows they hit.
pub(super) async fn write(conn: &mut Conn<'_>, limit: usize, now: Timestamp, changes: &[Change]) -> sqlx::Result<u64> {
    let mut hit = 0;
    for chunk in rows::sorted(changes, |change| change.id).chunks(MAX_ROWS) {
        let values = values(conn.dialect(), Some(now), chunk);
        check_size(&values, limit)?;
        hit += conn.execute(CHANGE.text(conn.dialect(), chunk.len()), &values).await?;
    }
    Ok(hit)
}

/// The values of [`text`] for `changes`, which come in the order of their ids.
pub(super) fn values<'a>(dialect: Dialect, now: Option<Timestamp>, changes: &[&'a Change]) -> Vec<Value<'a>> {
    dialect.bind_rows(&changes.iter().map(|change| change.row(now)).collect::<Vec<_>>())
}

/// Applies `transitions` and tells for each whether the row is as asked. Where every row was hit, nothing
/// has to be read.
pub(super) async fn apply(
    conn: &mut Conn<'_>,
    sealer: &Sealer,
    limit: usize,
    now: Timestamp,
    transitions: &[Transition],
) -> sqlx::Result<Vec<Guarded>> {
    let changes: Vec<_> = transitions.iter().map(|transition| Change::new(transition, sealer)).collect();
    let hit = write(conn, limit, now, &changes).await?;
    told(conn, &changes, hit).await
}

/// Tells of each of `changes`, of which `hit` were written, whether its row is as asked.
pub(super) async fn told(conn: &mut Conn<'_>, changes: &[Change], hit: u64) -> sqlx::Result<Vec<Guarded>> {
    if hit == changes.len() as u64 {
        return Ok(vec![Guarded::Done; changes.len()]);
    }
    let found = rows::peek(conn, changes.iter().map(|change| change.id)).await?;
    Ok(changes.iter().map(|change| decide(change, found.get(&change.id))).collect())
}

/// Whether the row is as `change` left it, now or when it was applied before. A completed entry whose answer
/// the reaper has taken since was completed.
fn decide(change: &Change, found: Option<&Peek>) -> Guarded {
    let is_as_asked = found.is_some_and(|row| {
        let is_reaped = change.state == stored::COMPLETED && row.state == stored::TOMBSTONE;
        row.nonce == change.nonce && (row.state == change.state || is_reaped)
    });
    if is_as_asked { Guarded::Done } else { Guarded::Fenced }
}
