//! Rows of the outbox read back as events.

use bytes::Bytes;

use super::rows;
use crate::clock::Timestamp;
use crate::outbox::event::{Attributes, Envelope, EventId, OnFailure, Outgoing};
use crate::outbox::store::{Acquired, Lane};
use crate::sealer::{Place, Sealer, What};
use crate::storage::conn::{Row, unopened};

pub(super) const ATTEMPTS: usize = 3;
const DEFERRALS: usize = 6;
const DUE_AT: usize = 7;
pub(super) const REASON: usize = 8;
const KEY: usize = 9;
const REDRIVES: usize = 10;
const FIRST_OF_EVENT: usize = 11;

/// How many columns there are.
pub(super) const COUNT: usize = FIRST_OF_EVENT + 11;

/// What [`acquired`] reads, in its order.
pub(super) const COLUMNS: &str = "e.position, e.lane, e.epoch, e.attempts, e.deaths, e.holds, \
    e.deferrals, e.due_at, e.reason, e.event_key, \
    (SELECT COUNT(*) FROM event_actions AS a WHERE a.event = e.id AND a.action = 'retry'), e.id, e.queue, e.route, e.topic, e.type, e.source, e.content_type, \
    e.traceparent, e.attributes, e.data, e.created_at";

/// An event in hand. One that can't be read, or that nobody can publish, says why: it is parked like any other
/// that fails, and stops nobody but its key.
pub(super) fn acquired(row: &Row, sealer: &Sealer) -> sqlx::Result<Acquired> {
    let position = row.int(0)?;
    let lane = Lane { number: rows::count(row.int(1)?), epoch: row.maybe_int(2)?.unwrap_or(0) };
    let key = row.bytes(KEY)?;
    let attempts = rows::count(row.int(ATTEMPTS)?);
    let (deaths, deferrals) = (rows::count(row.int(4)?), rows::count(row.int(DEFERRALS)?));
    let redrives = redrives(row)?;
    let event = match row.maybe_bytes(REASON)? {
        Some(reason) => Err(String::from_utf8_lossy(&reason).into()),
        None => envelope(row, sealer)
            .and_then(|event| {
                let time = Timestamp(row.int(FIRST_OF_EVENT + 10)?);
                let tried = attempts > 1 || deferrals > 0 || deaths > 0;
                Ok(Outgoing { event, sequence: position, epoch: lane.epoch, time, attempts, tried, redrives })
            })
            .map_err(|error| format!("the event can't be read: {error}").into()),
    };
    Ok(Acquired {
        lane,
        position,
        id: row.array(FIRST_OF_EVENT).ok().map(EventId),
        key: String::from_utf8_lossy(&key).into(),
        attempts,
        deferrals,
        came_early: row.maybe_int(DUE_AT)?.is_some(),
        deaths,
        redrives,
        on_failure: if row.int(5)? == 1 { OnFailure::Hold } else { OnFailure::Skip },
        event,
    })
}

/// How often a person has had it published again.
pub(super) fn redrives(row: &Row) -> sqlx::Result<u32> {
    Ok(rows::count(row.int(REDRIVES)?))
}

/// What the event says.
pub(super) fn envelope(row: &Row, sealer: &Sealer) -> sqlx::Result<Envelope> {
    const AT: usize = FIRST_OF_EVENT;
    let text = |column| row.text(column).map(Box::<str>::from);
    let id = EventId(row.array(AT)?);
    Ok(Envelope {
        id,
        queue: text(AT + 1)?,
        route: text(AT + 2)?,
        topic: text(AT + 3)?,
        kind: text(AT + 4)?,
        source: text(AT + 5)?,
        content_type: text(AT + 6)?,
        traceparent: row.maybe_text(AT + 7)?.map(Into::into),
        attributes: attributes(id, row.maybe_bytes(AT + 8)?, sealer)?,
        data: data(id, row.bytes(AT + 9)?, sealer)?,
        key: text(KEY)?,
    })
}

/// The data of the event `id` as it is `stored`.
pub(in crate::storage) fn data(id: EventId, stored: Vec<u8>, sealer: &Sealer) -> sqlx::Result<Bytes> {
    sealer.open(Place::new(What::EventData, &id.0), stored).map_err(unopened)
}

/// Attributes of the event `id` as they are `stored`.
pub(in crate::storage) fn attributes(
    id: EventId,
    stored: Option<Vec<u8>>,
    sealer: &Sealer,
) -> sqlx::Result<Attributes> {
    match stored {
        Some(stored) => {
            let stored = sealer.open_text(Place::new(What::EventAttributes, &id.0), stored).map_err(unopened)?;
            serde_json::from_slice(&stored).map_err(|error| sqlx::Error::Decode(Box::new(error)))
        }
        None => Ok(Attributes::new()),
    }
}
