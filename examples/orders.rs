//! A small shop that takes an order once, however often it is sent. Its own service, no gateway in front.
//!
//! `cargo run --example orders` starts it on a SQLite file and prints how to try it. With
//! `--stop-after begin|insert|complete|commit` a handler stops after that step, so that you can end the
//! process there (`kill -9`) and see what is left.

use std::net::SocketAddr;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use clap::Parser;
use oncegate::Oncegate;
use oncegate::broker::webhook::{WebhookOptions, WebhookPublisher, WebhookSecret};
use oncegate::broker::{Hidden, Publisher};
use oncegate::entry::StoredResponse;
use oncegate::layer::{CompleteError, Completed, Event, Execution, Operation};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

/// A shop that takes an order once, however often it is sent.
#[derive(Debug, Parser)]
struct Flags {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:3000")]
    listen: SocketAddr,
    /// The shop's database, which keeps Oncegate's tables too: that is what makes one commit of both.
    #[arg(long, default_value = "sqlite://orders.db")]
    database: String,
    /// Where the shop's events are posted to, as webhooks. Without, whoever relays this database's outbox does it.
    #[arg(long)]
    announce_to: Option<String>,
    /// Stops every handler after this step.
    #[arg(long)]
    stop_after: Option<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Step {
    Begin,
    Insert,
    Complete,
    Commit,
}

#[derive(Debug)]
struct Shop {
    pool: SqlitePool,
    stop_after: Option<Step>,
}

#[derive(Debug, Deserialize)]
struct Order {
    order_no: String,
    item: String,
    cents: i64,
}

#[derive(Debug, Serialize)]
struct Receipt {
    id: i64,
    order_no: String,
}

/// Takes an order. Each comment says what a crash right there leaves behind.
async fn create(
    State(shop): State<Arc<Shop>>,
    execution: Execution,
    Json(order): Json<Order>,
) -> Result<Completed, Failure> {
    // An entry in progress, made durable before this handler was called. Once this process is known to be
    // gone, it becomes Unknown. `run_again_if_unknown` says that such a request may be executed again.
    let mut tx = shop.pool.begin_with("BEGIN IMMEDIATE").await?;
    shop.reached(Step::Begin).await;

    let insert = "INSERT INTO orders (order_no, item, cents) VALUES (?, ?, ?)";
    let inserted = sqlx::query(insert).bind(&order.order_no).bind(&order.item).bind(order.cents);
    let id = inserted.execute(&mut *tx).await?.last_insert_rowid();
    // The same: the database rolls the row back.
    shop.reached(Step::Insert).await;

    let receipt = Receipt { id, order_no: order.order_no };
    let response = StoredResponse::json(StatusCode::CREATED, &receipt)?;
    let placed = Event::new("placed", "com.example.order.placed", "orders").key(&*receipt.order_no).json(&receipt)?;
    let completed = execution.complete_in(&mut *tx, response, &[placed]).await?;
    // The same: order, entry and event are rolled back together.
    shop.reached(Step::Complete).await;

    tx.commit().await?;
    // Order, answer and event are there, all three. Whoever asks again gets this answer, and the event is published
    // by this process, by its next run, or by another one that relays this database's outbox.
    shop.reached(Step::Commit).await;
    Ok(completed)
}

/// Why an order was not taken. What the client is told is not up to this alone: if the transaction has
/// committed all the same, the layer answers with what was stored.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("receipt: {0}")]
    Receipt(#[from] serde_json::Error),
    #[error("entry: {0}")]
    Entry(#[from] CompleteError),
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        eprintln!("order was not taken: {self}");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl Shop {
    async fn open(flags: &Flags) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::from_str(&flags.database)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // One writer at a time: a handler waits for another's transaction, and for Oncegate's.
            .busy_timeout(Duration::from_secs(5));
        let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await?;
        let table = "CREATE TABLE IF NOT EXISTS orders \
                     (id INTEGER PRIMARY KEY, order_no TEXT NOT NULL, item TEXT NOT NULL, cents INTEGER NOT NULL)";
        sqlx::query(table).execute(&pool).await?;
        Ok(Self { pool, stop_after: flags.stop_after })
    }

    async fn reached(&self, step: Step) {
        if self.stop_after == Some(step) {
            println!("stopped after {step:?}: kill -9 {}", std::process::id());
            std::future::pending::<()>().await;
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flags = Flags::parse();
    let shop = Shop::open(&flags).await?;
    let mut setup = Oncegate::setup(&flags.database, "not a secret: it stands in an example");
    if let Some(url) = &flags.announce_to {
        setup = setup.relay("default", webhook(url)?);
    }
    let oncegate = setup.open().await?;
    let create_order = Operation::new("create-order")?
        // The shop's own number is the key, so a second click with a new header still is one order.
        .keys(serde_json::from_str(r#"["body:/order_no", "header"]"#)?)
        // Right because `create` does nothing outside of its transaction.
        .run_again_if_unknown();
    let app = Router::new()
        .route("/orders", post(create))
        .layer(oncegate.layer(create_order).await?)
        .with_state(Arc::new(shop));

    let listener = tokio::net::TcpListener::bind(flags.listen).await?;
    println!("{}", invitation(listener.local_addr()?, &flags.database));
    axum::serve(listener, app).with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) }).await?;
    oncegate.close(Duration::from_secs(30)).await;
    Ok(())
}

/// Posts events, signed. A publisher to RabbitMQ, Kafka, NATS or Redis takes its place in a line.
fn webhook(url: &str) -> Result<Arc<dyn Publisher>, Box<dyn std::error::Error>> {
    let secret = WebhookSecret::parse("whsec_bm90IGEgc2VjcmV0OiBpdCBzdGFuZHMgaW4gYW4gZXhhbXBsZQ==")?;
    Ok(Arc::new(WebhookPublisher::new(WebhookOptions::new("default", Hidden::new(url), vec![secret]))?))
}

fn invitation(address: SocketAddr, database: &str) -> String {
    let order = |cents: u32| {
        format!(
            "  curl -i http://{address}/orders -H 'Content-Type: application/json' \
             -d '{{\"order_no\": \"1001\", \"item\": \"book\", \"cents\": {cents}}}'"
        )
    };
    let (once, other) = (order(1900), order(2900));
    let file = database.trim_start_matches("sqlite://");
    format!(
        "The shop is open. Order a book, as often as you like:\n{once}\n\
         The second answer is the first one's (Idempotent-Replayed: true). The same order at another price is refused:\n{other}\n\
         And there is one order, and one event that announces it:\n  sqlite3 {file} 'SELECT * FROM orders'\n  \
         sqlite3 {file} 'SELECT type, event_key, CAST(data AS TEXT) FROM events'\n\
         Ctrl-C closes the shop."
    )
}
