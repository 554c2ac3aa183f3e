//! What people decide, carried out: the change, its events and its record in one transaction.

use super::change::{self, Change};
use super::{emission, release, rows};
use crate::engine::desk::{Ending, Order};
use crate::engine::ledger::{FromState, Guarded, StoreError, To, Transition};
use crate::entry::Answer;
use crate::storage::Store;
use crate::storage::conn::Conn;
use crate::storage::text::Statement;
use crate::storage::transaction::{Transaction, within};
use crate::storage::value::Value;

/// Most bytes of a reason, and of a name, that are kept.
const MAX_REASON_BYTES: usize = 2_000;
const MAX_ACTOR_BYTES: usize = 200;

static RECORDED: Statement = Statement::new(|_, _| "SELECT 1 FROM entry_actions WHERE id = ?".to_owned());

static RECORD: Statement = Statement::new(|_, _| {
    "INSERT INTO entry_actions (id, entry, origin, namespace, scope, idempotency_key, route, attempt, unknown_since, \
     outcome, status, actor, authority, reason, acted_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        .to_owned()
});

/// Carries `orders` out, and tells of each, by its index, whether it was.
pub(super) async fn settle(store: &Store, orders: &[Order]) -> Result<Vec<Guarded>, StoreError> {
    let mut transaction = store.begin().await?;
    let work = within(store.statement_timeout, settle_in(&mut transaction, orders)).await;
    transaction.end(work).await
}

/// In the order of their ids, like everybody who locks entries.
async fn settle_in(transaction: &mut Transaction<'_>, orders: &[Order]) -> sqlx::Result<Vec<Guarded>> {
    let mut told = vec![Guarded::Fenced; orders.len()];
    let indexed: Vec<_> = orders.iter().enumerate().collect();
    for (index, order) in rows::sorted(&indexed, |(_, order)| order.entry.id) {
        told[*index] = settle_one(transaction, order).await?;
    }
    Ok(told)
}

/// Where nothing was hit, the record tells whether that is because it was done before: a row that is gone, or completed,
/// may be somebody else's doing. Looked at last, since the first application may have been committing until just now.
async fn settle_one(transaction: &mut Transaction<'_>, order: &Order) -> sqlx::Result<Guarded> {
    let (now, limit, sealer) = (transaction.now, transaction.statement_limit, transaction.sealer);
    let mut conn = transaction.conn();
    let (id, nonce) = (order.entry.id, order.entry.nonce);
    let hit = match &order.to {
        Ending::Completed(to) => {
            let transition = Transition { id, nonce, from: FromState::Unknown, to: to.clone() };
            let hit = change::write(&mut conn, limit, now, &[Change::new(&transition, sealer)]).await?;
            if hit == 1 {
                emission::apply(&mut conn, sealer, limit, now, std::slice::from_ref(&transition), &[Guarded::Done])
                    .await?;
            }
            hit
        }
        Ending::NotExecuted => release::remove_settled(&mut conn, id, nonce).await?,
    };
    if hit != 1 {
        let recorded = conn.query(RECORDED.text(conn.dialect(), 1), &[(&order.id).into()]).await?;
        return Ok(if recorded.is_empty() { Guarded::Fenced } else { Guarded::Done });
    }
    record(&mut conn, order, now.0).await?;
    Ok(Guarded::Done)
}

async fn record(conn: &mut Conn<'_>, order: &Order, now: i64) -> sqlx::Result<()> {
    let Order { id, entry, to, actor, reason } = order;
    let (outcome, status) = match to {
        Ending::Completed(To::Completed { answer: Answer::Response(response), .. }) => {
            ("completed", Some(response.status.as_u16()))
        }
        Ending::Completed(To::Completed { answer: Answer::StatusOnly(status), .. }) => ("completed", Some(*status)),
        Ending::Completed(To::InProgress { .. } | To::Unknown { .. }) => ("completed", None),
        Ending::NotExecuted => ("not_executed", None),
    };
    let (reason, name) = (clean(reason, MAX_REASON_BYTES), clean(&actor.name, MAX_ACTOR_BYTES));
    let values: [Value<'_>; 15] = [
        id.into(),
        (&entry.id.0).into(),
        (&entry.origin.0).into(),
        (&*entry.namespace).into(),
        (&*entry.scope).into(),
        (&*entry.key).into(),
        (&*entry.route).into(),
        i64::from(entry.attempt).into(),
        entry.changed_at.0.into(),
        outcome.into(),
        status.map(i64::from).into(),
        name.as_str().into(),
        (&*actor.authority).into(),
        reason.as_str().into(),
        now.into(),
    ];
    conn.execute(RECORD.text(conn.dialect(), 1), &values).await.map(drop)
}

/// As every database takes it: of a bounded length, and without NUL, which PostgreSQL's text can't hold.
fn clean(text: &str, longest: usize) -> String {
    text[..text.floor_char_boundary(longest)].replace('\0', "\u{fffd}")
}
