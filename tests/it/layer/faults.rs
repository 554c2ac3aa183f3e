//! A store that hangs, and one that is contended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http::StatusCode;
use oncegate::Oncegate;
use oncegate::engine::Options;
use oncegate::entry::StoredResponse;
use oncegate::layer::{Completed, Execution, Operation};
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use tower::ServiceExt as _;

use super::{Answer, SECRET, request};
use crate::servers::database::{Database, Kind, Stranger};

/// A handler that commits or forgets to, and locks everybody out of the entries before it returns.
#[derive(Clone)]
struct Locking {
    database: Arc<Database>,
    commits: bool,
    lock: Arc<Mutex<Option<Stranger>>>,
}

async fn order_and_lock(State(locking): State<Locking>, execution: Execution) -> Completed {
    let mut connection = sqlx::PgConnection::connect(&locking.database.url).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let response = StoredResponse::json(StatusCode::CREATED, &"made").unwrap();
    let completed = execution.complete_in(&mut *tx, response, &[]).await.unwrap();
    if locking.commits {
        tx.commit().await.unwrap();
    } else {
        tx.rollback().await.unwrap();
    }
    let mut lock = locking.database.stranger().await;
    lock.run("BEGIN; LOCK TABLE entries IN ACCESS EXCLUSIVE MODE").await;
    *locking.lock.lock().unwrap() = Some(lock);
    completed
}

#[tokio::test]
async fn a_success_that_the_store_can_not_confirm_in_time_is_an_unknown_outcome() {
    for (commits, replayed) in [(true, "true"), (false, "false")] {
        let database = Arc::new(Database::create(Kind::Postgres).await);
        let options = Options { record_patience: Duration::from_millis(200), ..Options::default() };
        let oncegate = Oncegate::setup(&database.url, SECRET).engine(options).open().await.unwrap();
        let layer = oncegate.layer(Operation::new("orders").unwrap()).await.unwrap();
        let locking = Locking { database, commits, lock: Arc::default() };
        let app = Router::new().route("/orders", post(order_and_lock)).layer(layer.clone());
        let told = Answer::to(app.with_state(locking.clone()), request("a", "-")).await;
        assert!(told.is_problem("outcome-unknown"), "{told:?}");
        assert_eq!((told.status, told.field("oncegate-recorded")), (StatusCode::CONFLICT, "false"));

        let lock = locking.lock.lock().unwrap().take();
        lock.unwrap().run("ROLLBACK").await;
        let app = Router::new().route("/orders", post(async || (StatusCode::CREATED, "\"made\""))).layer(layer);
        let deadline = oncegate::clock::now() + Duration::from_secs(20);
        let again = loop {
            let again = Answer::to(app.clone(), request("a", "-")).await;
            if again.status == StatusCode::CREATED {
                break again;
            }
            assert!(oncegate::clock::now() < deadline, "{again:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!((again.field("idempotent-replayed"), again.body.as_str()), (replayed, "\"made\""));
    }
}

async fn insert(State(pool): State<SqlitePool>, execution: Execution) -> Response {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    sqlx::query("INSERT INTO orders VALUES ('book')").execute(&mut *tx).await.unwrap();
    let completed =
        execution.complete_in(&mut *tx, StoredResponse::json(StatusCode::CREATED, &"made").unwrap(), &[]).await;
    tx.commit().await.unwrap();
    completed.unwrap().into_response()
}

/// The pool and the store's writer are rivals for SQLite's one write lock.
#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_many_handlers_and_the_store_share_the_one_writer() {
    const ORDERS: i64 = 60;
    let database = Database::create(Kind::Sqlite).await;
    let oncegate = Oncegate::setup(&database.url, SECRET).open().await.unwrap();
    let options: SqliteConnectOptions = database.url.parse().unwrap();
    let options = options.journal_mode(SqliteJournalMode::Wal).busy_timeout(Duration::from_secs(10));
    let pool = SqlitePoolOptions::new().max_connections(8).connect_with(options).await.unwrap();
    sqlx::query("CREATE TABLE orders (item TEXT)").execute(&pool).await.unwrap();
    let layer = oncegate.layer(Operation::new("orders").unwrap()).await.unwrap();
    let app: Router = Router::new().route("/orders", post(insert)).layer(layer).with_state(pool);
    let mut clients = tokio::task::JoinSet::new();
    for key in 0..ORDERS {
        let request = http::Request::post("/orders").header("idempotency-key", format!("{key}"));
        let app = app.clone();
        clients.spawn(async move { app.oneshot(request.body(Body::from("book")).unwrap()).await.unwrap().status() });
    }
    for status in clients.join_all().await {
        assert_eq!(status, StatusCode::CREATED);
    }
    let mut stranger = database.stranger().await;
    assert_eq!(stranger.number("SELECT COUNT(*) FROM orders").await, ORDERS);
    assert_eq!(stranger.number("SELECT COUNT(*) FROM entries WHERE state = 3").await, ORDERS);
}
