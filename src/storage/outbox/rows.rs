//! Statements for many rows, in pieces that a statement takes.

use crate::storage::conn::{Conn, Row};
use crate::storage::dialect::MAX_ROWS;
use crate::storage::text::Statement;
use crate::storage::value::Value;

/// Most bytes of a reason that are kept: a broker may answer with a page.
const MAX_REASON_BYTES: usize = 2_000;

/// Runs `statement` for `rows`, with `more` after them, and says how many rows it hit.
pub(super) async fn execute<const N: usize>(
    conn: &mut Conn<'_>,
    statement: &'static Statement,
    rows: &[[Value<'_>; N]],
    more: &[Value<'_>],
) -> sqlx::Result<u64> {
    let mut hit = 0;
    for chunk in rows.chunks(MAX_ROWS) {
        let mut values = conn.dialect().bind_rows(chunk);
        values.extend(more.iter().cloned());
        hit += conn.execute(statement.text(conn.dialect(), chunk.len()), &values).await?;
    }
    Ok(hit)
}

/// Asks `statement` for `rows`, with `before` in front of them. Rows may come more than once.
pub(super) async fn query<const N: usize>(
    conn: &mut Conn<'_>,
    statement: &'static Statement,
    before: &[Value<'_>],
    rows: &[[Value<'_>; N]],
) -> sqlx::Result<Vec<Row>> {
    let mut found = Vec::new();
    for chunk in rows.chunks(MAX_ROWS) {
        let mut values = before.to_vec();
        values.extend(conn.dialect().bind_rows(chunk));
        found.extend(conn.query(statement.text(conn.dialect(), chunk.len()), &values).await?);
    }
    Ok(found)
}

/// Positions as rows, in order: whoever locks events locks them by position.
pub(super) fn positions(positions: impl IntoIterator<Item = i64>) -> Vec<[Value<'static>; 1]> {
    let mut positions: Vec<i64> = positions.into_iter().collect();
    positions.sort_unstable();
    positions.dedup();
    positions.into_iter().map(|position| [Value::from(position)]).collect()
}

/// `reason` as every database takes it: of a bounded length, and without NUL, which PostgreSQL's text can't hold.
pub(super) fn clean(reason: &str) -> String {
    let end = reason.floor_char_boundary(MAX_REASON_BYTES);
    reason[..end].replace('\0', "\u{fffd}")
}

/// A stored count, which no writer of ours makes negative.
pub(super) fn count(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}
