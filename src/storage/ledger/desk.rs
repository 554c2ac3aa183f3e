//! Entries as people see them.

use std::sync::Arc;

use bytes::Bytes;

use super::entry::{small, stored};
use crate::clock::{Timestamp, millis};
use crate::engine::desk::{
    Actor, Decision, Filter, Listed, MAX_LISTED, Page, Place, Shown, Stage, Unsettled, Vouching,
};
use crate::engine::ledger::{Sealed, StoreError};
use crate::entry::{Answer, EntryId, Identity, Key, Namespace, Nonce, Scope, StoredResponse};
use crate::sealer::{Place as Sealing, Sealer, What};
use crate::storage::Store;
use crate::storage::conn::{Row, unreadable};
use crate::storage::dialect::MAX_ROWS;
use crate::storage::error::classify;
use crate::storage::text::Statement;
use crate::storage::value::Value;

/// What [`listed`] reads, in its order.
const COLUMNS: &str = "e.id, e.nonce, e.origin, e.namespace, e.scope, e.idempotency_key, e.route, e.state, e.attempt, \
    e.created_at, e.started_at, e.changed_at, e.due_at, e.lookups, e.status, \
    CASE WHEN e.evidence IS NULL THEN 0 ELSE 1 END";

/// How many columns there are.
const COUNT: usize = 16;

/// By [`filter_values`]: each condition with whether it counts.
const FILTER: &str = "e.state = ? AND (? = 0 OR e.namespace = ?) AND (? = 0 OR e.route = ?) AND (? = 0 OR e.scope = ?) \
    AND (? = 0 OR e.idempotency_key = ?) AND (? = 0 OR e.evidence IS NOT NULL)";

/// All that are not over, which are few beside the others: found by the index of states, and put in order.
static NOT_OVER: Statement = Statement::new(|dialect, _| {
    let (now, index) = (dialect.now(), dialect.by_index("entries_due"));
    format!(
        "SELECT {COLUMNS}, {now} FROM entries AS e{index} WHERE {FILTER} AND e.changed_at <= {now} - ? \
         AND (e.changed_at > ? OR (e.changed_at = ? AND e.id > ?)) ORDER BY e.changed_at, e.id LIMIT ?"
    )
});

/// In the order of the index of states, until there are enough.
static COMPLETED: Statement = Statement::new(|dialect, _| {
    let (now, index) = (dialect.now(), dialect.by_index("entries_due"));
    format!(
        "SELECT {COLUMNS}, {now} FROM entries AS e{index} WHERE {FILTER} AND e.changed_at <= {now} - ? \
         AND (e.due_at < ? OR (e.due_at = ? AND e.id < ?)) ORDER BY e.due_at DESC, e.id DESC LIMIT ?"
    )
});

/// By their ids: most have no time in common with others, and some have none at all.
static TOMBSTONES: Statement = Statement::new(|dialect, _| {
    let now = dialect.now();
    format!(
        "SELECT {COLUMNS}, {now} FROM entries AS e WHERE {FILTER} AND e.changed_at <= {now} - ? AND e.id > ? \
         ORDER BY e.id LIMIT ?"
    )
});

static FIND: Statement = Statement::new(|dialect, size| {
    format!("SELECT {COLUMNS}, {} FROM entries AS e WHERE e.id{}", dialect.now(), dialect.among(size))
});

/// With what is in the way of lists: whole answers.
static SHOW: Statement = Statement::new(|_, _| {
    format!(
        "SELECT {COLUMNS}, e.context, e.response, e.tombstone_ms, e.evidence, i.name, i.state \
         FROM entries AS e LEFT JOIN instances AS i ON i.id = e.instance WHERE e.id = ?"
    )
});

const DECISION: &str = "a.number, a.entry, a.namespace, a.scope, a.idempotency_key, a.route, a.attempt, \
    a.unknown_since, a.outcome, a.status, a.actor, a.authority, a.reason, a.acted_at, a.evidence";

static DECISIONS: Statement = Statement::new(|_, _| {
    format!("SELECT {DECISION} FROM entry_actions AS a WHERE a.number < ? ORDER BY a.number DESC LIMIT ?")
});

static DECISIONS_OF: Statement = Statement::new(|_, _| {
    format!(
        "SELECT {DECISION} FROM entry_actions AS a WHERE a.entry = ? AND a.number + 0 < ? \
         ORDER BY a.number + 0 DESC LIMIT ?"
    )
});

/// In the order of the index of states: PostgreSQL would go through the table where it takes many to be Unknown.
static UNSETTLED: Statement = Statement::new(|dialect, _| {
    let (now, index) = (dialect.now(), dialect.by_index("entries_due"));
    let some = format!("SELECT e.changed_at FROM entries AS e{index} WHERE e.state = ? ORDER BY e.due_at LIMIT ?");
    format!("SELECT (SELECT COUNT(*) FROM ({some}) AS c), (SELECT MIN(c.changed_at) FROM ({some}) AS c), {now}")
});

static NOW: Statement = Statement::new(|dialect, _| format!("SELECT {}", dialect.now()));

const fn stored_stage(stage: Stage) -> i64 {
    match stage {
        Stage::InProgress => stored::IN_PROGRESS,
        Stage::Unknown => stored::UNKNOWN,
        Stage::Completed => stored::COMPLETED,
        Stage::Tombstone => stored::TOMBSTONE,
    }
}

/// For [`FILTER`], and the age that follows it.
fn filter_values(filter: &Filter) -> Vec<Value<'_>> {
    let mut values = vec![stored_stage(filter.stage).into()];
    for wanted in [&filter.namespace, &filter.route, &filter.scope, &filter.key] {
        values.push(i64::from(wanted.is_some()).into());
        values.push(wanted.as_deref().unwrap_or_default().into());
    }
    values.push(i64::from(filter.contradicted).into());
    values.push(millis(filter.older_than).into());
    values
}

pub(super) async fn list(store: &Store, filter: &Filter, after: Option<Place>, limit: u32) -> Result<Page, StoreError> {
    let first = match filter.stage {
        Stage::InProgress | Stage::Unknown => Place { at: i64::MIN, id: EntryId([0; 32]) },
        Stage::Completed => Place { at: i64::MAX, id: EntryId([0xff; 32]) },
        Stage::Tombstone => Place { at: 0, id: EntryId([0; 32]) },
    };
    let Place { at, id } = after.unwrap_or(first);
    let mut values = filter_values(filter);
    let statement = match filter.stage {
        Stage::InProgress | Stage::Unknown => &NOT_OVER,
        Stage::Completed => &COMPLETED,
        Stage::Tombstone => &TOMBSTONES,
    };
    if filter.stage != Stage::Tombstone {
        values.extend([at.into(), at.into()]);
    }
    values.extend([(&id.0).into(), i64::from(limit.min(MAX_LISTED)).into()]);
    page(store, store.query(statement, &values).await?).await
}

pub(super) async fn find(store: &Store, ids: &[EntryId]) -> Result<Page, StoreError> {
    let mut found = Vec::new();
    for chunk in ids.chunks(MAX_ROWS) {
        let rows: Vec<_> = chunk.iter().map(|id| [Value::from(&id.0)]).collect();
        let values = store.connector.dialect().bind_rows(&rows);
        found.extend(store.query_for(rows.len(), &FIND, &values).await?);
    }
    page(store, found).await
}

/// A page without entries has to be asked for its time.
async fn page(store: &Store, rows: Vec<Row>) -> Result<Page, StoreError> {
    let entries = rows.iter().map(listed).collect::<sqlx::Result<_>>().map_err(|error| classify(&error))?;
    let now = match rows.first() {
        Some(row) => row.int(COUNT),
        None => {
            let rows = store.query(&NOW, &[]).await?;
            rows.first().ok_or(sqlx::Error::RowNotFound).and_then(|row| row.int(0))
        }
    };
    Ok(Page { entries, now: Timestamp(now.map_err(|error| classify(&error))?) })
}

pub(super) async fn show(store: &Store, id: EntryId) -> Result<Option<Shown>, StoreError> {
    let rows = store.query(&SHOW, &[(&id.0).into()]).await?;
    rows.first().map(|row| shown(row, &store.sealer)).transpose().map_err(|error| classify(&error))
}

pub(super) async fn decisions(
    store: &Store,
    of: Option<EntryId>,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<Decision>, StoreError> {
    let (before, limit) = (before.unwrap_or(i64::MAX).into(), i64::from(limit.min(MAX_LISTED)).into());
    let rows = match &of {
        Some(EntryId(id)) => store.query(&DECISIONS_OF, &[id.into(), before, limit]).await?,
        None => store.query(&DECISIONS, &[before, limit]).await?,
    };
    rows.iter().map(|row| decision(row, &store.sealer)).collect::<sqlx::Result<_>>().map_err(|error| classify(&error))
}

pub(super) async fn unsettled(store: &Store, cap: u32) -> Result<Unsettled, StoreError> {
    let (unknown, cap) = (Value::from(stored::UNKNOWN), Value::from(i64::from(cap)));
    let rows = store.query(&UNSETTLED, &[unknown.clone(), cap.clone(), unknown, cap]).await?;
    let read = || {
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let (count, oldest, now) = (row.int(0)?, row.maybe_int(1)?.map(Timestamp), Timestamp(row.int(2)?));
        let count = u64::try_from(count).unwrap_or(0);
        sqlx::Result::Ok(Unsettled { count, oldest: oldest.map(|oldest| now.since(oldest)) })
    };
    read().map_err(|error| classify(&error))
}

/// Reads what is there, however little sense it makes: this is where people look for what is wrong.
fn text(row: &Row, column: usize) -> sqlx::Result<Box<str>> {
    row.bytes(column).map(|bytes| String::from_utf8_lossy(&bytes).into())
}

fn listed(row: &Row) -> sqlx::Result<Listed> {
    let state = row.int(7)?;
    let stage = Stage::ALL.into_iter().find(|stage| stored_stage(*stage) == state);
    Ok(Listed {
        id: EntryId(row.array(0)?),
        nonce: Nonce(row.array(1)?),
        origin: Nonce(row.array(2)?),
        namespace: text(row, 3)?,
        scope: text(row, 4)?,
        key: text(row, 5)?,
        route: text(row, 6)?,
        stage: stage.ok_or_else(|| unreadable(7, format!("a state {state} of some other version")))?,
        attempt: small(row, 8)?,
        created_at: Timestamp(row.int(9)?),
        started_at: Timestamp(row.int(10)?),
        changed_at: Timestamp(row.int(11)?),
        due_at: row.maybe_int(12)?.map(Timestamp),
        lookups: small(row, 13)?,
        status: row.maybe_int(14)?.and_then(|status| u16::try_from(status).ok()),
        contradicted: row.int(15)? == 1,
    })
}

fn shown(row: &Row, sealer: &Sealer) -> sqlx::Result<Shown> {
    let listed = listed(row)?;
    let response =
        row.maybe_bytes(COUNT + 1)?.and_then(|response| readable(sealer, What::Response, listed.id, response));
    let answer = match (response, listed.status) {
        (Some(response), _) => Some(Answer::Response(Arc::new(response))),
        (None, status) => status.map(Answer::StatusOnly),
    };
    let vouching = |name: Vec<u8>| -> sqlx::Result<_> {
        Ok(Vouching { name: String::from_utf8_lossy(&name).into(), alive: row.int(COUNT + 5)? == 1 })
    };
    Ok(Shown {
        identity: identity(&listed),
        context: context(row.maybe_bytes(COUNT)?, &listed, sealer),
        answer,
        tombstone_ms: row.maybe_int(COUNT + 2)?,
        instance: row.maybe_bytes(COUNT + 4)?.map(vouching).transpose()?,
        evidence: row
            .maybe_bytes(COUNT + 3)?
            .and_then(|evidence| readable(sealer, What::Evidence, listed.id, evidence)),
        listed,
    })
}

fn identity(listed: &Listed) -> Option<Identity> {
    Some(Identity {
        namespace: Namespace::from_stored(&listed.namespace),
        scope: Scope::from_stored(&listed.scope)?,
        key: Key::from_business(&listed.key).ok()?,
    })
}

fn context(stored: Option<Vec<u8>>, of: &Listed, sealer: &Sealer) -> Result<Option<Bytes>, Sealed> {
    let open = |stored| sealer.open(Sealing::new(What::Context, &of.id.0), stored);
    stored.map(open).transpose().map_err(|error| {
        tracing::error!(entry = ?of.id, %error, "what a claim kept of its request can't be read");
        Sealed
    })
}

fn readable(sealer: &Sealer, what: What, of: EntryId, stored: Vec<u8>) -> Option<StoredResponse> {
    let told = |error: &dyn std::fmt::Display| tracing::error!(entry = ?of, %error, "a stored response can't be read");
    let opened = sealer.open(Sealing::new(what, &of.0), stored).inspect_err(|error| told(error)).ok()?;
    StoredResponse::decode(opened).inspect_err(|error| told(error)).ok()
}

fn decision(row: &Row, sealer: &Sealer) -> sqlx::Result<Decision> {
    let entry = EntryId(row.array(1)?);
    let evidence = row.maybe_bytes(14)?;
    Ok(Decision {
        number: row.int(0)?,
        entry,
        namespace: text(row, 2)?,
        scope: text(row, 3)?,
        key: text(row, 4)?,
        route: text(row, 5)?,
        attempt: small(row, 6)?,
        unknown_since: Timestamp(row.int(7)?),
        outcome: text(row, 8)?,
        status: row.maybe_int(9)?.and_then(|status| u16::try_from(status).ok()),
        actor: Actor { name: text(row, 10)?, authority: text(row, 11)? },
        reason: text(row, 12)?,
        at: Timestamp(row.int(13)?),
        evidence: evidence.and_then(|evidence| readable(sealer, What::Evidence, entry, evidence)),
    })
}
