//! The identity guard's table.

use futures_util::future::BoxFuture;

use super::Store;
use super::conn::{Conn, Row};
use super::dialect::Dialect;
use super::error::classify;
use super::text::Statement;
use super::transaction::within;
use super::value::Value;
use crate::clock::Timestamp;
use crate::engine::identities::{Described, Identities};
use crate::engine::ledger::StoreError;
use crate::entry::Namespace;

static LOAD_ALL: Statement = Statement::new(|_, _| {
    "SELECT namespace, description, accepted_at, reason FROM identities ORDER BY namespace".to_owned()
});

static LOAD: Statement = Statement::new(|_, _| {
    "SELECT namespace, description, accepted_at, reason FROM identities WHERE namespace = ?".to_owned()
});

static RECORD: Statement = Statement::new(|dialect, _| {
    let columns = "INTO identities (namespace, description, accepted_at, reason) VALUES (?, ?, ?, ?)";
    match dialect {
        Dialect::Postgres | Dialect::Sqlite => format!("INSERT {columns} ON CONFLICT DO NOTHING"),
        Dialect::MySql => format!("INSERT IGNORE {columns}"),
    }
});

static ACCEPT: Statement = Statement::new(|_, _| {
    "UPDATE identities SET description = ?, accepted_at = ?, reason = ? WHERE namespace = ?".to_owned()
});

impl Identities for Store {
    fn load_all(&self) -> BoxFuture<'_, Result<Vec<Described>, StoreError>> {
        Box::pin(async move {
            let rows = self.query(&LOAD_ALL, &[]).await?;
            rows.iter().map(read).collect::<sqlx::Result<_>>().map_err(|error| classify(&error))
        })
    }

    fn record_new<'a>(
        &'a self,
        namespace: &'a Namespace,
        description: &'a str,
    ) -> BoxFuture<'a, Result<Described, StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let now = transaction.now;
            let work = record_in(transaction.conn(), namespace, description, now);
            let work = within(self.statement_timeout, work).await;
            transaction.end(work).await
        })
    }

    fn accept<'a>(
        &'a self,
        namespace: &'a Namespace,
        description: &'a str,
        reason: &'a str,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let now = transaction.now;
            let work = accept_in(transaction.conn(), namespace, description, reason, now);
            let work = within(self.statement_timeout, work).await;
            transaction.end(work).await
        })
    }
}

async fn record_in(
    mut conn: Conn<'_>,
    namespace: &Namespace,
    description: &str,
    now: Timestamp,
) -> sqlx::Result<Described> {
    let dialect = conn.dialect();
    let values = [namespace.as_str().into(), description.into(), now.0.into(), Value::Text(None)];
    conn.execute(RECORD.text(dialect, 1), &values).await?;
    let rows = conn.query(LOAD.text(dialect, 1), &[namespace.as_str().into()]).await?;
    read(rows.first().ok_or(sqlx::Error::RowNotFound)?)
}

/// The row is made first where there is none, so that the change finds one.
async fn accept_in(
    mut conn: Conn<'_>,
    namespace: &Namespace,
    description: &str,
    reason: &str,
    now: Timestamp,
) -> sqlx::Result<()> {
    let dialect = conn.dialect();
    let values = [namespace.as_str().into(), description.into(), now.0.into(), reason.into()];
    if conn.execute(RECORD.text(dialect, 1), &values).await? == 0 {
        let values = [description.into(), now.0.into(), reason.into(), namespace.as_str().into()];
        conn.execute(ACCEPT.text(dialect, 1), &values).await?;
    }
    Ok(())
}

fn read(row: &Row) -> sqlx::Result<Described> {
    Ok(Described {
        namespace: Namespace::from_stored(&row.text(0)?),
        description: row.text(1)?,
        accepted_at: Timestamp(row.int(2)?),
        reason: row.maybe_text(3)?,
    })
}
