//! Events that a handler announces in its own transaction, on each database.

use http::{HeaderMap, StatusCode};
use oncegate::entry::StoredResponse;
use oncegate::layer::{CompleteError, Event, EventError, Execution, Operation};
use oncegate::outbox::rule::EventRule;

use super::{Answer, SECRET, Shop, request};
use crate::servers::database::{Database, Kind, on_each_database};
use crate::servers::outbox::written;

on_each_database!(
    a_commit_announces_the_handlers_events_and_the_operations,
    without_a_commit_nothing_is_announced,
    whatever_happens_after_the_commit_it_was_announced,
    a_handler_that_was_fenced_out_announces_nothing,
);

fn ruled(operation: Operation) -> Operation {
    operation.events(vec![EventRule::new("answered", "com.example.answered", "answers")])
}

async fn a_commit_announces_the_handlers_events_and_the_operations(kind: Kind) {
    let shop = Shop::with(kind, ruled).await;
    shop.order("a", "commit").await;
    assert!(shop.order("a", "commit").await.is_replay());
    let events = written(&shop.database).await;
    let said: Vec<_> = events
        .iter()
        .map(|event| (&*event.kind, &*event.topic, &*event.key, &*event.source, &*event.data, &*event.state))
        .collect();
    let expected = [
        ("com.example.answered", "answers", "a", "/create-order", "\"order of call 1\"", "1.0.1"),
        ("com.example.placed", "orders", "book", "/create-order", "\"order of call 1\"", "1.0.1"),
    ];
    assert_eq!(said, expected);
    assert!(events[0].traceparent.starts_with("00-") && events[0].traceparent.ends_with("-00"));
    assert_eq!(events[0].traceparent, events[1].traceparent);
    // By status, too.
    shop.order("b", "201").await;
    let written = written(&shop.database).await;
    assert_eq!((written.len(), &*written[2].data), (3, "by status"));
}

async fn without_a_commit_nothing_is_announced(kind: Kind) {
    let shop = Shop::with(kind, ruled).await;
    for plan in ["rollback", "forget to commit", "panic before the commit"] {
        shop.order("a", plan).await;
        assert_eq!(shop.count("events").await, 0, "{plan}");
    }
    shop.order("a", "commit").await;
    assert_eq!((shop.count("events").await, shop.count("orders").await), (2, 1));
}

async fn whatever_happens_after_the_commit_it_was_announced(kind: Kind) {
    let shop = Shop::with(kind, ruled).await;
    for (key, plan) in [("a", "panic after the commit"), ("b", "fail after the commit")] {
        shop.order(key, plan).await;
        assert!(shop.order(key, "commit").await.is_replay());
    }
    assert_eq!(shop.count("events").await, 4);
}

async fn a_handler_that_was_fenced_out_announces_nothing(kind: Kind) {
    let shop = Shop::with(kind, ruled).await;
    shop.order("a", "settled by somebody else").await;
    assert_eq!((shop.count("events").await, shop.count("orders").await), (0, 0));
}

/// What a handler gets that announces `events` by itself.
async fn told(events: Vec<Event>) -> String {
    let database = Database::create(Kind::Sqlite).await;
    let oncegate = oncegate::Oncegate::setup(&database.url, SECRET).open().await.unwrap();
    let layer = oncegate.layer(ruled(Operation::new("create-order").unwrap())).await.unwrap();
    let url = database.url.clone();
    let handler = move |execution: Execution, _: HeaderMap| async move {
        let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.unwrap();
        let mut tx = sqlx::Connection::begin(&mut connection).await.unwrap();
        let response = StoredResponse::json(StatusCode::CREATED, &"made").unwrap();
        match execution.complete_in(&mut *tx, response, &events).await {
            Ok(completed) => {
                tx.commit().await.unwrap();
                axum::response::IntoResponse::into_response(completed)
            }
            Err(CompleteError::Event(error)) => {
                axum::response::IntoResponse::into_response((StatusCode::BAD_GATEWAY, error_name(&error)))
            }
            Err(error) => panic!("{error}"),
        }
    };
    let app = axum::Router::new().route("/orders", axum::routing::post(handler)).layer(layer);
    let answer = Answer::to(app, request("a", "-")).await;
    let entries = database.stranger().await.number("SELECT COUNT(*) FROM entries").await;
    let events = written(&database).await.len();
    format!("{} {entries} {events}", answer.body)
}

fn error_name(error: &EventError) -> &'static str {
    match error {
        EventError::NameTwice(_) => "twice",
        EventError::Queue(_) => "queue",
        EventError::Text { what } => what,
    }
}

#[tokio::test]
async fn a_mistake_in_an_event_leaves_nothing_behind() {
    let event = || Event::new("placed", "t", "p");
    assert_eq!(told(vec![event(), Event::new("paid", "t", "p")]).await, "\"made\" 1 3");
    assert_eq!(told(vec![event(), event()]).await, "twice 0 0");
    assert_eq!(told(vec![Event::new("answered", "t", "p")]).await, "twice 0 0", "the operation has one of that name");
    assert_eq!(told(vec![event().queue("elsewhere")]).await, "queue 0 0");
    assert_eq!(told(vec![event().key("")]).await, "key 0 0");
    assert_eq!(told(vec![event().source("a\0b")]).await, "source 0 0");
}
