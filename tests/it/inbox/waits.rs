//! Two transactions and one message.

use std::sync::Arc;
use std::time::Duration;

use oncegate::inbox::{Error, Message};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tokio::task::JoinSet;

use super::{Ground, Pool, Tx, message, told};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    who_comes_second_waits_and_is_a_duplicate_after_the_commit,
    who_comes_second_waits_and_is_the_first_after_a_rollback,
    a_wait_that_is_too_long_is_busy_and_neither_first_nor_duplicate,
    many_at_once_have_one_effect,
    batches_that_overlap_do_not_wait_in_a_circle,
);

/// Opens a transaction, on SQLite one that has not said that it will write.
async fn plain_begin(pool: &Pool) -> Tx {
    match pool {
        Pool::Sqlite(pool) => Tx::Sqlite(pool.begin().await.unwrap()),
        Pool::Postgres(_) | Pool::MySql(_) => pool.begin().await,
    }
}

/// The second one's answer, after the first one's end, which it must have waited for.
async fn second(kind: Kind, order: Message, commits: bool) -> (String, i64) {
    let ground = Arc::new(Ground::new(kind).await);
    let mut first = ground.pool.begin().await;
    assert_eq!(told(&first.begin(&ground.inbox, &order).await.unwrap()), "first");
    first.effect(&order).await;
    let (other, again) = (Arc::clone(&ground), order.clone());
    let mut waiting = tokio::spawn(async move {
        let mut tx = plain_begin(&other.pool).await;
        let begun = tx.begin(&other.inbox, &again).await.unwrap();
        if told(&begun) == "first" {
            tx.effect(&again).await;
        }
        tx.commit(&other.inbox, Vec::new()).await.unwrap();
        told(&begun)
    });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "answered while the first one was open: {early:?}");
    if commits {
        first.commit(&ground.inbox, Vec::new()).await.unwrap();
    } else {
        first.roll_back().await;
    }
    (waiting.await.unwrap(), ground.effects().await)
}

async fn who_comes_second_waits_and_is_a_duplicate_after_the_commit(kind: Kind) {
    assert_eq!(second(kind, message("1001"), true).await, ("duplicate".to_owned(), 1));
    let versioned = message("1001").version("order", 1).unwrap();
    assert_eq!(second(kind, versioned, true).await, ("duplicate".to_owned(), 1));
}

async fn who_comes_second_waits_and_is_the_first_after_a_rollback(kind: Kind) {
    assert_eq!(second(kind, message("1001"), false).await, ("first".to_owned(), 1));
    let versioned = message("1001").version("order", 1).unwrap();
    assert_eq!(second(kind, versioned, false).await, ("first".to_owned(), 1));
}

/// A second service that waits for 300 ms, or a second where a database counts no less.
async fn impatient(ground: &Ground) -> Tx {
    match &ground.pool {
        Pool::Sqlite(_) => {
            let options: SqliteConnectOptions = ground.database.url.parse().unwrap();
            let options = options.busy_timeout(Duration::from_millis(300));
            Tx::Sqlite(SqlitePool::connect_with(options).await.unwrap().begin().await.unwrap())
        }
        Pool::Postgres(_) => ground.pool.begin().await,
        Pool::MySql(_) => {
            let mut tx = ground.pool.begin().await;
            tx.run("SET SESSION innodb_lock_wait_timeout = 1").await.unwrap();
            tx
        }
    }
}

async fn a_wait_that_is_too_long_is_busy_and_neither_first_nor_duplicate(kind: Kind) {
    let wait = Duration::from_millis(300);
    let ground = Ground::with(kind, |setup| {
        setup.options(oncegate::inbox::Options { wait, ..oncegate::inbox::Options::default() })
    })
    .await;
    let held = message("held").version("entity", 2).unwrap();
    let mut holder = ground.pool.begin().await;
    assert_eq!(told(&holder.begin(&ground.inbox, &held).await.unwrap()), "first");
    // The same message, and another one of its entity.
    for order in [held.clone(), message("held"), message("other").version("entity", 3).unwrap()] {
        let mut tx = impatient(&ground).await;
        let busy = tx.begin(&ground.inbox, &order).await;
        assert!(matches!(busy, Err(Error::Busy(_))), "{order:?}: {busy:?}");
        tx.roll_back().await;
        assert!(!ground.inbox.seen(&order).await);
    }
    holder.commit(&ground.inbox, Vec::new()).await.unwrap();
    assert_eq!(ground.handle(&held).await, "duplicate");
    assert_eq!(ground.handle(&message("other").version("entity", 3).unwrap()).await, "first after 2");
}

async fn many_at_once_have_one_effect(kind: Kind) {
    let ground = Arc::new(Ground::new(kind).await);
    let mut tasks = JoinSet::new();
    for number in 0..40 {
        let ground = Arc::clone(&ground);
        tasks.spawn(async move { until_told(&ground, &message(&format!("{}", number % 4))).await });
    }
    let told = tasks.join_all().await;
    assert_eq!(told.iter().filter(|told| *told == "first").count(), 4, "{told:?}");
    assert!(told.iter().all(|told| told == "first" || told == "duplicate"), "{told:?}");
    assert_eq!((ground.effects().await, ground.rows().await), (4, [4, 0]));
}

async fn until_told(ground: &Ground, order: &Message) -> String {
    loop {
        match ground.handle_in(&ground.inbox, order).await {
            Ok(told) => return told,
            Err(Error::Busy(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

async fn batches_that_overlap_do_not_wait_in_a_circle(kind: Kind) {
    let ground = Arc::new(Ground::new(kind).await);
    let mut tasks = JoinSet::new();
    for number in 0..12_usize {
        let ground = Arc::clone(&ground);
        tasks.spawn(async move {
            let mut keys: Vec<_> = (0..20).collect();
            keys.rotate_left(number * 5 % 20);
            if number % 2 == 0 {
                keys.reverse();
            }
            let of = |key: &i32| message(&key.to_string()).version(&format!("entity-{key}"), 1).unwrap();
            let batch: Vec<_> = keys.iter().map(of).collect();
            let mut tx = ground.pool.begin().await;
            // No deadlock, which would be busy.
            let begun = tx.begin_many(&ground.inbox, &batch).await.unwrap();
            for (message, begun) in batch.iter().zip(&begun) {
                if told(begun) == "first" {
                    tx.effect(message).await;
                }
            }
            tx.commit(&ground.inbox, Vec::new()).await.unwrap();
        });
    }
    tasks.join_all().await;
    assert_eq!((ground.effects().await, ground.rows().await), (20, [20, 20]));
}

/// What a session has of its own is given back, whatever the message was.
#[tokio::test]
async fn on_postgres_the_sessions_own_lock_timeout_counts_before_and_after() {
    let ground = Ground::new(Kind::Postgres).await;
    let mut tx = ground.pool.begin().await;
    let in_ms = "SELECT CAST(setting AS BIGINT) FROM pg_settings WHERE name = 'lock_timeout'";
    for own in [0, 1234] {
        tx.run(&format!("SET LOCAL lock_timeout = {own}")).await.unwrap();
        for key in ["a", "a", "b"] {
            for order in [message(&format!("{key}{own}")), message(&format!("v{key}{own}")).version(key, own).unwrap()]
            {
                drop(tx.begin(&ground.inbox, &order).await.unwrap());
                assert_eq!(tx.number(in_ms).await, own, "{order:?}");
            }
        }
    }
}
