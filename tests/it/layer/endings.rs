//! How an execution ends in the handler's own transaction, on each database.

use http::StatusCode;

use super::{Answer, Shop, request};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    a_commit_completes_the_entry_and_is_replayed,
    a_rollback_leaves_nothing_and_the_key_is_free,
    a_success_that_was_not_committed_is_no_success,
    a_panic_before_the_commit_leaves_nothing,
    whatever_happens_after_the_commit_the_answer_is_the_stored_one,
    requests_that_come_at_once_are_one_order,
    a_settled_entry_fences_the_handler_out,
    what_a_handler_that_took_too_long_commits_still_counts,
    what_a_handler_that_took_too_long_rolls_back_is_released,
);

async fn a_commit_completes_the_entry_and_is_replayed(kind: Kind) {
    let shop = Shop::new(kind).await;
    let first = shop.order("a", "commit").await;
    assert_eq!((first.status, first.body.as_str()), (StatusCode::CREATED, "\"order of call 1\""));
    assert_eq!(first.field("idempotent-replayed"), "false");
    assert_eq!(first.field("idempotency-key"), "\"a\"");
    assert_eq!((shop.count("orders").await, shop.completed().await), (1, 1));

    let again = shop.order("a", "rollback").await;
    assert!(again.is_replay(), "{again:?}");
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(again.field("content-type"), "application/json");
    assert_eq!(again.field("idempotency-key-expires"), first.field("idempotency-key-expires"));
    assert_eq!((shop.calls(), shop.count("orders").await), (1, 1));
}

async fn a_rollback_leaves_nothing_and_the_key_is_free(kind: Kind) {
    let shop = Shop::new(kind).await;
    let first = shop.order("a", "rollback").await;
    assert_eq!((first.status, first.body.as_str()), (StatusCode::CONFLICT, "out of stock"));
    assert_eq!((shop.count("orders").await, shop.count("entries").await), (0, 0));

    let again = shop.order("a", "commit").await;
    assert_eq!((again.status, again.field("idempotent-replayed")), (StatusCode::CREATED, "false"));
    assert_eq!((shop.count("orders").await, shop.completed().await), (1, 1));
}

async fn a_success_that_was_not_committed_is_no_success(kind: Kind) {
    let shop = Shop::new(kind).await;
    let first = shop.order("a", "forget to commit").await;
    assert!(first.is_problem("unavailable"), "{first:?}");
    assert_eq!(first.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((shop.count("orders").await, shop.count("entries").await), (0, 0));

    assert_eq!(shop.order("a", "commit").await.status, StatusCode::CREATED);
    assert_eq!(shop.count("orders").await, 1);
}

async fn a_panic_before_the_commit_leaves_nothing(kind: Kind) {
    let shop = Shop::new(kind).await;
    let first = shop.order("a", "panic before the commit").await;
    assert!(first.is_problem("unavailable"), "{first:?}");
    assert_eq!((shop.count("orders").await, shop.count("entries").await), (0, 0));
    assert_eq!(shop.order("a", "commit").await.status, StatusCode::CREATED);
}

async fn whatever_happens_after_the_commit_the_answer_is_the_stored_one(kind: Kind) {
    let shop = Shop::new(kind).await;
    for (key, call, plan) in [("a", 1, "panic after the commit"), ("b", 2, "fail after the commit")] {
        let first = shop.order(key, plan).await;
        assert_eq!((first.status, first.body), (StatusCode::CREATED, format!("\"order of call {call}\"")));
        assert!(shop.order(key, "commit").await.is_replay());
    }
    assert_eq!((shop.count("orders").await, shop.completed().await, shop.calls()), (2, 2, 2));

    let first = shop.order("c", "add a cookie").await;
    assert_eq!((first.status, first.field("set-cookie")), (StatusCode::CREATED, "seen=1"));
    assert_eq!(shop.order("c", "commit").await.field("set-cookie"), "-", "it was for the first caller");
}

async fn requests_that_come_at_once_are_one_order(kind: Kind) {
    let shop = Shop::new(kind).await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut request = request("a", "commit");
        request.headers_mut().insert("prefer", "wait=10".parse().unwrap());
        clients.spawn(Answer::to(shop.app.clone(), request));
    }
    let answers = clients.join_all().await;
    for answer in &answers {
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::CREATED, "\"order of call 1\""));
    }
    assert_eq!(answers.iter().filter(|answer| answer.is_replay()).count(), 7);
    assert_eq!((shop.calls(), shop.count("orders").await), (1, 1));
}

async fn a_settled_entry_fences_the_handler_out(kind: Kind) {
    let shop = Shop::new(kind).await;
    let first = shop.order("a", "settled by somebody else").await;
    assert_eq!((first.status, first.body.as_str()), (StatusCode::INTERNAL_SERVER_ERROR, "fenced"));
    assert_eq!(first.field("oncegate-recorded"), "false");
    assert_eq!((shop.count("orders").await, shop.completed().await), (0, 0));
    assert_eq!(shop.count("entries").await, 1, "it is somebody else's, and left alone");
}

async fn what_a_handler_that_took_too_long_commits_still_counts(kind: Kind) {
    let shop = Shop::with(kind, |operation| operation.timeout(std::time::Duration::from_millis(50))).await;
    let first = shop.order("a", "late commit").await;
    assert!(first.is_problem("upstream-timeout"), "{first:?}");
    assert!(shop.order("a", "commit").await.is_problem("outcome-unknown"));
    shop.go_on.notify_one();
    let again = shop.ask_until("a", Answer::is_replay).await;
    assert_eq!((again.status, again.body.as_str()), (StatusCode::CREATED, "\"order of call 1\""));
    assert_eq!((shop.calls(), shop.count("orders").await), (1, 1));
}

async fn what_a_handler_that_took_too_long_rolls_back_is_released(kind: Kind) {
    let shop = Shop::with(kind, |operation| operation.timeout(std::time::Duration::from_secs(1))).await;
    let first = shop.order("a", "late rollback").await;
    assert!(first.is_problem("upstream-timeout"), "{first:?}");
    shop.go_on.notify_one();
    let again = shop.ask_until("a", |answer| answer.status == StatusCode::CREATED).await;
    assert_eq!((again.field("idempotent-replayed"), again.body.as_str()), ("false", "\"order of call 2\""));
    assert_eq!(shop.count("orders").await, 1);
}
