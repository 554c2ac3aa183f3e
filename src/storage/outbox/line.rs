//! The lines of stopped keys, in the table `blocked`. Written under the lanes' lock only, so that nobody joins a
//! line while its last one leaves.

use std::time::Duration;

use super::choose::{Candidate, Choice};
use super::fetch::Key;
use super::rows;
use super::stored;
use crate::clock::Timestamp;
use crate::storage::conn::Conn;
use crate::storage::text::Statement;
use crate::storage::value::{Column, Value};

/// How long an early event stays so whose key was stopped when it was due.
const PUT_OFF: Duration = Duration::from_secs(1);

/// Who stops its key, or waits: each with its key, which stays in the database.
static JOIN: Statement = Statement::new(|dialect, size| {
    let select = format!(
        "SELECT e.position, e.queue, e.lane, e.event_key FROM events AS e WHERE e.position{} \
         AND (e.state + 0 = 2 OR e.state + 0 = 3 OR (e.state + 0 = 4 AND e.holds = 1))",
        dialect.among_ints(size)
    );
    dialect.insert_found("blocked (position, queue, lane, event_key)", &select)
});

static KEYS: Statement = Statement::new(|dialect, size| {
    let among = dialect.among_ints(size);
    format!("SELECT DISTINCT b.lane, b.event_key FROM blocked AS b WHERE b.position{among}")
});

/// Whoever is sent, discarded or parked without holding stops nobody.
static LEAVE: Statement = Statement::new(|dialect, size| {
    format!(
        "DELETE FROM blocked WHERE position{} AND NOT EXISTS (SELECT 1 FROM events AS e \
         WHERE e.position = blocked.position AND (e.state <= 3 OR (e.state = 4 AND e.holds = 1)))",
        dialect.among_ints(size)
    )
});

const MOVE: [Column; 6] = [
    Column::int("v_position"),
    Column::int("v_from"),
    Column::int("v_to"),
    Column::int("v_died"),
    Column::int("v_due_at"),
    Column::int("v_now"),
];

static MOVED: Statement = Statement::new(|dialect, size| {
    dialect.update_of(
        "events AS e",
        "e.position = v.v_position",
        &MOVE,
        size,
        "deaths = e.deaths + v.v_died, epoch = NULL, due_at = v.v_due_at, changed_at = v.v_now, state = v.v_to",
        "e.state + 0 = v.v_from",
    )
});

/// Puts those among `positions` that stop their key, or wait, into its line.
pub(super) async fn join(conn: &mut Conn<'_>, positions: impl IntoIterator<Item = i64>) -> sqlx::Result<()> {
    rows::execute(conn, &JOIN, &rows::positions(positions), &[]).await.map(drop)
}

/// Takes those among `positions` that stop nobody any more out of their lines, and returns the keys of all that
/// are in one.
pub(super) async fn leave(conn: &mut Conn<'_>, positions: impl IntoIterator<Item = i64>) -> sqlx::Result<Vec<Key>> {
    let positions = rows::positions(positions);
    let mut keys = Vec::new();
    for row in rows::query(conn, &KEYS, &[], &positions).await? {
        keys.push((rows::count(row.int(0)?), row.bytes(1)?));
    }
    if !keys.is_empty() {
        rows::execute(conn, &LEAVE, &positions, &[]).await?;
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// Makes wait who was chosen to wait, lets go who was chosen to be first, and puts off who came early.
pub(super) async fn write(conn: &mut Conn<'_>, now: Timestamp, choice: &Choice) -> sqlx::Result<()> {
    let wait = choice.wait.iter().map(|event| moved(event, stored::READY, stored::WAITING, None, now));
    let free = choice.free.iter().map(|event| moved(event, stored::WAITING, stored::READY, None, now));
    let later = Some(now.after(PUT_OFF));
    let put_off = choice.put_off.iter().map(|event| moved(event, event.state, stored::EARLY, later, now));
    rows::execute(conn, &MOVED, &wait.chain(free).chain(put_off).collect::<Vec<_>>(), &[]).await?;
    join(conn, choice.wait.iter().map(|event| event.position)).await
}

/// Early ones whose time has come.
pub(super) async fn make_due(
    conn: &mut Conn<'_>,
    now: Timestamp,
    early: impl IntoIterator<Item = i64>,
) -> sqlx::Result<()> {
    let mut early: Vec<i64> = early.into_iter().collect();
    early.sort_unstable();
    early.dedup();
    let row = |position: &i64| -> [Value<'static>; 6] {
        let (from, to) = (stored::EARLY.into(), stored::EARLY.into());
        [(*position).into(), from, to, 0.into(), now.0.into(), now.0.into()]
    };
    rows::execute(conn, &MOVED, &early.iter().map(row).collect::<Vec<_>>(), &[]).await.map(drop)
}

fn moved(event: &Candidate, from: i64, to: i64, due_at: Option<Timestamp>, now: Timestamp) -> [Value<'static>; 6] {
    let due_at = due_at.map(|due_at| due_at.0);
    [event.position.into(), from.into(), to.into(), event.died().into(), due_at.into(), now.0.into()]
}
