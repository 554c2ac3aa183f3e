//! How often messages were tried that did not end with their first try.

use std::collections::HashMap;

use crate::engine::ledger::StoreError;
use crate::entry::{EntryId, Namespace};
use crate::inbox::HandlerError;
use crate::storage::Store;
use crate::storage::conn::Conn;
use crate::storage::dialect::MAX_ROWS;
use crate::storage::error::classify;
use crate::storage::text::Statement;
use crate::storage::transaction::TxConnection;
use crate::storage::value::{Column, Value};

const COLUMNS: [Column; 3] = [Column::bytes("v_id"), Column::text("v_consumer"), Column::int("v_attempts")];

static READ: Statement = Statement::new(|dialect, size| {
    format!("SELECT a.id, a.attempts FROM inbox_attempts AS a WHERE a.id{}", dialect.among(size))
});

static RAISE: Statement = Statement::new(|dialect, size| {
    let set = format!("attempts = v.v_attempts, changed_at = {}", dialect.now());
    dialect.update_of("inbox_attempts AS e", "e.id = v.v_id", &COLUMNS, size, &set, "v.v_consumer IS NOT NULL")
});

static BEGIN: Statement = Statement::new(|dialect, size| {
    let select = format!("v.v_id, v.v_consumer, v.v_attempts, {}", dialect.now());
    let target = "inbox_attempts (id, consumer, attempts, changed_at)";
    dialect.insert_new(&COLUMNS, size, target, &select, "v.v_attempts IS NOT NULL ORDER BY v.v_id")
});

static END: Statement =
    Statement::new(|dialect, size| format!("DELETE FROM inbox_attempts WHERE id{}", dialect.among(size)));

/// One that never came again.
pub(super) static FORGET: Statement = Statement::new(|dialect, _| {
    format!("DELETE FROM inbox_attempts WHERE consumer = ? AND changed_at <= {} - ?", dialect.now())
});

/// Writes that these messages are in their so manieth try.
pub(super) async fn note(conn: &mut Conn<'_>, consumer: &Namespace, tries: &[(EntryId, u32)]) -> sqlx::Result<()> {
    let mut tries = tries.to_vec();
    tries.sort_unstable_by_key(|(id, _)| *id);
    // Within a statement's rows each is there once.
    tries.dedup_by_key(|(id, _)| *id);
    for chunk in tries.chunks(MAX_ROWS) {
        let rows = chunk.iter().map(|(id, number)| -> [Value<'_>; 3] {
            [(&id.0).into(), consumer.as_str().into(), i64::from(*number).into()]
        });
        let rows: Vec<_> = rows.collect();
        let values = conn.dialect().bind_rows(&rows);
        if conn.execute(RAISE.text(conn.dialect(), rows.len()), &values).await? < rows.len() as u64 {
            conn.execute(BEGIN.text(conn.dialect(), rows.len()), &values).await?;
        }
    }
    Ok(())
}

/// In which try each of `ids` was last, of those on record.
pub(super) async fn read(store: &Store, ids: &[EntryId]) -> Result<HashMap<EntryId, u32>, StoreError> {
    let mut found = HashMap::new();
    for chunk in ids.chunks(MAX_ROWS) {
        let values = store.connector.dialect().bind_rows(&rows(chunk));
        for row in store.query_for(chunk.len(), &READ, &values).await? {
            let read = || sqlx::Result::Ok((EntryId(row.array(0)?), u32::try_from(row.int(1)?).unwrap_or(u32::MAX)));
            let (id, attempts) = read().map_err(|error| classify(&error))?;
            found.insert(id, attempts);
        }
    }
    Ok(found)
}

fn rows(ids: &[EntryId]) -> Vec<[Value<'_>; 1]> {
    ids.iter().map(|id| [Value::from(&id.0)]).collect()
}

/// Forgets the tries of messages that end in the transaction that is open on `conn`.
///
/// # Errors
/// As a handler's own statement.
pub(crate) async fn end_attempts(conn: &mut impl TxConnection, ids: &[EntryId]) -> Result<(), HandlerError> {
    let mut conn = conn.as_conn();
    for chunk in ids.chunks(MAX_ROWS) {
        let values = conn.dialect().bind_rows(&rows(chunk));
        conn.execute(END.text(conn.dialect(), chunk.len()), &values).await?;
    }
    Ok(())
}
