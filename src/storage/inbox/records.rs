//! What was published and what became of it: the contract of [`crate::inbox::reconcile`].

use std::collections::HashMap;

use futures_util::future::BoxFuture;

use crate::broker::cloud_events;
use crate::clock::Timestamp;
use crate::engine::ledger::StoreError;
use crate::entry::{EntryId, Fingerprint};
use crate::inbox::reconcile::{Fate, Place, Published, Range, Records};
use crate::outbox::desk::State;
use crate::outbox::event::{Attributes, Envelope, EventId, Outgoing};
use crate::sealer::Sealer;
use crate::storage::Store;
use crate::storage::conn::{Row, unreadable};
use crate::storage::dialect::MAX_ROWS;
use crate::storage::error::classify;
use crate::storage::ledger::stored;
use crate::storage::messages;
use crate::storage::outbox::{attributes as of_event, data as data_of_event, read_state};
use crate::storage::text::Statement;

static NOW: Statement = Statement::new(|dialect, _| format!("SELECT {}", dialect.now()));

/// Walks over the whole table: this is asked by people, now and then.
static EVENTS: Statement = Statement::new(|_, _| {
    "SELECT e.position, e.state, e.id, e.source, e.data, e.event_key, e.type, e.content_type, e.attributes, \
     e.created_at FROM events AS e WHERE e.queue = ? AND e.topic = ? AND e.created_at >= ? AND e.created_at < ? \
     AND e.position > ? ORDER BY e.position LIMIT ?"
        .to_owned()
});

static MESSAGES: Statement = Statement::new(|dialect, _| {
    let index = dialect.by_index("messages_by_topic");
    format!(
        "SELECT m.position, m.id, m.attributes, m.data, m.content_type, m.queue FROM messages AS m{index} \
         WHERE m.queue = ? AND m.topic = ? AND m.created_at >= ? AND m.created_at < ? AND m.position > ? ORDER BY m.position LIMIT ?"
    )
});

static KEPT: Statement = Statement::new(|dialect, size| {
    format!("SELECT m.id FROM messages AS m WHERE m.queue = ? AND m.id{}", dialect.among_texts(size))
});

static FATES: Statement = Statement::new(|dialect, size| {
    format!(
        "SELECT e.id, e.state, e.result, \
         (SELECT COUNT(*) FROM event_actions AS a WHERE a.event = e.id AND a.action = 'retry') \
         FROM events AS e WHERE e.id{}",
        dialect.among(size)
    )
});

static COMPLETED: Statement = Statement::new(|dialect, size| {
    let (completed, tombstone) = (stored::COMPLETED, stored::TOMBSTONE);
    let among = dialect.among(size);
    format!("SELECT e.id, e.fingerprint FROM entries AS e WHERE e.id{among} AND e.state IN ({completed}, {tombstone})")
});

impl Records for Store {
    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(async move {
            let found = self.query(&NOW, &[]).await?;
            let now = found.first().ok_or(sqlx::Error::RowNotFound).and_then(|row| row.int(0));
            now.map(Timestamp).map_err(|error| classify(&error))
        })
    }

    fn published<'a>(
        &'a self,
        range: &'a Range,
        place: Place,
        after: i64,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Published>, StoreError>> {
        Box::pin(async move {
            let Range { queue, topic, from, until } = range;
            let values = [
                (&**queue).into(),
                (&**topic).into(),
                from.0.into(),
                until.0.into(),
                after.into(),
                i64::from(limit).into(),
            ];
            let (statement, read): (_, fn(&Row, &Sealer) -> sqlx::Result<Published>) = match place {
                Place::Outbox => (&EVENTS, event),
                Place::Queue => (&MESSAGES, message),
            };
            let rows = self.query(statement, &values).await?;
            rows.iter()
                .map(|row| read(row, &self.sealer))
                .collect::<sqlx::Result<_>>()
                .map_err(|error| classify(&error))
        })
    }

    fn kept<'a>(&'a self, queue: &'a str, ids: &'a [Box<str>]) -> BoxFuture<'a, Result<Vec<Box<str>>, StoreError>> {
        Box::pin(async move {
            let mut kept = Vec::new();
            for chunk in ids.chunks(MAX_ROWS) {
                let rows: Vec<_> = chunk.iter().map(|id| [(&**id).into()]).collect();
                let mut values = vec![queue.into()];
                values.extend(self.connector.dialect().bind_rows(&rows));
                for row in self.query_for(rows.len(), &KEPT, &values).await? {
                    kept.push(row.text(0).map_err(|error| classify(&error))?.into());
                }
            }
            Ok(kept)
        })
    }

    fn fates<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<HashMap<EventId, Fate>, StoreError>> {
        Box::pin(async move {
            let mut fates = HashMap::new();
            for chunk in ids.chunks(MAX_ROWS) {
                let rows: Vec<_> = chunk.iter().map(|id| [(&id.0).into()]).collect();
                let values = self.connector.dialect().bind_rows(&rows);
                for row in self.query_for(rows.len(), &FATES, &values).await? {
                    let (id, fate) = fate(&row).map_err(|error| classify(&error))?;
                    fates.insert(id, fate);
                }
            }
            Ok(fates)
        })
    }

    fn completed<'a>(&'a self, ids: &'a [EntryId]) -> BoxFuture<'a, Result<HashMap<EntryId, Fingerprint>, StoreError>> {
        Box::pin(async move {
            let mut completed = HashMap::new();
            for chunk in ids.chunks(MAX_ROWS) {
                let rows: Vec<_> = chunk.iter().map(|id| [(&id.0).into()]).collect();
                let values = self.connector.dialect().bind_rows(&rows);
                for row in self.query_for(rows.len(), &COMPLETED, &values).await? {
                    let (id, fingerprint) = meant(&row).map_err(|error| classify(&error))?;
                    completed.insert(id, fingerprint);
                }
            }
            Ok(completed)
        })
    }
}

fn event(row: &Row, sealer: &Sealer) -> sqlx::Result<Published> {
    let state = read_state(row, 1)?;
    let text = |column| row.text(column).map(Box::<str>::from);
    let id = EventId(row.array(2)?);
    let event = Envelope {
        id,
        queue: "".into(),
        topic: "".into(),
        key: text(5)?,
        kind: text(6)?,
        source: text(3)?,
        route: "".into(),
        content_type: text(7)?,
        traceparent: None,
        attributes: of_event(id, row.maybe_bytes(8)?, sealer)?,
        data: data_of_event(id, row.bytes(4)?, sealer)?,
    };
    let (position, time) = (row.int(0)?, Timestamp(row.int(9)?));
    // As it went out, but for the relay's epoch, which names nothing.
    let sent = Outgoing { event, sequence: position, epoch: 0, time, attempts: 1, tried: false, redrives: 0 };
    let told = cloud_events::attributes(&sent).into_iter().filter(|(name, _)| *name != "id");
    Ok(Published {
        position,
        state,
        id: sent.event.id.to_string().into(),
        content_type: sent.event.content_type.clone(),
        attributes: told.map(|(name, value)| (name.into(), value.into())).collect(),
        data: sent.event.data,
    })
}

fn message(row: &Row, sealer: &Sealer) -> sqlx::Result<Published> {
    let (queue, id) = (row.text(5)?, row.text(1)?);
    let (mut attributes, data) = messages::said(&queue, &id, row.bytes(2)?, row.bytes(3)?, sealer)
        .and_then(|(text, data)| Ok((attributes(&text)?, data)))?;
    attributes.remove("id");
    Ok(Published {
        position: row.int(0)?,
        state: State::Sent,
        id: id.into(),
        content_type: row.text(4)?.into(),
        attributes,
        data,
    })
}

fn attributes(stored: &[u8]) -> sqlx::Result<Attributes> {
    serde_json::from_slice(stored).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

fn meant(row: &Row) -> sqlx::Result<(EntryId, Fingerprint)> {
    let fingerprint = Fingerprint::decode(&row.bytes(1)?).ok_or_else(|| unreadable(1, "no fingerprint"))?;
    Ok((EntryId(row.array(0)?), fingerprint))
}

fn fate(row: &Row) -> sqlx::Result<(EventId, Fate)> {
    let redrives = u32::try_from(row.int(3)?).unwrap_or(u32::MAX);
    let fate = Fate { state: read_state(row, 1)?, result: row.maybe_text(2)?.map(Into::into), redrives };
    Ok((EventId(row.array(0)?), fate))
}
