//! Events as people see them.

use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::Value as Json;

use super::{record, rows, stored};
use crate::clock::Timestamp;
use crate::engine::desk::Actor;
use crate::engine::ledger::StoreError;
use crate::inbox::store::attribute;
use crate::outbox::desk::{Filter, Listed, MAX_LISTED, Of, Shown, State, Taken};
use crate::outbox::event::{Attributes, EventId, OnFailure};
use crate::sealer::{Place, Sealer, What};
use crate::storage::Store;
use crate::storage::conn::{Row, unreadable};
use crate::storage::dialect::Dialect;
use crate::storage::error::classify;
use crate::storage::text::Statement;
use crate::storage::value::Value;

/// What [`read`] reads, in its order.
pub(super) const COLUMNS: &str = "e.position, e.id, e.queue, e.lane, e.event_key, e.state, e.epoch, e.attempts, \
    e.deaths, e.holds, e.reason, e.created_at, e.changed_at, e.due_at, e.route, e.topic, e.type, e.deferrals, \
    e.result, e.attributes";

/// How many columns there are.
const COUNT: usize = 20;

/// By [`filter_values`]: each condition with whether it counts. Queues of deliveries have a prefix of their own. A
/// delivery's business key is an attribute: what it is ordered by may be another one, and with versions its entry is of
/// both.
pub(super) fn filter(dialect: Dialect) -> String {
    let has_key = dialect.contains("e.attributes");
    format!(
        "e.state = ? AND CASE WHEN SUBSTR(e.queue, 1, 4) = 'sub:' THEN 1 ELSE 0 END = ? \
         AND (? = 0 OR e.queue = ?) AND (? = 0 OR e.topic = ?) AND (? = 0 OR e.route = ?) AND (? = 0 OR e.result = ?) \
         AND (? = 0 OR e.event_key = ? OR e.entry = ? OR {has_key})"
    )
}

/// Among those that are done, which are most: by position, until there are enough.
static NEWEST_DONE: Statement = Statement::new(|dialect, _| {
    let filter = filter(dialect);
    format!("SELECT {COLUMNS} FROM events AS e WHERE {filter} AND e.position < ? ORDER BY e.position DESC LIMIT ?")
});

/// Among those that are not: all of the state, which are few beside the others. The sums keep the primary
/// key, and with it all that are done, out of the way.
static NEWEST: Statement = Statement::new(|dialect, _| {
    let (index, filter) = (dialect.by_index("events_by_state"), filter(dialect));
    format!(
        "SELECT {COLUMNS} FROM events AS e{index} WHERE {filter} AND e.position + 0 < ? \
         ORDER BY e.position + 0 DESC LIMIT ?"
    )
});

static SHOW: Statement = Statement::new(|_, _| {
    format!(
        "SELECT {COLUMNS}, e.entry, e.source, e.content_type, e.traceparent, e.data FROM events AS e WHERE e.id = ?"
    )
});

static ACTIONS: Statement = Statement::new(|_, _| {
    "SELECT a.action, a.state, a.reason, a.acted_at, a.actor, a.authority FROM event_actions AS a WHERE a.event = ? ORDER BY a.number \
     LIMIT ?"
        .to_owned()
});

pub(super) const fn stored_state(state: State) -> i64 {
    match state {
        State::Ready => stored::READY,
        State::Retrying => stored::RETRYING,
        State::Waiting => stored::WAITING,
        State::Early => stored::EARLY,
        State::Parked => stored::PARKED,
        State::Sent => stored::SENT,
        State::Discarded => stored::DISCARDED,
    }
}

/// The states that a filter means.
pub(super) fn states(filter: &Filter) -> Vec<State> {
    if filter.states.is_empty() {
        return vec![State::Ready, State::Retrying, State::Waiting, State::Early, State::Parked];
    }
    filter.states.clone()
}

/// For [`filter`]. `said` is [`key_said`] of it.
pub(super) fn filter_values<'a>(state: State, filter: &'a Filter, said: Option<&'a str>) -> Vec<Value<'a>> {
    let of = match filter.of {
        Of::Events => 0,
        Of::Deliveries => 1,
    };
    let mut values = vec![stored_state(state).into(), of.into()];
    for wanted in [&filter.queue, &filter.topic, &filter.route, &filter.result] {
        values.push(i64::from(wanted.is_some()).into());
        values.push(wanted.as_deref().unwrap_or_default().into());
    }
    // NULL is equal to nothing.
    values.push(i64::from(filter.key.is_some() || filter.entry.is_some()).into());
    values.push(Value::Text(filter.key.as_deref()));
    values.push(Value::Bytes(filter.entry.as_ref().map(|entry| &entry.0[..])));
    values.push(Value::Text(said));
    values
}

/// How the attributes of a delivery say that its business key is the one that is looked for. In no other place of them
/// is there such a text: within one of theirs, quotes are escaped.
pub(super) fn key_said(filter: &Filter) -> Option<String> {
    let key = Json::from(filter.key.as_deref()?);
    Some(format!("{}:{key}", Json::from(attribute::KEY)))
}

pub(super) async fn list(
    store: &Store,
    filter: &Filter,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<Listed>, StoreError> {
    let limit = limit.min(MAX_LISTED);
    let (mut found, said) = (Vec::new(), key_said(filter));
    for state in states(filter) {
        let mut values = filter_values(state, filter, said.as_deref());
        values.extend([before.unwrap_or(i64::MAX).into(), i64::from(limit).into()]);
        let newest = match state {
            State::Sent | State::Discarded => &NEWEST_DONE,
            State::Ready | State::Retrying | State::Waiting | State::Early | State::Parked => &NEWEST,
        };
        for row in store.query(newest, &values).await? {
            found.push(read(&row, &store.sealer).map_err(|error| classify(&error))?);
        }
    }
    found.sort_unstable_by_key(|event| std::cmp::Reverse(event.position));
    found.truncate(limit as usize);
    Ok(found)
}

pub(super) async fn show(store: &Store, id: EventId) -> Result<Option<Shown>, StoreError> {
    let found = store.query(&SHOW, &[(&id.0).into()]).await?;
    let Some(row) = found.first() else { return Ok(None) };
    let actions = store.query(&ACTIONS, &[(&id.0).into(), i64::from(MAX_LISTED).into()]).await?;
    shown(row, &actions, &store.sealer).map(Some).map_err(|error| classify(&error))
}

/// Reads what is there, however little sense it makes: this is where people look for what is wrong.
pub(super) fn read(row: &Row, sealer: &Sealer) -> sqlx::Result<Listed> {
    let text = |column| row.bytes(column).map(|bytes| String::from_utf8_lossy(&bytes).into());
    let attributes = match row.array(1) {
        Ok(id) => record::attributes(EventId(id), row.maybe_bytes(19)?, sealer).unwrap_or_default(),
        Err(_) => Attributes::new(),
    };
    let on_failure = if row.int(9)? == 1 { OnFailure::Hold } else { OnFailure::Skip };
    Ok(Listed {
        position: row.int(0)?,
        id: hex(&row.bytes(1)?),
        queue: text(2)?,
        lane: rows::count(row.int(3)?),
        key: text(4)?,
        state: read_state(row, 5)?,
        in_hand: row.maybe_int(6)?,
        attempts: rows::count(row.int(7)?),
        deaths: rows::count(row.int(8)?),
        on_failure,
        reason: row.maybe_bytes(10)?.map(|reason| String::from_utf8_lossy(&reason).into()),
        created_at: Timestamp(row.int(11)?),
        changed_at: Timestamp(row.int(12)?),
        due_at: row.maybe_int(13)?.map(Timestamp),
        route: text(14)?,
        topic: text(15)?,
        kind: text(16)?,
        deferrals: rows::count(row.int(17)?),
        result: row.maybe_bytes(18)?.map(|result| String::from_utf8_lossy(&result).into()),
        attributes,
    })
}

fn shown(row: &Row, actions: &[Row], sealer: &Sealer) -> sqlx::Result<Shown> {
    let text = |row: &Row, column| row.bytes(column).map(|bytes| Box::<str>::from(String::from_utf8_lossy(&bytes)));
    let taken = |row: &Row| {
        let (action, reason) = (text(row, 0)?, text(row, 2)?);
        let maybe = |column| row.maybe_bytes(column).map(|bytes| Some(String::from_utf8_lossy(&bytes?).into()));
        let by = maybe(4)?.zip(maybe(5)?).map(|(name, authority)| Actor { name, authority });
        Ok(Taken { action, state: read_state(row, 1)?, by, reason, at: Timestamp(row.int(3)?) })
    };
    // As it is stored where it does not open, like all that makes no sense here.
    let stored = Bytes::from(row.bytes(COUNT + 4)?);
    let data = sealer.open(Place::new(What::EventData, &row.bytes(1)?), stored.clone()).unwrap_or(stored);
    Ok(Shown {
        listed: read(row, sealer)?,
        entry: hex(&row.bytes(COUNT)?),
        source: text(row, COUNT + 1)?,
        content_type: text(row, COUNT + 2)?,
        traceparent: row.maybe_bytes(COUNT + 3)?.map(|trace| String::from_utf8_lossy(&trace).into()),
        data,
        actions: actions.iter().map(taken).collect::<sqlx::Result<_>>()?,
    })
}

/// A state as it is stored.
pub(in crate::storage) fn read_state(row: &Row, column: usize) -> sqlx::Result<State> {
    let stored = row.int(column)?;
    let state = State::ALL.into_iter().find(|state| stored_state(*state) == stored);
    state.ok_or_else(|| unreadable(column, format!("a state of {stored}")))
}

fn hex(bytes: &[u8]) -> Box<str> {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String can't fail.
        if write!(text, "{byte:02x}").is_err() {
            break;
        }
    }
    text.into()
}
