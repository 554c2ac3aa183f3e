//! What may be taken up: the first ones of each lane, by state and position, and the beginnings of lines.

use std::collections::{HashMap, HashSet};

use super::choose::{Candidate, InLine};
use super::{rows, stored};
use crate::clock::Timestamp;
use crate::outbox::store::{Lane, Reach, Retries, Want};
use crate::storage::conn::{Conn, Row};
use crate::storage::text::Statement;
use crate::storage::value::{Column, Value};

const FOUND: [Column; 9] = [
    // Whether one of the lane's keys is stopped: mostly none is, and nobody has to be asked for each event.
    Column::int("v_stopped"),
    Column::int("v_state"),
    Column::text("v_queue"),
    Column::int("v_lane"),
    Column::int("v_from"),
    Column::int("v_to"),
    Column::int("v_epoch"),
    Column::int("v_now"),
    Column::int("v_limit"),
];

/// By state, so that what commits late is found whatever its position. The key stays in the database: a row whose
/// key can't be read must stop nobody else. With the newest position there is, in the same view of the database.
static FIND: Statement = Statement::new(|dialect, size| {
    let (events, blocked) = (dialect.by_index("events_by_state"), dialect.by_index("blocked_by_key"));
    let ((of_lane, in_order), up_to) = (dialect.of_lane(), dialect.up_to());
    let first = format!(
        "SELECT v.v_stopped AS stopped, e.position, e.queue, e.lane, e.event_key, e.state, e.epoch, e.deaths, e.due_at, \
         LENGTH(e.data) AS size FROM events AS e{events} WHERE {of_lane} AND {up_to} \
         AND (e.epoch IS NULL OR e.epoch <> v.v_epoch) \
         AND (e.due_at IS NULL OR e.due_at <= v.v_now) ORDER BY {in_order} LIMIT v.v_limit"
    );
    let each = dialect.for_each(&FOUND, size, &first);
    format!(
        "SELECT p.position, p.lane, p.state, p.epoch, p.deaths, p.size, \
         CASE WHEN p.stopped = 1 THEN (SELECT MIN(b.position) FROM blocked AS b{blocked} \
         WHERE b.queue = p.queue AND b.lane = p.lane AND b.event_key = p.event_key) END, p.due_at, \
         (SELECT MAX(n.position) FROM events AS n) FROM {each}"
    )
});

const IN_HAND: [Column; 5] = [
    Column::int("v_state"),
    Column::text("v_queue"),
    Column::int("v_lane"),
    Column::int("v_from"),
    Column::int("v_epoch"),
];

static FIND_IN_HAND: Statement = Statement::new(|dialect, size| {
    let index = dialect.by_index("events_by_state");
    let (of_lane, _) = dialect.of_lane();
    let all = format!("SELECT e.position, e.lane FROM events AS e{index} WHERE {of_lane} AND e.epoch = v.v_epoch");
    format!("SELECT p.position, p.lane FROM {}", dialect.for_each(&IN_HAND, size, &all))
});

const KEY: [Column; 4] =
    [Column::text("v_queue"), Column::int("v_lane"), Column::bytes("v_key"), Column::int("v_limit")];

static LINES: Statement = Statement::new(|dialect, size| {
    let blocked = dialect.by_index("blocked_by_key");
    let key = dialect.as_text("v.v_key");
    let first = format!(
        "SELECT b.position, b.lane, b.event_key FROM blocked AS b{blocked} \
         WHERE b.queue = v.v_queue AND b.lane = v.v_lane AND b.event_key = {key} \
         ORDER BY b.position LIMIT v.v_limit"
    );
    let each = dialect.for_each(&KEY, size, &first);
    format!(
        "SELECT p.position, p.lane, COALESCE(e.state, 6), e.epoch, COALESCE(e.deaths, 0), \
         COALESCE(LENGTH(e.data), 0), COALESCE(e.holds, 0), p.event_key \
         FROM {each} LEFT JOIN events AS e ON e.position = p.position"
    )
});

/// A key, and the lane that it is in.
pub(super) type Key = (u32, Vec<u8>);

/// What the wanted lanes hold.
pub(super) struct Found {
    /// Due retries, and early ones.
    pub(super) due: Vec<Candidate>,
    /// Ready ones within the reach of the look.
    pub(super) ready: Vec<Candidate>,
    /// A position that had been given out by then, as had all before it.
    pub(super) newest: i64,
}

/// Due retries and ready events of the wanted lanes, of which keys are stopped in those `with_lines`.
pub(super) async fn find(
    conn: &mut Conn<'_>,
    queue: &str,
    now: Timestamp,
    wants: &[Want],
    with_lines: &HashSet<u32>,
) -> sqlx::Result<Found> {
    let row = |state: i64, want: &Want, Reach { from, to, .. }: Reach| -> [Value<'_>; 9] {
        [
            i64::from(with_lines.contains(&want.lane.number)).into(),
            state.into(),
            queue.into(),
            i64::from(want.lane.number).into(),
            from.into(),
            to.into(),
            want.lane.epoch.into(),
            now.0.into(),
            i64::from(want.limit).into(),
        ]
    };
    let due = wants.iter().filter(|want| want.retries == Retries::Due);
    let again = |want| [stored::RETRYING, stored::EARLY].map(|state| row(state, want, Reach::WHOLE));
    let values: Vec<_> =
        wants.iter().map(|want| row(stored::READY, want, want.reach)).chain(due.flat_map(again)).collect();
    let (mut found, mut newest) = (Vec::new(), i64::MAX);
    for row in rows::query(conn, &FIND, &[], &values).await? {
        let event = candidate(&row, row.maybe_int(6)?)?;
        let came_early = event.state != stored::RETRYING && row.maybe_int(7)?.is_some();
        found.push(Candidate { came_early, ..event });
        // Of several statements, what the first one saw.
        newest = newest.min(row.int(8)?);
    }
    let (due, ready) = found.into_iter().partition(|event| event.state != stored::READY);
    Ok(Found { due, ready, newest })
}

/// What is in hand of `lanes`.
pub(super) async fn find_in_hand(conn: &mut Conn<'_>, queue: &str, lanes: &[Lane]) -> sqlx::Result<Vec<(i64, u32)>> {
    let row =
        |lane: &Lane| [stored::READY.into(), queue.into(), i64::from(lane.number).into(), 0.into(), lane.epoch.into()];
    let values: Vec<_> = lanes.iter().map(row).collect();
    let found = rows::query(conn, &FIND_IN_HAND, &[], &values).await?;
    found.iter().map(|row| Ok((row.int(0)?, rows::count(row.int(1)?)))).collect()
}

/// The first `limit` of the lines of `keys`, each in order.
pub(super) async fn lines(
    conn: &mut Conn<'_>,
    queue: &str,
    keys: &[Key],
    limit: i64,
) -> sqlx::Result<Vec<(u32, Vec<InLine>)>> {
    let values: Vec<_> = keys
        .iter()
        .map(|(lane, key)| [queue.into(), i64::from(*lane).into(), key.as_slice().into(), limit.into()])
        .collect();
    let mut lines: HashMap<Key, Vec<InLine>> = HashMap::new();
    for row in rows::query(conn, &LINES, &[], &values).await? {
        let event = candidate(&row, None)?;
        let in_line = InLine { event, holds: row.int(6)? == 1 };
        lines.entry((event.lane, row.bytes(7)?)).or_default().push(in_line);
    }
    let in_order = |((lane, _), mut line): (Key, Vec<InLine>)| {
        line.sort_unstable_by_key(|in_line| in_line.event.position);
        line.dedup_by_key(|in_line| in_line.event.position);
        (lane, line)
    };
    Ok(lines.into_iter().map(in_order).collect())
}

fn candidate(row: &Row, first_in_line: Option<i64>) -> sqlx::Result<Candidate> {
    Ok(Candidate {
        position: row.int(0)?,
        lane: rows::count(row.int(1)?),
        state: row.int(2)?,
        epoch: row.maybe_int(3)?,
        deaths: row.int(4)?,
        size: u64::from(rows::count(row.int(5)?)),
        first_in_line,
        came_early: false,
    })
}
