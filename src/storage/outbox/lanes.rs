//! Who holds which lanes.

use std::time::Duration;

use super::rows;
use crate::clock::Timestamp;
use crate::engine::ledger::StoreError;
use crate::outbox::store::{Lane, Leased, MAX_LANES, RelayId, Taking};
use crate::storage::Store;
use crate::storage::bounds::{MAX_QUEUE_BYTES, bounded};
use crate::storage::conn::{Conn, Row, unreadable};
use crate::storage::error::classify;
use crate::storage::text::Statement;
use crate::storage::transaction::Transaction;
use crate::storage::value::{Column, Value};

/// A relay's row is removed so long after its heartbeat has run out. Nobody counts it meanwhile.
const FORGET_RELAYS: Duration = Duration::from_secs(60);

const NEW_LANE: [Column; 3] = [Column::text("v_queue"), Column::int("v_lane"), Column::int("v_lanes")];

static MAKE: Statement = Statement::new(|dialect, size| {
    dialect.insert_new(
        &NEW_LANE,
        size,
        "lanes (queue, lane, lanes, owner, epoch, expires_at)",
        "v.v_queue, v.v_lane, v.v_lanes, NULL, 0, 0",
        "v.v_lane >= 0",
    )
});

static HOW_MANY: Statement =
    Statement::new(|_, _| "SELECT l.lanes FROM lanes AS l WHERE l.queue = ? AND l.lane = 0".to_owned());

static KNOWN: Statement =
    Statement::new(|_, _| "SELECT l.queue, l.lanes FROM lanes AS l WHERE l.lane = 0 ORDER BY l.queue".to_owned());

/// All of a queue's lanes: leases are taken one relay at a time, each seeing what the one before took.
static LOCK_ALL: Statement = Statement::new(|dialect, _| {
    let lock = dialect.for_update();
    format!("SELECT l.lane, l.owner, l.epoch, l.expires_at FROM lanes AS l WHERE l.queue = ? ORDER BY l.lane{lock}")
});

/// Some of a queue's lanes, and whether one of their keys is stopped.
static LOCK: Statement = Statement::new(|dialect, size| {
    let (lock, among) = (dialect.for_update(), dialect.among_ints(size));
    format!(
        "SELECT l.lane, l.owner, l.epoch, CASE WHEN EXISTS \
         (SELECT 1 FROM blocked AS b WHERE b.queue = l.queue AND b.lane = l.lane) THEN 1 ELSE 0 END \
         FROM lanes AS l WHERE l.queue = ? AND l.lane{among} ORDER BY l.lane{lock}"
    )
});

const HOLDING: [Column; 5] = [
    Column::text("v_queue"),
    Column::int("v_lane"),
    Column::bytes("v_owner"),
    Column::int("v_epoch"),
    Column::int("v_expires_at"),
];

static HOLD: Statement = Statement::new(|dialect, size| {
    let key = "l.queue = v.v_queue AND l.lane = v.v_lane";
    let set = "owner = v.v_owner, epoch = v.v_epoch, expires_at = v.v_expires_at";
    dialect.update_of("lanes AS l", key, &HOLDING, size, set, "l.epoch <= v.v_epoch")
});

static LET_GO: Statement = Statement::new(|dialect, size| {
    let key = "l.queue = v.v_queue AND l.lane = v.v_lane";
    let set = "owner = NULL, expires_at = v.v_expires_at";
    let guard = "l.owner = v.v_owner AND l.epoch = v.v_epoch";
    dialect.update_of("lanes AS l", key, &HOLDING, size, set, guard)
});

static RELAYS: Statement =
    Statement::new(|_, _| "SELECT r.id, r.expires_at FROM relays AS r WHERE r.queue = ?".to_owned());

/// The trouble's beginning stays while there is any, whatever it is.
static BEAT: Statement = Statement::new(|_, _| {
    "UPDATE relays SET expires_at = ?, troubled_at = CASE WHEN ? = 0 THEN NULL ELSE COALESCE(troubled_at, ?) END, \
     trouble = ? WHERE id = ?"
        .to_owned()
});

static ENLIST: Statement = Statement::new(|_, _| {
    "INSERT INTO relays (id, queue, expires_at, troubled_at, trouble) VALUES (?, ?, ?, ?, ?)".to_owned()
});

static STRIKE: Statement = Statement::new(|_, _| "DELETE FROM relays WHERE id = ?".to_owned());

/// A lane's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    number: u32,
    owner: Option<RelayId>,
    epoch: i64,
    expires_at: i64,
}

/// Makes the queue's lanes, where nobody has, and says how many there are. One transaction makes all, so where there is
/// one there are all, and nothing is inserted: that would wait for whoever is renewing his lease, however long he takes.
pub(super) async fn make(conn: &mut Conn<'_>, queue: &str, wanted: u32) -> sqlx::Result<u32> {
    let queue = bounded("queue's name", queue, MAX_QUEUE_BYTES)?;
    let there = how_many(conn, queue).await?;
    if there > 0 {
        return Ok(there);
    }
    let wanted = i64::from(wanted.clamp(1, MAX_LANES));
    let row = |lane: i64, lanes: i64| [queue.into(), lane.into(), lanes.into()];
    rows::execute(conn, &MAKE, &[row(0, wanted)], &[]).await?;
    let lanes = how_many(conn, queue).await?;
    let others: Vec<[Value<'_>; 3]> = (1..i64::from(lanes)).map(|lane| row(lane, i64::from(lanes))).collect();
    rows::execute(conn, &MAKE, &others, &[]).await?;
    Ok(lanes)
}

/// How many lanes the queue has: as its first one says, whoever made it.
pub(super) async fn how_many(conn: &mut Conn<'_>, queue: &str) -> sqlx::Result<u32> {
    let rows = conn.query(HOW_MANY.text(conn.dialect(), 1), &[queue.into()]).await?;
    Ok(rows.first().map(|row| row.int(0)).transpose()?.map_or(0, rows::count))
}

impl Store {
    /// The queues that were ever opened, and how many lanes each has. Subscriptions have queues of their own.
    ///
    /// # Errors
    /// If the database can't be asked.
    pub async fn known_queues(&self) -> Result<Vec<(Box<str>, u32)>, StoreError> {
        let rows = self.query(&KNOWN, &[]).await?;
        let known = rows.iter().map(|row| Ok((row.text(0)?.into(), rows::count(row.int(1)?))));
        known.collect::<sqlx::Result<_>>().map_err(|error| classify(&error))
    }
}

pub(super) async fn lease(
    transaction: &mut Transaction<'_>,
    queue: &str,
    relay: RelayId,
    lease: Duration,
    taking: Taking,
    trouble: Option<&str>,
) -> sqlx::Result<Leased> {
    let now = transaction.now;
    let mut conn = transaction.conn();
    let lanes = lock_all(&mut conn, queue).await?;
    match taking {
        Taking::Share => beat(&mut conn, queue, relay, (now, lease), trouble).await?,
        Taking::Nothing => strike(&mut conn, relay).await?,
    }
    let relays = count_relays(&mut conn, queue, now).await?;
    let share = share(lanes.len(), relays);
    let held = share_out(&lanes, relay, now, if taking == Taking::Share { share } else { 0 });
    let expires_at = now.after(lease).0;
    let rows: Vec<_> = held.iter().map(|lane| holding(queue, lane, &relay, expires_at)).collect();
    rows::execute(&mut conn, &HOLD, &rows, &[]).await?;
    let lanes = u32::try_from(lanes.len()).unwrap_or(MAX_LANES);
    Ok(Leased { now, lanes, relays: u32::try_from(relays).unwrap_or(u32::MAX), share: rows::count(share as i64), held })
}

pub(super) async fn release(
    transaction: &mut Transaction<'_>,
    queue: &str,
    relay: RelayId,
    lanes: &[Lane],
) -> sqlx::Result<()> {
    let now = transaction.now;
    let mut lanes = lanes.to_vec();
    lanes.sort_unstable();
    let rows: Vec<_> = lanes.iter().map(|lane| holding(queue, lane, &relay, now.0)).collect();
    rows::execute(&mut transaction.conn(), &LET_GO, &rows, &[]).await.map(drop)
}

pub(super) async fn retire(transaction: &mut Transaction<'_>, queue: &str, relay: RelayId) -> sqlx::Result<()> {
    let now = transaction.now;
    let mut conn = transaction.conn();
    let lanes = lock_all(&mut conn, queue).await?;
    let own = share_out(&lanes, relay, now, 0);
    let rows: Vec<_> = own.iter().map(|lane| holding(queue, lane, &relay, now.0)).collect();
    rows::execute(&mut conn, &LET_GO, &rows, &[]).await?;
    strike(&mut conn, relay).await
}

/// The lanes among `wanted` that `relay` holds under these epochs, locked until the commit, each with whether
/// one of its keys is stopped.
pub(super) async fn lock(
    conn: &mut Conn<'_>,
    queue: &str,
    relay: RelayId,
    wanted: &[Lane],
) -> sqlx::Result<Vec<(Lane, bool)>> {
    let numbers: Vec<_> = wanted.iter().map(|lane| [i64::from(lane.number).into()]).collect();
    let mut held = Vec::new();
    for row in rows::query(conn, &LOCK, &[queue.into()], &numbers).await? {
        let lane = Lane { number: number(&row)?, epoch: row.int(2)? };
        if owner(&row)? == Some(relay) && wanted.contains(&lane) {
            held.push((lane, row.int(3)? != 0));
        }
    }
    Ok(held)
}

/// Locks all lanes of a queue: what people do to its events is done by one at a time, and in no relay's turn.
pub(super) async fn lock_queue(conn: &mut Conn<'_>, queue: &str) -> sqlx::Result<()> {
    lock_all(conn, queue).await.map(drop)
}

async fn lock_all(conn: &mut Conn<'_>, queue: &str) -> sqlx::Result<Vec<Held>> {
    let rows = conn.query(LOCK_ALL.text(conn.dialect(), 1), &[queue.into()]).await?;
    let read =
        |row: &Row| Ok(Held { number: number(row)?, owner: owner(row)?, epoch: row.int(2)?, expires_at: row.int(3)? });
    rows.iter().map(read).collect()
}

fn number(row: &Row) -> sqlx::Result<u32> {
    let number = row.int(0)?;
    u32::try_from(number).map_err(|_| unreadable(0, format!("a lane of number {number}")))
}

fn owner(row: &Row) -> sqlx::Result<Option<RelayId>> {
    row.maybe_bytes(1)?.is_some().then(|| row.array(1).map(RelayId)).transpose()
}

fn holding<'a>(queue: &'a str, lane: &Lane, owner: &'a RelayId, expires_at: i64) -> [Value<'a>; 5] {
    [queue.into(), i64::from(lane.number).into(), (&owner.0).into(), lane.epoch.into(), expires_at.into()]
}

async fn beat(
    conn: &mut Conn<'_>,
    queue: &str,
    relay: RelayId,
    (now, lease): (Timestamp, Duration),
    trouble: Option<&str>,
) -> sqlx::Result<()> {
    let dialect = conn.dialect();
    let (id, expires_at) = (Value::from(&relay.0), now.after(lease).0);
    let trouble = trouble.map(rows::clean);
    let (text, is_troubled) = (Value::Text(trouble.as_deref()), i64::from(trouble.is_some()));
    let values = [expires_at.into(), is_troubled.into(), now.0.into(), text.clone(), id.clone()];
    if conn.execute(BEAT.text(dialect, 1), &values).await? == 0 {
        let troubled_at = trouble.is_some().then_some(now.0);
        let values = [id, queue.into(), expires_at.into(), troubled_at.into(), text];
        conn.execute(ENLIST.text(dialect, 1), &values).await?;
    }
    Ok(())
}

async fn strike(conn: &mut Conn<'_>, relay: RelayId) -> sqlx::Result<()> {
    conn.execute(STRIKE.text(conn.dialect(), 1), &[(&relay.0).into()]).await.map(drop)
}

/// How many relays of the queue are alive. Under the lanes' lock, so nobody else counts or strikes meanwhile.
async fn count_relays(conn: &mut Conn<'_>, queue: &str, now: Timestamp) -> sqlx::Result<usize> {
    let dialect = conn.dialect();
    let mut alive = 0;
    for row in conn.query(RELAYS.text(dialect, 1), &[queue.into()]).await? {
        let expires_at = Timestamp(row.int(1)?);
        if expires_at > now {
            alive += 1;
        } else if now.since(expires_at) > FORGET_RELAYS {
            strike(conn, RelayId(row.array(0)?)).await?;
        }
    }
    Ok(alive)
}

/// Everybody's fair share, rounded up: together they take all.
fn share(lanes: usize, relays: usize) -> usize {
    lanes.div_ceil(relays.max(1))
}

/// What `relay` holds from now on: all that it owns, under their epochs, and free or expired ones up to
/// `share`, under the next.
fn share_out(lanes: &[Held], relay: RelayId, now: Timestamp, share: usize) -> Vec<Lane> {
    let mut room = share.saturating_sub(lanes.iter().filter(|lane| lane.owner == Some(relay)).count());
    let mut hold = |lane: &Held| {
        if lane.owner == Some(relay) {
            return Some(Lane { number: lane.number, epoch: lane.epoch });
        }
        let is_free = lane.owner.is_none() || lane.expires_at <= now.0;
        if !is_free || room == 0 {
            return None;
        }
        room -= 1;
        Some(Lane { number: lane.number, epoch: lane.epoch + 1 })
    };
    lanes.iter().filter_map(&mut hold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: RelayId = RelayId([1; 16]);
    const OTHER: RelayId = RelayId([2; 16]);

    fn lane(number: u32, owner: Option<RelayId>, expires_at: i64) -> Held {
        Held { number, owner, epoch: 5, expires_at }
    }

    #[test]
    fn shares_together_take_all_lanes() {
        for (lanes, relays) in [(32, 1), (32, 2), (32, 3), (1, 3), (7, 4), (3, 0)] {
            assert!(share(lanes, relays) * relays.max(1) >= lanes);
            assert!(relays == 0 || (share(lanes, relays) - 1) * relays < lanes, "no larger than it must be");
        }
    }

    #[test]
    fn own_lanes_keep_their_epoch_and_taken_ones_get_the_next() {
        let lanes = [lane(0, Some(ME), 1), lane(1, None, 0), lane(2, Some(OTHER), 100), lane(3, Some(OTHER), 101)];
        let held = |share| share_out(&lanes, ME, Timestamp(100), share);
        let own = Lane { number: 0, epoch: 5 };
        assert_eq!(held(0), [own], "expired, but nobody has taken it");
        assert_eq!(held(1), [own]);
        assert_eq!(held(2), [own, Lane { number: 1, epoch: 6 }]);
        assert_eq!(held(9), [own, Lane { number: 1, epoch: 6 }, Lane { number: 2, epoch: 6 }], "not from the living");
    }
}
