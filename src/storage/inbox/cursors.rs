//! How far consumers of embedded queues have come.

use crate::engine::ledger::StoreError;
use crate::inbox::store::{ConsumerId, Cursor, Standing};
use crate::storage::Store;
use crate::storage::bounds::{MAX_QUEUE_BYTES, MAX_TEXT_BYTES, bounded};
use crate::storage::conn::{Conn, Row};
use crate::storage::error::classify;
use crate::storage::text::Statement;
use crate::storage::value::{Column, Value};

/// Beyond it a number says no more than "many".
const MOST_LEFT: i64 = 10_000;

const COLUMNS: [Column; 3] = [Column::text("v_queue"), Column::text("v_topic"), Column::text("v_consumer")];

pub(super) static POSITION: Statement = Statement::new(|_, _| {
    "SELECT c.position FROM cursors AS c WHERE c.queue = ? AND c.topic = ? AND c.consumer = ?".to_owned()
});

static MAKE: Statement = Statement::new(|dialect, size| {
    dialect.insert_new(
        &COLUMNS,
        size,
        "cursors (queue, topic, consumer, position)",
        "v.v_queue, v.v_topic, v.v_consumer, 0",
        "v.v_queue IS NOT NULL",
    )
});

static STANDINGS: Statement = Statement::new(|_, _| {
    "SELECT c.queue, c.topic, c.consumer, c.position FROM cursors AS c ORDER BY c.queue, c.topic, c.consumer".to_owned()
});

static LEFT: Statement = Statement::new(|dialect, _| {
    let index = dialect.by_index("messages_by_topic");
    format!(
        "SELECT COUNT(*) FROM (SELECT 1 AS one FROM messages AS m{index} WHERE m.queue = ? AND m.topic = ? \
         AND m.position > ? LIMIT ?) AS l"
    )
});

static FORGET: Statement =
    Statement::new(|_, _| "DELETE FROM cursors WHERE queue = ? AND topic = ? AND consumer = ?".to_owned());

static MOVE: Statement = Statement::new(|_, _| {
    "UPDATE cursors SET position = ? WHERE queue = ? AND topic = ? AND consumer = ? AND position = ?".to_owned()
});

/// Makes the consumer known, where it is not.
pub(super) async fn enlist(conn: &mut Conn<'_>, queue: &str, topic: &str, consumer: &str) -> sqlx::Result<()> {
    let name = name(queue, topic, consumer)?;
    let dialect = conn.dialect();
    if conn.query(POSITION.text(dialect, 1), &name).await?.is_empty() {
        conn.execute(MAKE.text(dialect, 1), &dialect.bind_rows(std::slice::from_ref(&name))).await?;
    }
    Ok(())
}

fn name<'a>(queue: &'a str, topic: &'a str, consumer: &'a str) -> sqlx::Result<[Value<'a>; 3]> {
    Ok([
        bounded("queue's name", queue, MAX_QUEUE_BYTES)?.into(),
        bounded("topic", topic, MAX_TEXT_BYTES)?.into(),
        bounded("consumer's name", consumer, MAX_TEXT_BYTES)?.into(),
    ])
}

pub(super) async fn standings(store: &Store) -> Result<Vec<Standing>, StoreError> {
    let read = |row: &Row| -> sqlx::Result<Standing> {
        let text = |column| row.text(column).map(Box::<str>::from);
        let id = ConsumerId { queue: text(0)?, topic: text(1)?, consumer: text(2)? };
        Ok(Standing { id, position: row.int(3)?, left: 0 })
    };
    let rows = store.query(&STANDINGS, &[]).await?;
    let mut standings = rows.iter().map(read).collect::<sqlx::Result<Vec<_>>>().map_err(|error| classify(&error))?;
    for Standing { id, position, left } in &mut standings {
        let values = [(&*id.queue).into(), (&*id.topic).into(), (*position).into(), MOST_LEFT.into()];
        let counted = store.query(&LEFT, &values).await?;
        let count = counted.first().map_or(Ok(0), |row| row.int(0)).map_err(|error| classify(&error))?;
        *left = u64::try_from(count).unwrap_or_default();
    }
    Ok(standings)
}

pub(super) async fn forget(conn: &mut Conn<'_>, id: &ConsumerId) -> sqlx::Result<bool> {
    let values = name(&id.queue, &id.topic, &id.consumer)?;
    Ok(conn.execute(FORGET.text(conn.dialect(), 1), &values).await? > 0)
}

/// Moves the cursor from where it was, and says whether it is at its goal: moved now, or by this very call before.
pub(super) async fn advance(conn: &mut Conn<'_>, cursor: &Cursor) -> sqlx::Result<bool> {
    let name = name(&cursor.queue, &cursor.topic, &cursor.consumer)?;
    let [queue, topic, consumer] = name.clone();
    let step = [cursor.to.into(), queue, topic, consumer, cursor.from.into()];
    let dialect = conn.dialect();
    if conn.execute(MOVE.text(dialect, 1), &step).await? == 1 {
        return Ok(true);
    }
    let found = conn.query(POSITION.text(dialect, 1), &name).await?;
    if let Some(row) = found.first() {
        return Ok(row.int(0)? == cursor.to);
    }
    // Only where there is none: on MySQL, an insert that finds its row shares a lock on it, which two that go on to
    // move it could not do.
    conn.execute(MAKE.text(dialect, 1), &dialect.bind_rows(std::slice::from_ref(&name))).await?;
    Ok(conn.execute(MOVE.text(dialect, 1), &step).await? == 1)
}
