//! Several messages in one transaction.

use oncegate::inbox::{Begun, Message};

use super::{Ground, message, told};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    a_message_that_comes_twice_in_a_batch_is_first_and_then_a_duplicate,
    each_message_of_a_batch_gets_its_own_answer,
    versions_in_a_batch_count_in_the_order_of_the_messages,
    a_batch_that_is_rolled_back_leaves_nothing,
    a_batch_of_any_size_is_one_transaction,
);

async fn many(ground: &Ground, messages: &[Message]) -> Vec<String> {
    let mut tx = ground.pool.begin().await;
    let begun = tx.begin_many(&ground.inbox, messages).await.unwrap();
    let answers = begun.iter().map(told).collect();
    let mut receipts = Vec::new();
    for (message, begun) in messages.iter().zip(begun) {
        if let Begun::First(receipt) = begun {
            tx.effect(message).await;
            receipts.push(receipt);
        }
    }
    tx.commit(&ground.inbox, receipts).await.unwrap();
    answers
}

async fn a_message_that_comes_twice_in_a_batch_is_first_and_then_a_duplicate(kind: Kind) {
    let ground = Ground::new(kind).await;
    let batch = ["a", "b", "a", "a"].map(message);
    assert_eq!(many(&ground, &batch).await, ["first", "first", "duplicate", "duplicate"]);
    assert_eq!(many(&ground, &batch).await, ["duplicate"; 4]);
    assert_eq!((ground.effects().await, ground.rows().await), (2, [2, 0]));
    assert!(many(&ground, &[]).await.is_empty());
}

async fn each_message_of_a_batch_gets_its_own_answer(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.handle(&message("known").payload(b"1")).await;
    ground.handle(&message("v2").version("entity", 2).unwrap()).await;
    let batch = [
        message("new").payload(b"1"),
        message("known").payload(b"1"),
        message("known").payload(b"2"),
        message("v1").version("entity", 1).unwrap(),
        message("v1").version("entity", 1).unwrap(),
        message("new").payload(b"2"),
        message("v3").version("entity", 3).unwrap(),
        message("new"),
    ];
    let answers = [
        "first",
        "duplicate",
        "conflict",
        "stale behind 2",
        "stale behind 2",
        "conflict",
        "first after 2",
        "duplicate",
    ];
    assert_eq!(many(&ground, &batch).await, answers);
    assert_eq!((ground.effects().await, ground.rows().await), (4, [4, 1]));
}

async fn versions_in_a_batch_count_in_the_order_of_the_messages(kind: Kind) {
    let ground = Ground::new(kind).await;
    let state = |key, version| message(key).version("order", version).unwrap();
    let batch = [state("b", 2), state("a", 1), state("d", 4), state("c", 3), state("d2", 4), state("e", 5)];
    let answers = ["first", "stale behind 2", "first after 2", "stale behind 4", "duplicate", "first after 4"];
    assert_eq!(many(&ground, &batch).await, answers);
    assert_eq!((ground.effects().await, ground.rows().await), (3, [3, 1]));
    assert_eq!(ground.number("SELECT version FROM inbox_versions").await, 5);
    assert_eq!(ground.handle(&state("f", 5)).await, "duplicate");
}

async fn a_batch_that_is_rolled_back_leaves_nothing(kind: Kind) {
    let ground = Ground::new(kind).await;
    let batch = [message("a"), message("b").version("order", 1).unwrap()];
    let mut tx = ground.pool.begin().await;
    tx.begin_many(&ground.inbox, &batch).await.unwrap();
    tx.roll_back().await;
    assert_eq!(ground.rows().await, [0, 0]);
    assert_eq!(many(&ground, &batch).await, ["first", "first"]);
}

/// More than one statement takes.
async fn a_batch_of_any_size_is_one_transaction(kind: Kind) {
    const SIZE: usize = 600;
    let ground = Ground::new(kind).await;
    let of = |number: usize| message(&number.to_string()).version(&format!("order-{number}"), 1).unwrap();
    let known: Vec<_> = (0..SIZE).step_by(3).map(of).collect();
    assert_eq!(many(&ground, &known).await, vec!["first"; SIZE / 3]);
    let all: Vec<_> = (0..SIZE).map(of).collect();
    let expected: Vec<_> = (0..SIZE).map(|number| if number % 3 == 0 { "duplicate" } else { "first" }).collect();
    assert_eq!(many(&ground, &all).await, expected);
    let count = i64::try_from(SIZE).unwrap();
    assert_eq!((ground.effects().await, ground.rows().await), (count, [count, count]));
}
