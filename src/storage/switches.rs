//! The table of switches, and the record of who has turned them.

use futures_util::future::BoxFuture;

use super::Store;
use super::conn::Row;
use super::dialect::Dialect;
use super::error::classify;
use super::text::Statement;
use super::transaction::{Transaction, within};
use super::value::Value;
use crate::clock::Timestamp;
use crate::engine::desk::{Actor, MAX_LISTED};
use crate::engine::ledger::StoreError;
use crate::engine::switches::{Kind, Order, Switch, Switches, Turn, Turned};

/// Most bytes of a name and of a reason that are kept.
const MAX_ACTOR_BYTES: usize = 200;
const MAX_REASON_BYTES: usize = 2_000;

/// A row that is there to be locked, until the commit that sets or removes it: nobody ever sees it.
const CONFIGURED: &str = "configured";

static LOAD: Statement = Statement::new(|_, _| {
    "SELECT kind, name, setting, actor, authority, reason, changed_at FROM switches ORDER BY kind, name".to_owned()
});

static MAKE: Statement = Statement::new(|dialect, _| {
    let insert = "INSERT INTO switches (kind, name, setting, actor, authority, reason, changed_at) \
                  VALUES (?, ?, ?, '', '', '', 0)";
    match dialect {
        Dialect::Postgres | Dialect::Sqlite => format!("{insert} ON CONFLICT DO NOTHING"),
        // Locks a row that is there for a writer. INSERT IGNORE would for a reader, and two of them wait for each other.
        Dialect::MySql => format!("{insert} ON DUPLICATE KEY UPDATE setting = setting"),
    }
});

static LOCK: Statement = Statement::new(|dialect, _| {
    format!("SELECT setting FROM switches WHERE kind = ? AND name = ?{}", dialect.for_update())
});

static SET: Statement = Statement::new(|_, _| {
    "UPDATE switches SET setting = ?, actor = ?, authority = ?, reason = ?, changed_at = ? WHERE kind = ? AND name = ?"
        .to_owned()
});

static REMOVE: Statement = Statement::new(|_, _| "DELETE FROM switches WHERE kind = ? AND name = ?".to_owned());

static RECORD: Statement = Statement::new(|_, _| {
    "INSERT INTO switch_actions (kind, name, was, setting, actor, authority, reason, acted_at) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        .to_owned()
});

static TURNS: Statement = Statement::new(|_, _| {
    "SELECT kind, name, setting, actor, authority, reason, acted_at, was, number FROM switch_actions \
     WHERE number < ? AND (? = 0 OR kind = ?) ORDER BY number DESC LIMIT ?"
        .to_owned()
});

impl Switches for Store {
    fn switched(&self) -> BoxFuture<'_, Result<Vec<Switch>, StoreError>> {
        Box::pin(async move {
            let rows = self.query(&LOAD, &[]).await?;
            rows.iter()
                .filter_map(|row| read(row).transpose())
                .collect::<sqlx::Result<_>>()
                .map_err(|error| classify(&error))
        })
    }

    fn turn<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<Turned, StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let work = within(self.statement_timeout, turn(&mut transaction, order)).await;
            transaction.end(work).await
        })
    }

    fn turns(&self, of: Option<Kind>, before: Option<i64>, limit: u32) -> BoxFuture<'_, Result<Vec<Turn>, StoreError>> {
        Box::pin(async move {
            let (is_of, kind) = (i64::from(of.is_some()), of.map_or("", Kind::as_str));
            let before = before.unwrap_or(i64::MAX);
            let limit = i64::from(limit.min(MAX_LISTED));
            let rows = self.query(&TURNS, &[before.into(), is_of.into(), kind.into(), limit.into()]).await?;
            rows.iter()
                .filter_map(|row| recorded(row).transpose())
                .collect::<sqlx::Result<_>>()
                .map_err(|error| classify(&error))
        })
    }
}

async fn turn(transaction: &mut Transaction<'_>, order: &Order) -> sqlx::Result<Turned> {
    let now = transaction.now;
    let mut conn = transaction.conn();
    let dialect = conn.dialect();
    let (kind, name): (Value<'_>, Value<'_>) = (order.kind.as_str().into(), (&*order.name).into());
    conn.execute(MAKE.text(dialect, 1), &[kind.clone(), name.clone(), CONFIGURED.into()]).await?;
    let rows = conn.query(LOCK.text(dialect, 1), &[kind.clone(), name.clone()]).await?;
    let was = rows.first().ok_or(sqlx::Error::RowNotFound)?.text(0)?;
    let was = Some(was).filter(|was| was != CONFIGURED);
    let (actor, reason) = (clean(&order.by.name, MAX_ACTOR_BYTES), clean(&order.reason, MAX_REASON_BYTES));
    let by: [Value<'_>; 4] =
        [actor.as_str().into(), (&*order.by.authority).into(), reason.as_str().into(), now.0.into()];
    let done = match order.setting.as_deref() {
        Some(setting) => {
            let values = [&[setting.into()], &by[..], &[kind.clone(), name.clone()]].concat();
            conn.execute(SET.text(dialect, 1), &values).await?
        }
        None => conn.execute(REMOVE.text(dialect, 1), &[kind.clone(), name.clone()]).await?,
    };
    if done != 1 {
        return Err(sqlx::Error::RowNotFound);
    }
    let states = [kind, name, Value::Text(was.as_deref()), Value::Text(order.setting.as_deref())];
    conn.execute(RECORD.text(dialect, 1), &[&states[..], &by].concat()).await?;
    Ok(Turned { was: was.map(Into::into), at: now })
}

/// As every database takes it: of a bounded length, and without NUL, which PostgreSQL's text can't hold.
fn clean(text: &str, longest: usize) -> String {
    text[..text.floor_char_boundary(longest)].replace('\0', "\u{fffd}")
}

/// `None`: of what only a newer version knows.
fn read(row: &Row) -> sqlx::Result<Option<Switch>> {
    let Some(kind) = kind(row)? else { return Ok(None) };
    let setting = maybe_text(row, 2)?.unwrap_or_default();
    let (name, by, reason) = (text(row, 1)?, by(row)?, text(row, 5)?);
    Ok(Some(Switch { kind, name, setting, by, reason, at: Timestamp(row.int(6)?) }))
}

/// The same.
fn recorded(row: &Row) -> sqlx::Result<Option<Turn>> {
    let Some(kind) = kind(row)? else { return Ok(None) };
    Ok(Some(Turn {
        number: row.int(8)?,
        kind,
        name: text(row, 1)?,
        was: maybe_text(row, 7)?,
        setting: maybe_text(row, 2)?,
        by: by(row)?,
        reason: text(row, 5)?,
        at: Timestamp(row.int(6)?),
    }))
}

fn kind(row: &Row) -> sqlx::Result<Option<Kind>> {
    let kind = text(row, 0)?;
    Ok(Kind::ALL.into_iter().find(|known| known.as_str() == &*kind))
}

fn by(row: &Row) -> sqlx::Result<Actor> {
    Ok(Actor { name: text(row, 3)?, authority: text(row, 4)? })
}

fn text(row: &Row, column: usize) -> sqlx::Result<Box<str>> {
    row.bytes(column).map(|bytes| String::from_utf8_lossy(&bytes).into())
}

fn maybe_text(row: &Row, column: usize) -> sqlx::Result<Option<Box<str>>> {
    Ok(row.maybe_bytes(column)?.map(|bytes| String::from_utf8_lossy(&bytes).into()))
}
