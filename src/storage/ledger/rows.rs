//! What the three kinds of writes share.

use std::collections::HashMap;

use super::entry;
use crate::entry::{Entry, EntryId, Nonce};
use crate::sealer::Sealer;
use crate::storage::conn::{Conn, Row};
use crate::storage::dialect::MAX_ROWS;
use crate::storage::text::Statement;
use crate::storage::value::Value;

static PEEK: Statement = Statement::new(|dialect, size| {
    format!("SELECT e.id, e.nonce, e.origin, e.state, e.attempt FROM entries AS e WHERE e.id{}", dialect.among(size))
});

static READ: Statement = Statement::new(|dialect, size| {
    format!("SELECT {} FROM entries AS e WHERE e.id{}", entry::COLUMNS, dialect.among(size))
});

/// What decides about a write that did not hit: no answers are loaded for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peek {
    pub(super) nonce: Nonce,
    pub(super) origin: Nonce,
    pub(super) state: i64,
    pub(super) attempt: i64,
}

pub(super) async fn peek(
    conn: &mut Conn<'_>,
    ids: impl IntoIterator<Item = EntryId>,
) -> sqlx::Result<HashMap<EntryId, Peek>> {
    let mut found = HashMap::new();
    for row in among(conn, &PEEK, ids).await? {
        let (nonce, origin) = (Nonce(row.array(1)?), Nonce(row.array(2)?));
        found.insert(EntryId(row.array(0)?), Peek { nonce, origin, state: row.int(3)?, attempt: row.int(4)? });
    }
    Ok(found)
}

/// What there is of `ids`. One that can't be read is no reason to say nothing of the others.
pub(super) async fn read(
    conn: &mut Conn<'_>,
    sealer: &Sealer,
    ids: impl IntoIterator<Item = EntryId>,
) -> sqlx::Result<HashMap<EntryId, sqlx::Result<Entry>>> {
    let rows = among(conn, &READ, ids).await?;
    rows.iter().map(|row| Ok((EntryId(row.array(0)?), entry::read(row, sealer)))).collect()
}

async fn among(
    conn: &mut Conn<'_>,
    statement: &'static Statement,
    ids: impl IntoIterator<Item = EntryId>,
) -> sqlx::Result<Vec<Row>> {
    let ids: Vec<_> = ids.into_iter().collect();
    let mut found = Vec::with_capacity(ids.len());
    for chunk in ids.chunks(MAX_ROWS) {
        let rows: Vec<_> = chunk.iter().map(|id| [Value::from(&id.0)]).collect();
        let values = conn.dialect().bind_rows(&rows);
        found.extend(conn.query(statement.text(conn.dialect(), rows.len()), &values).await?);
    }
    Ok(found)
}

/// `items` in the order of their ids: two transactions that lock the same rows lock them in one order and
/// can't wait for each other in a circle.
pub(super) fn sorted<T>(items: &[T], id: impl Fn(&T) -> EntryId) -> Vec<&T> {
    let mut sorted: Vec<_> = items.iter().collect();
    sorted.sort_unstable_by_key(|item| id(item));
    sorted
}
