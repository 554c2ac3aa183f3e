//! An outbox on PostgreSQL, in a database of its own, and who fills it by plain SQL.

use std::sync::Arc;
use std::time::Duration;

use oncegate::clock;
use oncegate::outbox::lane::{DEFAULT_LANES, DEFAULT_QUEUE};
use oncegate::outbox::store::Outbox as _;
use oncegate::storage::{Store, StoreOptions};
use sqlx::{Connection as _, PgConnection};

use crate::brokers::{REFUSED, TOPIC};
use crate::database;
use crate::private::postgres::Postgres;

/// Events from number `$1` to `$2` of `$3` keys in turns; with `$5`, every hundredth is of the key "poison" and
/// goes there. An id's second half is the event's number. The lane is the one that the gateway would give the key.
const FILL: &str = r#"
INSERT INTO events (id, queue, lane, event_key, state, holds, attempts, created_at, changed_at, entry, route, topic,
                    type, source, content_type, data)
SELECT int8send(0) || int8send(n), 'default',
       ((get_byte(hash, 0)::bigint << 24) + (get_byte(hash, 1) << 16) + (get_byte(hash, 2) << 8) + get_byte(hash, 3)) % $6,
       key, 1, 1, 0, now, now, hash, 'pay', topic, 'com.example.payment.created', '/pay', 'application/json',
       convert_to(format('{"id":"pay_%s","order_no":"%s","status":"paid","amount":1250,"currency":"EUR"}', n, key), 'UTF8')
FROM (SELECT n, key, topic, sha256(convert_to(key, 'UTF8')) AS hash,
             (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint AS now
      FROM (SELECT n, CASE WHEN is_poison THEN 'poison' ELSE 'order-' || n % $3 END AS key,
                   CASE WHEN is_poison THEN $5 ELSE $4 END AS topic
            FROM (SELECT n, $5::text IS NOT NULL AND n % 100 = 0 AS is_poison
                  FROM generate_series($1::bigint, $2::bigint) AS n) AS numbers) AS keyed) AS hashed
ORDER BY n
"#;

/// How often it is looked whether all is sent. A look is a few short reads through an index.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Longest wait for a drain: something is wrong then.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// Whose events lie in an outbox.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keys {
    /// So many keys in turns.
    Spread(u32),
    /// Beside them, every hundredth event is of one that is as good as the others.
    WithOneMore(u32),
    /// Beside them, every hundredth event is of one that the broker refuses.
    WithPoison(u32),
}

/// A database with an outbox.
pub(crate) struct Ground {
    pub(crate) url: String,
    pub(crate) store: Arc<Store>,
    pub(crate) connection: PgConnection,
    /// Events committed so far.
    pub(crate) count: i64,
}

impl Ground {
    pub(crate) async fn create(server: &Postgres, name: &str) -> Self {
        let url = database::create(server, name);
        let store = Arc::new(Store::open(&StoreOptions::new(&url)).unwrap());
        store.migrate().await.unwrap();
        store.open(DEFAULT_QUEUE, DEFAULT_LANES.get()).await.unwrap();
        let connection = PgConnection::connect(&url).await.unwrap();
        Self { url, store, connection, count: 0 }
    }

    /// Commits `count` more events in one transaction.
    pub(crate) async fn commit(&mut self, count: u32, keys: Keys) {
        let (number, one) = match keys {
            Keys::Spread(number) => (number, None),
            Keys::WithOneMore(number) => (number, Some(TOPIC)),
            Keys::WithPoison(number) => (number, Some(REFUSED)),
        };
        let first = self.count + 1;
        self.count += i64::from(count);
        let fill = sqlx::query(FILL).bind(first).bind(self.count).bind(i64::from(number)).bind(TOPIC).bind(one);
        let filled = fill.bind(i64::from(DEFAULT_LANES.get())).execute(&mut self.connection).await.unwrap();
        assert_eq!(filled.rows_affected(), u64::from(count));
    }

    /// Tells the relays of other processes, as the one does that commits events.
    pub(crate) async fn notify(&self) {
        self.store.notify(DEFAULT_QUEUE).await.unwrap();
    }

    pub(crate) async fn is_drained(&self) -> bool {
        self.store.backlog(DEFAULT_QUEUE, 1).await.unwrap().unsent == 0
    }

    /// Waits until every event is sent, and says how long that took.
    pub(crate) async fn drained(&self) -> Duration {
        let begun = clock::now();
        while !self.is_drained().await {
            assert!(begun.elapsed() < PATIENCE, "the outbox does not drain");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        begun.elapsed()
    }
}
