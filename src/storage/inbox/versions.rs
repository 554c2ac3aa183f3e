//! Which version of each entity was applied last.

use crate::inbox::store::Version;
use crate::storage::bounds::{MAX_QUEUE_BYTES, MAX_TEXT_BYTES, bounded};
use crate::storage::conn::{Conn, Row};
use crate::storage::dialect::MAX_ROWS;
use crate::storage::text::Statement;
use crate::storage::transaction::Transaction;
use crate::storage::value::{Column, Value};

/// The column's bound on MySQL.
const MAX_DIGEST_BYTES: usize = 64;

/// How often an entity is begun that others begin at the same time, or forget.
const TRIES: u32 = 5;

const COLUMNS: [Column; 5] = [
    Column::text("v_subscription"),
    Column::text("v_entity"),
    Column::int("v_version"),
    Column::bytes("v_digest"),
    Column::int("v_now"),
];

pub(super) static READ: Statement = Statement::new(|_, _| {
    "SELECT v.version, v.digest FROM versions AS v WHERE v.subscription = ? AND v.entity = ?".to_owned()
});

static RAISE: Statement = Statement::new(|dialect, size| {
    dialect.update_of(
        "versions AS e",
        "e.subscription = v.v_subscription AND e.entity = v.v_entity",
        &COLUMNS,
        size,
        "version = v.v_version, digest = v.v_digest, changed_at = v.v_now",
        "e.version < v.v_version",
    )
});

static BEGIN: Statement = Statement::new(|dialect, size| {
    dialect.insert_new(
        &COLUMNS,
        size,
        "versions (subscription, entity, version, digest, changed_at)",
        "v.v_subscription, v.v_entity, v.v_version, v.v_digest, v.v_now",
        "v.v_now IS NOT NULL",
    )
});

/// But those of which something may still be delivered: what waits, and what a person may send again, however long it
/// has been lying there. All but what is sent, which leaves before its version does.
pub(super) static OVER: Statement = Statement::new(|dialect, _| {
    let (index, now) = (dialect.by_index("versions_by_time"), dialect.now());
    format!(
        "SELECT v.entity FROM versions AS v{index} WHERE v.subscription = ? AND v.changed_at <= {now} - ? \
         AND v.entity NOT IN (SELECT e.event_key FROM events AS e WHERE e.state IN (1, 2, 3, 4, 6, 7) AND e.queue = ?) \
         ORDER BY v.subscription, v.changed_at LIMIT ?"
    )
});

/// A version that was found to be the newer one is remembered from then on: the stale message may be sent again.
static TOUCH: Statement = Statement::new(|_, _| {
    "UPDATE versions SET changed_at = ? WHERE subscription = ? AND entity = ? AND changed_at < ?".to_owned()
});

/// Guarded by the time once more: a version may have been applied in between.
static FORGET: Statement = Statement::new(|dialect, size| {
    let (among, now) = (dialect.among_texts(size), dialect.now());
    format!("DELETE FROM versions WHERE entity{among} AND subscription = ? AND changed_at <= {now} - ?")
});

pub(super) async fn touch(transaction: &mut Transaction<'_>, subscription: &str, entity: &str) -> sqlx::Result<()> {
    let now = transaction.now.0;
    let mut conn = transaction.conn();
    let values = [now.into(), subscription.into(), entity.into(), now.into()];
    conn.execute(TOUCH.text(conn.dialect(), 1), &values).await.map(drop)
}

/// In the order of their names. Whoever applies a version holds one row, so nobody waits in a circle.
pub(super) async fn forget(conn: &mut Conn<'_>, over: &[Row], subscription: &str, keep: i64) -> sqlx::Result<u64> {
    let mut entities = over.iter().map(|row| row.text(0)).collect::<sqlx::Result<Vec<_>>>()?;
    entities.sort_unstable();
    let mut forgotten = 0;
    for chunk in entities.chunks(MAX_ROWS) {
        let rows: Vec<_> = chunk.iter().map(|entity| [Value::from(&**entity)]).collect();
        let mut values = conn.dialect().bind_rows(&rows);
        values.extend([subscription.into(), keep.into()]);
        forgotten += conn.execute(FORGET.text(conn.dialect(), rows.len()), &values).await?;
    }
    Ok(forgotten)
}

pub(super) fn read(row: &Row) -> sqlx::Result<Version> {
    Ok(Version { number: row.int(0)?, digest: row.bytes(1)?.into() })
}

pub(super) async fn advance(
    transaction: &mut Transaction<'_>,
    subscription: &str,
    entity: &str,
    version: &Version,
) -> sqlx::Result<Version> {
    let now = transaction.now;
    let mut conn = transaction.conn();
    let dialect = conn.dialect();
    if version.digest.len() > MAX_DIGEST_BYTES {
        return Err(sqlx::Error::Encode(format!("a digest of more than {MAX_DIGEST_BYTES} bytes").into()));
    }
    let subscription = Value::from(bounded("subscription's name", subscription, MAX_QUEUE_BYTES)?);
    let entity = Value::from(bounded("entity", entity, MAX_TEXT_BYTES)?);
    let row = [subscription.clone(), entity.clone(), version.number.into(), (&*version.digest).into(), now.0.into()];
    let row = dialect.bind_rows(&[row]);
    // Mostly there is one. Where somebody else begins between two of these statements, theirs may be the lower one.
    for _ in 0..TRIES {
        if conn.execute(RAISE.text(dialect, 1), &row).await? > 0 {
            return Ok(version.clone());
        }
        let found = conn.query(READ.text(dialect, 1), &[subscription.clone(), entity.clone()]).await?;
        match found.first().map(read).transpose()? {
            Some(found) if found.number >= version.number => return Ok(found),
            Some(_lower) => {}
            None if conn.execute(BEGIN.text(dialect, 1), &row).await? > 0 => return Ok(version.clone()),
            None => {}
        }
    }
    Err(sqlx::Error::RowNotFound)
}
