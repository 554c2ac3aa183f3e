//! Claims: new rows in progress.

use std::collections::{HashMap, HashSet};

use super::rows;
use crate::clock::Timestamp;
use crate::engine::ledger::{Claim, Claimed};
use crate::entry::{Entry, EntryId, Identity, InstanceId, MAX_KEY_BYTES, State};
use crate::storage::conn::Conn;
use crate::storage::dialect::MAX_ROWS;
use crate::storage::text::Statement;
use crate::storage::value::{Column, Value};

/// Longest route name in bytes, and the columns' bounds on MySQL.
const MAX_ROUTE_BYTES: usize = 255;
const MAX_NAMESPACE_BYTES: usize = 100;
const MAX_SCOPE_BYTES: usize = 300;

const COLUMNS: [Column; 10] = [
    Column::bytes("v_id"),
    Column::text("v_namespace"),
    Column::text("v_scope"),
    Column::text("v_key"),
    Column::text("v_route"),
    Column::bytes("v_nonce"),
    Column::bytes("v_instance"),
    Column::bytes("v_fingerprint"),
    Column::bytes("v_context"),
    Column::int("v_now"),
];

/// The claiming instance's lease is checked in the same statement. An expiry that commits meanwhile is not
/// waited for: the row is then one more orphan for the next sweep, and the process checks its lease before
/// it sends.
static CLAIM: Statement = Statement::new(|dialect, size| {
    dialect.insert_new(
        &COLUMNS,
        size,
        "entries (id, namespace, scope, idempotency_key, route, state, nonce, origin, attempt, instance, \
         fingerprint, context, lookups, created_at, started_at, changed_at, due_at)",
        "v.v_id, v.v_namespace, v.v_scope, v.v_key, v.v_route, 1, v.v_nonce, v.v_nonce, 1, v.v_instance, \
         v.v_fingerprint, v.v_context, 0, v.v_now, v.v_now, v.v_now, v.v_now",
        "EXISTS (SELECT 1 FROM instances AS i WHERE i.id = v.v_instance AND i.state = 1)",
    )
});

static ALIVE: Statement = Statement::new(|dialect, size| {
    format!("SELECT i.id FROM instances AS i WHERE i.state = 1 AND i.id{}", dialect.among(size))
});

/// Writes `claims` and tells what became of each. After the commit, a row in progress that carries a claim's
/// nonce is that claim's. Where every row is new, nothing has to be read.
pub(super) async fn apply(
    conn: &mut Conn<'_>,
    limit: usize,
    now: Timestamp,
    claims: &[Claim],
) -> sqlx::Result<Vec<Claimed>> {
    if write(conn, limit, now, claims).await? == claims.len() as u64 {
        return Ok(claims.iter().map(|_| Claimed::Won).collect());
    }
    let mut found = rows::read(conn, claims.iter().map(|claim| claim.id)).await?;
    let absent = claims.iter().filter(|claim| !found.contains_key(&claim.id));
    let alive = alive(conn, absent.map(|claim| claim.instance).collect()).await?;
    Ok(claims.iter().map(|claim| decide(claim, &mut found, &alive)).collect())
}

async fn write(conn: &mut Conn<'_>, limit: usize, now: Timestamp, claims: &[Claim]) -> sqlx::Result<u64> {
    let mut new = 0;
    let scopes: Vec<_> = claims.iter().map(|claim| claim.identity.scope.to_string()).collect();
    let fingerprints: Vec<_> = claims.iter().map(|claim| claim.fingerprint.encode()).collect();
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_unstable_by_key(|&index| claims[index].id);
    for chunk in order.chunks(MAX_ROWS) {
        let mut rows = Vec::with_capacity(chunk.len());
        for &index in chunk {
            rows.push(row(&claims[index], &scopes[index], &fingerprints[index], now)?);
        }
        let values = conn.dialect().bind_rows(&rows);
        rows::check_size(&values, limit)?;
        new += conn.execute(CLAIM.text(conn.dialect(), rows.len()), &values).await?;
    }
    Ok(new)
}

fn row<'a>(claim: &'a Claim, scope: &'a str, fingerprint: &'a [u8], now: Timestamp) -> sqlx::Result<[Value<'a>; 10]> {
    let Identity { namespace, key, .. } = &claim.identity;
    Ok([
        (&claim.id.0).into(),
        bounded("namespace", namespace.as_str(), MAX_NAMESPACE_BYTES)?.into(),
        bounded("scope", scope, MAX_SCOPE_BYTES)?.into(),
        bounded("key", key.as_str(), MAX_KEY_BYTES)?.into(),
        bounded("route", &claim.route, MAX_ROUTE_BYTES)?.into(),
        (&claim.nonce.0).into(),
        (&claim.instance.0).into(),
        fingerprint.into(),
        claim.context.as_deref().into(),
        now.0.into(),
    ])
}

/// Lengths are checked here: on MySQL, an insert that ignores duplicates would also truncate.
fn bounded<'a>(what: &str, text: &'a str, limit: usize) -> sqlx::Result<&'a str> {
    if text.len() > limit {
        return Err(sqlx::Error::Encode(format!("the {what} has {} bytes, {limit} are kept", text.len()).into()));
    }
    Ok(text)
}

/// Which of `instances` are alive.
async fn alive(conn: &mut Conn<'_>, instances: HashSet<InstanceId>) -> sqlx::Result<HashSet<InstanceId>> {
    let instances: Vec<_> = instances.into_iter().collect();
    let mut alive = HashSet::new();
    for chunk in instances.chunks(MAX_ROWS) {
        let rows: Vec<_> = chunk.iter().map(|instance| [Value::from(&instance.0)]).collect();
        let values = conn.dialect().bind_rows(&rows);
        for row in conn.query(ALIVE.text(conn.dialect(), rows.len()), &values).await? {
            alive.insert(InstanceId(row.array(0)?));
        }
    }
    Ok(alive)
}

/// My nonce alone is not enough: a claim applied a second time may find that its instance has died since and
/// a rescuer has made the row Unknown, its nonce unchanged.
fn decide(claim: &Claim, found: &mut HashMap<EntryId, Entry>, alive: &HashSet<InstanceId>) -> Claimed {
    match found.remove(&claim.id) {
        Some(entry) if entry.nonce == claim.nonce && matches!(entry.state, State::InProgress { .. }) => Claimed::Won,
        Some(entry) => Claimed::Existing(Box::new(entry)),
        None if alive.contains(&claim.instance) => Claimed::Vanished,
        None => Claimed::NotAlive,
    }
}
