//! Copies of parked events for the dead letters, written in the transaction that parks.

use std::num::NonZeroU32;

use super::{lanes, record, rows};
use crate::clock::Timestamp;
use crate::entry::EntryId;
use crate::inbox::dead_letter::{self, Parked};
use crate::outbox::event::{NewEvent, OnFailure};
use crate::outbox::lane::{DEFAULT_LANES, lane_of};
use crate::outbox::store::{DeadLetter, Parking};
use crate::sealer::Sealer;
use crate::storage::conn::{Conn, Row};
use crate::storage::events::{self, NewRow};
use crate::storage::text::Statement;

static READ: Statement = Statement::new(|dialect, size| {
    let (columns, among) = (record::COLUMNS, dialect.among_ints(size));
    format!("SELECT {columns}, e.result, e.entry FROM events AS e WHERE e.position{among} AND e.state + 0 = 4")
});

static BURY: Statement = Statement::new(|dialect, size| events::insert(dialect, size, "v.v_place >= 0"));

/// Writes a copy of each of the parked events at `positions`, if copies are wanted. One that is there already is
/// passed over: it was written when the same turn was applied before.
pub(super) async fn copy(
    conn: &mut Conn<'_>,
    sealer: &Sealer,
    limit: usize,
    now: Timestamp,
    parking: &Parking,
    positions: impl Iterator<Item = i64>,
) -> sqlx::Result<()> {
    let Some(to) = &parking.dead_letter else { return Ok(()) };
    let positions = rows::positions(positions);
    if positions.is_empty() {
        return Ok(());
    }
    let lanes = open_lanes(conn, &to.queue).await?;
    let mut copies: Vec<(EntryId, NewEvent)> = Vec::with_capacity(positions.len());
    for row in rows::query(conn, &READ, &[], &positions).await? {
        match copy_of(&row, to, lanes, sealer) {
            Ok(copy) if copies.iter().any(|(_, other)| other.event.id == copy.1.event.id) => {}
            Ok(copy) => copies.push(copy),
            // Nobody could publish it either; the original waits for a person in any case.
            Err(error) => tracing::error!(queue = %to.queue, %error, "a parked delivery has no copy"),
        }
    }
    let mut rows = Vec::with_capacity(copies.len());
    for (entry, event) in &copies {
        let row = NewRow::new(entry, &[], event, sealer)?;
        // A copy says more than its original, which may have been just small enough.
        if events::is_storable(conn, limit, now, &row) {
            rows.push(row);
        } else {
            tracing::error!(queue = %to.queue, id = %event.event.id, "a parked delivery has no copy: it is too large");
        }
    }
    let new = events::write(conn, limit, now, &BURY, &rows).await?;
    if new < rows.len() as u64 {
        events::demand(conn, rows.iter().map(|row| row.event.event.id)).await?;
    }
    Ok(())
}

/// How many lanes the queue has. One that nobody has opened yet is opened, so that its first relay finds the copy.
async fn open_lanes(conn: &mut Conn<'_>, queue: &str) -> sqlx::Result<NonZeroU32> {
    let lanes = match lanes::how_many(conn, queue).await? {
        0 => lanes::make(conn, queue, DEFAULT_LANES.get()).await?,
        lanes => lanes,
    };
    Ok(NonZeroU32::new(lanes).unwrap_or(NonZeroU32::MIN))
}

fn copy_of(row: &Row, to: &DeadLetter, lanes: NonZeroU32, sealer: &Sealer) -> sqlx::Result<(EntryId, NewEvent)> {
    let text =
        |column| row.maybe_bytes(column).map(|bytes| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned());
    let (reason, result) = (text(record::REASON)?, text(record::COUNT)?);
    let parked = Parked {
        reason: &reason,
        result: Some(&*result).filter(|result| !result.is_empty()),
        attempts: rows::count(row.int(record::ATTEMPTS)?),
        redrives: record::redrives(row)?,
    };
    let event = dead_letter::copy(record::envelope(row, sealer)?, &parked, to);
    let lane = lane_of(&event.key, lanes);
    let entry = EntryId(row.array(record::COUNT + 1)?);
    Ok((entry, NewEvent { event, lane, parked: None, on_failure: OnFailure::Skip }))
}
