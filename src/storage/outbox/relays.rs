//! Who publishes, and what is in the way.

use crate::clock::Timestamp;
use crate::engine::ledger::StoreError;
use crate::outbox::desk::Seen;
use crate::storage::Store;
use crate::storage::conn::Row;
use crate::storage::error::classify;
use crate::storage::text::Statement;

static ALIVE: Statement = Statement::new(|dialect, _| {
    let now = dialect.now();
    format!(
        "SELECT r.queue, r.trouble, r.troubled_at FROM relays AS r WHERE r.expires_at > {now} ORDER BY r.queue, r.id"
    )
});

pub(super) async fn seen(store: &Store) -> Result<Vec<Seen>, StoreError> {
    let rows = store.query(&ALIVE, &[]).await?;
    rows.iter().map(read).collect::<sqlx::Result<_>>().map_err(|error| classify(&error))
}

fn read(row: &Row) -> sqlx::Result<Seen> {
    let text = |bytes: Vec<u8>| Box::<str>::from(String::from_utf8_lossy(&bytes));
    let (trouble, since) = (row.maybe_bytes(1)?.map(text), row.maybe_int(2)?.map(Timestamp));
    Ok(Seen { queue: text(row.bytes(0)?), trouble: trouble.zip(since) })
}
