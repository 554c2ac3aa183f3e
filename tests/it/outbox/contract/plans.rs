//! Plans on PostgreSQL with a million sent events and statistics from before there was any, or none: no statement of a
//! turn may look at what is done. SQLite and MySQL are told the index.

use std::time::Duration;

use oncegate::outbox::desk::{Action, Desk as _, Filter, Mode, Order, State, Which};
use oncegate::outbox::store::{Outbox as _, Turn};
use sqlx::{Connection as _, Executor as _, Row as _};

use super::{Ground, Holder, New, SENT, conclusions, new, retry};
use crate::servers::database::Kind;

/// Rows that are done.
const SENT_EVENTS: u32 = 1_000_000;

/// Rows that are done on the first day: few, so that the sessions that have made their plans are still there when the
/// rows are.
const FIRST_SENT: u32 = 50_000;

/// Rows that a turn may touch of the table: what is ready, with what has just been updated, and no more.
const FEW: i64 = 20_000;

#[tokio::test]
async fn a_turn_does_not_look_at_what_is_done_whatever_statistics_say() {
    let ground = Ground::new(Kind::Postgres).await;
    let mut database = sqlx::PgConnection::connect(&ground.database.url).await.unwrap();
    // Statistics of a table where nothing was sent yet.
    ground.commit_many(0, "early", 50).await;
    let holder = ground.holder().await;
    database.execute("ALTER TABLE events SET (autovacuum_enabled = off); ANALYZE events").await.unwrap();
    go_through_all_statements(&ground, &holder).await;
    go_through_peoples_statements(&ground).await;
    fill(&mut database, SENT_EVENTS).await;
    let stale = touched(&ground, &holder, &mut database).await;
    assert!(stale < FEW, "{stale} rows with statistics from before");
    // And of one where everything is.
    database.execute("DELETE FROM events WHERE state <> 5; ANALYZE events").await.unwrap();
    ground.store.close().await;
    let ground = Ground { store: ground.database.open(), database: ground.database };
    ground.commit_many(0, "late", 50).await;
    let holder = ground.heir().await;
    let fresh = touched(&ground, &holder, &mut database).await;
    assert!(fresh < FEW, "{fresh} rows with statistics of sent events only");
}

/// As on the first day: plans are made while the tables are new, and nobody has counted them yet.
#[tokio::test]
async fn a_turn_does_not_look_at_what_is_done_while_there_are_no_statistics() {
    let ground = Ground::new(Kind::Postgres).await;
    let mut database = sqlx::PgConnection::connect(&ground.database.url).await.unwrap();
    database.execute("ALTER TABLE events SET (autovacuum_enabled = off)").await.unwrap();
    let holder = ground.holder().await;
    go_through_all_statements(&ground, &holder).await;
    fill(&mut database, FIRST_SENT).await;
    ground.commit_many(0, "late", 50).await;
    let touched = touched(&ground, &holder, &mut database).await;
    assert!(touched < FEW, "{touched} rows without statistics");
}

async fn fill(database: &mut sqlx::PgConnection, count: u32) {
    let fill = format!(
        "INSERT INTO events (id, queue, lane, event_key, state, holds, attempts, created_at, changed_at, due_at, \
         entry, route, topic, type, source, content_type, data) \
         SELECT decode(md5(n::text), 'hex'), 'default', n % 4, 'k' || n, 5, 1, 1, 1, 1, 9000000000000, \
         '\\x00'::bytea, 'r', 't', 'y', 's', 'c', '\\x00'::bytea FROM generate_series(1, {count}) AS n"
    );
    database.execute(sqlx::AssertSqlSafe(fill)).await.unwrap();
}

/// Retries, lines, waiting ones, due ones, sent ones, reaping and the backlog.
async fn go_through_all_statements(ground: &Ground, holder: &Holder<'_>) {
    for key in ["x", "x", "x", "y"] {
        ground.commit(New { ..new(1, key) }).await;
    }
    for _ in 0..4 {
        let acquired = holder.acquire().await;
        let marks: Vec<_> = acquired
            .iter()
            .map(|event| (event, if event.attempts == 1 { retry(Duration::ZERO) } else { SENT }))
            .collect();
        holder.apply(&Turn { conclusions: conclusions(&marks), ..holder.turn() }).await;
    }
    ground.store.reap(super::QUEUE, &[0, 1, 2, 3], 100).await.unwrap();
    ground.store.backlog(super::QUEUE, 100).await.unwrap();
    ground.store.parked(100).await.unwrap();
}

/// What people ask for: rarely, so that a look at everything is no harm.
async fn go_through_peoples_statements(ground: &Ground) {
    ground.store.list(&Filter::default(), None, 10).await.unwrap();
    let to = Which::All { filter: Filter { states: vec![State::Parked], ..Filter::default() }, limit: 10 };
    let order = Order { action: Action::Retry, to, reason: "x".into(), mode: Mode::Carry };
    ground.store.act(&order).await.unwrap();
}

/// How many rows of the table are read while all statements run.
async fn touched(ground: &Ground, holder: &Holder<'_>, database: &mut sqlx::PgConnection) -> i64 {
    let before = rows_read(database).await;
    go_through_all_statements(ground, holder).await;
    // Sessions tell what they read at their end, at the latest.
    ground.store.close().await;
    let deadline = oncegate::clock::now() + Duration::from_secs(30);
    loop {
        let read = rows_read(database).await - before;
        if read > 0 && sessions(database).await == 1 {
            return rows_read(database).await - before;
        }
        assert!(oncegate::clock::now() < deadline, "the sessions do not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What this session read before is told first: PostgreSQL would keep it to itself for up to a second.
async fn rows_read(database: &mut sqlx::PgConnection) -> i64 {
    database.execute("SELECT pg_stat_force_next_flush()").await.unwrap();
    let sql = "SELECT (seq_tup_read + COALESCE(idx_tup_fetch, 0) + (SELECT COALESCE(SUM(idx_tup_read), 0) \
               FROM pg_stat_user_indexes WHERE relname = 'events'))::bigint \
               FROM pg_stat_user_tables WHERE relname = 'events'";
    database.fetch_one(sql).await.unwrap().get(0)
}

async fn sessions(database: &mut sqlx::PgConnection) -> i64 {
    let sql = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
               AND backend_type = 'client backend'";
    database.fetch_one(sql).await.unwrap().get(0)
}
