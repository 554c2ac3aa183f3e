use oncegate::engine::ledger::StoreError;
use oncegate::inbox::store::{Cursor, Deposited, Deposits as _, NewDelivery};
use oncegate::storage::Store;

use super::Ground;
use crate::deliveries::delivery;
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    a_cursor_moves_with_what_is_kept,
    who_was_overtaken_keeps_nothing,
    the_same_step_again_is_the_same_step,
    cursors_are_apart,
    of_two_who_read_the_same_one_moves_on,
);

fn step(from: i64, to: i64) -> Cursor {
    Cursor { queue: "default".into(), topic: "payments".into(), consumer: "points".into(), from, to }
}

async fn position(ground: &Ground) -> i64 {
    ground.store.position("default", "payments", "points").await.unwrap()
}

async fn a_cursor_moves_with_what_is_kept(kind: Kind) {
    let ground = Ground::new(kind).await;
    assert_eq!(position(&ground).await, 0);
    for (from, to) in [(0, 7), (7, 8), (8, 900)] {
        let deposited = ground.store.deposit(&[delivery(&format!("m-{to}"), "a", b"{}")], Some(&step(from, to))).await;
        assert_eq!(deposited.unwrap(), Deposited::Done { new: 1 });
        assert_eq!(position(&ground).await, to);
    }
    let skipped = ground.store.deposit(&[], Some(&step(900, 1000))).await;
    assert_eq!((skipped.unwrap(), position(&ground).await), (Deposited::Done { new: 0 }, 1000));

    let bad = delivery("m-2", &"k".repeat(256), b"{}");
    assert!(ground.store.deposit(&[bad], Some(&step(1000, 1001))).await.is_err());
    assert_eq!(position(&ground).await, 1000, "together or not at all");
}

async fn who_was_overtaken_keeps_nothing(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.store.deposit(&[], Some(&step(0, 10))).await.unwrap();
    for stale in [step(0, 5), step(3, 11), step(11, 12)] {
        let deposited = ground.store.deposit(&[delivery("m-1", "a", b"{}")], Some(&stale)).await;
        assert_eq!(deposited.unwrap(), Deposited::Overtaken, "{stale:?}");
    }
    assert_eq!((ground.count().await, position(&ground).await), (0, 10));
}

async fn the_same_step_again_is_the_same_step(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (all, step) = ([delivery("m-1", "a", b"{}")], step(0, 4));
    for new in [1, 0] {
        assert_eq!(ground.store.deposit(&all, Some(&step)).await.unwrap(), Deposited::Done { new });
    }
}

async fn cursors_are_apart(kind: Kind) {
    let ground = Ground::new(kind).await;
    let others = [
        Cursor { consumer: "stock".into(), ..step(0, 1) },
        Cursor { topic: "Payments".into(), ..step(0, 2) },
        Cursor { queue: "other".into(), ..step(0, 3) },
    ];
    for cursor in &others {
        ground.store.deposit(&[], Some(cursor)).await.unwrap();
    }
    assert_eq!(position(&ground).await, 0);
    for Cursor { queue, topic, consumer, to, .. } in &others {
        assert_eq!(ground.store.position(queue, topic, consumer).await.unwrap(), *to);
    }
}

/// Deposits, whoever is in the way.
async fn deposit(store: &Store, deliveries: &[NewDelivery], cursor: &Cursor) -> Deposited {
    loop {
        match store.deposit(deliveries, Some(cursor)).await {
            Ok(deposited) => return deposited,
            Err(StoreError::Conflict(_) | StoreError::Locked(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

async fn of_two_who_read_the_same_one_moves_on(kind: Kind) {
    let ground = Ground::new(kind).await;
    let other = ground.database.open();
    for round in 0..5 {
        let step = step(round * 10, round * 10 + 10);
        let further = Cursor { to: step.to - 3, ..step.clone() };
        let (mine, theirs) = ([delivery(&format!("a-{round}"), "a", b"")], [delivery(&format!("b-{round}"), "b", b"")]);
        let (one, two) = tokio::join!(deposit(&ground.store, &mine, &step), deposit(&other, &theirs, &further));
        let both =
            [(Deposited::Done { new: 1 }, Deposited::Overtaken), (Deposited::Overtaken, Deposited::Done { new: 1 })];
        assert!(both.contains(&(one, two)), "{one:?} {two:?}");
        let to = step.to;
        let rest = Cursor { from: position(&ground).await, to, ..step };
        ground.store.deposit(&[], Some(&rest)).await.unwrap();
    }
    assert_eq!(ground.count().await, 5);
}
