//! Claims: new rows in progress.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::rows;
use crate::clock::Timestamp;
use crate::engine::ledger::{Claim, Claimed};
use crate::entry::fingerprint::ENCODED_LEN;
use crate::entry::{Entry, EntryId, Identity, InstanceId, MAX_KEY_BYTES, State};
use crate::sealer::{Place, Sealer, What};
use crate::storage::bounds::{bounded, check_size};
use crate::storage::conn::{Conn, is_unopened};
use crate::storage::dialect::{Dialect, MAX_ROWS};
use crate::storage::text::Statement;
use crate::storage::value::{Column, Value};

/// Longest route name in bytes, and the columns' bounds on MySQL.
const MAX_ROUTE_BYTES: usize = 255;
const MAX_NAMESPACE_BYTES: usize = 100;
const MAX_SCOPE_BYTES: usize = 600;

pub(super) const COLUMNS: [Column; 10] = [
    Column::bytes("v_id"),
    Column::text("v_namespace"),
    Column::text("v_scope"),
    Column::text("v_key"),
    Column::text("v_route"),
    Column::bytes("v_nonce"),
    Column::bytes("v_instance"),
    Column::bytes("v_fingerprint"),
    Column::bytes("v_context"),
    Column::now("v_now"),
];

/// The claiming instance's lease is checked in the same statement. An expiry that commits meanwhile is not
/// waited for: the row is then one more orphan for the next sweep, and the process checks its lease before
/// it sends.
static CLAIM: Statement = Statement::new(text);

/// The statement that makes `size` claims.
pub(super) fn text(dialect: Dialect, size: usize) -> String {
    dialect.insert_new(
        &COLUMNS,
        size,
        "entries (id, namespace, scope, idempotency_key, route, state, nonce, origin, attempt, instance, \
         fingerprint, context, lookups, created_at, started_at, changed_at, due_at)",
        "v.v_id, v.v_namespace, v.v_scope, v.v_key, v.v_route, 1, v.v_nonce, v.v_nonce, 1, v.v_instance, \
         v.v_fingerprint, v.v_context, 0, v.v_now, v.v_now, v.v_now, v.v_now",
        "EXISTS (SELECT 1 FROM instances AS i WHERE i.id = v.v_instance AND i.state = 1)",
    )
}

static ALIVE: Statement = Statement::new(|dialect, size| {
    format!("SELECT i.id FROM instances AS i WHERE i.state = 1 AND i.id{}", dialect.among(size))
});

/// Writes `claims` and tells what became of each. After the commit, a row in progress that carries a claim's
/// nonce is that claim's. Where every row is new, nothing has to be read.
pub(super) async fn apply(
    conn: &mut Conn<'_>,
    sealer: &Sealer,
    limit: usize,
    now: Timestamp,
    claims: &[Claim],
) -> sqlx::Result<Vec<Claimed>> {
    let new = write(conn, sealer, limit, now, claims).await?;
    told(conn, sealer, claims, new).await
}

/// Tells what became of each of `claims`, of which `new` were written.
pub(super) async fn told(
    conn: &mut Conn<'_>,
    sealer: &Sealer,
    claims: &[Claim],
    new: u64,
) -> sqlx::Result<Vec<Claimed>> {
    if new == claims.len() as u64 {
        return Ok(claims.iter().map(|_| Claimed::Won).collect());
    }
    let mut found = rows::read(conn, sealer, claims.iter().map(|claim| claim.id)).await?;
    let absent = claims.iter().filter(|claim| !found.contains_key(&claim.id));
    let alive = alive(conn, absent.map(|claim| claim.instance).collect()).await?;
    Ok(claims.iter().map(|claim| decide(claim, &mut found, &alive)).collect())
}

async fn write(
    conn: &mut Conn<'_>,
    sealer: &Sealer,
    limit: usize,
    now: Timestamp,
    claims: &[Claim],
) -> sqlx::Result<u64> {
    let mut new = 0;
    for chunk in NewClaim::sorted(claims, sealer).chunks(MAX_ROWS) {
        let values = values(conn.dialect(), Some(now), chunk)?;
        check_size(&values, limit)?;
        new += conn.execute(CLAIM.text(conn.dialect(), chunk.len()), &values).await?;
    }
    Ok(new)
}

/// A claim with what its row says in another form.
pub(super) struct NewClaim<'a> {
    claim: &'a Claim,
    scope: String,
    fingerprint: [u8; ENCODED_LEN],
    context: Option<Cow<'a, [u8]>>,
}

impl<'a> NewClaim<'a> {
    /// Those of `claims`, in the order of their ids.
    pub(super) fn sorted(claims: &'a [Claim], sealer: &Sealer) -> Vec<Self> {
        let row = |claim: &'a Claim| Self {
            claim,
            scope: claim.identity.scope.to_string(),
            fingerprint: claim.fingerprint.encode(),
            context: claim.context.as_ref().map(|context| sealer.seal(Place::new(What::Context, &claim.id.0), context)),
        };
        rows::sorted(claims, |claim| claim.id).into_iter().map(row).collect()
    }

    fn values(&self, now: Option<Timestamp>) -> sqlx::Result<[Value<'_>; 10]> {
        let claim = self.claim;
        let Identity { namespace, key, .. } = &claim.identity;
        Ok([
            (&claim.id.0).into(),
            bounded("namespace", namespace.as_str(), MAX_NAMESPACE_BYTES)?.into(),
            bounded("scope", &self.scope, MAX_SCOPE_BYTES)?.into(),
            bounded("key", key.as_str(), MAX_KEY_BYTES)?.into(),
            bounded("route", &claim.route, MAX_ROUTE_BYTES)?.into(),
            (&claim.nonce.0).into(),
            (&claim.instance.0).into(),
            (&self.fingerprint).into(),
            self.context.as_deref().into(),
            now.map(|now| now.0).into(),
        ])
    }
}

/// The values of [`text`] for `claims`.
pub(super) fn values<'a>(
    dialect: Dialect,
    now: Option<Timestamp>,
    claims: &'a [NewClaim<'_>],
) -> sqlx::Result<Vec<Value<'a>>> {
    let rows = claims.iter().map(|row| row.values(now)).collect::<sqlx::Result<Vec<_>>>()?;
    Ok(dialect.bind_rows(&rows))
}

type Found = HashMap<EntryId, sqlx::Result<Entry>>;

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
fn decide(claim: &Claim, found: &mut Found, alive: &HashSet<InstanceId>) -> Claimed {
    match found.remove(&claim.id) {
        Some(Ok(entry)) if entry.nonce == claim.nonce && matches!(entry.state, State::InProgress { .. }) => {
            Claimed::Won
        }
        Some(Ok(entry)) => Claimed::Existing(Box::new(entry)),
        Some(Err(error)) if is_unopened(&error) => {
            tracing::error!(entry = ?claim.id, %error, "a stored answer can't be opened: its key is refused");
            Claimed::Sealed
        }
        Some(Err(error)) => {
            tracing::error!(entry = ?claim.id, %error, "an entry can't be read: its key is refused");
            Claimed::Unreadable
        }
        None if alive.contains(&claim.instance) => Claimed::Vanished,
        None => Claimed::NotAlive,
    }
}
