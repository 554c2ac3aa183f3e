//! How far consumers of embedded queues have come.

use crate::inbox::store::Cursor;
use crate::storage::bounds::{MAX_QUEUE_BYTES, MAX_TEXT_BYTES, bounded};
use crate::storage::conn::Conn;
use crate::storage::text::Statement;
use crate::storage::value::Column;

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

static MOVE: Statement = Statement::new(|_, _| {
    "UPDATE cursors SET position = ? WHERE queue = ? AND topic = ? AND consumer = ? AND position = ?".to_owned()
});

/// Moves the cursor from where it was, and says whether it is at its goal: moved now, or by this very call before.
pub(super) async fn advance(conn: &mut Conn<'_>, cursor: &Cursor) -> sqlx::Result<bool> {
    let name = [
        bounded("queue's name", &cursor.queue, MAX_QUEUE_BYTES)?.into(),
        bounded("topic", &cursor.topic, MAX_TEXT_BYTES)?.into(),
        bounded("consumer's name", &cursor.consumer, MAX_TEXT_BYTES)?.into(),
    ];
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
