//! Events taken up: counted first, then read. One that came early keeps when it was due, as a sign, until it is
//! concluded otherwise.

use std::collections::HashMap;

use super::choose::Candidate;
use super::record;
use super::{rows, stored};
use crate::clock::Timestamp;
use crate::outbox::store::{Acquired, Lane};
use crate::sealer::Sealer;
use crate::storage::conn::Conn;
use crate::storage::text::Statement;
use crate::storage::value::Column;

const COLUMNS: [Column; 6] = [
    Column::int("v_position"),
    Column::int("v_state"),
    Column::int("v_epoch"),
    Column::int("v_died"),
    // Whether the reason was an earlier attempt's, and not that nobody can publish it.
    Column::int("v_clear"),
    Column::int("v_now"),
];

static TAKE: Statement = Statement::new(|dialect, size| {
    dialect.update_of(
        "events AS e",
        "e.position = v.v_position",
        &COLUMNS,
        size,
        "attempts = e.attempts + 1, deaths = e.deaths + v.v_died, \
         due_at = CASE WHEN v.v_state = 2 THEN NULL ELSE e.due_at END, \
         reason = CASE WHEN v.v_clear = 1 THEN NULL ELSE e.reason END, \
         changed_at = v.v_now, state = 1, epoch = v.v_epoch",
        "e.state + 0 = v.v_state AND (e.epoch IS NULL OR e.epoch <> v.v_epoch)",
    )
});

static READ: Statement = Statement::new(|dialect, size| {
    let (columns, among) = (record::COLUMNS, dialect.among_ints(size));
    format!("SELECT {columns} FROM events AS e WHERE e.position{among} AND e.state + 0 = 1")
});

/// Takes up `chosen`.
pub(super) async fn take(
    conn: &mut Conn<'_>,
    sealer: &Sealer,
    now: Timestamp,
    lanes: &HashMap<u32, Lane>,
    chosen: &[Candidate],
) -> sqlx::Result<Vec<Acquired>> {
    let epoch = |event: &Candidate| lanes.get(&event.lane).map_or(0, |lane| lane.epoch);
    let row = |event: &Candidate| {
        let clear = i64::from([stored::RETRYING, stored::EARLY].contains(&event.state));
        [
            event.position.into(),
            event.state.into(),
            epoch(event).into(),
            event.died().into(),
            clear.into(),
            now.0.into(),
        ]
    };
    rows::execute(conn, &TAKE, &chosen.iter().map(row).collect::<Vec<_>>(), &[]).await?;
    read(conn, sealer, lanes, chosen.iter().map(|event| event.position)).await
}

/// Those among `positions` that are in hand under the epochs of `lanes`, in order.
pub(super) async fn read(
    conn: &mut Conn<'_>,
    sealer: &Sealer,
    lanes: &HashMap<u32, Lane>,
    positions: impl IntoIterator<Item = i64>,
) -> sqlx::Result<Vec<Acquired>> {
    let mut acquired = Vec::new();
    for row in rows::query(conn, &READ, &[], &rows::positions(positions)).await? {
        let event = record::acquired(&row, sealer)?;
        if lanes.get(&event.lane.number) == Some(&event.lane) {
            acquired.push(event);
        }
    }
    acquired.sort_unstable_by_key(|event| event.position);
    acquired.dedup_by_key(|event| event.position);
    Ok(acquired)
}
