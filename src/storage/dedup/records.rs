//! One row per message.

use std::collections::HashMap;

use super::Item;
use super::wait::Wait;
use crate::entry::{EntryId, MAX_KEY_BYTES, Namespace};
use crate::inbox::message::{Message, MessageDigest};
use crate::storage::conn::{Conn, Row, unreadable};
use crate::storage::dialect::{Dialect, MAX_ROWS};
use crate::storage::text::Statement;
use crate::storage::value::{Column, Value};

/// How often rows are inserted that were refused by rows which then were gone: the reaper's, or a transaction's that
/// rolled back.
const TRIES: u32 = 5;

const COLUMNS: [Column; 6] = [
    Column::bytes("v_id"),
    Column::text("v_consumer"),
    Column::text("v_key"),
    Column::text("v_message_id"),
    Column::bytes("v_digest"),
    Column::int("v_nonce"),
];

/// On PostgreSQL one statement that bounds its own wait, inserts, and gives the session its bound back, if nothing
/// follows: a round trip for each would cost more than the insert. The order is forced by what each part reads.
static INSERT: Statement = Statement::new(|dialect, size| {
    let target = "inbox (id, consumer, message_key, message_id, digest, nonce, recorded_at)";
    let now = dialect.now();
    let select = format!("v.v_id, v.v_consumer, v.v_key, v.v_message_id, v.v_digest, v.v_nonce, {now}");
    match dialect {
        Dialect::Postgres => {
            let rows = dialect.with(&COLUMNS, size);
            format!(
                "{rows}, w AS MATERIALIZED \
                 (SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', ?, true) AS during), \
                 i AS (INSERT INTO {target} SELECT {select} FROM v CROSS JOIN w WHERE w.during IS NOT NULL \
                 ORDER BY v.v_id ON CONFLICT DO NOTHING RETURNING 1) \
                 SELECT n.inserted, w.before, set_config('lock_timeout', \
                 CASE WHEN n.inserted >= 0 AND ? = 0 THEN w.before ELSE w.during END, true) \
                 FROM w CROSS JOIN (SELECT COUNT(*) AS inserted FROM i) AS n"
            )
        }
        Dialect::MySql | Dialect::Sqlite => {
            dialect.insert_new(&COLUMNS, size, target, &select, "v.v_nonce IS NOT NULL ORDER BY v.v_id")
        }
    }
});

static READ: Statement = Statement::new(|dialect, size| {
    let (among, latest) = (dialect.among(size), dialect.latest());
    format!("SELECT i.id, i.nonce, i.digest, i.message_id FROM inbox AS i WHERE i.id{among}{latest}")
});

static REMOVE: Statement =
    Statement::new(|dialect, size| format!("DELETE FROM inbox WHERE id{} AND nonce = ?", dialect.among(size)));

/// What of a call's messages is on record.
#[derive(Debug)]
pub(super) struct Records {
    /// What others have recorded.
    others: HashMap<EntryId, Other>,
}

/// Somebody else's row.
#[derive(Debug)]
pub(super) struct Other {
    pub(super) digest: Option<MessageDigest>,
    message_id: Option<String>,
}

impl Other {
    pub(super) fn is_under_new_id(&self, message: &Message) -> bool {
        message.id.as_ref().zip(self.message_id.as_ref()).is_some_and(|(new, known)| new.as_str() != known)
    }
}

impl Records {
    /// Writes a row for each of `items` (of which no two have one id) that has none, and finds those that have.
    pub(super) async fn write(
        conn: &mut Conn<'_>,
        consumer: &Namespace,
        items: &[&Item<'_>],
        nonce: i64,
        wait: &mut Wait,
    ) -> sqlx::Result<Self> {
        let mut items = items.to_vec();
        items.sort_unstable_by_key(|item| item.id);
        for tried in 0..TRIES {
            let new = insert(conn, consumer, &items, nonce, wait).await?;
            if tried == 0 && new == items.len() as u64 {
                return Ok(Self { others: HashMap::new() });
            }
            let found = read(conn, &items).await?;
            if items.iter().all(|item| found.contains_key(&item.id)) {
                let others = found.into_iter().filter(|(_, (owner, _))| *owner != nonce);
                return Ok(Self { others: others.map(|(id, (_, other))| (id, other)).collect() });
            }
        }
        Err(sqlx::Error::Encode("a row was neither new nor there".into()))
    }

    /// The row that `id` had before this call.
    pub(super) fn other(&self, id: EntryId) -> Option<&Other> {
        self.others.get(&id)
    }
}

async fn insert(
    conn: &mut Conn<'_>,
    consumer: &Namespace,
    items: &[&Item<'_>],
    nonce: i64,
    wait: &mut Wait,
) -> sqlx::Result<u64> {
    let mut inserted = 0;
    for chunk in items.chunks(MAX_ROWS) {
        let rows: Vec<_> = chunk.iter().map(|item| row(consumer, item, nonce)).collect();
        let mut values = conn.dialect().bind_rows(&rows);
        let text = INSERT.text(conn.dialect(), rows.len());
        inserted += match conn.dialect() {
            Dialect::Postgres => {
                values.push((&*wait.bound).into());
                values.push(i64::from(wait.goes_on).into());
                let answer = conn.query(text, &values).await?;
                let answer = answer.first().ok_or(sqlx::Error::RowNotFound)?;
                // Told once: later statements of the call would find the call's own.
                wait.before.get_or_insert(answer.text(1)?);
                u64::try_from(answer.int(0)?).map_err(|_| unreadable(0, "a negative count"))?
            }
            Dialect::MySql | Dialect::Sqlite => conn.execute(text, &values).await?,
        };
    }
    Ok(inserted)
}

/// Keys are bounded where they are made, so that MySQL's insert has nothing to cut.
fn row<'a>(consumer: &'a Namespace, item: &'a Item<'_>, nonce: i64) -> [Value<'a>; 6] {
    const { assert!(MAX_KEY_BYTES <= 255, "what the columns take on MySQL") };
    [
        (&item.id.0).into(),
        consumer.as_str().into(),
        item.message.key.as_str().into(),
        item.message.id.as_ref().map(|id| id.as_str()).into(),
        item.message.digest.as_ref().map(|digest| &digest.0[..]).into(),
        nonce.into(),
    ]
}

async fn read(conn: &mut Conn<'_>, items: &[&Item<'_>]) -> sqlx::Result<HashMap<EntryId, (i64, Other)>> {
    let mut found = HashMap::with_capacity(items.len());
    for chunk in items.chunks(MAX_ROWS) {
        let rows: Vec<_> = chunk.iter().map(|item| [Value::from(&item.id.0)]).collect();
        let values = conn.dialect().bind_rows(&rows);
        for row in conn.query(READ.text(conn.dialect(), rows.len()), &values).await? {
            let other = Other { digest: digest(&row, 2)?, message_id: row.maybe_text(3)? };
            found.insert(EntryId(row.array(0)?), (row.int(1)?, other));
        }
    }
    Ok(found)
}

pub(super) fn digest(row: &Row, column: usize) -> sqlx::Result<Option<MessageDigest>> {
    let Some(bytes) = row.maybe_bytes(column)? else { return Ok(None) };
    let found = bytes.len();
    let bytes = bytes.try_into().map_err(|_| unreadable(column, format!("a digest of {found} bytes")))?;
    Ok(Some(MessageDigest(bytes)))
}

/// Removes the rows of `ids` that this call has written.
pub(super) async fn remove(conn: &mut Conn<'_>, ids: &[EntryId], nonce: i64) -> sqlx::Result<()> {
    for chunk in ids.chunks(MAX_ROWS) {
        let rows: Vec<_> = chunk.iter().map(|id| [Value::from(&id.0)]).collect();
        let mut values = conn.dialect().bind_rows(&rows);
        values.push(nonce.into());
        conn.execute(REMOVE.text(conn.dialect(), rows.len()), &values).await?;
    }
    Ok(())
}
