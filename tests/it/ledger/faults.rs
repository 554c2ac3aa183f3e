use std::time::Duration;

use bytes::Bytes;
use oncegate::clock;
use oncegate::engine::ledger::{Batch, Claimed, FromState, Guarded, Ledger as _, StoreError, Transition};
use oncegate::entry::State;
use oncegate::storage::{Store, StoreOptions};

use super::{Ground, completed};
use crate::servers::database::{Database, Kind, Stranger, on_each_database};
use crate::servers::postgres::Postgres;
use crate::servers::process;

on_each_database!(
    a_row_that_somebody_has_locked_is_reported_fast_and_nothing_is_written,
    a_call_that_is_dropped_leaves_no_transaction_open,
    connections_that_died_while_idle_are_replaced_unseen,
);

fn batch(ground: &Ground, row: (oncegate::entry::EntryId, oncegate::entry::Nonce)) -> Batch {
    let to = completed(row.1, "paid");
    let transitions = vec![Transition { id: row.0, nonce: row.1, from: FromState::Unfinished, to }];
    Batch { transitions, claims: vec![ground.claim("new")], ..Batch::default() }
}

/// Locks all rows, on SQLite the whole file, until it rolls back.
async fn lock(ground: &Ground) -> Stranger {
    let mut stranger = ground.database.stranger().await;
    let begin = if ground.database.kind == Kind::Sqlite { "BEGIN IMMEDIATE" } else { "BEGIN" };
    stranger.run(&format!("{begin}; UPDATE entries SET lookups = 7")).await;
    stranger
}

async fn a_row_that_somebody_has_locked_is_reported_fast_and_nothing_is_written(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    let batch = batch(&ground, row);
    let mut stranger = lock(&ground).await;
    let begun = clock::now();
    let locked = ground.store.apply(&batch).await;
    match kind {
        // Nothing at all can be written: no use in looking for the row.
        Kind::Sqlite => assert!(matches!(locked, Err(StoreError::Unavailable(_))), "{locked:?}"),
        Kind::Postgres | Kind::MySql => assert!(matches!(locked, Err(StoreError::Locked(_))), "{locked:?}"),
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(ground.read(batch.claims[0].id).await, None);

    stranger.run("ROLLBACK").await;
    let applied = ground.apply(batch).await;
    assert_eq!(applied.transitions, [Guarded::Done]);
    assert!(matches!(applied.claims[..], [Claimed::Won]));
}

async fn a_call_that_is_dropped_leaves_no_transaction_open(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (row, other) = (ground.won("a").await, ground.won("b").await);
    let mut stranger = lock(&ground).await;
    let patient = patient(&ground, |_| {});
    // The claim is written before the transition waits; see that it does not stay.
    let batch = batch(&ground, row);
    let dropped = tokio::time::timeout(Duration::from_millis(100), patient.apply(&batch)).await;
    assert!(dropped.is_err(), "{dropped:?}");
    stranger.run("ROLLBACK").await;

    // Whoever still held the row would lock these out.
    let mut to_do = batch;
    to_do.transitions.push(Transition {
        id: other.0,
        nonce: other.1,
        from: FromState::InProgress,
        to: completed(other.1, "paid"),
    });
    let applied = patient.apply(&to_do).await.unwrap();
    assert_eq!(applied.transitions, [Guarded::Done, Guarded::Done]);
    assert!(matches!(applied.claims[..], [Claimed::Won]));
}

async fn connections_that_died_while_idle_are_replaced_unseen(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    ground.read(row.0).await;
    let mut stranger = ground.database.stranger().await;
    for key in ["b", "c"] {
        stranger.kill_the_others().await;
        ground.won(key).await;
        stranger.kill_the_others().await;
        assert!(ground.read(row.0).await.is_some());
    }
}

fn signal(pid: i64, signal: &str) {
    process::run(std::process::Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()));
}

/// A store that waits long for locks.
fn patient(ground: &Ground, change: impl FnOnce(&mut StoreOptions)) -> Store {
    let mut options = ground.database.options();
    options.lock_timeout = Duration::from_secs(30);
    options.statement_timeout = Duration::from_secs(30);
    change(&mut options);
    Store::open(&options).unwrap()
}

/// Waits until a connection waits for a lock of `stranger`'s, then kills it.
async fn kill_the_waiting(ground: &Ground, stranger: &mut Stranger) {
    let waiting = match ground.database.kind {
        Kind::Postgres => {
            "SELECT CAST(COUNT(*) AS BIGINT) FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event_type = 'Lock'"
        }
        Kind::MySql | Kind::Sqlite => {
            "SELECT COUNT(*) FROM information_schema.innodb_trx AS t \
             JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id \
             WHERE t.trx_state = 'LOCK WAIT' AND p.db = database()"
        }
    };
    let deadline = clock::now() + Duration::from_secs(10);
    let mut watcher = ground.database.stranger().await;
    while watcher.number(waiting).await == 0 {
        assert!(clock::now() < deadline, "nobody waits");
        // MariaDB makes this table anew only if nobody has read it for 100 ms.
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
    stranger.kill_the_others().await;
}

async fn killed_in_the_middle(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    let batch = batch(&ground, row);
    let patient = patient(&ground, |_| {});
    let mut stranger = lock(&ground).await;
    let (lost, ()) = tokio::join!(patient.apply(&batch), kill_the_waiting(&ground, &mut stranger));
    match kind {
        // Its statement commits by itself: nobody here can tell that it did not come so far.
        Kind::Postgres => assert!(matches!(lost, Err(StoreError::CommitUnknown(_))), "{lost:?}"),
        Kind::MySql | Kind::Sqlite => assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}"),
    }
    stranger.run("ROLLBACK").await;
    let applied = patient.apply(&batch).await.unwrap();
    assert_eq!(applied.transitions, [Guarded::Done]);
    assert!(matches!(applied.claims[..], [Claimed::Won]));
}

#[tokio::test]
async fn a_connection_killed_in_the_middle_leaves_the_outcome_open_and_the_next_call_works_on_postgres() {
    killed_in_the_middle(Kind::Postgres).await;
}

#[tokio::test]
async fn a_connection_killed_in_the_middle_is_unavailable_and_the_next_call_works_on_mysql() {
    killed_in_the_middle(Kind::MySql).await;
}

/// A trigger that runs at COMMIT and waits there.
const SLOW_COMMIT: &str = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql \
    AS $$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$; \
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON entries DEFERRABLE INITIALLY DEFERRED \
    FOR EACH ROW EXECUTE FUNCTION slow()";

#[tokio::test]
async fn a_commit_that_is_not_answered_is_unknown_and_applying_again_tells() {
    let ground = Ground::new(Kind::Postgres).await;
    let mut stranger = ground.database.stranger().await;
    stranger.run(SLOW_COMMIT).await;
    let batch = Batch { claims: vec![ground.claim("a")], ..Batch::default() };
    let impatient = patient(&ground, |options| options.statement_timeout = Duration::from_millis(300));
    let unknown = impatient.apply(&batch).await;
    assert!(matches!(unknown, Err(StoreError::CommitUnknown(_))), "{unknown:?}");

    // The server sleeps on in the COMMIT: its own time-out does not count there.
    stranger.kill_the_others().await;
    stranger.run("DROP TRIGGER slow ON entries").await;
    let applied = impatient.apply(&batch).await.unwrap();
    assert!(matches!(applied.claims[..], [Claimed::Won]), "{applied:?}");
}

#[tokio::test]
async fn a_server_that_stops_answering_is_noticed_and_met_again_when_it_answers() {
    let server = Postgres::start(&[]);
    let ground = Ground::on(Database::create_on(Kind::Postgres, &server.base_url).await).await;
    let impatient = patient(&ground, |options| options.statement_timeout = Duration::from_millis(300));
    let batch = |key| Batch { claims: vec![ground.claim(key)], ..Batch::default() };
    impatient.apply(&batch("a")).await.unwrap();
    let backend = "SELECT CAST(pid AS BIGINT) FROM pg_stat_activity \
                   WHERE application_name = 'oncegate' AND datname = current_database()";
    let mut stranger = ground.database.stranger().await;
    let paused = stranger.number(&format!("{backend} AND query LIKE 'WITH changed%' ORDER BY query_start DESC")).await;
    server.process.signal("STOP");
    signal(paused, "STOP");
    let begun = clock::now();
    let batch = batch("b");
    let unclear = impatient.apply(&batch).await;
    assert!(matches!(unclear, Err(StoreError::CommitUnknown(_))), "{unclear:?}");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());

    signal(paused, "CONT");
    server.process.signal("CONT");
    let applied = impatient.apply(&batch).await.unwrap();
    assert!(matches!(applied.claims[..], [Claimed::Won]), "{applied:?}");
}

#[tokio::test]
async fn a_read_only_node_is_unavailable_and_its_connections_are_not_met_again() {
    let ground = Ground::new(Kind::Postgres).await;
    let batch = Batch { claims: vec![ground.claim("a")], ..Batch::default() };
    let database = ground.database.url.rsplit('/').next().unwrap();
    let mut stranger = ground.database.stranger().await;
    stranger.run(&format!("ALTER DATABASE {database} SET default_transaction_read_only = on")).await;
    let read_only = ground.database.open();
    for _ in 0..2 {
        let refused = read_only.apply(&batch).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
    assert!(read_only.ping().await.is_err());
    stranger.run(&format!("SET default_transaction_read_only = off; ALTER DATABASE {database} RESET ALL")).await;
    read_only.ping().await.unwrap();
    assert!(matches!(read_only.apply(&batch).await.unwrap().claims[..], [Claimed::Won]));
}

#[tokio::test]
async fn a_statement_larger_than_the_server_takes_is_refused_not_an_outage() {
    let ground = Ground::new(Kind::MySql).await;
    let mut stranger = ground.database.stranger().await;
    let limit = stranger.number("SELECT CAST(@@max_allowed_packet AS SIGNED)").await;
    let mut large = ground.claim("large");
    large.context = Some(Bytes::from(vec![7; usize::try_from(limit).unwrap()]));
    let refused = ground.store.apply(&Batch { claims: vec![large], ..Batch::default() }).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    ground.won("small").await;
}

#[tokio::test]
async fn text_that_postgres_can_not_hold_is_refused() {
    let ground = Ground::new(Kind::Postgres).await;
    let mut poison = ground.claim("a");
    poison.route = "a\0b".into();
    let refused = ground.store.apply(&Batch { claims: vec![poison], ..Batch::default() }).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    let row = ground.won("b").await;
    assert!(matches!(ground.read(row.0).await.unwrap().state, State::InProgress { .. }));
}
