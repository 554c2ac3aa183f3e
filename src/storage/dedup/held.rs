//! Whether a transaction still holds what was recorded in it.

use std::collections::HashSet;

use crate::engine::ledger::StoreError;
use crate::entry::EntryId;
use crate::storage::conn::Conn;
use crate::storage::dialect::{Dialect, MAX_ROWS};
use crate::storage::error::{classify, classify_commit, is_guard, is_of_failed_transaction};
use crate::storage::text::Statement;
use crate::storage::transaction::TxConnection;
use crate::storage::value::Value;

static HELD: Statement =
    Statement::new(|dialect, size| format!("SELECT i.id, i.nonce FROM inbox AS i WHERE i.id{}", dialect.among(size)));

/// Fails in a transaction that can only roll back.
static ALIVE: Statement = Statement::new(|_, _| "SELECT 1".to_owned());

/// Whether every one of `records` (ids and the nonces they were written under) is in the transaction that is open on
/// `conn`.
///
/// It may not be: PostgreSQL answers the COMMIT of a transaction in which a statement has failed with a rollback that
/// looks like a success, and MySQL goes on without a transaction after it has rolled one back in a deadlock. Who has
/// swallowed that error would not notice.
pub(in crate::storage) async fn are_held(
    conn: &mut impl TxConnection,
    records: &[(EntryId, i64)],
) -> Result<bool, StoreError> {
    match all(&mut conn.as_conn(), records).await {
        Err(error) if is_of_failed_transaction(&error) => Ok(false),
        other => other.map_err(|error| classify(&error)),
    }
}

/// Commits the transaction that is open on `conn` if `record` is in it, in one round trip, where that is less than the
/// two of asking and committing; `None` where it is not, and nothing was done.
///
/// It leaves the next transaction open, empty, for sqlx to roll back when the caller's handle is dropped: that handle
/// has not seen the COMMIT, and a ROLLBACK outside any transaction would be a warning in the server's log each time.
///
/// # Errors
/// As of a COMMIT: what is not certain is said to be unknown.
pub(in crate::storage) async fn commit_holding(
    conn: &mut impl TxConnection,
    (id, nonce): (EntryId, i64),
) -> Option<Result<bool, StoreError>> {
    let mut conn = conn.as_conn();
    if conn.dialect() != Dialect::Postgres {
        return None;
    }
    let id = id.to_hex();
    let held = format!("SELECT 1 / COUNT(*) FROM inbox AS i WHERE i.id = '\\x{id}'::bytea AND i.nonce = {nonce}");
    Some(match conn.simple(&format!("{held}; COMMIT AND CHAIN")).await {
        Ok(_) => Ok(true),
        Err(error) if is_guard(&error) || is_of_failed_transaction(&error) => Ok(false),
        Err(error) => Err(classify_commit(&error)),
    })
}

async fn all(conn: &mut Conn<'_>, records: &[(EntryId, i64)]) -> sqlx::Result<bool> {
    if records.is_empty() {
        conn.query(ALIVE.text(conn.dialect(), 1), &[]).await?;
        return Ok(true);
    }
    let mut held = HashSet::with_capacity(records.len());
    for chunk in records.chunks(MAX_ROWS) {
        let rows: Vec<_> = chunk.iter().map(|(id, _)| [Value::from(&id.0)]).collect();
        let values = conn.dialect().bind_rows(&rows);
        for row in conn.query(HELD.text(conn.dialect(), rows.len()), &values).await? {
            held.insert((EntryId(row.array(0)?), row.int(1)?));
        }
    }
    Ok(records.iter().all(|record| held.contains(record)))
}
