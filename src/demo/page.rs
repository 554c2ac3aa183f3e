//! A checkout in a browser, and beside it what really happened.

use axum::Router;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Json};
use axum::routing::get;
use http::{HeaderName, HeaderValue, header};
use serde::Serialize;

use super::consumer::Arrived;
use super::points::Accounts;
use super::upstream::Books;

/// Orders and events that are shown, the newest first.
const SHOWN: usize = 8;

const PAGE: &str = include_str!("page.html");

/// The page is all that it needs, and nobody may frame its buttons.
const POLICY: (HeaderName, HeaderValue) = (
    header::CONTENT_SECURITY_POLICY,
    HeaderValue::from_static(
        "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
);

/// What really happened, wherever it is known.
#[derive(Debug, Clone)]
pub(super) struct Truth {
    pub(super) books: Books,
    pub(super) accounts: Accounts,
    pub(super) arrived: Arrived,
}

#[derive(Debug, Serialize)]
struct Told {
    orders: Vec<Order>,
    events: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Order {
    order_no: u64,
    /// How often the service executed it.
    executed: u64,
    /// How often it is in the queue.
    announced: usize,
    /// How often the consumer of points was called for it.
    called: u64,
    /// How often points were granted for it.
    granted: usize,
}

/// The page and what it asks for.
pub(super) fn app(truth: Truth) -> Router {
    Router::new().route("/demo", get(page)).route("/demo/state", get(told)).with_state(truth)
}

async fn page() -> impl IntoResponse {
    ([POLICY], Html(PAGE))
}

async fn told(State(truth): State<Truth>) -> Json<Told> {
    let lines = truth.arrived.lines();
    let order = |(order_no, executed): (u64, u64)| {
        let (called, granted) = truth.accounts.of(order_no);
        let announced = lines.iter().filter(|line| line.contains(&format!("\"order_no\":{order_no},"))).count();
        Order { order_no, executed, announced, called, granted }
    };
    let orders = truth.books.newest(SHOWN).into_iter().map(order).collect();
    let events = lines.iter().rev().take(SHOWN).cloned().collect();
    Json(Told { orders, events })
}
