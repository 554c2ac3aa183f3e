//! New rows of the outbox: what each door writes in its own transaction, in one place.

use std::borrow::Cow;
use std::collections::HashSet;

use super::bounds::{MAX_QUEUE_BYTES, MAX_TEXT_BYTES, bounded, check_size, size};
use super::conn::Conn;
use super::dialect::{Dialect, MAX_ROWS};
use super::text::Statement;
use super::value::{Column, Value};
use crate::clock::Timestamp;
use crate::entry::EntryId;
use crate::outbox::event::{Envelope, EventId, MAX_EVENT_KEY_BYTES, NewEvent, OnFailure};
use crate::sealer::{Place, Sealer, What};

const COLUMNS: [Column; 18] = [
    Column::int("v_place"),
    Column::bytes("v_entry"),
    Column::bytes("v_guard"),
    Column::bytes("v_id"),
    Column::text("v_queue"),
    Column::int("v_lane"),
    Column::text("v_key"),
    Column::int("v_holds"),
    Column::text("v_reason"),
    Column::text("v_route"),
    Column::text("v_topic"),
    Column::text("v_type"),
    Column::text("v_source"),
    Column::text("v_content_type"),
    Column::text("v_traceparent"),
    Column::text("v_attributes"),
    Column::bytes("v_data"),
    Column::now("v_now"),
];

const TARGET: &str = "events (id, queue, lane, event_key, state, holds, attempts, created_at, changed_at, reason, entry, \
                      route, topic, type, source, content_type, traceparent, attributes, data)";

/// One that nobody can publish, for the reason that it comes with, is ready like any other: it is parked when its
/// turn comes. Were it parked here, the later events of its key would not find it in their way.
const VALUES: &str = "v.v_id, v.v_queue, v.v_lane, v.v_key, 1, v.v_holds, 0, v.v_now, v.v_now, v.v_reason, v.v_entry, \
                      v.v_route, v.v_topic, v.v_type, v.v_source, v.v_content_type, v.v_traceparent, v.v_attributes, \
                      v.v_data";

/// Inserts those of the rows `v` that `filter` lets in, in their order, so that a key's events get growing
/// positions. One whose id is there already is the same event, and is passed over.
pub(super) fn insert(dialect: Dialect, size: usize, filter: &str) -> String {
    dialect.insert_new(&COLUMNS, size, TARGET, VALUES, &format!("{filter} ORDER BY v.v_place"))
}

/// Inserts all rows `v`, in their order, or fails if one's id is there already: on PostgreSQL half the work of passing
/// over some.
pub(super) fn insert_all(dialect: Dialect, size: usize) -> String {
    format!("{} INSERT INTO {TARGET} SELECT {VALUES} FROM v ORDER BY v.v_place", dialect.with(&COLUMNS, size))
}

static THERE: Statement =
    Statement::new(|dialect, size| format!("SELECT o.id FROM events AS o WHERE o.id{}", dialect.among(size)));

/// An event to insert.
pub(super) struct NewRow<'a> {
    /// The entry that it came from.
    pub(super) entry: &'a EntryId,
    /// What the statement's filter compares, if anything.
    pub(super) guard: &'a [u8],
    pub(super) event: &'a NewEvent,
    attributes: Option<String>,
    data: Cow<'a, [u8]>,
}

impl<'a> NewRow<'a> {
    pub(super) fn new(entry: &'a EntryId, guard: &'a [u8], event: &'a NewEvent, sealer: &Sealer) -> sqlx::Result<Self> {
        let Envelope { id, attributes, data, .. } = &event.event;
        let attributes = match attributes.is_empty() {
            true => None,
            false => {
                let text = serde_json::to_string(attributes).map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
                Some(sealer.seal_text(Place::new(What::EventAttributes, &id.0), text))
            }
        };
        let data = sealer.seal(Place::new(What::EventData, &id.0), data);
        Ok(Self { entry, guard, event, attributes, data })
    }

    fn values(&self, place: usize, now: Option<Timestamp>) -> sqlx::Result<[Value<'_>; 18]> {
        let NewEvent { event, lane, parked, on_failure } = self.event;
        let Envelope { id, queue, topic, key, kind, source, route, content_type, traceparent, attributes: _, data: _ } =
            event;
        Ok([
            i64::try_from(place).unwrap_or(i64::MAX).into(),
            (&self.entry.0).into(),
            self.guard.into(),
            (&id.0).into(),
            bounded("event's queue", queue, MAX_QUEUE_BYTES)?.into(),
            i64::from(*lane).into(),
            bounded("event's key", key, MAX_EVENT_KEY_BYTES)?.into(),
            match on_failure {
                OnFailure::Hold => 1,
                OnFailure::Skip => 0,
            }
            .into(),
            parked.as_deref().into(),
            bounded("event's route", route, MAX_TEXT_BYTES)?.into(),
            bounded("event's topic", topic, MAX_TEXT_BYTES)?.into(),
            bounded("event's type", kind, MAX_TEXT_BYTES)?.into(),
            bounded("event's source", source, MAX_TEXT_BYTES)?.into(),
            bounded("event's content type", content_type, MAX_TEXT_BYTES)?.into(),
            traceparent.as_deref().into(),
            self.attributes.as_deref().into(),
            (&*self.data).into(),
            now.map(|now| now.0).into(),
        ])
    }
}

/// Runs `statement`, which is made by [`insert`], for `rows`, in pieces that a statement and the server take, and
/// says how many are new. Where rows are not to be passed over for any other reason than that they are there, ask
/// [`demand`].
pub(super) async fn write(
    conn: &mut Conn<'_>,
    limit: usize,
    now: Timestamp,
    statement: &'static Statement,
    rows: &[NewRow<'_>],
) -> sqlx::Result<u64> {
    let mut new = 0;
    let mut pieces: Vec<&[NewRow<'_>]> = rows.chunks(MAX_ROWS).rev().collect();
    while let Some(piece) = pieces.pop() {
        let values = values(conn.dialect(), Some(now), piece)?;
        if piece.len() > 1 && size(&values) > limit {
            let (first, second) = piece.split_at(piece.len() / 2);
            pieces.extend([second, first]);
        } else {
            check_size(&values, limit)?;
            new += conn.execute(statement.text(conn.dialect(), piece.len()), &values).await?;
        }
    }
    Ok(new)
}

/// Whether the database takes `row`.
pub(super) fn is_storable(conn: &Conn<'_>, limit: usize, now: Timestamp, row: &NewRow<'_>) -> bool {
    values(conn.dialect(), Some(now), std::slice::from_ref(row)).is_ok_and(|values| check_size(&values, limit).is_ok())
}

/// The values of a statement that is made by [`insert`], for `rows`.
pub(super) fn values<'a>(
    dialect: Dialect,
    now: Option<Timestamp>,
    rows: &'a [NewRow<'_>],
) -> sqlx::Result<Vec<Value<'a>>> {
    let rows = rows.iter().enumerate().map(|(place, row)| row.values(place, now));
    Ok(dialect.bind_rows(&rows.collect::<sqlx::Result<Vec<_>>>()?))
}

/// Fails unless every event is there: an insert that ignores duplicates could have passed over one for another
/// reason, and none may be lost.
pub(super) async fn demand(conn: &mut Conn<'_>, ids: impl Iterator<Item = EventId>) -> sqlx::Result<()> {
    let ids: Vec<EventId> = ids.collect();
    let mut there = HashSet::new();
    for chunk in ids.chunks(MAX_ROWS) {
        let rows: Vec<_> = chunk.iter().map(|id| [Value::from(&id.0)]).collect();
        let values = conn.dialect().bind_rows(&rows);
        for row in conn.query(THERE.text(conn.dialect(), rows.len()), &values).await? {
            there.insert(EventId(row.array(0)?));
        }
    }
    match ids.iter().find(|id| !there.contains(*id)) {
        Some(lost) => Err(sqlx::Error::Encode(format!("the event {lost} was passed over").into())),
        None => Ok(()),
    }
}
