//! Answers that came after their entries had been settled by somebody else.

use crate::engine::ledger::StoreError;
use crate::entry::{EntryId, Nonce};
use crate::sealer::{Place, What};
use crate::storage::Store;
use crate::storage::text::Statement;
use crate::storage::transaction::{Transaction, within};

static ON_ENTRY: Statement = Statement::new(|_, _| {
    "UPDATE entries SET evidence = ? WHERE id = ? AND origin = ? AND evidence IS NULL".to_owned()
});

/// On the decision that ended the entry, which may have removed it.
static ON_DECISION: Statement = Statement::new(|_, _| {
    "UPDATE entry_actions SET evidence = ? WHERE entry = ? AND origin = ? AND evidence IS NULL".to_owned()
});

static ON_ANY: Statement =
    Statement::new(|_, _| "UPDATE entries SET evidence = ? WHERE id = ? AND evidence IS NULL".to_owned());

static IS_KEPT: Statement = Statement::new(|_, _| {
    "SELECT 1 FROM entries WHERE id = ? AND origin = ? UNION ALL SELECT 1 FROM entry_actions WHERE entry = ? AND origin = ?"
        .to_owned()
});

/// Keeps `evidence` of an execution of the entry that was made under `origin`.
pub(super) async fn keep(store: &Store, id: EntryId, origin: Nonce, evidence: &[u8]) -> Result<(), StoreError> {
    let evidence = &*store.sealer.seal(Place::new(What::Evidence, &id.0), evidence);
    let mut transaction = store.begin().await?;
    let work = within(store.statement_timeout, keep_in(&mut transaction, id, origin, evidence)).await;
    transaction.end(work).await
}

async fn keep_in(transaction: &mut Transaction<'_>, id: EntryId, origin: Nonce, evidence: &[u8]) -> sqlx::Result<()> {
    let mut conn = transaction.conn();
    let dialect = conn.dialect();
    let of_origin = [evidence.into(), (&id.0).into(), (&origin.0).into()];
    let mut hit = conn.execute(ON_ENTRY.text(dialect, 1), &of_origin).await?;
    hit += conn.execute(ON_DECISION.text(dialect, 1), &of_origin).await?;
    if hit > 0 {
        return Ok(());
    }
    let both = [(&id.0).into(), (&origin.0).into(), (&id.0).into(), (&origin.0).into()];
    if conn.query(IS_KEPT.text(dialect, 1), &both).await?.is_empty() {
        conn.execute(ON_ANY.text(dialect, 1), &[evidence.into(), (&id.0).into()]).await?;
    }
    Ok(())
}
