//! Rows whose time is over; and the others that are no caller's.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::attempts;
use crate::clock::millis;
use crate::engine::ledger::StoreError;
use crate::entry::{EntryId, Namespace};
use crate::inbox::retention::Records;
use crate::storage::Store;
use crate::storage::conn::{Conn, Row};
use crate::storage::dialect::MAX_ROWS;
use crate::storage::text::Statement;
use crate::storage::transaction::within;
use crate::storage::value::Value;

static OVER: Statement = Statement::new(|dialect, _| {
    let (index, now) = (dialect.by_index("inbox_by_time"), dialect.now());
    format!(
        "SELECT i.id FROM inbox AS i{index} WHERE i.consumer = ? AND i.recorded_at <= {now} - ? \
         ORDER BY i.consumer, i.recorded_at LIMIT ?"
    )
});

/// Guarded by the time once more: a row that was forgotten and made anew in between is a new one.
static FORGET: Statement = Statement::new(|dialect, size| {
    let (among, now) = (dialect.among(size), dialect.now());
    format!("DELETE FROM inbox WHERE id{among} AND recorded_at <= {now} - ?")
});

impl Records for Store {
    fn forget<'a>(
        &'a self,
        consumer: &'a Namespace,
        keep: Duration,
        limit: u32,
    ) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            self.execute(&attempts::FORGET, &[consumer.as_str().into(), millis(keep).into()]).await?;
            let values = [consumer.as_str().into(), millis(keep).into(), i64::from(limit).into()];
            let over = self.query(&OVER, &values).await?;
            if over.is_empty() {
                return Ok(0);
            }
            let mut transaction = self.begin().await?;
            let work = within(self.statement_timeout, forget_in(&mut transaction.conn(), &over, millis(keep))).await;
            transaction.end(work).await
        })
    }

    fn attempts<'a>(&'a self, ids: &'a [EntryId]) -> BoxFuture<'a, Result<HashMap<EntryId, u32>, StoreError>> {
        Box::pin(attempts::read(self, ids))
    }

    fn note_attempts<'a>(
        &'a self,
        consumer: &'a Namespace,
        tries: &'a [(EntryId, u32)],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let work = within(self.statement_timeout, attempts::note(&mut transaction.conn(), consumer, tries)).await;
            transaction.end(work).await
        })
    }
}

/// In the order of their ids, as they are written.
async fn forget_in(conn: &mut Conn<'_>, over: &[Row], keep: i64) -> sqlx::Result<u64> {
    let mut ids = over.iter().map(|row| row.array::<32>(0)).collect::<sqlx::Result<Vec<_>>>()?;
    ids.sort_unstable();
    let mut forgotten = 0;
    for chunk in ids.chunks(MAX_ROWS) {
        let rows: Vec<_> = chunk.iter().map(|id| [Value::from(id)]).collect();
        let mut values = conn.dialect().bind_rows(&rows);
        values.push(keep.into());
        forgotten += conn.execute(FORGET.text(conn.dialect(), rows.len()), &values).await?;
    }
    Ok(forgotten)
}
