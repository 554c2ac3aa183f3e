//! What is old leaves an embedded queue, topic by topic: what one topic's consumer has not taken keeps no other topic's
//! messages.

use std::time::Duration;

use crate::broker::embedded::{Behind, Trimmed};
use crate::clock::millis;
use crate::engine::ledger::StoreError;
use crate::storage::Store;
use crate::storage::conn::{Conn, Row};
use crate::storage::dialect::MAX_ROWS;
use crate::storage::error::classify;
use crate::storage::text::Statement;
use crate::storage::transaction::within;
use crate::storage::value::Value;

/// The topic after a topic, by their names: as many looks into the index as there are topics.
static NEXT_TOPIC: Statement = Statement::new(|dialect, _| {
    let index = dialect.by_index("messages_by_topic");
    format!(
        "SELECT m.topic FROM messages AS m{index} WHERE m.queue = ? AND m.topic > ? ORDER BY m.queue, m.topic LIMIT 1"
    )
});

static CURSORS: Statement = Statement::new(|_, _| {
    "SELECT c.consumer, c.position FROM cursors AS c WHERE c.queue = ? AND c.topic = ? ORDER BY c.position".to_owned()
});

static OLDEST: Statement = Statement::new(|dialect, _| {
    let index = dialect.by_index("messages_by_topic");
    format!(
        "SELECT m.position, m.created_at FROM messages AS m{index} WHERE m.queue = ? AND m.topic = ? AND m.position > ? \
         AND m.position <= ? ORDER BY m.position LIMIT ?"
    )
});

static REMOVE: Statement = Statement::new(|dialect, size| {
    format!("DELETE FROM messages WHERE position{} AND created_at <= ?", dialect.among_ints(size))
});

/// A topic's oldest messages.
struct Oldest {
    topic: String,
    /// Those that every consumer has taken.
    taken: Vec<Row>,
    /// The first one that some have not, and who.
    left: Option<(Row, Vec<String>)>,
}

pub(super) async fn trim(store: &Store, queue: &str, keep: Duration, limit: u32) -> Result<Trimmed, StoreError> {
    let (mut trimmed, mut topic) = (Trimmed::default(), String::new());
    loop {
        let found = store.query(&NEXT_TOPIC, &[queue.into(), topic.as_str().into()]).await?;
        let Some(row) = found.first() else { return Ok(trimmed) };
        topic = row.text(0).map_err(|error| classify(&error))?;
        let left = limit.saturating_sub(u32::try_from(trimmed.removed).unwrap_or(u32::MAX));
        let oldest = oldest(store, queue, &topic, left).await?;
        if oldest.taken.is_empty() && oldest.left.is_none() {
            continue;
        }
        let mut transaction = store.begin().await?;
        let until = transaction.now.0.saturating_sub(millis(keep));
        let work = within(store.statement_timeout, remove(&mut transaction.conn(), &oldest, until)).await;
        let one = transaction.end(work).await?;
        trimmed.removed += one.removed;
        trimmed.behind.extend(one.behind);
        if trimmed.removed >= u64::from(limit) {
            return Ok(trimmed);
        }
    }
}

async fn oldest(store: &Store, queue: &str, topic: &str, limit: u32) -> Result<Oldest, StoreError> {
    let mut cursors = Vec::new();
    for row in store.query(&CURSORS, &[queue.into(), topic.into()]).await? {
        let cursor = row.text(0).and_then(|consumer| Ok((consumer, row.int(1)?)));
        cursors.push(cursor.map_err(|error| classify(&error))?);
    }
    let range = async |after: i64, to: i64, limit: u32| {
        let bounds = [queue.into(), topic.into(), after.into(), to.into(), i64::from(limit).into()];
        store.query(&OLDEST, &bounds).await
    };
    let Some((_, slowest)) = cursors.first().cloned() else {
        return Ok(Oldest { topic: topic.to_owned(), taken: range(0, i64::MAX, limit).await?, left: None });
    };
    let taken = range(0, slowest, limit).await?;
    let left = range(slowest, i64::MAX, 1).await?.into_iter().next();
    let behind = cursors.into_iter().filter(|(_, position)| *position == slowest).map(|(consumer, _)| consumer);
    Ok(Oldest { topic: topic.to_owned(), taken, left: left.map(|first| (first, behind.collect())) })
}

async fn remove(conn: &mut Conn<'_>, oldest: &Oldest, until: i64) -> sqlx::Result<Trimmed> {
    let mut over = Vec::new();
    for row in &oldest.taken {
        if row.int(1)? <= until {
            over.push([Value::from(row.int(0)?)]);
        }
    }
    let mut trimmed = Trimmed::default();
    for chunk in over.chunks(MAX_ROWS) {
        let mut values = conn.dialect().bind_rows(chunk);
        values.push(until.into());
        trimmed.removed += conn.execute(REMOVE.text(conn.dialect(), chunk.len()), &values).await?;
    }
    if let Some((first, behind)) = &oldest.left
        && first.int(1)? <= until
    {
        let behind = behind
            .iter()
            .map(|consumer| Behind { topic: oldest.topic.as_str().into(), consumer: consumer.as_str().into() });
        trimmed.behind.extend(behind);
    }
    Ok(trimmed)
}
