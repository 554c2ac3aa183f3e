//! What became of events in hand: guarded changes, by lane, epoch and position.

use std::collections::HashMap;
use std::time::Duration;

use super::rows;
use super::stored;
use crate::clock::{Timestamp, millis};
use crate::engine::ledger::Guarded;
use crate::outbox::store::{Conclusion, How, Parking};
use crate::storage::conn::Conn;
use crate::storage::text::Statement;
use crate::storage::value::{Column, Value};

const COLUMNS: [Column; 10] = [
    Column::int("v_position"),
    Column::bytes("v_id"),
    Column::int("v_lane"),
    Column::int("v_epoch"),
    Column::int("v_state"),
    Column::int("v_due_at"),
    // Attempts that do not count.
    Column::int("v_back"),
    Column::text("v_reason"),
    Column::text("v_result"),
    Column::int("v_now"),
];

/// Rows are found by position, here and wherever positions are given: hidden from the planner, state and queue do not
/// tempt it to read all that is ready, or all that the queue has, which it believes to be little while the table is
/// new.
///
/// What was tried and comes again (retrying, early) has not killed its relay; if its attempt does not count, it was a
/// deferral. Of what is to be ready or waits, the reason is why nobody can publish it, and stays; so does the sign of
/// what came early and is given back.
static CONCLUDE: Statement = Statement::new(|dialect, size| {
    dialect.update_of(
        "events AS e",
        "e.position = v.v_position",
        &COLUMNS,
        size,
        "attempts = e.attempts - v.v_back, \
         deaths = CASE WHEN v.v_state = 2 OR v.v_state = 7 THEN 0 ELSE e.deaths END, \
         deferrals = e.deferrals + CASE WHEN v.v_state = 2 OR v.v_state = 7 THEN v.v_back ELSE 0 END, \
         reason = CASE WHEN v.v_state = 1 OR v.v_state = 3 THEN e.reason ELSE v.v_reason END, result = v.v_result, \
         due_at = CASE WHEN v.v_state = 1 THEN e.due_at ELSE v.v_due_at END, \
         changed_at = v.v_now, state = v.v_state, epoch = NULL",
        "e.state + 0 = 1 AND e.epoch = v.v_epoch AND e.lane = v.v_lane AND (v.v_id IS NULL OR e.id = v.v_id) \
         AND CASE WHEN e.queue = ? THEN 1 ELSE 0 END = 1",
    )
});

static PEEK: Statement = Statement::new(|dialect, size| {
    format!("SELECT e.position, e.state FROM events AS e WHERE e.position{}", dialect.among_ints(size))
});

/// A conclusion as it is stored.
struct Change {
    state: i64,
    due_at: Option<i64>,
    /// Attempts that do not count.
    back: i64,
    reason: Option<String>,
    result: Option<&'static str>,
}

impl Change {
    fn new(how: &How, parking: &Parking, now: Timestamp) -> Self {
        let to = |state| Self { state, due_at: None, back: 0, reason: None, result: None };
        let after = |duration| Some(now.0.saturating_add(millis(duration)));
        let again = |state, pause: &Duration, reason: &str| Self {
            due_at: after(*pause),
            reason: Some(rows::clean(reason)),
            ..to(state)
        };
        match how {
            How::Sent { keep, result, .. } => Self { due_at: after(*keep), result: *result, ..to(stored::SENT) },
            How::Retry { after, reason } => again(stored::RETRYING, after, reason),
            How::Later { after, reason } => Self { back: 1, ..again(stored::RETRYING, after, reason) },
            How::Early { after, reason } => Self { back: 1, ..again(stored::EARLY, after, reason) },
            How::Parked { reason, result } => {
                Self { reason: Some(rows::clean(reason)), result: result.or(parking.result), ..to(stored::PARKED) }
            }
            How::GivenBack => Self { back: 1, ..to(stored::READY) },
            How::Waiting => Self { back: 1, ..to(stored::WAITING) },
        }
    }

    fn row<'a>(&'a self, conclusion: &'a Conclusion, now: Timestamp) -> [Value<'a>; 10] {
        [
            conclusion.position.into(),
            conclusion.id.as_ref().map(|id| id.0.as_slice()).into(),
            i64::from(conclusion.lane.number).into(),
            conclusion.lane.epoch.into(),
            self.state.into(),
            self.due_at.into(),
            self.back.into(),
            Value::Text(self.reason.as_deref()),
            Value::Text(self.result),
            now.0.into(),
        ]
    }
}

/// Writes `conclusions`, whose lanes are held and locked, and tells for each whether its event is as asked.
/// Where every row was hit, nothing has to be read.
pub(super) async fn apply(
    conn: &mut Conn<'_>,
    queue: &str,
    now: Timestamp,
    parking: &Parking,
    conclusions: &[&Conclusion],
) -> sqlx::Result<Vec<Guarded>> {
    let mut order: Vec<_> =
        conclusions.iter().map(|conclusion| (*conclusion, Change::new(&conclusion.how, parking, now))).collect();
    order.sort_unstable_by_key(|(conclusion, _)| conclusion.position);
    let values: Vec<_> = order.iter().map(|(conclusion, change)| change.row(conclusion, now)).collect();
    let hit = rows::execute(conn, &CONCLUDE, &values, &[queue.into()]).await?;
    if hit == conclusions.len() as u64 {
        return Ok(vec![Guarded::Done; conclusions.len()]);
    }
    let positions = rows::positions(conclusions.iter().map(|conclusion| conclusion.position));
    let mut found = HashMap::new();
    for row in rows::query(conn, &PEEK, &[], &positions).await? {
        found.insert(row.int(0)?, row.int(1)?);
    }
    Ok(conclusions.iter().map(|conclusion| decide(&conclusion.how, found.get(&conclusion.position))).collect())
}

/// Whether an event in this state is as asked, now or when the same turn was applied before: what that one let
/// go or gave back, it may have made wait or let go as well. A sent event that was reaped since was sent.
fn decide(how: &How, state: Option<&i64>) -> Guarded {
    let is_as_asked = match (how, state) {
        (How::Sent { .. }, state) => state.is_none_or(|state| *state == stored::SENT),
        (How::Retry { .. } | How::Later { .. }, Some(state)) => *state == stored::RETRYING,
        (How::Early { .. }, Some(state)) => *state == stored::EARLY,
        (How::Parked { .. }, Some(state)) => *state == stored::PARKED,
        (How::GivenBack | How::Waiting, Some(state)) => [stored::READY, stored::WAITING].contains(state),
        (
            How::Retry { .. }
            | How::Later { .. }
            | How::Early { .. }
            | How::Parked { .. }
            | How::GivenBack
            | How::Waiting,
            None,
        ) => false,
    };
    if is_as_asked { Guarded::Done } else { Guarded::Fenced }
}
