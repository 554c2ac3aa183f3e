//! The library: a tower layer that makes a Rust service's own requests safe to send twice, without a gateway
//! in front.
//!
//! Both doors lead into one engine: keys, fingerprints, answers, problems and guarantees are the gateway's.
//! What a service has besides: its handler may finish the entry in its own transaction
//! ([`Execution::complete_in`]), so that its rows, the stored answer and the [events](Event) that it
//! announces are one commit and nothing can come between them.
//!
//! ```no_run
//! use axum::extract::State;
//! use axum::routing::post;
//! use axum::{Json, Router, http::StatusCode};
//! use oncegate::Oncegate;
//! use oncegate::entry::StoredResponse;
//! use oncegate::layer::{Completed, Execution, Operation};
//!
//! async fn create(
//!     State(pool): State<sqlx::PgPool>,
//!     execution: Execution,
//!     Json(order): Json<serde_json::Value>,
//! ) -> Result<Completed, StatusCode> {
//!     let failed = |_| StatusCode::INTERNAL_SERVER_ERROR;
//!     let mut tx = pool.begin().await.map_err(failed)?;
//!     sqlx::query("INSERT INTO orders (body) VALUES ($1)")
//!         .bind(order.to_string())
//!         .execute(&mut *tx)
//!         .await
//!         .map_err(failed)?;
//!     let response = StoredResponse::json(StatusCode::CREATED, &order).map_err(|_| StatusCode::BAD_REQUEST)?;
//!     let completed =
//!         execution.complete_in(&mut *tx, response, &[]).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
//!     tx.commit().await.map_err(failed)?;
//!     Ok(completed)
//! }
//!
//! # async fn run(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let oncegate = Oncegate::setup("postgres://localhost/shop", "a secret of 16 bytes or more").open().await?;
//! let layer = oncegate.layer(Operation::new("create-order")?).await?;
//! let app = Router::new().route("/orders", post(create)).layer(layer).with_state(pool);
//! # let _: Router = app;
//! # Ok(())
//! # }
//! ```
//!
//! A handler that does not call `complete_in` is treated as the gateway treats an upstream: its answer's
//! status decides, and it is stored by the layer after the handler has returned. A crash in between leaves
//! the entry Unknown.
//!
//! # SQLite
//!
//! SQLite has one writer at a time, and the layer's store is another connection to the same file than the
//! handler's. So:
//!
//! - Begin the handler's transaction with `BEGIN IMMEDIATE` ([`Pool::begin_with`]). A plain `BEGIN` that
//!   reads first can't become a writer once the store has written, and fails at once (`SQLITE_BUSY_SNAPSHOT`).
//! - Give the pool WAL mode and a `busy_timeout` of some seconds: its transactions wait for the store's, which
//!   take milliseconds.
//! - Keep the transaction short, and call no other service in it: meanwhile no request can be claimed. The
//!   store waits for about a second ([`SQLITE_BUSY`](crate::storage::SQLITE_BUSY)), then answers 503 to new
//!   requests; nothing is lost or done twice.
//!
//! [`Pool::begin_with`]: sqlx::Pool::begin_with

mod completed;
mod ending;
mod event;
mod execution;
mod future;
mod guarded;
mod handler;
mod idempotency;
mod operation;
mod service;

pub use completed::Completed;
pub use event::{Event, EventError};
pub use execution::{CompleteError, Execution, ExecutionRejection};
pub use future::ResponseFuture;
pub use idempotency::IdempotencyLayer;
pub use operation::Operation;
pub use service::IdempotencyService;
