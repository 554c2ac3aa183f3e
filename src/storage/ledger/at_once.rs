//! On PostgreSQL, a batch as one statement that commits by itself: one round trip in place of four, with less to
//! parse, and a writer that sleeps once instead of four times.
//!
//! A batch may be applied again, so what an error leaves open is settled by applying it again. What was not hit is
//! read after the commit: nobody can have taken from this process what the statement gave it, as long as its lease
//! lasts.

use super::change::{self, Change};
use super::claim::{self, NewClaim};
use super::emission;
use super::entry::stored;
use super::rows;
use crate::clock::Timestamp;
use crate::engine::ledger::{Applied, Batch, StoreError};
use crate::sealer::Sealer;
use crate::storage::Store;
use crate::storage::bounds::check_size;
use crate::storage::conn::{Conn, Row};
use crate::storage::dialect::{Dialect, MAX_ROWS};
use crate::storage::error::{classify_autocommit, is_guard, is_there_already};
use crate::storage::events::{self, NewRow};
use crate::storage::text::Statement;
use crate::storage::transaction::within;
use crate::storage::value::{Value, no_rows};

/// Beyond, PostgreSQL would refuse the message.
const LARGEST: usize = 268_435_456;

static SILENT: Statement = Statement::new(|dialect, size| {
    let (changed, claimed, now) = (change::text(dialect, size), claim::text(dialect, size), dialect.statement_now());
    format!("WITH changed AS ({changed} RETURNING 1), claimed AS ({claimed} RETURNING 1) SELECT {COUNTS}, {now}")
});

/// Each completion is made and each event new, or nothing of the batch is: otherwise the statement ends itself, by a
/// division by zero or by an event's id. So no event has to look for its own completion.
static ANNOUNCING: Statement = Statement::new(|dialect, size| {
    let (changed, claimed, now) = (change::text(dialect, size), claim::text(dialect, size), dialect.statement_now());
    let emitted = events::insert_all(dialect, size);
    format!(
        "WITH changed AS ({changed} RETURNING e.state), emitted AS ({emitted}), claimed AS ({claimed} RETURNING 1) \
         SELECT {COUNTS}, {now}, \
         1 / CASE WHEN (SELECT COUNT(*) FROM changed AS c WHERE c.state = 3) = ? THEN 1 ELSE 0 END"
    )
});

const COUNTS: &str = "(SELECT COUNT(*) FROM changed), (SELECT COUNT(*) FROM claimed)";

/// Whether `batch` can be one statement.
pub(super) fn takes(dialect: Dialect, batch: &Batch) -> bool {
    let is_small = batch.transitions.len() <= MAX_ROWS && batch.claims.len() <= MAX_ROWS;
    dialect == Dialect::Postgres && batch.releases.is_empty() && is_small
}

/// Applies `batch`, which [`takes`] agrees to; `None` if nothing was written, since not all of it
/// was new.
pub(super) async fn apply(store: &Store, batch: &Batch) -> Result<Option<Applied>, StoreError> {
    let refused = |error: sqlx::Error| classify_autocommit(&error);
    let changes: Vec<_> = batch.transitions.iter().map(|transition| Change::new(transition, &store.sealer)).collect();
    let announced = emission::announced(&batch.transitions, &store.sealer).map_err(refused)?;
    let claims = NewClaim::sorted(&batch.claims, &store.sealer);
    let (statement, values) = bind(&changes, &announced, &claims).map_err(refused)?;
    let text = statement.text(Dialect::Postgres, 1);
    let mut is_unclear = false;
    loop {
        let lent = store.for_batches().lend().await;
        let mut lease = lent.map_err(|error| if is_unclear { unclear(error) } else { error })?;
        match within(store.statement_timeout, lease.conn().query(text, &values)).await {
            Ok(counts) => {
                let told =
                    within(store.statement_timeout, told(&mut lease.conn(), &store.sealer, batch, &changes, &counts))
                        .await;
                // It is committed; applied again, it tells.
                let applied = told.map_err(|error| StoreError::CommitUnknown(error.to_string()))?;
                lease.give_back();
                return Ok(Some(applied));
            }
            Err(error) if is_guard(&error) || is_there_already(&error) => {
                lease.give_back();
                // What was tried before may be what is there already.
                return if is_unclear { Err(StoreError::CommitUnknown(error.to_string())) } else { Ok(None) };
            }
            Err(error) if lease.died_idle(&error) && is_unsettled(&error) => is_unclear = true,
            Err(error) => {
                let error = classify_autocommit(&error);
                if matches!(error, StoreError::Conflict(_) | StoreError::Locked(_) | StoreError::Refused(_)) {
                    lease.give_back();
                }
                return Err(if is_unclear { unclear(error) } else { error });
            }
        }
    }
}

/// Whether the statement may have been committed all the same. A plain error is none: the server has rolled back, and
/// would be asked the same again by each connection.
fn is_unsettled(error: &sqlx::Error) -> bool {
    matches!(classify_autocommit(error), StoreError::CommitUnknown(_))
}

/// What an error says after a first try whose end nobody knows.
fn unclear(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable(text) | StoreError::Conflict(text) | StoreError::Locked(text) => {
            StoreError::CommitUnknown(text)
        }
        other @ (StoreError::CommitUnknown(_) | StoreError::Refused(_)) => other,
    }
}

fn bind<'a>(
    changes: &'a [Change],
    announced: &'a [NewRow<'_>],
    claims: &'a [NewClaim<'_>],
) -> sqlx::Result<(&'static Statement, Vec<Value<'a>>)> {
    let mut values = match changes {
        [] => no_rows(&change::COLUMNS),
        changes => change::values(Dialect::Postgres, None, &rows::sorted(changes, |change| change.id)),
    };
    let statement = if announced.is_empty() { &SILENT } else { &ANNOUNCING };
    if !announced.is_empty() {
        values.extend(events::values(Dialect::Postgres, None, announced)?);
    }
    values.extend(match claims {
        [] => no_rows(&claim::COLUMNS),
        claims => claim::values(Dialect::Postgres, None, claims)?,
    });
    if !announced.is_empty() {
        let completions = changes.iter().filter(|change| change.state == stored::COMPLETED).count();
        values.push(i64::try_from(completions).unwrap_or(i64::MAX).into());
    }
    check_size(&values, LARGEST)?;
    Ok((statement, values))
}

async fn told(
    conn: &mut Conn<'_>,
    sealer: &Sealer,
    batch: &Batch,
    changes: &[Change],
    counts: &[Row],
) -> sqlx::Result<Applied> {
    let counts = counts.first().ok_or(sqlx::Error::RowNotFound)?;
    let count = |column| counts.int(column).map(i64::unsigned_abs);
    let (changed, claimed, now) = (count(0)?, count(1)?, Timestamp(counts.int(2)?));
    let transitions = change::told(conn, changes, changed).await?;
    let claims = claim::told(conn, sealer, &batch.claims, claimed).await?;
    Ok(Applied { now, transitions, releases: Vec::new(), claims })
}
