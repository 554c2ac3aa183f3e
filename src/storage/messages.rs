//! The embedded queue's table: the contract of [`crate::broker::embedded`].

mod trim;

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::Store;
use super::bounds::{MAX_QUEUE_BYTES, MAX_TEXT_BYTES, bounded, check_size};
use super::conn::{Conn, Row, unopened, unreadable};
use super::dialect::MAX_ROWS;
use super::error::classify;
use super::text::Statement;
use super::transaction::{Transaction, within};
use super::value::{Column, Value};
use crate::broker::embedded::{Message, Messages, Stored, Trimmed};
use crate::clock::Timestamp;
use crate::engine::ledger::StoreError;
use crate::sealer::{Place, Sealer, What, row_of};

const COLUMNS: [Column; 9] = [
    Column::int("v_place"),
    Column::text("v_queue"),
    Column::text("v_id"),
    Column::text("v_topic"),
    Column::text("v_key"),
    Column::text("v_content_type"),
    Column::text("v_attributes"),
    Column::bytes("v_data"),
    Column::int("v_now"),
];

static OPEN: Statement = Statement::new(|dialect, size| {
    let queue = [Column::text("v_queue")];
    dialect.insert_new(&queue, size, "message_queues (queue)", "v.v_queue", "v.v_queue IS NOT NULL")
});

static LOCK: Statement = Statement::new(|dialect, _| {
    format!("SELECT q.queue FROM message_queues AS q WHERE q.queue = ?{}", dialect.for_update())
});

static APPEND: Statement = Statement::new(|dialect, size| {
    dialect.insert_new(
        &COLUMNS,
        size,
        "messages (queue, id, topic, message_key, content_type, attributes, data, created_at)",
        "v.v_queue, v.v_id, v.v_topic, v.v_key, v.v_content_type, v.v_attributes, v.v_data, v.v_now",
        "v.v_place >= 0 ORDER BY v.v_place",
    )
});

const READ: &str = "m.position, m.created_at, m.id, m.topic, m.message_key, m.content_type, m.attributes, m.data";

static TAIL: Statement = Statement::new(|_, _| {
    format!("SELECT {READ} FROM messages AS m WHERE m.queue = ? AND m.position > ? ORDER BY m.position LIMIT ?")
});

static TAIL_OF_TOPIC: Statement = Statement::new(|dialect, _| {
    let index = dialect.by_index("messages_by_topic");
    format!(
        "SELECT {READ} FROM messages AS m{index} WHERE m.queue = ? AND m.topic = ? AND m.position > ? \
         ORDER BY m.position LIMIT ?"
    )
});

impl Messages for Store {
    fn append<'a>(&'a self, queue: &'a str, messages: &'a [Message]) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let work = within(self.statement_timeout, append_in(&mut transaction, queue, messages)).await;
            transaction.end(work).await
        })
    }

    fn tail<'a>(
        &'a self,
        queue: &'a str,
        topic: Option<&'a str>,
        after: i64,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Stored>, StoreError>> {
        Box::pin(async move {
            let limit = Value::from(i64::from(limit));
            let rows = match topic {
                Some(topic) => self.query(&TAIL_OF_TOPIC, &[queue.into(), topic.into(), after.into(), limit]).await?,
                None => self.query(&TAIL, &[queue.into(), after.into(), limit]).await?,
            };
            rows.iter()
                .map(|row| read(queue, row, &self.sealer))
                .collect::<sqlx::Result<_>>()
                .map_err(|error| classify(&error))
        })
    }

    fn trim<'a>(&'a self, queue: &'a str, keep: Duration, limit: u32) -> BoxFuture<'a, Result<Trimmed, StoreError>> {
        Box::pin(trim::trim(self, queue, keep, limit))
    }
}

async fn append_in(transaction: &mut Transaction<'_>, queue: &str, messages: &[Message]) -> sqlx::Result<()> {
    let (now, limit, sealer) = (transaction.now, transaction.statement_limit, transaction.sealer);
    let mut conn = transaction.conn();
    lock(&mut conn, bounded("queue's name", queue, MAX_QUEUE_BYTES)?).await?;
    for chunk in messages.chunks(MAX_ROWS) {
        let chunk: Vec<_> = chunk.iter().map(|message| NewRow::new(queue, message, sealer)).collect();
        let rows = chunk.iter().enumerate().map(|(place, new)| new.values(place, queue, now));
        let rows = rows.collect::<sqlx::Result<Vec<_>>>()?;
        let values = conn.dialect().bind_rows(&rows);
        check_size(&values, limit)?;
        conn.execute(APPEND.text(conn.dialect(), rows.len()), &values).await?;
    }
    Ok(())
}

/// Holds the queue's row until the commit: whoever appends next gets higher positions, and commits later.
async fn lock(conn: &mut Conn<'_>, queue: &str) -> sqlx::Result<()> {
    let dialect = conn.dialect();
    if conn.query(LOCK.text(dialect, 1), &[queue.into()]).await?.is_empty() {
        conn.execute(OPEN.text(dialect, 1), &dialect.bind_rows(&[[queue.into()]])).await?;
        conn.query(LOCK.text(dialect, 1), &[queue.into()]).await?;
    }
    Ok(())
}

/// A message to append.
struct NewRow<'a> {
    message: &'a Message,
    attributes: Cow<'a, str>,
    data: Cow<'a, [u8]>,
}

impl<'a> NewRow<'a> {
    fn new(queue: &str, message: &'a Message, sealer: &Sealer) -> Self {
        if !sealer.seals() {
            let data = sealer.seal(Place::new(What::MessageData, &[]), &message.data);
            return Self { message, attributes: Cow::Borrowed(&message.attributes), data };
        }
        let row = row_of(queue, &message.id);
        let attributes = sealer.seal_text(Place::new(What::MessageAttributes, &row), (*message.attributes).to_owned());
        let data = sealer.seal(Place::new(What::MessageData, &row), &message.data);
        Self { message, attributes: Cow::Owned(attributes), data }
    }

    fn values(&self, place: usize, queue: &'a str, now: Timestamp) -> sqlx::Result<[Value<'_>; 9]> {
        let message = self.message;
        Ok([
            i64::try_from(place).unwrap_or(i64::MAX).into(),
            queue.into(),
            bounded("id", &message.id, MAX_TEXT_BYTES)?.into(),
            bounded("topic", &message.topic, MAX_TEXT_BYTES)?.into(),
            bounded("key", &message.key, MAX_TEXT_BYTES)?.into(),
            bounded("content type", &message.content_type, MAX_TEXT_BYTES)?.into(),
            (&*self.attributes).into(),
            (&*self.data).into(),
            now.0.into(),
        ])
    }
}

/// The attributes and the data of the message `id` of `queue`.
pub(super) fn said(
    queue: &str,
    id: &str,
    attributes: Vec<u8>,
    data: Vec<u8>,
    sealer: &Sealer,
) -> sqlx::Result<(Bytes, Bytes)> {
    let row = row_of(queue, id);
    let attributes = sealer.open_text(Place::new(What::MessageAttributes, &row), attributes).map_err(unopened)?;
    Ok((attributes, sealer.open(Place::new(What::MessageData, &row), data).map_err(unopened)?))
}

fn read(queue: &str, row: &Row, sealer: &Sealer) -> sqlx::Result<Stored> {
    let text = |column| row.text(column).map(Box::<str>::from);
    let id = text(2)?;
    let (attributes, data) = said(queue, &id, row.bytes(6)?, row.bytes(7)?, sealer)?;
    let attributes = std::str::from_utf8(&attributes).map_err(|error| unreadable(6, error))?.into();
    Ok(Stored {
        position: row.int(0)?,
        created_at: Timestamp(row.int(1)?),
        message: Message { id, topic: text(3)?, key: text(4)?, content_type: text(5)?, attributes, data },
    })
}
