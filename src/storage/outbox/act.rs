//! What people do: lists, single events, and guarded changes under the lanes' lock.

use std::collections::BTreeSet;

use super::choose::Chooser;
use super::listed::{self, states, stored_state};
use super::{fetch, lanes, line, rows, stored};
use crate::clock::{Timestamp, millis};
use crate::engine::desk::Actor;
use crate::inbox::store::attribute;
use crate::outbox::desk::{Acted, Action, Listed, MAX_LISTED, Mode, Order, State, Which};
use crate::outbox::event::EventId;
use crate::outbox::store::{Lane, Late, Suspects};
use crate::storage::conn::{Conn, Row};
use crate::storage::text::Statement;
use crate::storage::transaction::Transaction;
use crate::storage::value::{Column, Value};

/// Through the index by state, as the lists of [`listed`].
static OLDEST: Statement = Statement::new(|dialect, _| {
    let (filter, index) = (listed::filter(dialect), dialect.by_index("events_by_state"));
    format!("SELECT e.position, e.queue FROM events AS e{index} WHERE {filter} ORDER BY e.position + 0 LIMIT ?")
});

static BY_ID: Statement = Statement::new(|dialect, size| {
    format!("SELECT e.position, e.queue FROM events AS e WHERE e.id{}", dialect.among(size))
});

static READ: Statement = Statement::new(|dialect, size| {
    let (columns, among) = (listed::COLUMNS, dialect.among_ints(size));
    format!("SELECT {columns} FROM events AS e WHERE e.position{among}")
});

const COLUMNS: [Column; 7] = [
    Column::int("v_position"),
    Column::int("v_from"),
    Column::int("v_to"),
    Column::int("v_due_at"),
    // Whether attempts begin anew.
    Column::int("v_anew"),
    Column::text("v_reason"),
    Column::int("v_now"),
];

static CHANGE: Statement = Statement::new(|dialect, size| {
    dialect.update_of(
        "events AS e",
        "e.position = v.v_position",
        &COLUMNS,
        size,
        "attempts = CASE WHEN v.v_anew = 1 THEN 0 ELSE e.attempts END, \
         deaths = CASE WHEN v.v_anew = 1 THEN 0 ELSE e.deaths END, \
         deferrals = CASE WHEN v.v_anew = 1 THEN 0 ELSE e.deferrals END, \
         result = CASE WHEN v.v_anew = 1 THEN NULL ELSE e.result END, \
         due_at = v.v_due_at, reason = v.v_reason, changed_at = v.v_now, state = v.v_to",
        "e.state + 0 = v.v_from AND e.epoch IS NULL",
    )
});

const RECORD: [Column; 7] = [
    Column::int("v_position"),
    Column::text("v_action"),
    Column::int("v_from"),
    Column::text("v_reason"),
    Column::int("v_now"),
    Column::text("v_actor"),
    Column::text("v_authority"),
];

static PUT_ON_RECORD: Statement = Statement::new(|dialect, size| {
    let ids = "(SELECT e.id FROM events AS e WHERE e.position = v.v_position)";
    dialect.insert_new(
        &RECORD,
        size,
        "event_actions (event, action, state, reason, acted_at, actor, authority)",
        &format!("{ids}, v.v_action, v.v_from, v.v_reason, v.v_now, v.v_actor, v.v_authority"),
        "v.v_position > 0",
    )
});

/// Locks the queues' lanes first and reads then: what is true stays true until the commit, so that of two who
/// order the same, one changes and the other finds it changed.
pub(super) async fn act(transaction: &mut Transaction<'_>, order: &Order, by: Option<&Actor>) -> sqlx::Result<Acted> {
    let (now, sealer) = (transaction.now, transaction.sealer);
    let mut conn = transaction.conn();
    let found = find(&mut conn, &order.to).await?;
    let queues: BTreeSet<&str> = found.iter().map(|(_, queue)| queue.as_str()).collect();
    for queue in &queues {
        lanes::lock_queue(&mut conn, queue).await?;
    }
    let positions = rows::positions(found.iter().map(|(position, _)| *position));
    let mut acted = Acted::default();
    let found = rows::query(&mut conn, &READ, &[], &positions).await?;
    let mut read: Vec<Listed> = found.iter().map(|row| listed::read(row, sealer)).collect::<sqlx::Result<_>>()?;
    read.sort_unstable_by_key(|event| event.position);
    read.dedup_by_key(|event| event.position);
    for event in read {
        let is_for = order.action.is_for(event.state) && event.in_hand.is_none();
        match is_for && is_meant(&order.to, event.state) {
            true => acted.changed.push(event),
            false => acted.left.push(event),
        }
    }
    if order.mode == Mode::Carry {
        carry(&mut conn, now, order, by, &acted.changed).await?;
        for queue in queues {
            let changed = acted.changed.iter().filter(|event| *event.queue == *queue);
            free(&mut conn, queue, now, changed.map(|event| event.position).collect()).await?;
        }
    }
    Ok(acted)
}

/// Whether an order still is about an event that has come to be in `state`.
fn is_meant(to: &Which, state: State) -> bool {
    match to {
        Which::Ids(_) => true,
        Which::All { filter, .. } => states(filter).contains(&state),
    }
}

async fn find(conn: &mut Conn<'_>, to: &Which) -> sqlx::Result<Vec<(i64, String)>> {
    let read = |row: &Row| -> sqlx::Result<(i64, String)> {
        Ok((row.int(0)?, String::from_utf8_lossy(&row.bytes(1)?).into_owned()))
    };
    let mut found = Vec::new();
    match to {
        Which::Ids(ids) => {
            let ids: Vec<_> = ids.iter().take(MAX_LISTED as usize).map(|EventId(id)| [id.into()]).collect();
            for row in rows::query(conn, &BY_ID, &[], &ids).await? {
                found.push(read(&row)?);
            }
        }
        Which::All { filter, limit } => {
            let (limit, said) = ((*limit).min(MAX_LISTED), listed::key_said(filter));
            for state in states(filter) {
                let mut values = listed::filter_values(state, filter, said.as_deref());
                values.push(i64::from(limit).into());
                for row in conn.query(OLDEST.text(conn.dialect(), 1), &values).await? {
                    found.push(read(&row)?);
                }
            }
            found.sort_unstable();
            found.truncate(limit as usize);
        }
    }
    Ok(found)
}

/// A version of an entity that ended before others came must not pass one that stops its key now, though that one is
/// behind it: its outcome may be unknown, and then nobody can tell yet that this one is stale.
fn waits_for_its_key(event: &Listed) -> bool {
    event.state != State::Retrying && event.attributes.contains_key(attribute::VERSION)
}

async fn carry(
    conn: &mut Conn<'_>,
    now: Timestamp,
    order: &Order,
    by: Option<&Actor>,
    events: &[Listed],
) -> sqlx::Result<()> {
    let reason = rows::clean(&order.reason);
    let actor = by.map(|by| rows::clean(&by.name));
    let anew = i64::from(order.action == Action::Retry);
    let change = |event: &Listed| {
        let from = stored_state(event.state);
        let (to, due_at, kept) = match order.action {
            Action::Retry if waits_for_its_key(event) => (stored::EARLY, Some(now.0), None),
            Action::Retry => (stored::READY, None, None),
            Action::Discard { keep } => {
                (stored::DISCARDED, Some(now.0.saturating_add(millis(keep))), Some(reason.as_str()))
            }
        };
        [event.position.into(), from.into(), to.into(), due_at.into(), anew.into(), Value::Text(kept), now.0.into()]
    };
    let record = |event: &Listed| {
        let (action, from) = (order.action.as_str(), stored_state(event.state));
        let (actor, authority) = (Value::Text(actor.as_deref()), Value::Text(by.map(|by| &*by.authority)));
        let reason = reason.as_str().into();
        [event.position.into(), action.into(), from.into(), reason, now.0.into(), actor, authority]
    };
    rows::execute(conn, &CHANGE, &events.iter().map(change).collect::<Vec<_>>(), &[]).await?;
    // One at a time: a row that is repeated as padding would be put on record twice.
    for event in events {
        rows::execute(conn, &PUT_ON_RECORD, &[record(event)], &[]).await?;
    }
    Ok(())
}

/// Lets go who waited behind what was discarded. A later turn of the relay finds the first of each line.
async fn free(conn: &mut Conn<'_>, queue: &str, now: Timestamp, positions: Vec<i64>) -> sqlx::Result<()> {
    let keys = line::leave(conn, positions).await?;
    let mut chooser = Chooser::new(&[], 0, Suspects::Leave, Late::Goes);
    for (number, line) in fetch::lines(conn, queue, &keys, 1).await? {
        chooser.line(Lane { number, epoch: 0 }, &line);
    }
    line::write(conn, now, &chooser.done()).await
}
