//! What was sent or discarded leaves once its time is over.

use super::{rows, stored};
use crate::storage::text::Statement;
use crate::storage::transaction::Transaction;
use crate::storage::value::{Column, Value};

/// How many of a lane are looked at, at least. Events leave about in order of position; one that was sent late
/// keeps those behind it only if there are so many of its kind, and only until its own time is over.
const MIN_LOOK: u32 = 64;

const COLUMNS: [Column; 5] = [
    Column::int("v_state"),
    Column::text("v_queue"),
    Column::int("v_lane"),
    Column::int("v_from"),
    Column::int("v_limit"),
];

/// The first ones of each lane, whether their time is over or not: looking for those that are over would walk
/// over all that are kept.
static FIRST: Statement = Statement::new(|dialect, size| {
    let index = dialect.by_index("events_by_state");
    let (of_lane, in_order) = dialect.of_lane();
    let first = format!(
        "SELECT e.position, e.due_at FROM events AS e{index} WHERE {of_lane} ORDER BY {in_order} LIMIT v.v_limit"
    );
    format!("SELECT p.position, p.due_at FROM {}", dialect.for_each(&COLUMNS, size, &first))
});

static REMOVE: Statement = Statement::new(|dialect, size| {
    let among = dialect.among_ints(size);
    format!("DELETE FROM events WHERE position{among} AND (state = 5 OR state = 6) AND due_at <= ?")
});

pub(super) async fn reap(
    transaction: &mut Transaction<'_>,
    queue: &str,
    lanes: &[u32],
    limit: u32,
) -> sqlx::Result<u64> {
    let now = transaction.now.0;
    let mut conn = transaction.conn();
    let look = limit.div_ceil(u32::try_from(lanes.len().max(1)).unwrap_or(u32::MAX)).max(MIN_LOOK);
    let row =
        |state: i64, lane: u32| [state.into(), queue.into(), i64::from(lane).into(), 0.into(), i64::from(look).into()];
    let values: Vec<[Value<'_>; 5]> =
        lanes.iter().flat_map(|lane| [row(stored::SENT, *lane), row(stored::DISCARDED, *lane)]).collect();
    let mut over = Vec::new();
    for row in rows::query(&mut conn, &FIRST, &[], &values).await? {
        if row.maybe_int(1)?.is_some_and(|due_at| due_at <= now) {
            over.push(row.int(0)?);
        }
    }
    let mut over = rows::positions(over);
    over.truncate(limit as usize);
    rows::execute(&mut conn, &REMOVE, &over, &[now.into()]).await
}
