//! What is not sent, for metrics.

use std::time::Duration;

use super::{rows, stored};
use crate::clock::Timestamp;
use crate::engine::ledger::StoreError;
use crate::outbox::desk::Parked;
use crate::outbox::store::Backlog;
use crate::storage::Store;
use crate::storage::dialect::MAX_ROWS;
use crate::storage::error::classify;
use crate::storage::text::Statement;
use crate::storage::value::{Column, Value};

/// In an order that only `events_by_state` has: where nearly all events are of one state, PostgreSQL would not see
/// what that index is good for.
static COUNT: Statement = Statement::new(|dialect, _| {
    let index = dialect.by_index("events_by_state");
    let count = |filter: &str| {
        format!(
            "(SELECT COUNT(*) FROM (SELECT 1 AS one FROM events AS e{index} \
             WHERE e.state = ? AND e.queue = ?{filter} ORDER BY e.lane, e.position LIMIT ?) AS c)"
        )
    };
    let all = count("");
    let (held, now) = (count(" AND e.holds = 1"), dialect.now());
    let lanes = "(SELECT l.lanes FROM lanes AS l WHERE l.queue = ? AND l.lane = 0)";
    format!("SELECT {all}, {all}, {all}, {all}, {all}, {held}, {lanes}, {now}")
});

/// By ranges of the index's second column: queues of deliveries have a prefix of their own, and all others are before or
/// behind them.
static PARKED: Statement = Statement::new(|dialect, _| {
    let index = dialect.by_index("events_by_state");
    let count = |range: &str| {
        format!(
            "(SELECT COUNT(*) FROM (SELECT 1 AS one FROM events AS e{index} \
             WHERE e.state = ? AND {range} ORDER BY e.queue, e.lane, e.position LIMIT ?) AS c)"
        )
    };
    let (before, of, behind) =
        (count("e.queue < 'sub:'"), count("e.queue >= 'sub:' AND e.queue < 'sub;'"), count("e.queue >= 'sub;'"));
    format!("SELECT {before}, {of}, {behind}")
});

const HEAD: [Column; 4] =
    [Column::int("v_state"), Column::text("v_queue"), Column::int("v_lane"), Column::int("v_from")];

/// The first event of each lane and state.
static HEADS: Statement = Statement::new(|dialect, size| {
    let index = dialect.by_index("events_by_state");
    let (of_lane, in_order) = dialect.of_lane();
    let first = format!("SELECT e.created_at FROM events AS e{index} WHERE {of_lane} ORDER BY {in_order} LIMIT 1");
    format!("SELECT p.created_at FROM {}", dialect.for_each(&HEAD, size, &first))
});

const UNSENT: [i64; 4] = [stored::READY, stored::RETRYING, stored::WAITING, stored::EARLY];

pub(super) async fn count(store: &Store, queue: &str, cap: u32) -> Result<Backlog, StoreError> {
    let states = UNSENT.into_iter().chain([stored::PARKED, stored::PARKED]);
    let mut values: Vec<Value<'_>> =
        states.flat_map(|state| [state.into(), queue.into(), i64::from(cap).into()]).collect();
    values.push(queue.into());
    let found = store.query(&COUNT, &values).await?;
    let counts = || {
        let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
        let counted = (0..6).map(|column| row.int(column)).collect::<sqlx::Result<Vec<_>>>()?;
        sqlx::Result::Ok((counted, row.maybe_int(6)?.unwrap_or(0), Timestamp(row.int(7)?)))
    };
    let (counted, lanes, now) = counts().map_err(|error| classify(&error))?;
    let capped = |count: i64| u64::from(rows::count(count)).min(u64::from(cap));
    let unsent = capped(counted[..UNSENT.len()].iter().sum());
    let oldest = if unsent == 0 { None } else { oldest(store, queue, lanes, now).await? };
    Ok(Backlog {
        unsent,
        waiting: capped(counted[2] + counted[3]),
        parked: capped(counted[4]),
        blocking: capped(counted[1] + counted[5]),
        oldest,
    })
}

pub(super) async fn parked(store: &Store, cap: u32) -> Result<Parked, StoreError> {
    let range = || [Value::from(stored::PARKED), Value::from(i64::from(cap))];
    let found = store.query(&PARKED, &[range(), range(), range()].concat()).await?;
    let counts = || {
        let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
        let counted = |column| row.int(column).map(|count| u64::from(rows::count(count)).min(u64::from(cap)));
        let (before, deliveries, behind) = (counted(0)?, counted(1)?, counted(2)?);
        sqlx::Result::Ok(Parked { events: before.saturating_add(behind).min(u64::from(cap)), deliveries })
    };
    counts().map_err(|error| classify(&error))
}

/// The age of the oldest one at the head of a lane: positions grow about as commits do.
async fn oldest(store: &Store, queue: &str, lanes: i64, now: Timestamp) -> Result<Option<Duration>, StoreError> {
    let lane = |state: i64| (0..lanes).map(move |lane| [state.into(), queue.into(), lane.into(), 0.into()]);
    let heads: Vec<[Value<'_>; 4]> = UNSENT.into_iter().flat_map(lane).collect();
    let mut oldest = None;
    for chunk in heads.chunks(MAX_ROWS) {
        let values = store.connector.dialect().bind_rows(chunk);
        for row in store.query_for(chunk.len(), &HEADS, &values).await? {
            let created_at = Timestamp(row.int(0).map_err(|error| classify(&error))?);
            oldest = oldest.max(Some(now.since(created_at)));
        }
    }
    Ok(oldest)
}
