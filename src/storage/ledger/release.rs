//! Guarded removals.

use super::rows::{self, Peek};
use crate::clock::Timestamp;
use crate::engine::ledger::{Guarded, Release, Released};
use crate::entry::{EntryId, Nonce};
use crate::storage::conn::Conn;
use crate::storage::dialect::{Dialect, MAX_ROWS};
use crate::storage::text::Statement;
use crate::storage::value::Value;

static FIRST_ATTEMPT: Statement = Statement::new(|dialect, size| delete(dialect, size, "state <= 2 AND attempt = 1"));

static SETTLED: Statement = Statement::new(|dialect, size| delete(dialect, size, "state = 2"));

/// NULLs say "for ever" and compare as neither.
static FORGOTTEN: Statement = Statement::new(|dialect, size| {
    let over = "((state = 3 AND due_at + tombstone_ms <= ?) OR (state = 4 AND due_at <= ?))";
    delete(dialect, size, over)
});

/// Two lists instead of pairs: a nonce belongs to one execution of one entry, so a row that has one of the
/// ids and one of the nonces has the pair. Every database finds the rows by their primary key.
fn delete(dialect: Dialect, size: usize, legal: &str) -> String {
    let among = dialect.among(size);
    format!("DELETE FROM entries WHERE id{among} AND nonce{among} AND {legal}")
}

/// Removes what `releases` name and tells for each whether it is gone.
pub(super) async fn apply(conn: &mut Conn<'_>, now: Timestamp, releases: &[Release]) -> sqlx::Result<Vec<Guarded>> {
    let mut removed = 0;
    for (of, statement, times) in [
        (Released::FirstAttempt, &FIRST_ATTEMPT, 0),
        (Released::Settled, &SETTLED, 0),
        (Released::Forgotten, &FORGOTTEN, 2),
    ] {
        let releases: Vec<_> = releases.iter().filter(|release| release.of == of).collect();
        let targets = rows::sorted(&releases, |release| release.id);
        for chunk in targets.chunks(MAX_ROWS) {
            let ids: Vec<_> = chunk.iter().map(|release| [Value::from(&release.id.0)]).collect();
            let nonces: Vec<_> = chunk.iter().map(|release| [Value::from(&release.nonce.0)]).collect();
            let dialect = conn.dialect();
            let mut values = dialect.bind_rows(&ids);
            values.extend(dialect.bind_rows(&nonces));
            values.extend(std::iter::repeat_n(Value::from(now.0), times));
            removed += conn.execute(statement.text(dialect, ids.len()), &values).await?;
        }
    }
    if removed == releases.len() as u64 {
        return Ok(vec![Guarded::Done; releases.len()]);
    }
    let found = rows::peek(conn, releases.iter().map(|release| release.id)).await?;
    Ok(releases.iter().map(|release| decide(release, found.get(&release.id))).collect())
}

/// Removes one Unknown row that was settled as not executed, and says how many that were.
pub(super) async fn remove_settled(conn: &mut Conn<'_>, id: EntryId, nonce: Nonce) -> sqlx::Result<u64> {
    let dialect = conn.dialect();
    let mut values = dialect.bind_rows(&[[Value::from(&id.0)]]);
    values.extend(dialect.bind_rows(&[[Value::from(&nonce.0)]]));
    conn.execute(SETTLED.text(dialect, 1), &values).await
}

/// A row that is gone is gone, by this removal or by the same one applied before; so is one that another
/// claim has made anew since. That one is told by its first attempt: the row of a first attempt has its
/// claim's nonce as origin, and attempts only grow while a row lives.
fn decide(release: &Release, found: Option<&Peek>) -> Guarded {
    let Some(row) = found else { return Guarded::Done };
    let is_of_another_claim = row.attempt == 1 && row.origin != release.nonce && row.nonce != release.nonce;
    if is_of_another_claim && release.of == Released::FirstAttempt { Guarded::Done } else { Guarded::Fenced }
}
