//! The table of gateway processes, and on SQLite their lock files.

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::Store;
use super::error::classify;
use super::text::Statement;
use super::transaction::{Transaction, within};
use crate::clock::{Timestamp, millis};
use crate::engine::instances::{Instances, Peer, Renewed};
use crate::engine::ledger::StoreError;
use crate::entry::InstanceId;

static REGISTER: Statement = Statement::new(|dialect, _| {
    let now = dialect.now();
    format!(
        "INSERT INTO instances (id, name, renewals, state, started_at, renewed_at) VALUES (?, ?, 0, 1, {now}, {now})"
    )
});

static RENEW: Statement = Statement::new(|dialect, _| {
    let now = dialect.now();
    format!("UPDATE instances SET renewals = renewals + 1, renewed_at = {now} WHERE id = ? AND state = 1")
});

static ALIVE: Statement =
    Statement::new(|_, _| "SELECT i.id, i.renewals FROM instances AS i WHERE i.state = 1 AND i.id <> ?".to_owned());

static EXPIRE: Statement = Statement::new(|dialect, _| {
    let now = dialect.now();
    format!("UPDATE instances SET state = 2, ended_at = {now} WHERE id = ? AND state = 1 AND renewals = ?")
});

static RETIRE: Statement = Statement::new(|dialect, _| {
    let now = dialect.now();
    format!("UPDATE instances SET state = 2, ended_at = {now} WHERE id = ? AND state = 1")
});

static LONG_ENDED: Statement = Statement::new(|dialect, _| {
    let now = dialect.now();
    format!("SELECT i.id FROM instances AS i WHERE i.state = 2 AND i.ended_at <= {now} - ?")
});

/// An entry in progress keeps its instance, so that a person can see whose it was.
static FORGET: Statement = Statement::new(|_, _| {
    "DELETE FROM instances WHERE id = ? AND state = 2 \
     AND NOT EXISTS (SELECT 1 FROM entries AS e WHERE e.state = 1 AND e.instance = instances.id)"
        .to_owned()
});

/// On SQLite an instance is alive as long as its process holds its lock file, whatever its counter says: a
/// machine that was suspended expires nobody, and a process that died is known at once.
impl Instances for Store {
    fn register<'a>(&'a self, id: InstanceId, name: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            if let Some(locks) = &self.locks {
                locks.hold(id).map_err(|error| unavailable(&error))?;
            }
            self.execute(&REGISTER, &[(&id.0).into(), name.into()]).await.map(drop)
        })
    }

    fn renew(&self, id: InstanceId) -> BoxFuture<'_, Result<Renewed, StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin_lease().await?;
            let work = within(self.statement_timeout, renew_in(&mut transaction, id)).await;
            match transaction.end(work).await? {
                None => Ok(Renewed::Expired),
                Some((now, peers)) => Ok(Renewed::Alive { now, peers: self.with_deaths(peers)? }),
            }
        })
    }

    fn expire(&self, peer: Peer) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            if !self.may_expire(peer.id)? {
                return Ok(false);
            }
            Ok(self.execute(&EXPIRE, &[(&peer.id.0).into(), peer.renewals.into()]).await? == 1)
        })
    }

    fn retire(&self, id: InstanceId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.execute(&RETIRE, &[(&id.0).into()]).await?;
            if let Some(locks) = &self.locks {
                locks.let_go(id);
            }
            Ok(())
        })
    }

    fn forget(&self, age: Duration) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(async move {
            let ended = self.query(&LONG_ENDED, &[millis(age).into()]).await?;
            let mut forgotten = 0;
            for row in &ended {
                let id = InstanceId(row.array(0).map_err(|error| classify(&error))?);
                if self.execute(&FORGET, &[(&id.0).into()]).await? == 0 {
                    continue;
                }
                forgotten += 1;
                if let Some(locks) = &self.locks {
                    locks.remove(id).map_err(|error| unavailable(&error))?;
                }
            }
            Ok(forgotten)
        })
    }
}

impl Store {
    /// `peers` with what their lock files say, where there are any.
    fn with_deaths(&self, mut peers: Vec<Peer>) -> Result<Vec<Peer>, StoreError> {
        if let Some(locks) = &self.locks {
            for peer in &mut peers {
                peer.dead = locks.is_free(peer.id).map_err(|error| unavailable(&error))?;
            }
        }
        Ok(peers)
    }

    fn may_expire(&self, id: InstanceId) -> Result<bool, StoreError> {
        match &self.locks {
            None => Ok(true),
            Some(locks) => locks.is_free(id).map_err(|error| unavailable(&error)),
        }
    }
}

/// The time and everybody else alive, or `None` for an instance that is not.
async fn renew_in(transaction: &mut Transaction<'_>, id: InstanceId) -> sqlx::Result<Option<(Timestamp, Vec<Peer>)>> {
    let now = transaction.now;
    let mut conn = transaction.conn();
    let dialect = conn.dialect();
    if conn.execute(RENEW.text(dialect, 1), &[(&id.0).into()]).await? == 0 {
        return Ok(None);
    }
    let mut peers = Vec::new();
    for row in conn.query(ALIVE.text(dialect, 1), &[(&id.0).into()]).await? {
        peers.push(Peer { id: InstanceId(row.array(0)?), renewals: row.int(1)?, dead: false });
    }
    Ok(Some((now, peers)))
}

fn unavailable(error: &std::io::Error) -> StoreError {
    StoreError::Unavailable(format!("lock file: {error}"))
}
