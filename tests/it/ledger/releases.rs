use std::time::Duration;

use oncegate::engine::ledger::{FromState, Guarded, Ledger as _, Released, To};
use oncegate::entry::{Nonce, State};

use super::{Ground, HOUR, completed, expired, unknown};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    a_first_attempt_that_did_not_happen_frees_the_key,
    a_second_attempt_does_not_free_the_key,
    only_an_unknown_is_settled_as_not_executed,
    an_entry_is_forgotten_when_its_time_is_over_and_not_before,
    a_release_applied_again_leaves_the_next_claim_alone,
);

async fn a_first_attempt_that_did_not_happen_frees_the_key(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    assert_eq!(ground.release((row.0, Nonce::random()), Released::Settled).await, Guarded::Fenced);
    assert!(ground.read(row.0).await.is_some());
    assert_eq!(ground.release(row, Released::FirstAttempt).await, Guarded::Done);
    assert_eq!(ground.read(row.0).await, None);

    let row = ground.won("a").await;
    ground.transit(row, FromState::InProgress, unknown()).await;
    assert_eq!(ground.release(row, Released::FirstAttempt).await, Guarded::Done, "Unknown, first attempt");

    let row = ground.won("a").await;
    ground.transit(row, FromState::InProgress, completed(row.1, "paid")).await;
    for of in [Released::FirstAttempt, Released::Settled, Released::Forgotten] {
        assert_eq!(ground.release(row, of).await, Guarded::Fenced, "completed is final: {of:?}");
    }
    assert!(ground.read(row.0).await.is_some());
}

async fn a_second_attempt_does_not_free_the_key(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    ground.transit(row, FromState::InProgress, unknown()).await;
    let again = (row.0, Nonce::random());
    let to = To::InProgress { nonce: again.1, instance: ground.instance };
    ground.transit(row, FromState::Unknown, to).await;
    assert_eq!(ground.release(again, Released::Settled).await, Guarded::Fenced, "in progress");
    assert_eq!(ground.release(again, Released::FirstAttempt).await, Guarded::Fenced);
    assert_eq!(ground.release(row, Released::FirstAttempt).await, Guarded::Fenced);
    assert_eq!(ground.read(row.0).await.unwrap().attempt, 2);
}

async fn only_an_unknown_is_settled_as_not_executed(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    assert_eq!(ground.release(row, Released::Settled).await, Guarded::Fenced);
    ground.transit(row, FromState::InProgress, unknown()).await;
    assert_eq!(ground.release((row.0, Nonce::random()), Released::Settled).await, Guarded::Fenced);
    assert_eq!(ground.release(row, Released::Settled).await, Guarded::Done);
    assert_eq!(ground.read(row.0).await, None);
}

async fn an_entry_is_forgotten_when_its_time_is_over_and_not_before(kind: Kind) {
    let ground = Ground::new(kind).await;
    let over = ground.won("over").await;
    let remembered = ground.won("remembered").await;
    let forever = ground.won("forever").await;
    ground.transit(over, FromState::InProgress, expired(over.1, Some(Duration::ZERO))).await;
    ground.transit(remembered, FromState::InProgress, expired(remembered.1, Some(HOUR))).await;
    ground.transit(forever, FromState::InProgress, expired(forever.1, None)).await;
    assert_eq!(ground.release(over, Released::Forgotten).await, Guarded::Done);
    assert_eq!(ground.release(remembered, Released::Forgotten).await, Guarded::Fenced);
    assert_eq!(ground.release(forever, Released::Forgotten).await, Guarded::Fenced);

    assert_eq!(ground.store.reap(10).await.unwrap().tombstoned, 2);
    for row in [remembered, forever] {
        assert!(matches!(ground.read(row.0).await.unwrap().state, State::Tombstone { .. }));
        assert_eq!(ground.release(row, Released::Forgotten).await, Guarded::Fenced);
    }
    ground.database.stranger().await.run("UPDATE entries SET due_at = due_at - 3600000 WHERE state = 4").await;
    assert_eq!(ground.release(remembered, Released::Forgotten).await, Guarded::Done);
    assert_eq!(ground.release(forever, Released::Forgotten).await, Guarded::Fenced);
}

async fn a_release_applied_again_leaves_the_next_claim_alone(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    for _ in 0..2 {
        assert_eq!(ground.release(row, Released::FirstAttempt).await, Guarded::Done);
    }
    let next = ground.won("a").await;
    assert_eq!(ground.release(row, Released::FirstAttempt).await, Guarded::Done, "mine is gone");
    assert_eq!(ground.read(row.0).await.unwrap().nonce, next.1);
}
