//! The demo's consumer of a subscription: it grants points for payments, and crashes each time before it can answer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::response::Json;
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

/// What an event says of a payment.
#[derive(Debug, Deserialize)]
struct Payment {
    order_no: u64,
    amount: u64,
}

/// Its database. A real one has the key as a unique column, in the transaction that grants the points.
#[derive(Debug, Clone, Default)]
pub(super) struct Accounts(Arc<Mutex<Rows>>);

#[derive(Debug, Default)]
struct Rows {
    /// What was granted, by the `Idempotency-Key` of the delivery.
    granted: BTreeMap<String, Payment>,
    /// How often it was called, by order.
    calls: BTreeMap<u64, u64>,
}

impl Accounts {
    fn open(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the consumer was called for an order, and how often points were granted.
    pub(super) fn of(&self, order_no: u64) -> (u64, usize) {
        let rows = self.open();
        let granted = rows.granted.values().filter(|payment| payment.order_no == order_no).count();
        (rows.calls.get(&order_no).copied().unwrap_or_default(), granted)
    }
}

/// The consumer.
pub(super) fn app(accounts: Accounts) -> Router {
    Router::new().route("/v1/points", post(grant)).route("/v1/points", get(told)).with_state(accounts)
}

/// Grants points for a payment, unless that delivery's key is known.
async fn grant(State(accounts): State<Accounts>, headers: HeaderMap, Json(payment): Json<Payment>) -> StatusCode {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return StatusCode::BAD_REQUEST;
    };
    if accounts.open().commit(key, payment) {
        crash();
    }
    StatusCode::NO_CONTENT
}

impl Rows {
    /// Whether the points are new.
    fn commit(&mut self, key: &str, payment: Payment) -> bool {
        *self.calls.entry(payment.order_no).or_default() += 1;
        let is_new = !self.granted.contains_key(key);
        if is_new {
            self.granted.insert(key.to_owned(), payment);
        }
        is_new
    }
}

/// Ends the connection without an answer, as the end of the process would.
fn crash() {
    std::panic::resume_unwind(Box::new("the demo's consumer crashes on purpose"));
}

async fn told(State(accounts): State<Accounts>) -> String {
    accounts.open().to_string()
}

/// A line for each order.
impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (order_no, calls) in &self.calls {
            let granted = self.granted.values().filter(|payment| payment.order_no == *order_no);
            let (times, points) = granted.fold((0, 0), |(times, points), payment| (times + 1, points + payment.amount));
            writeln!(
                f,
                "order {order_no}: consumer called: {calls}, points granted: {times} x {}",
                points / times.max(1)
            )?;
        }
        Ok(())
    }
}
