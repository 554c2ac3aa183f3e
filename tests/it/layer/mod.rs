//! The tower layer, around handlers that finish their entry in their own transaction, and others.

mod endings;
mod events;
mod faults;
mod handlers;
mod orders;
mod sealing;
mod setup;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use oncegate::Oncegate;
use oncegate::entry::StoredResponse;
use oncegate::layer::{CompleteError, Event, Execution, Operation};
use oncegate::storage::TxConnection;
use sqlx::Executor;
use tokio::sync::Notify;
use tower::ServiceExt as _;

use crate::servers::database::{Database, Kind, Stranger};

const SECRET: &str = "a secret of the tests";

/// A service whose handler does what a request's `x-plan` says. The plan is no part of the request's
/// meaning, so a retry may have another one.
struct Shop {
    database: Arc<Database>,
    app: Router,
    /// Keeps the lease while the shop is open.
    _oncegate: Oncegate,
    /// How often the handler was called.
    calls: Arc<AtomicU32>,
    /// Lets a handler go on that waits.
    go_on: Arc<Notify>,
}

#[derive(Clone)]
struct Handling {
    database: Arc<Database>,
    calls: Arc<AtomicU32>,
    go_on: Arc<Notify>,
}

impl Shop {
    async fn new(kind: Kind) -> Self {
        Self::with(kind, |operation| operation).await
    }

    async fn with(kind: Kind, adapt: impl FnOnce(Operation) -> Operation) -> Self {
        let database = Database::create(kind).await;
        let oncegate = Oncegate::setup(&database.url, SECRET).open().await.unwrap();
        Self::of(database, oncegate, adapt).await
    }

    async fn of(database: Database, oncegate: Oncegate, adapt: impl FnOnce(Operation) -> Operation) -> Self {
        let mut stranger = database.stranger().await;
        stranger.run("CREATE TABLE orders (item VARCHAR(20))").await;
        let layer = oncegate.layer(adapt(Operation::new("create-order").unwrap())).await.unwrap();
        let (database, calls, go_on) = (Arc::new(database), Arc::default(), Arc::default());
        let handling =
            Handling { database: Arc::clone(&database), calls: Arc::clone(&calls), go_on: Arc::clone(&go_on) };
        let app = Router::new().route("/orders", post(order)).layer(layer).with_state(handling);
        Self { database, app, _oncegate: oncegate, calls, go_on }
    }

    /// Sends the order `key`, to be handled by `plan`.
    async fn order(&self, key: &str, plan: &str) -> Answer {
        Answer::to(self.app.clone(), request(key, plan)).await
    }

    /// Sends the order until it is no longer being processed.
    async fn ask_until(&self, key: &str, done: impl Fn(&Answer) -> bool) -> Answer {
        let deadline = oncegate::clock::now() + std::time::Duration::from_secs(10);
        loop {
            let answer = self.order(key, "commit").await;
            if done(&answer) {
                return answer;
            }
            assert!(oncegate::clock::now() < deadline, "{answer:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn count(&self, table: &str) -> i64 {
        self.database.stranger().await.number(&format!("SELECT COUNT(*) FROM {table}")).await
    }

    async fn completed(&self) -> i64 {
        self.count("entries WHERE state = 3").await
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }
}

fn request(key: &str, plan: &str) -> Request {
    http::Request::post("/orders")
        .header("idempotency-key", key)
        .header("x-plan", plan)
        .body(Body::from("book"))
        .unwrap()
}

/// What a client sees.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    async fn to(app: Router, request: Request) -> Self {
        Self::of(app.oneshot(request).await.unwrap()).await
    }

    async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        Self { status: parts.status, headers: parts.headers, body: String::from_utf8(body.to_vec()).unwrap() }
    }

    fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("-", |value| value.to_str().unwrap())
    }

    /// Whether it is the problem of that name, with its retry advice.
    fn is_problem(&self, slug: &str) -> bool {
        self.field("content-type") == "application/problem+json" && self.body.contains(&format!("/problems/{slug}\""))
    }

    fn is_replay(&self) -> bool {
        self.field("idempotent-replayed") == "true"
    }
}

async fn order(State(handling): State<Handling>, execution: Option<Execution>, headers: HeaderMap) -> Response {
    let plan = headers["x-plan"].to_str().unwrap().to_owned();
    let call = handling.calls.fetch_add(1, Ordering::SeqCst) + 1;
    let Some(execution) = execution else { return "no key".into_response() };
    if plan == "panic" {
        panic!("the handler's own");
    }
    if plan.starts_with("late") {
        handling.go_on.notified().await;
    }
    if plan == "settled by somebody else" {
        let id = handling.database.literal(&execution.id().0);
        let nonce = handling.database.literal(&[7; 16]);
        handling.database.stranger().await.run(&format!("UPDATE entries SET nonce = {nonce} WHERE id = {id}")).await;
    }
    if let Ok(status) = plan.parse::<u16>() {
        return (StatusCode::from_u16(status).unwrap(), "by status").into_response();
    }
    let response = StoredResponse::json(StatusCode::CREATED, &format!("order of call {call}")).unwrap();
    match handling.database.stranger().await {
        Stranger::Sqlite(mut connection) => place(&mut connection, execution, response, &plan).await,
        Stranger::Postgres(mut connection) => place(&mut connection, execution, response, &plan).await,
        Stranger::MySql(mut connection) => place(&mut connection, execution, response, &plan).await,
    }
}

async fn place<C>(connection: &mut C, execution: Execution, response: StoredResponse, plan: &str) -> Response
where
    C: TxConnection + sqlx::Connection,
    for<'c> &'c mut C: Executor<'c, Database = C::Database>,
{
    let mut transaction = connection.begin().await.unwrap();
    let tx: &mut C = &mut transaction;
    tx.execute("INSERT INTO orders VALUES ('book')").await.unwrap();
    let placed = Event::new("placed", "com.example.placed", "orders")
        .key("book")
        .data("application/json", response.body.clone());
    let completed = match execution.complete_in(tx, response, &[placed]).await {
        Ok(completed) => completed,
        Err(error) => {
            assert!(matches!(error, CompleteError::Fenced), "{error}");
            transaction.rollback().await.unwrap();
            return (StatusCode::INTERNAL_SERVER_ERROR, "fenced").into_response();
        }
    };
    match plan {
        "commit" | "late commit" | "settled by somebody else" => transaction.commit().await.unwrap(),
        "rollback" | "late rollback" => {
            transaction.rollback().await.unwrap();
            return (StatusCode::CONFLICT, "out of stock").into_response();
        }
        "forget to commit" => drop(transaction),
        "panic before the commit" => panic!("the handler's own"),
        "panic after the commit" => {
            transaction.commit().await.unwrap();
            panic!("the handler's own");
        }
        "fail after the commit" => {
            transaction.commit().await.unwrap();
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        "add a cookie" => {
            transaction.commit().await.unwrap();
            return ([("set-cookie", "seen=1")], completed).into_response();
        }
        plan => panic!("no plan {plan}"),
    }
    completed.into_response()
}
