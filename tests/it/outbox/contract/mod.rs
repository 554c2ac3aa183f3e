//! The contracts of `outbox::store` and `outbox::desk`, on each database.

mod crash;
mod deaths;
mod deferrals;
mod desk;
mod leases;
mod lines;
mod measures;
mod parking;
mod plans;
mod reach;
mod turns;
mod wake;

use std::time::Duration;

use oncegate::engine::ledger::Guarded;
use oncegate::outbox::store::{
    Acquired, Conclusion, How, Lane, Late, Outbox as _, Parking, Reach, RelayId, Retries, Suspects, Taking, Turn,
    Turned, Want,
};
use oncegate::storage::Store;

use crate::servers::database::{Database, Kind, fresh};

const HOUR: Duration = Duration::from_secs(3600);

const QUEUE: &str = "default";

/// What the tests want of a lane, unless it matters.
const LIMIT: u32 = 100;

const SENT: How = How::Sent { keep: HOUR, result: None, frees: None };

/// A database with an opened queue of few lanes.
struct Ground {
    database: Database,
    store: Store,
}

/// An event for the outbox.
#[derive(Clone, Copy)]
struct New<'a> {
    lane: u32,
    key: &'a str,
    holds: u8,
    /// Why nobody can publish it.
    unfit: Option<&'a str>,
    bytes: usize,
}

/// An event in a lane, of a key.
const fn new(lane: u32, key: &str) -> New<'_> {
    New { lane, key, holds: 1, unfit: None, bytes: 1 }
}

/// A relay that holds lanes.
struct Holder<'g> {
    ground: &'g Ground,
    relay: RelayId,
    lanes: Vec<Lane>,
}

impl Ground {
    async fn new(kind: Kind) -> Self {
        let (database, store) = fresh(kind).await;
        store.open(QUEUE, 4).await.unwrap();
        Self { database, store }
    }

    async fn run(&self, sql: &str) -> u64 {
        self.database.stranger().await.run(sql).await
    }

    async fn number(&self, sql: &str) -> i64 {
        self.database.stranger().await.number(sql).await
    }

    /// Commits an event and says its position.
    async fn commit(&self, event: New<'_>) -> i64 {
        self.run(&self.insert(event, None)).await;
        self.number("SELECT MAX(position) FROM events").await
    }

    async fn commit_many(&self, lane: u32, key: &str, count: usize) -> Vec<i64> {
        let mut positions = Vec::new();
        for _ in 0..count {
            positions.push(self.commit(new(lane, key)).await);
        }
        positions
    }

    /// The insert of an event, at a position or the next.
    fn insert(&self, event: New<'_>, position: Option<i64>) -> String {
        let id = self.database.literal(&rand::random::<[u8; 16]>());
        let entry = self.database.literal(&[7; 32]);
        let data = self.database.literal(&vec![b'd'; event.bytes]);
        let reason = event.unfit.map_or("NULL".to_owned(), |reason| format!("'{reason}'"));
        let (column, value) = position
            .map_or((String::new(), String::new()), |position| ("position, ".to_owned(), format!("{position}, ")));
        let overriding = match (self.database.kind, position) {
            (Kind::Postgres, Some(_)) => "OVERRIDING SYSTEM VALUE ",
            _ => "",
        };
        let New { lane, key, holds, .. } = event;
        format!(
            "INSERT INTO events ({column}id, queue, lane, event_key, state, holds, attempts, created_at, changed_at, \
             reason, entry, route, topic, type, source, content_type, traceparent, data) {overriding}\
             VALUES ({value}{id}, '{QUEUE}', {lane}, '{key}', 1, {holds}, 0, 1000, 1000, {reason}, {entry}, \
             'create-payment', 'payments', 'com.example.paid', '/payments', 'application/json', '00-trace', {data})"
        )
    }

    /// A relay that has taken all lanes that are free.
    async fn holder(&self) -> Holder<'_> {
        let relay = RelayId::random();
        let lanes = self.store.lease(QUEUE, relay, HOUR, Taking::Share, None).await.unwrap().held;
        assert!(!lanes.is_empty());
        Holder { ground: self, relay, lanes }
    }

    /// As [`Self::holder`], once all others have died and their time is over.
    async fn heir(&self) -> Holder<'_> {
        self.run("UPDATE lanes SET expires_at = 1").await;
        self.run("UPDATE relays SET expires_at = 1").await;
        self.holder().await
    }

    async fn state(&self, position: i64) -> i64 {
        self.number(&format!("SELECT state FROM events WHERE position = {position}")).await
    }

    async fn column(&self, column: &str, position: i64) -> i64 {
        self.number(&format!(
            "SELECT CAST(COALESCE({column}, -1) AS {}) FROM events WHERE position = {position}",
            self.int()
        ))
        .await
    }

    /// A text that none is, as far as the database lets it in.
    fn nonsense(&self) -> &'static str {
        match self.database.kind {
            Kind::Postgres => "'t', id = '\\x0102'::bytea",
            Kind::MySql => "x'c328'",
            Kind::Sqlite => "CAST(x'c328' AS TEXT)",
        }
    }

    fn int(&self) -> &'static str {
        match self.database.kind {
            Kind::Postgres => "BIGINT",
            Kind::MySql => "SIGNED",
            Kind::Sqlite => "INTEGER",
        }
    }
}

impl Holder<'_> {
    fn lane(&self, number: u32) -> Lane {
        *self.lanes.iter().find(|lane| lane.number == number).unwrap()
    }

    fn want(&self, lane: u32, limit: u32) -> Want {
        Want { lane: self.lane(lane), limit, retries: Retries::Due, reach: Reach::WHOLE }
    }

    /// A turn that wants nothing yet.
    fn empty(&self) -> Turn {
        Turn {
            queue: QUEUE.into(),
            relay: self.relay,
            conclusions: Vec::new(),
            wants: Vec::new(),
            bytes: 1 << 20,
            suspects: Suspects::Take,
            parking: Parking::default(),
            late: Late::Goes,
            again: None,
        }
    }

    /// A turn that wants something of every lane.
    fn turn(&self) -> Turn {
        Turn { wants: self.lanes.iter().map(|lane| self.want(lane.number, LIMIT)).collect(), ..self.empty() }
    }

    async fn apply(&self, turn: &Turn) -> Turned {
        self.ground.store.turn(turn).await.unwrap()
    }

    /// Acquires what there is.
    async fn acquire(&self) -> Vec<Acquired> {
        self.apply(&self.turn()).await.acquired
    }

    /// Concludes without acquiring; each must hold.
    async fn conclude(&self, of: &[(&Acquired, How)]) {
        let conclusions = conclusions(of);
        let turned = self.apply(&Turn { conclusions, ..self.empty() }).await;
        assert_eq!(turned.concluded, vec![Guarded::Done; of.len()]);
        assert_eq!(turned.acquired, []);
    }

    /// Concludes, and acquires what there is then.
    async fn go_on(&self, of: &[(&Acquired, How)]) -> Vec<Acquired> {
        let turned = self.apply(&Turn { conclusions: conclusions(of), ..self.turn() }).await;
        assert_eq!(turned.concluded, vec![Guarded::Done; of.len()]);
        turned.acquired
    }
}

fn conclusions(of: &[(&Acquired, How)]) -> Vec<Conclusion> {
    let conclusion = |(event, how): &(&Acquired, How)| {
        let Acquired { lane, position, id, .. } = **event;
        Conclusion { lane, position, id, how: how.clone() }
    };
    of.iter().map(conclusion).collect()
}

/// Where there is more.
fn more(turned: &Turned) -> Vec<Lane> {
    turned.more.iter().map(|(lane, _)| *lane).collect()
}

fn positions(acquired: &[Acquired]) -> Vec<i64> {
    acquired.iter().map(|event| event.position).collect()
}

fn retry(after: Duration) -> How {
    How::Retry { after, reason: "nack".into() }
}

fn parked() -> How {
    How::Parked { reason: "too large".into(), result: None }
}
