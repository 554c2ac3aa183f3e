//! What a handler sees and what its answers mean, where the database does not matter.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode};
use oncegate::Oncegate;
use oncegate::entry::Scope;
use oncegate::http::body::BodyLimits;
use oncegate::layer::{Execution, Operation};
use oncegate::problem::{Problem, Situation};
use tower::{Layer as _, ServiceExt as _};

use super::{Answer, SECRET, Shop, request};
use crate::servers::database::{Database, Kind};

#[tokio::test]
async fn without_complete_in_the_status_decides() {
    let shop = Shop::new(Kind::Sqlite).await;
    for (status, again) in [("201", "replay"), ("422", "replay"), ("404", "runs"), ("500", "held"), ("408", "held")] {
        let first = shop.order(status, status).await;
        assert_eq!((first.status.as_str(), first.body.as_str()), (status, "by status"));
        let answer = shop.order(status, "201").await;
        let seen = match () {
            () if answer.is_replay() => "replay",
            () if answer.is_problem("outcome-unknown") => "held",
            () if answer.status == StatusCode::CREATED => "runs",
            () => panic!("{answer:?}"),
        };
        assert_eq!(seen, again, "{status}");
    }
}

#[tokio::test]
async fn a_panic_before_complete_in_is_unknown() {
    let shop = Shop::new(Kind::Sqlite).await;
    for plan in ["panic", "commit"] {
        let answer = shop.order("a", plan).await;
        assert!(answer.is_problem("outcome-unknown"), "{answer:?}");
        assert_ne!(answer.field("retry-after"), "-");
    }
    assert_eq!(shop.calls(), 1);
}

#[tokio::test]
async fn an_unknown_request_runs_again_where_the_operation_says_so() {
    let shop = Shop::with(Kind::Sqlite, Operation::run_again_if_unknown).await;
    assert!(shop.order("a", "panic").await.is_problem("outcome-unknown"));
    assert!(shop.order("a", "forget to commit").await.is_problem("outcome-unknown"), "the first one still is unknown");
    assert_eq!(shop.order("a", "commit").await.status, StatusCode::CREATED);
    assert!(shop.order("a", "commit").await.is_replay());
    assert_eq!((shop.calls(), shop.count("orders").await), (3, 1));
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_nothing() {
    let shop = Shop::new(Kind::Sqlite).await;
    let app = shop.app.clone();
    let client = tokio::spawn(Answer::to(app, request("a", "late commit")));
    while shop.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.abort();
    shop.go_on.notify_one();
    let again = shop.ask_until("a", Answer::is_replay).await;
    assert_eq!((again.status, shop.calls()), (StatusCode::CREATED, 1));
}

#[tokio::test]
async fn another_request_under_the_same_key_is_refused() {
    let shop = Shop::new(Kind::Sqlite).await;
    shop.order("a", "commit").await;
    let mut other = request("a", "commit");
    *other.body_mut() = Body::from("another book");
    assert!(Answer::to(shop.app.clone(), other).await.is_problem("key-reused"));
    assert_eq!(shop.calls(), 1);
}

#[tokio::test]
async fn a_request_without_a_key_is_refused_or_passes() {
    let keyless = || {
        let mut request = request("a", "commit");
        request.headers_mut().remove("idempotency-key");
        request
    };
    let shop = Shop::new(Kind::Sqlite).await;
    assert!(Answer::to(shop.app.clone(), keyless()).await.is_problem("key-missing"));
    let mut two = request("a", "commit");
    two.headers_mut().append("idempotency-key", "b".parse().unwrap());
    assert!(Answer::to(shop.app.clone(), two).await.is_problem("key-invalid"));
    assert_eq!(shop.calls(), 0);

    let shop = Shop::with(Kind::Sqlite, Operation::optional_key).await;
    assert_eq!(Answer::to(shop.app.clone(), keyless()).await.body, "no key");
    assert_eq!(shop.count("entries").await, 0);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_anything_else() {
    let limits = BodyLimits { bytes: 3, total: Duration::from_secs(1), idle: Duration::from_secs(1) };
    let shop = Shop::with(Kind::Sqlite, |operation| operation.body(limits)).await;
    assert!(shop.order("a", "commit").await.is_problem("body-too-large"));
    assert_eq!((shop.calls(), shop.count("entries").await), (0, 0));
}

#[tokio::test]
async fn an_answer_over_the_limit_is_given_and_not_kept() {
    let shop = Shop::with(Kind::Sqlite, |operation| operation.response_limit(3)).await;
    for plan in ["commit", "201"] {
        let first = shop.order(plan, plan).await;
        assert_eq!(first.status, StatusCode::CREATED);
        assert!(first.body.len() > 3, "{first:?}");
        assert!(shop.order(plan, plan).await.is_problem("response-not-kept"));
    }
}

#[tokio::test]
async fn the_scope_hook_tells_callers_apart_and_turns_them_away() {
    let by_tenant = |operation: Operation| {
        operation.scope("x-tenant", |head| {
            let tenant = head.headers.get("x-tenant").and_then(|value| value.to_str().ok());
            Scope::tenant(tenant.unwrap_or_default()).map_err(|_| Problem::new(Situation::Unauthenticated))
        })
    };
    let shop = Shop::with(Kind::Sqlite, by_tenant).await;
    let of = |tenant: &'static str| {
        let mut request = request("a", "commit");
        request.headers_mut().insert("x-tenant", tenant.parse().unwrap());
        Answer::to(shop.app.clone(), request)
    };
    assert_eq!(of("acme").await.body, "\"order of call 1\"");
    assert_eq!(of("other").await.body, "\"order of call 2\"");
    assert!(of("acme").await.is_replay());
    assert!(of("").await.is_problem("unauthenticated"), "before the old answer is looked for");
}

/// Tells what it knows of its execution.
async fn about(execution: Execution) -> String {
    let step = execution.downstream_key_of("mail");
    assert_ne!(step, execution.downstream_key_of("print"));
    format!("{} {} {step}", execution.attempt(), execution.downstream_key())
}

async fn app(operation: Operation) -> (Router, Oncegate, Database) {
    let database = Database::create(Kind::Sqlite).await;
    let oncegate = Oncegate::setup(&database.url, SECRET).open().await.unwrap();
    let layer = oncegate.layer(operation).await.unwrap();
    let routes = Router::new()
        .route("/shops/{shop}/orders", post(about))
        .route("/twice", post(async |_: Execution, _: Execution| "twice"))
        .route("/fails-first", post(fails_first))
        .route("/orders", get(async |execution: Option<Execution>| execution.map_or("no execution", |_| "execution")));
    (routes.layer(layer), oncegate, database)
}

async fn fails_first(execution: Execution) -> (StatusCode, String) {
    let status = if execution.attempt() == 1 { StatusCode::BAD_GATEWAY } else { StatusCode::OK };
    (status, format!("{} {}", execution.downstream_key(), execution.downstream_key_of("mail")))
}

fn post_to(path: &str, key: Option<&str>) -> Request {
    let mut request = http::Request::post(path).body(Body::empty()).unwrap();
    if let Some(key) = key {
        request.headers_mut().insert("idempotency-key", key.parse().unwrap());
    }
    request
}

#[tokio::test]
async fn a_path_parameter_may_be_the_key() {
    let keys = serde_json::from_str(r#"["path:shop"]"#).unwrap();
    let (app, _oncegate, _database) = app(Operation::new("orders").unwrap().keys(keys)).await;
    let first = Answer::to(app.clone(), post_to("/shops/caf%C3%A9/orders", None)).await;
    assert_eq!(first.field("idempotency-key"), "%\"caf%c3%a9\"");
    assert!(Answer::to(app.clone(), post_to("/shops/caf%C3%A9/orders", None)).await.is_replay());
    assert!(!Answer::to(app, post_to("/shops/other/orders", None)).await.is_replay());
}

/// axum strips the prefix for what is nested, and the layer is nested with it.
#[tokio::test]
async fn the_same_key_under_another_prefix_is_another_request() {
    let database = Database::create(Kind::Sqlite).await;
    let oncegate = Oncegate::setup(&database.url, SECRET).open().await.unwrap();
    let layer = oncegate.layer(Operation::new("orders").unwrap()).await.unwrap();
    let orders = || Router::new().route("/orders", post(async || "ordered")).layer(layer.clone());
    let app = Router::new().nest("/shops/{shop}", orders()).nest("/stores", orders());
    assert_eq!(Answer::to(app.clone(), post_to("/shops/1/orders", Some("a"))).await.status, StatusCode::OK);
    for other in ["/shops/2/orders", "/stores/orders"] {
        let told = Answer::to(app.clone(), post_to(other, Some("a"))).await;
        assert_eq!(told.status, StatusCode::UNPROCESSABLE_ENTITY, "{other}: {told:?}");
    }
    assert!(Answer::to(app, post_to("/shops/1/orders", Some("a"))).await.is_replay());
}

#[tokio::test]
async fn the_downstream_key_is_the_same_for_every_attempt_and_no_other_request() {
    let (app, _oncegate, _database) = app(Operation::new("orders").unwrap().run_again_if_unknown()).await;
    let first = Answer::to(app.clone(), post_to("/fails-first", Some("a"))).await;
    let second = Answer::to(app.clone(), post_to("/fails-first", Some("a"))).await;
    assert_eq!((first.status, second.status), (StatusCode::BAD_GATEWAY, StatusCode::OK));
    assert_eq!(first.body, second.body);
    let other = Answer::to(app, post_to("/fails-first", Some("b"))).await;
    let keys: HashSet<_> = first.body.split(' ').chain(other.body.split(' ')).collect();
    assert_eq!(keys.len(), 4, "one for each step of each request: {keys:?}");
    assert!(keys.iter().all(|key| key.trim_start_matches("c-").len() == 64), "{keys:?}");
}

#[tokio::test]
async fn safe_methods_pass_and_an_execution_is_extracted_once() {
    let (app, _oncegate, _database) = app(Operation::new("orders").unwrap()).await;
    let get = http::Request::get("/orders").header("idempotency-key", "a").body(Body::empty()).unwrap();
    let answer = Answer::to(app.clone(), get).await;
    assert_eq!((answer.body.as_str(), answer.field("idempotent-replayed")), ("no execution", "-"));
    let twice = Answer::to(app, post_to("/twice", Some("a"))).await;
    assert_eq!(twice.status, StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn any_tower_service_may_be_inside_and_its_error_comes_out() {
    let database = Database::create(Kind::Sqlite).await;
    let oncegate = Oncegate::setup(&database.url, SECRET).open().await.unwrap();
    let layer = oncegate.layer(Operation::new("orders").unwrap()).await.unwrap();
    let fails = layer.layer(tower::service_fn(async |_: Request| Err::<axum::response::Response, _>("broken")));
    assert_eq!(fails.clone().oneshot(post_to("/", Some("a"))).await.unwrap_err(), "broken");
    let held = Answer::of(fails.oneshot(post_to("/", Some("a"))).await.unwrap()).await;
    assert!(held.is_problem("outcome-unknown"), "it was called: {held:?}");

    let echo = layer.layer(tower::service_fn(async |request: Request| {
        assert_eq!(request.headers().len(), 2, "key and request id");
        Ok::<_, Infallible>(axum::response::Response::new(request.into_body()))
    }));
    let mut request = post_to("/echo", Some("b"));
    *request.body_mut() = Body::from("book");
    let answer = Answer::of(echo.oneshot(request).await.unwrap()).await;
    assert_eq!(answer.body, "book", "the handler gets the body whole");
}

#[tokio::test]
async fn what_belongs_to_one_exchange_is_not_replayed() {
    let database = Database::create(Kind::Sqlite).await;
    let oncegate = Oncegate::setup(&database.url, SECRET).open().await.unwrap();
    let excluded = vec![http::HeaderName::from_static("x-secret")];
    let layer = oncegate.layer(Operation::new("orders").unwrap().exclude(excluded)).await.unwrap();
    let fields = [("set-cookie", "a=1"), ("x-secret", "1"), ("location", "/orders/1"), ("link", "</a>")];
    let app = Router::new().route("/", post(async move || (fields, "made"))).layer(layer);
    let first: HeaderMap = Answer::to(app.clone(), post_to("/", Some("a"))).await.headers;
    assert!(fields.iter().all(|(name, _)| first.contains_key(*name)));
    let replay = Answer::to(app, post_to("/", Some("a"))).await;
    let seen = fields.map(|(name, _)| replay.field(name));
    assert_eq!(seen, ["-", "-", "/orders/1", "</a>"]);
    assert_eq!(replay.field("via"), "-", "there is no gateway");
}
