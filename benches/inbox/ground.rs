//! A service's tables on a private PostgreSQL, and its inboxes.

use oncegate::inbox::{Inbox, Options};
use oncegate::marks::MarksOptions;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::database;
use crate::private::postgres::Postgres;
use crate::private::redis::Redis;

/// Rows that effects go to; each worker has its own, so that they do not wait for each other.
pub(crate) const ACCOUNTS: i64 = 10_000;

/// Payments that wait for their results.
pub(crate) const PAYMENTS: i64 = 300_000;

const TABLES: [&str; 5] = [
    "CREATE TABLE accounts (id BIGINT PRIMARY KEY, points BIGINT NOT NULL)",
    "INSERT INTO accounts SELECT n, 0 FROM generate_series(0, 9999) AS n",
    "CREATE TABLE awards (order_no TEXT PRIMARY KEY, points BIGINT NOT NULL)",
    "CREATE TABLE bookings (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_no BIGINT NOT NULL, \
     account BIGINT NOT NULL, points BIGINT NOT NULL)",
    "CREATE TABLE payments (id BIGINT PRIMARY KEY, status TEXT NOT NULL)",
];

pub(crate) struct Ground {
    pub(crate) pool: PgPool,
    /// With a cache of its own alone.
    pub(crate) inbox: Inbox,
    /// With marks in Redis as well.
    pub(crate) marked: Inbox,
    /// With marks alone: its cache has no room.
    pub(crate) forgetful: Inbox,
    _redis: Redis,
    _server: Postgres,
}

impl Ground {
    pub(crate) async fn new(workers: usize) -> Self {
        let (server, redis) = (database::start(), Redis::start());
        let url = database::create(&server, "shop");
        let size = u32::try_from(workers).unwrap();
        let pool = PgPoolOptions::new().min_connections(size).max_connections(size).connect(&url).await.unwrap();
        for sql in TABLES {
            sqlx::query(sql).execute(&pool).await.unwrap();
        }
        let fill = "INSERT INTO payments SELECT n, 'pending' FROM generate_series(0, $1) AS n";
        sqlx::query(fill).bind(PAYMENTS).execute(&pool).await.unwrap();
        sqlx::query("ANALYZE").execute(&pool).await.unwrap();
        let setup = || Inbox::setup(&url).options(Options { verify_one_in: 0, ..Options::default() });
        let marks = MarksOptions { url: redis.url.clone(), ..MarksOptions::default() };
        Self {
            inbox: setup().open("cached").await.unwrap(),
            marked: setup().marks(marks.clone()).open("marked").await.unwrap(),
            forgetful: setup().marks(marks).cache_bytes(0).open("forgetful").await.unwrap(),
            pool,
            _redis: redis,
            _server: server,
        }
    }
}
