//! The payments service of the demo. It is as careless as many: it executes whatever it is sent, as often as
//! it is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::consumer::Arrived;
use super::page::{self, Truth};
use super::points::{self, Accounts};
use crate::clock::{self, Instant};

/// How long a slow payment takes: long enough for ten more requests to arrive meanwhile.
const SLOW: Duration = Duration::from_millis(700);

/// How long a hanging payment takes to answer: longer than the gateway waits and listens on.
const HANGS: Duration = Duration::from_secs(120);

/// When the service can tell what became of a payment that hung.
const SETTLES_AFTER: Duration = Duration::from_secs(4);

/// A request to pay.
#[derive(Debug, Deserialize)]
struct Payment {
    order_no: u64,
    amount: u64,
    /// How the service shall behave: `slow`, `fail` (the first time, before anything is done) or `hang`.
    #[serde(default)]
    behave: Behaviour,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Behaviour {
    #[default]
    Well,
    Slow,
    Fail,
    Hang,
}

/// What really happened.
#[derive(Debug, Clone, Default)]
pub(super) struct Books(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    /// By order number.
    executed: BTreeMap<u64, Execution>,
    /// Order numbers as they were first executed.
    order: Vec<u64>,
    /// Orders that have failed once, as asked.
    failed: BTreeSet<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Execution {
    count: u64,
    amount: u64,
    paid_at: Instant,
}

impl Books {
    fn open(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often each of the newest `count` orders was executed, the newest first.
    pub(super) fn newest(&self, count: usize) -> Vec<(u64, u64)> {
        let entries = self.open();
        let times = |order: &u64| (*order, entries.executed.get(order).map_or(0, |execution| execution.count));
        entries.order.iter().rev().take(count).map(times).collect()
    }
}

impl Entries {
    fn execute(&mut self, payment: &Payment) {
        let settles = if payment.behave == Behaviour::Hang { SETTLES_AFTER } else { Duration::ZERO };
        let fresh = Execution { count: 0, amount: payment.amount, paid_at: clock::now() + settles };
        let execution = self.executed.entry(payment.order_no).or_insert(fresh);
        execution.count += 1;
        if execution.count == 1 {
            self.order.push(payment.order_no);
        }
    }
}

/// The service.
pub(super) fn app(arrived: Arrived) -> Router {
    let (books, accounts) = (Books::default(), Accounts::default());
    let truth = Truth { books: books.clone(), accounts: accounts.clone(), arrived: arrived.clone() };
    let events = async move || arrived.lines().iter().fold(String::new(), |text, line| text + line + "\n");
    Router::new()
        .route("/v1/events", get(events))
        .route("/v1/payments", post(pay))
        .route("/v1/payments/by-order/{order_no}", get(by_order))
        .route("/v1/executed/{order_no}", get(executed))
        .with_state(books)
        .merge(points::app(accounts))
        .merge(page::app(truth))
}

async fn pay(State(books): State<Books>, Json(payment): Json<Payment>) -> Response {
    if payment.behave == Behaviour::Fail && books.open().failed.insert(payment.order_no) {
        return (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({ "error": "something broke" }))).into_response();
    }
    books.open().execute(&payment);
    match payment.behave {
        Behaviour::Slow => tokio::time::sleep(SLOW).await,
        Behaviour::Hang => tokio::time::sleep(HANGS).await,
        Behaviour::Well | Behaviour::Fail => {}
    }
    (StatusCode::CREATED, Json(receipt(payment.order_no, payment.amount, "paid"))).into_response()
}

async fn by_order(State(books): State<Books>, Path(order_no): Path<u64>) -> Response {
    let Some(execution) = books.open().executed.get(&order_no).copied() else {
        return (StatusCode::NOT_FOUND, Json(json!({ "error": "no such payment" }))).into_response();
    };
    let status = if execution.paid_at <= clock::now() { "paid" } else { "processing" };
    Json(receipt(order_no, execution.amount, status)).into_response()
}

async fn executed(State(books): State<Books>, Path(order_no): Path<u64>) -> String {
    let count = books.open().executed.get(&order_no).map_or(0, |execution| execution.count);
    format!("the upstream executed: {count}\n")
}

fn receipt(order_no: u64, amount: u64, status: &str) -> serde_json::Value {
    json!({ "order_no": order_no, "amount": amount, "status": status })
}
