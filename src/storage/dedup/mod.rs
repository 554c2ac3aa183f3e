//! The inbox's rows, written inside a caller's transaction.
//!
//! A call is a few statements, whatever the number of its messages:
//!
//! 1. Insert a row for each message whose id has none. Another transaction's uncommitted row is waited for, for a
//!    bounded time. Where every row was new, nothing is read.
//! 2. Read the rows, and know one's own by the call's nonce.
//! 3. For messages with a version: insert or lock their entities' rows, and read them.
//! 4. Decide, in the order of the messages. Only a first message leaves anything behind: the rows of others are
//!    removed again, and versions advance.
//!
//! Rows are written in the order of their ids, so that two calls can't wait for each other in a circle.

mod attempts;
mod held;
mod reap;
mod records;
mod versions;
mod wait;

use std::collections::HashMap;
use std::time::Duration;

use self::records::Records;
use self::versions::Versions;
use self::wait::Wait;
use super::conn::Conn;
use super::error::classify;
use super::transaction::TxConnection;
use crate::engine::ledger::StoreError;
use crate::entry::{EntryId, Namespace};
use crate::inbox::message::Message;
use crate::inbox::verdict::{Recorded, Verdict, by_record};

pub(crate) use attempts::end_attempts;
pub(super) use held::{are_held, commit_holding};

/// What a message was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) verdict: Verdict,
    /// Whether it was known under another id than the one it has now.
    pub(crate) is_under_new_id: bool,
}

/// A message of a call.
struct Item<'m> {
    message: &'m Message,
    id: EntryId,
    entity: Option<EntryId>,
    /// The place of the first one in the call that has its id; its own, mostly.
    first: usize,
}

/// Records `messages` of `consumer` in the transaction that the caller has open on `conn`, in their order, under
/// `nonce`. Waits for somebody else's uncommitted row at most for `wait` on PostgreSQL, and as long as the session
/// says on the others.
///
/// # Errors
/// If the database can't be asked, or the wait is over. On PostgreSQL the transaction can then only roll back.
pub(crate) async fn begin_on(
    conn: &mut impl TxConnection,
    consumer: &Namespace,
    messages: &[Message],
    nonce: i64,
    wait: Duration,
) -> Result<Vec<Told>, StoreError> {
    let items = items(consumer, messages);
    begin(&mut conn.as_conn(), consumer, &items, nonce, wait).await.map_err(|error| classify(&error))
}

fn items<'m>(consumer: &Namespace, messages: &'m [Message]) -> Vec<Item<'m>> {
    let mut places = HashMap::with_capacity(messages.len());
    let item = |(place, message): (usize, &'m Message)| {
        let id = message.record_id(consumer);
        let entity = message.version.as_ref().map(|version| version.entity_id(consumer));
        Item { message, id, entity, first: *places.entry(id).or_insert(place) }
    };
    messages.iter().enumerate().map(item).collect()
}

async fn begin(
    conn: &mut Conn<'_>,
    consumer: &Namespace,
    items: &[Item<'_>],
    nonce: i64,
    wait: Duration,
) -> sqlx::Result<Vec<Told>> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let mut wait = Wait::new(wait, items.iter().any(|item| item.entity.is_some()));
    let firsts: Vec<_> =
        items.iter().enumerate().filter(|(place, item)| item.first == *place).map(|(_, i)| i).collect();
    let records = Records::write(conn, consumer, &firsts, nonce, &mut wait).await?;
    let new: Vec<_> = firsts.iter().copied().filter(|item| records.other(item.id).is_none()).collect();
    let mut versions = Versions::lock(conn, consumer, &new, nonce).await?;

    let told = decide(items, &records, &mut versions);
    let is_withdrawn = |item: &&&Item<'_>| !matches!(told[item.first].verdict, Verdict::First { .. });
    let withdrawn: Vec<_> = new.iter().filter(is_withdrawn).map(|item| item.id).collect();
    records::remove(conn, &withdrawn, nonce).await?;
    versions.write(conn).await?;
    wait.end(conn).await?;
    Ok(told)
}

fn decide(items: &[Item<'_>], records: &Records, versions: &mut Versions) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        let digest = item.message.digest;
        let one = match records.other(item.id) {
            Some(other) => {
                let is_under_new_id = other.is_under_new_id(item.message);
                Told { verdict: by_record(digest, Recorded { digest: other.digest }), is_under_new_id }
            }
            None if item.first < place => {
                let same = by_record(digest, Recorded { digest: items[item.first].message.digest });
                Told { verdict: again(told[item.first].verdict, same), is_under_new_id: false }
            }
            None => Told { verdict: versions.decide(item), is_under_new_id: false },
        };
        told.push(one);
    }
    told
}

/// What a second message of a key is in one call, by what the first one was.
fn again(first: Verdict, compared: Verdict) -> Verdict {
    match (compared, first) {
        (Verdict::Conflict, _) => Verdict::Conflict,
        (_, Verdict::First { .. }) => Verdict::Duplicate,
        (_, first @ (Verdict::Duplicate | Verdict::Stale { .. } | Verdict::Conflict)) => first,
    }
}
