//! State machines and versions of a service's own rows.

use std::sync::Arc;

use oncegate::inbox::{Advanced, Error, RowKey, StateMachine, Transitioned, Versioned};
use tokio::task::JoinSet;

use super::{Ground, Pool, Tx, whatever};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    a_state_changes_along_its_ways_only,
    of_many_that_pay_at_once_one_does,
    a_version_advances_once_for_each_reading,
    a_carried_version_only_grows,
    a_key_that_finds_several_rows_is_refused,
);

const PAYMENTS: StateMachine = StateMachine::new(
    "payments",
    "order_no",
    "status",
    &[("pending", "paid"), ("pending", "failed"), ("failed", "paid"), ("paid", "refunded")],
);

const STOCK: Versioned = Versioned::new("stock", "sku", "version");

async fn shop(kind: Kind) -> Ground {
    let ground = Ground::new(kind).await;
    let tables = "CREATE TABLE payments (order_no VARCHAR(20) NOT NULL, status VARCHAR(20)); \
                  INSERT INTO payments VALUES ('1001', 'pending'), ('1002', 'pending'), ('1003', NULL), ('twice', 'pending'), \
                  ('twice', 'pending'); \
                  CREATE TABLE stock (sku INTEGER NOT NULL PRIMARY KEY, version INTEGER NOT NULL, amount INTEGER NOT NULL); \
                  INSERT INTO stock VALUES (7, 3, 100)";
    ground.database.stranger().await.run(tables).await;
    ground
}

impl Tx {
    async fn transition(&mut self, machine: &StateMachine, key: &str, to: &str) -> Result<Transitioned, Error> {
        whatever!(Self, self, tx => machine.transition(&mut **tx, key, to).await)
    }

    async fn advance(&mut self, from: i64) -> Result<Advanced, Error> {
        whatever!(Self, self, tx => STOCK.advance(&mut **tx, 7, from).await)
    }

    async fn advance_to(&mut self, key: i64, to: i64) -> Result<Advanced, Error> {
        whatever!(Self, self, tx => STOCK.advance_to(&mut **tx, RowKey::Int(key), to).await)
    }

    async fn commit_plainly(self) {
        whatever!(Self, self, tx => oncegate::inbox::CallerTransaction::commit(tx).await.unwrap());
    }
}

async fn a_state_changes_along_its_ways_only(kind: Kind) {
    let ground = shop(kind).await;
    let illegal = |found: &str| Transitioned::Illegal { found: found.to_owned() };
    let mut tx = ground.pool.begin().await;
    for (key, to, expected) in [
        ("1001", "refunded", illegal("pending")),
        ("1001", "failed", Transitioned::Applied),
        ("1001", "failed", Transitioned::AlreadyThere),
        ("1001", "paid", Transitioned::Applied),
        ("1001", "paid", Transitioned::AlreadyThere),
        ("1001", "failed", illegal("paid")),
        ("1003", "paid", illegal("")),
        ("nobody", "paid", Transitioned::Missing),
        ("1002' OR '1' = '1", "paid", Transitioned::Missing),
    ] {
        assert_eq!(tx.transition(&PAYMENTS, key, to).await.unwrap(), expected, "{key} {to}");
    }
    let unknown = tx.transition(&PAYMENTS, "1001", "Paid").await;
    assert!(matches!(unknown, Err(Error::Misuse(_))), "{unknown:?}");
    tx.commit_plainly().await;
    assert_eq!(ground.number("SELECT COUNT(*) FROM payments WHERE status = 'paid'").await, 1);
    assert_eq!(ground.number("SELECT COUNT(*) FROM payments WHERE status = 'pending'").await, 3);

    let mut tx = ground.pool.begin().await;
    assert_eq!(tx.transition(&PAYMENTS, "1002", "paid").await.unwrap(), Transitioned::Applied);
    tx.roll_back().await;
    assert_eq!(ground.number("SELECT COUNT(*) FROM payments WHERE status = 'paid'").await, 1);
}

async fn of_many_that_pay_at_once_one_does(kind: Kind) {
    let ground = Arc::new(shop(kind).await);
    let mut tasks = JoinSet::new();
    for _ in 0..12 {
        let ground = Arc::clone(&ground);
        tasks.spawn(async move {
            let mut tx = ground.pool.begin().await;
            let transitioned = tx.transition(&PAYMENTS, "1001", "paid").await.unwrap();
            if transitioned == Transitioned::Applied {
                tx.run("INSERT INTO effects VALUES ('points')").await.unwrap();
            }
            tx.commit_plainly().await;
            transitioned
        });
    }
    let all = tasks.join_all().await;
    assert_eq!(all.iter().filter(|one| **one == Transitioned::Applied).count(), 1, "{all:?}");
    assert_eq!(all.iter().filter(|one| **one == Transitioned::AlreadyThere).count(), 11, "{all:?}");
    assert_eq!(ground.effects().await, 1);
}

async fn a_version_advances_once_for_each_reading(kind: Kind) {
    let ground = Arc::new(shop(kind).await);
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let ground = Arc::clone(&ground);
        tasks.spawn(async move {
            // What an optimistic writer does: read, decide, and again from the beginning if somebody was faster.
            loop {
                let read = ground.number("SELECT version FROM stock").await;
                let amount = ground.number("SELECT amount FROM stock").await;
                let mut tx = ground.pool.begin().await;
                match tx.advance(read).await.unwrap() {
                    Advanced::Applied => {
                        let sql = format!("UPDATE stock SET amount = {} WHERE sku = 7", amount - 1);
                        assert_eq!(tx.run(&sql).await.unwrap(), 1);
                        return tx.commit_plainly().await;
                    }
                    Advanced::Not { found } => assert!(found > read),
                    Advanced::Missing => panic!("the row is there"),
                }
                tx.roll_back().await;
            }
        });
    }
    tasks.join_all().await;
    let sql = "SELECT COUNT(*) FROM stock WHERE version = 11 AND amount = 92";
    assert_eq!(ground.number(sql).await, 1, "each of eight has advanced and deducted once");
}

async fn a_carried_version_only_grows(kind: Kind) {
    let ground = shop(kind).await;
    let mut tx = ground.pool.begin().await;
    for (key, to, expected) in [
        (7, 3, Advanced::Not { found: 3 }),
        (7, 2, Advanced::Not { found: 3 }),
        (7, 9, Advanced::Applied),
        (7, 8, Advanced::Not { found: 9 }),
        (8, 1, Advanced::Missing),
    ] {
        assert_eq!(tx.advance_to(key, to).await.unwrap(), expected, "{key} {to}");
    }
    assert_eq!(tx.advance(8).await.unwrap(), Advanced::Not { found: 9 });
    assert!(matches!(tx.advance(i64::MAX).await, Err(Error::Misuse(_))));
}

async fn a_key_that_finds_several_rows_is_refused(kind: Kind) {
    let ground = shop(kind).await;
    let mut tx = ground.pool.begin().await;
    let refused = tx.transition(&PAYMENTS, "twice", "paid").await;
    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
    tx.roll_back().await;
    assert_eq!(ground.number("SELECT COUNT(*) FROM payments WHERE status = 'paid'").await, 0);
}

/// PostgreSQL compares an enum or a `uuid` with no text.
#[tokio::test]
async fn on_postgres_keys_and_states_may_be_of_other_types() {
    const ORDERS: StateMachine = StateMachine::new("public.orders", "id", "state", &[("new", "done")])
        .key_type("uuid")
        .state_type("order_state");
    const VERSIONS: Versioned = Versioned::new("public.orders", "id", "version").key_type("uuid");
    let ground = Ground::new(Kind::Postgres).await;
    let id = "3f1c1f0e-6f3a-4b52-9f4b-0f6b7a1f2d3c";
    let tables = format!(
        "CREATE TYPE order_state AS ENUM ('new', 'done'); \
         CREATE TABLE orders (id UUID PRIMARY KEY, state order_state NOT NULL, version BIGINT NOT NULL); \
         INSERT INTO orders VALUES ('{id}', 'new', 0)"
    );
    ground.database.stranger().await.run(&tables).await;
    let Pool::Postgres(pool) = &ground.pool else { panic!("another pool") };
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(ORDERS.transition(&mut *tx, id, "done").await.unwrap(), Transitioned::Applied);
    assert_eq!(ORDERS.transition(&mut *tx, id, "done").await.unwrap(), Transitioned::AlreadyThere);
    assert_eq!(VERSIONS.advance(&mut *tx, id, 0).await.unwrap(), Advanced::Applied);
    assert_eq!(VERSIONS.advance(&mut *tx, id, 0).await.unwrap(), Advanced::Not { found: 1 });
}
