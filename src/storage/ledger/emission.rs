//! Events on their way into the outbox: written in the transaction that completes their entries.

use crate::clock::Timestamp;
use crate::engine::ledger::{Guarded, To, Transition};
use crate::outbox::event::NewEvent;
use crate::sealer::Sealer;
use crate::storage::conn::Conn;
use crate::storage::events::{self, NewRow};
use crate::storage::text::Statement;

/// Selected under the rows that this transaction has completed: a completion that was fenced out announces
/// nothing. An event that is there already is the same one, from the same batch applied before.
static EMIT: Statement = Statement::new(|dialect, size| {
    let completed =
        "EXISTS (SELECT 1 FROM entries AS e WHERE e.id = v.v_entry AND e.nonce = v.v_guard AND e.state = 3)";
    events::insert(dialect, size, completed)
});

/// Writes the events of those `transitions` that are `guarded` as done, in their order. Each is there afterwards,
/// or nothing of the transaction is.
pub(super) async fn apply(
    conn: &mut Conn<'_>,
    sealer: &Sealer,
    limit: usize,
    now: Timestamp,
    transitions: &[Transition],
    guarded: &[Guarded],
) -> sqlx::Result<()> {
    let done = transitions.iter().zip(guarded).filter(|(_, guarded)| **guarded == Guarded::Done);
    let announced = announced(done.map(|(transition, _)| transition), sealer)?;
    let new = events::write(conn, limit, now, &EMIT, &announced).await?;
    if new < announced.len() as u64 {
        events::demand(conn, announced.iter().map(|row| row.event.event.id)).await?;
    }
    Ok(())
}

/// What `transitions` announce, in their order.
pub(super) fn announced<'a>(
    transitions: impl IntoIterator<Item = &'a Transition>,
    sealer: &Sealer,
) -> sqlx::Result<Vec<NewRow<'a>>> {
    let of = |transition: &'a Transition| {
        let (nonce, events): (_, &[NewEvent]) = match &transition.to {
            To::Completed { nonce, events, .. } => (nonce, events),
            To::InProgress { .. } | To::Unknown { .. } => (&transition.nonce, &[]),
        };
        events.iter().map(move |event| NewRow::new(&transition.id, &nonce.0, event, sealer))
    };
    transitions.into_iter().flat_map(of).collect()
}
