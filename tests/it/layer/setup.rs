//! Setting it up.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use oncegate::broker::embedded::{Embedded, Messages as _};
use oncegate::layer::Operation;
use oncegate::outbox::rule::EventRule;
use oncegate::outbox::store::Outbox as _;
use oncegate::{Oncegate, SetupError, clock};
use tokio::sync::Notify;

use super::{Answer, SECRET, request};
use crate::servers::database::{Database, Kind, fresh};
use crate::servers::outbox::written;

fn operation() -> Operation {
    Operation::new("create-order").unwrap()
}

fn by_number() -> Operation {
    operation().keys(serde_json::from_str(r#"["body:/order_no", "header"]"#).unwrap())
}

#[tokio::test]
async fn another_identity_than_on_record_is_refused_until_it_is_accepted() {
    let database = Database::create(Kind::Sqlite).await;
    let oncegate = Oncegate::setup(&database.url, SECRET).open().await.unwrap();
    oncegate.layer(operation()).await.unwrap();
    oncegate.layer(operation().retention(Duration::from_secs(1))).await.unwrap();
    let refused = oncegate.layer(by_number()).await.unwrap_err();
    assert!(matches!(&refused, SetupError::Identity { recorded, .. } if recorded.contains("header")), "{refused}");
    oncegate.accept_identity(&by_number(), "order numbers since May").await.unwrap();
    oncegate.layer(by_number()).await.unwrap();
    assert!(matches!(oncegate.layer(operation()).await, Err(SetupError::Identity { .. })));
}

#[tokio::test]
async fn a_handler_that_may_outlast_the_lease_is_refused() {
    let database = Database::create(Kind::Sqlite).await;
    let oncegate = Oncegate::setup(&database.url, SECRET).open().await.unwrap();
    let refused = oncegate.layer(operation().timeout(Duration::from_secs(20))).await;
    assert!(matches!(refused, Err(SetupError::Timeout { .. })));
    oncegate.layer(operation().timeout(Duration::from_secs(19))).await.unwrap();
}

#[tokio::test]
async fn a_short_secret_is_refused_before_the_store_is_touched() {
    let refused = Oncegate::setup("postgres://127.0.0.1:1/nowhere", "short").open().await;
    assert!(matches!(refused, Err(SetupError::Secrets(_))));
}

#[tokio::test]
async fn a_closed_service_leaves_nothing_behind_and_its_successor_replays() {
    let database = Database::create(Kind::Sqlite).await;
    for expected in ["false", "true"] {
        let oncegate = Oncegate::setup(&database.url, SECRET).open().await.unwrap();
        assert!(oncegate.is_ready().await);
        let layer = oncegate.layer(operation()).await.unwrap();
        let app = Router::new().route("/orders", post(async || "made")).layer(layer);
        let answer = Answer::to(app, request("a", "-")).await;
        assert_eq!((answer.body.as_str(), answer.field("idempotent-replayed")), ("made", expected));
        oncegate.close(Duration::from_secs(10)).await;
        let alive = database.stranger().await.number("SELECT COUNT(*) FROM instances WHERE state = 1").await;
        assert_eq!(alive, 0);
    }
}

#[tokio::test]
async fn an_execution_that_outlives_its_service_is_answered_unrecorded_and_leaves_no_task() {
    let database = Database::create(Kind::Sqlite).await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let oncegate = Oncegate::setup(&database.url, SECRET).open().await.unwrap();
    let layer = oncegate.layer(operation()).await.unwrap();
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
        async move || {
            begun.notify_one();
            go_on.notified().await;
            "made"
        }
    };
    let app = Router::new().route("/orders", post(handler)).layer(layer);
    let asked = tokio::spawn(Answer::to(app, request("a", "-")));
    begun.notified().await;
    oncegate.close(Duration::ZERO).await;
    go_on.notify_one();
    let answer = tokio::time::timeout(Duration::from_secs(20), asked).await.unwrap().unwrap();
    assert_eq!((answer.body.as_str(), answer.field("oncegate-recorded")), ("made", "false"));
    let deadline = clock::now() + Duration::from_secs(10);
    while alive() > before {
        assert!(clock::now() < deadline, "{} tasks still try to record", alive() - before);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relayed_queue_keeps_the_lanes_that_it_has_and_is_relayed() {
    let (database, store) = fresh(Kind::Sqlite).await;
    let store = Arc::new(store);
    assert_eq!(store.open("default", 2).await.unwrap(), 2);
    let publisher = Arc::new(Embedded::new("default", store.clone()));
    let oncegate = Oncegate::setup(&database.url, SECRET).relay("default", publisher).open().await.unwrap();
    let announcing = operation().events(vec![EventRule::new("made", "com.example.made", "orders")]);
    let layer = oncegate.layer(announcing).await.unwrap();
    let app = Router::new().route("/orders", post(async || "made")).layer(layer);
    for key in ["a", "b", "c", "d"] {
        Answer::to(app.clone(), request(key, "-")).await;
    }
    let deadline = clock::now() + Duration::from_secs(30);
    while store.tail("default", None, 0, 10).await.unwrap().len() < 4 {
        assert!(clock::now() < deadline, "{:#?}", written(&database).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(written(&database).await.iter().all(|event| ["0", "1"].contains(&&*event.lane)));
    oncegate.close(Duration::from_secs(10)).await;
    assert_eq!(database.stranger().await.number("SELECT COUNT(*) FROM relays").await, 0);
}
