//! One message in one transaction.

use std::time::Duration;

use oncegate::inbox::{Begun, Error, Inbox};
use sqlx::Connection as _;

use super::{Ground, Pool, message, told};
use crate::servers::database::{Kind, Stranger, on_each_database};

on_each_database!(
    effect_and_record_are_committed_together_and_what_comes_again_is_a_duplicate,
    a_rollback_leaves_nothing_anywhere_and_the_message_is_the_first_one_again,
    a_transaction_stays_usable_whatever_a_message_was,
    each_consumer_handles_a_message_once,
    a_key_that_comes_with_other_content_is_a_conflict,
    a_thousand_redeliveries_have_one_effect,
    a_savepoint_that_is_rolled_back_takes_the_record_along,
    a_commit_of_what_the_database_has_rolled_back_is_no_commit,
    a_connection_without_a_transaction_is_refused,
    keys_of_any_kind_are_told_apart_by_their_bytes,
);

async fn effect_and_record_are_committed_together_and_what_comes_again_is_a_duplicate(kind: Kind) {
    let ground = Ground::new(kind).await;
    assert_eq!(ground.handle(&message("1001")).await, "first");
    assert_eq!(ground.handle(&message("1001")).await, "duplicate");
    assert_eq!(ground.handle(&message("1002")).await, "first");
    assert_eq!((ground.effects().await, ground.rows().await), (2, [2, 0]));
    let sql = "SELECT COUNT(*) FROM inbox WHERE consumer = 'points' AND message_key IN ('1001', '1002')";
    assert_eq!(ground.number(sql).await, 2, "for people");
}

async fn a_rollback_leaves_nothing_anywhere_and_the_message_is_the_first_one_again(kind: Kind) {
    let ground = Ground::new(kind).await;
    let order = message("1001").version("order", 3).unwrap();
    for _ in 0..2 {
        let mut tx = ground.pool.begin().await;
        let begun = tx.begin(&ground.inbox, &order).await.unwrap();
        assert_eq!(told(&begun), "first");
        tx.effect(&order).await;
        tx.roll_back().await;
        drop(begun);
        assert!(!ground.inbox.seen(&order).await, "only commits are remembered");
        assert_eq!((ground.effects().await, ground.rows().await), (0, [0, 0]));
    }
    // Dropped, neither committed nor rolled back: as in a crash.
    let mut tx = ground.pool.begin().await;
    assert_eq!(told(&tx.begin(&ground.inbox, &order).await.unwrap()), "first");
    drop(tx);
    assert_eq!(ground.handle(&order).await, "first");
    assert_eq!((ground.effects().await, ground.rows().await), (1, [1, 1]));
}

async fn a_transaction_stays_usable_whatever_a_message_was(kind: Kind) {
    let ground = Ground::new(kind).await;
    let paid = message("1001").payload(b"paid").version("order", 2).unwrap();
    assert_eq!(ground.handle(&paid).await, "first");
    let mut tx = ground.pool.begin().await;
    for (again, what) in [
        (paid.clone(), "duplicate"),
        (message("1001").payload(b"refunded"), "conflict"),
        (message("1000").version("order", 1).unwrap(), "stale behind 2"),
        (message("1003").payload(b"other").version("order", 2).unwrap(), "conflict"),
        (message("1004"), "first"),
        (message("1004"), "duplicate"),
    ] {
        assert_eq!(told(&tx.begin(&ground.inbox, &again).await.unwrap()), what, "{again:?}");
        tx.effect(&again).await;
    }
    tx.commit(&ground.inbox, Vec::new()).await.unwrap();
    assert_eq!(ground.effects().await, 7);
    assert_eq!(ground.rows().await, [2, 1], "what is not the first one leaves nothing");
}

async fn each_consumer_handles_a_message_once(kind: Kind) {
    let ground = Ground::new(kind).await;
    let stock = ground.inbox.of("stock").unwrap();
    for (inbox, what) in
        [(&ground.inbox, "first"), (&stock, "first"), (&ground.inbox, "duplicate"), (&stock, "duplicate")]
    {
        let versioned = message("1001").version("order", 1).unwrap();
        assert_eq!(ground.handle_in(inbox, &versioned).await.unwrap(), what, "{}", inbox.consumer());
    }
    assert_eq!(ground.effects().await, 2);
    assert!(ground.inbox.of("").is_err() && ground.inbox.of("a b").is_err());
}

async fn a_key_that_comes_with_other_content_is_a_conflict(kind: Kind) {
    let ground = Ground::new(kind).await;
    let of = |payload: &str| message("1001").payload(payload.as_bytes());
    assert_eq!(ground.handle(&of(r#"{"cents": 100, "order": 1}"#)).await, "first");
    assert_eq!(ground.handle(&of(r#"{"order":1,"cents":1e2}"#)).await, "duplicate", "it means the same");
    assert_eq!(ground.handle(&of(r#"{"cents": 101, "order": 1}"#)).await, "conflict");
    assert_eq!(ground.handle(&message("1001")).await, "duplicate", "the key decides where nothing can be compared");
    assert_eq!(ground.effects().await, 1);
}

async fn a_thousand_redeliveries_have_one_effect(kind: Kind) {
    let ground = Ground::new(kind).await;
    let order = message("1001");
    for number in 0..1_000 {
        // Every tenth goes past the filters, to the database.
        let is_known = number % 10 != 0 && ground.inbox.seen(&order).await;
        assert!(is_known || ground.handle(&order).await == if number == 0 { "first" } else { "duplicate" });
    }
    assert_eq!((ground.effects().await, ground.rows().await), (1, [1, 0]));
}

async fn a_savepoint_that_is_rolled_back_takes_the_record_along(kind: Kind) {
    let ground = Ground::new(kind).await;
    let order = message("1001");
    let mut tx = ground.pool.begin().await;
    tx.run("SAVEPOINT inner_one").await.unwrap();
    let Begun::First(receipt) = tx.begin(&ground.inbox, &order).await.unwrap() else { panic!("not the first") };
    tx.run("ROLLBACK TO SAVEPOINT inner_one").await.unwrap();
    let committed = tx.commit(&ground.inbox, vec![receipt]).await;
    assert!(matches!(committed, Err(Error::RolledBack)), "{committed:?}");
    assert!(!ground.inbox.seen(&order).await);
    assert_eq!(ground.handle(&order).await, "first");
}

/// A handler that swallows the error of a statement, and goes on as if nothing was.
async fn a_commit_of_what_the_database_has_rolled_back_is_no_commit(kind: Kind) {
    let ground = Ground::new(kind).await;
    let order = message("1001");
    let mut tx = ground.pool.begin().await;
    let Begun::First(receipt) = tx.begin(&ground.inbox, &order).await.unwrap() else { panic!("not the first") };
    tx.effect(&order).await;
    match kind {
        // A failed statement spoils the transaction, whose COMMIT then succeeds and rolls back.
        Kind::Postgres => assert!(tx.run("SELECT * FROM nowhere").await.is_err()),
        // Stands for a deadlock, after which the session goes on without a transaction.
        Kind::MySql | Kind::Sqlite => assert!(tx.run("ROLLBACK").await.is_ok()),
    }
    assert!(tx.commit(&ground.inbox, vec![receipt]).await.is_err());
    assert!(!ground.inbox.seen(&order).await);
    assert_eq!((ground.effects().await, ground.rows().await), (0, [0, 0]));
}

async fn a_connection_without_a_transaction_is_refused(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (inbox, order) = (&ground.inbox, message("1001"));
    let refused = match ground.database.stranger().await {
        Stranger::Sqlite(mut connection) => inbox.begin(&mut connection, &order).await,
        Stranger::Postgres(mut connection) => inbox.begin(&mut connection, &order).await,
        Stranger::MySql(mut connection) => inbox.begin(&mut connection, &order).await,
    };
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    assert_eq!(ground.rows().await, [0, 0], "a record without its effect would lose the message");
}

async fn keys_of_any_kind_are_told_apart_by_their_bytes(kind: Kind) {
    let ground = Ground::new(kind).await;
    let longest = "k".repeat(255);
    for key in ["a", "A", "a ", " a", "\u{e4}", "a\u{308}", "'; DROP TABLE inbox; --", &longest] {
        let mut tx = ground.pool.begin().await;
        assert_eq!(told(&tx.begin(&ground.inbox, &message(key)).await.unwrap()), "first", "{key:?}");
        tx.commit(&ground.inbox, Vec::new()).await.unwrap();
    }
    assert_eq!(ground.rows().await, [8, 0]);
}

/// MySQL's sessions read what was committed when they began to read, unless they are told otherwise.
#[tokio::test]
async fn on_mysql_a_snapshot_hides_no_duplicate() {
    let ground = Ground::new(Kind::MySql).await;
    let mut tx = ground.pool.begin().await;
    assert_eq!(tx.number("SELECT COUNT(*) FROM inbox").await, 0);
    let first = message("1001").payload(b"paid").version("order", 2).unwrap();
    assert_eq!(ground.handle(&first).await, "first");
    for (again, what) in [
        (message("1001").payload(b"paid"), "duplicate"),
        (message("1001").payload(b"other"), "conflict"),
        (message("1000").version("order", 1).unwrap(), "stale behind 2"),
        (message("1003").version("order", 3).unwrap(), "first after 2"),
    ] {
        assert_eq!(told(&tx.begin(&ground.inbox, &again).await.unwrap()), what, "{again:?}");
    }
    assert_eq!(tx.number("SELECT COUNT(*) FROM inbox WHERE message_key = '1001'").await, 0, "that is what it reads");
}

#[tokio::test]
async fn on_postgres_a_snapshot_that_hides_a_duplicate_is_busy() {
    let ground = Ground::new(Kind::Postgres).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let order = message(level);
        let mut tx = ground.pool.begin().await;
        tx.run(&format!("SET TRANSACTION ISOLATION LEVEL {level}")).await.unwrap();
        assert_eq!(tx.number("SELECT COUNT(*) FROM inbox WHERE message_key = 'none'").await, 0);
        assert_eq!(ground.handle(&order).await, "first");
        let refused = tx.begin(&ground.inbox, &order).await;
        assert!(matches!(refused, Err(Error::Busy(_))), "{level}: {refused:?}");
    }
}

#[tokio::test]
async fn on_sqlite_a_reader_that_can_not_become_a_writer_is_busy() {
    let ground = Ground::new(Kind::Sqlite).await;
    let Pool::Sqlite(pool) = &ground.pool else { panic!("another pool") };
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("SELECT COUNT(*) FROM inbox").fetch_one(&mut *tx).await.unwrap();
    assert_eq!(ground.handle(&message("1001")).await, "first");
    let refused = ground.inbox.begin(&mut *tx, &message("1002")).await;
    assert!(matches!(refused, Err(Error::Busy(_))), "{refused:?}");
}

/// A nested transaction of sqlx borrows from the outer one, so it can't be given to `commit`, whose filters must not
/// hear of a savepoint. Its message is told to be committed by hand, after the outermost commit.
#[tokio::test]
async fn a_message_in_a_nested_transaction_is_committed_with_the_outermost() {
    let ground = Ground::new(Kind::Postgres).await;
    let Pool::Postgres(pool) = &ground.pool else { panic!("another pool") };
    let order = message("1001");
    let mut outer = pool.begin().await.unwrap();
    let mut inner = outer.begin().await.unwrap();
    let Begun::First(receipt) = ground.inbox.begin(&mut *inner, &order).await.unwrap() else { panic!("not the first") };
    inner.commit().await.unwrap();
    assert!(!ground.inbox.seen(&order).await);
    outer.commit().await.unwrap();
    receipt.committed().await;
    assert!(ground.inbox.seen(&order).await);
}

#[tokio::test]
async fn a_name_that_can_not_be_one_and_a_database_that_is_not_there_are_refused() {
    let ground = Ground::new(Kind::Sqlite).await;
    assert!(Inbox::setup(&ground.database.url).open("a b").await.is_err());
    let setup = Inbox::setup("postgres://oncegate@127.0.0.1:1/nowhere").retention(Duration::from_secs(1));
    assert!(setup.open("points").await.is_err());
}
