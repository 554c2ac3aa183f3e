//! `GET /stats`: what happens now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Json};
use http::Response;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::{Admin, invalid, store_problem};
use crate::clock::{self, Instant};
use crate::engine::desk::Unsettled;
use crate::engine::ledger::StoreError;
use crate::http::reply::Caller;
use crate::outbox::desk::Parked;
use crate::telemetry::series::{EVERY, KEPT, Lag, Point, RESULTS, Series};

/// Where counting ends: more than that says no more than "many", and counting would cost. So many steps through an index,
/// however large the table is.
pub const COUNTED: u32 = 1_000;

/// How long what was counted is told to others as well, so that many who watch cost no more than one.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Seconds of a series, unless it is told otherwise.
const SECONDS: usize = 300;

/// What happens now: a series of this process, and what waits in the store.
#[derive(Debug, Default)]
pub struct Stats {
    series: Arc<Series>,
    /// What was counted last, and when.
    waiting: Mutex<Option<(Instant, Waiting)>>,
}

/// What waits for a person. Counts end at [`COUNTED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Entries whose outcome nobody knows.
    pub unknown: Unsettled,
    /// Dead letters.
    pub parked: Parked,
}

/// The query of `GET /stats`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct StatsQuery {
    #[serde(default = "seconds")]
    seconds: usize,
}

const fn seconds() -> usize {
    SECONDS
}

/// What operators watch.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(in crate::http) struct Told {
    /// Between two points.
    every_ms: u64,
    /// What this process has done, second by second, in order.
    series: Vec<PointTold>,
    /// What waits for a person, in the whole store; null while it can't be asked.
    #[schema(inline)]
    waiting: Option<WaitingTold>,
}

/// One point of the series.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct PointTold {
    /// When, in milliseconds since 1970.
    at_ms: i64,
    #[schema(inline)]
    requests: Requests,
    #[schema(inline)]
    latency_ms: Latency,
    /// Events that no queue has confirmed yet.
    #[schema(inline)]
    outbox: LagTold,
    #[schema(inline)]
    deliveries: Deliveries,
}

/// Requests that were answered since the point before, by what they were told.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Requests {
    /// Executed: the first of their key.
    first: u64,
    /// Told the first one's answer.
    replayed: u64,
    /// The first one still runs.
    processing: u64,
    /// The key belongs to another request.
    mismatch: u64,
    /// Nobody knows what became of the first one.
    unknown: u64,
    /// Expired, not kept, or the store was away.
    other: u64,
}

/// What requests of the last ten seconds took; null without any.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Latency {
    /// Half of them at most.
    p50: Option<f64>,
    /// All but one of a hundred at most.
    p99: Option<f64>,
}

/// What is not done yet.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct LagTold {
    /// How much, up to 10000 of each queue.
    unsent: u64,
    /// The age of the oldest.
    oldest_seconds: f64,
}

/// What goes to the handlers of subscriptions.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Deliveries {
    /// How much is not done yet, up to 10000 of each subscription.
    unsent: u64,
    /// The age of the oldest.
    oldest_seconds: f64,
    /// What came of those since the point before.
    results: BTreeMap<&'static str, u64>,
}

/// Up to 1000 of each are counted.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct WaitingTold {
    /// Entries whose outcome nobody knows.
    unknown: u64,
    /// For how long the oldest of them has been.
    oldest_unknown_seconds: Option<f64>,
    /// Events that no queue has taken.
    parked_events: u64,
    /// Deliveries that no handler has taken.
    parked_deliveries: u64,
}

/// `GET /stats`: the last minutes, and what waits for a person.
#[utoipa::path(
    get,
    path = "/stats",
    operation_id = "stats",
    tag = "operators",
    summary = "What happens now",
    description = "What this process did in the last minutes, second by second; and what waits for a person in the \
                   whole store.",
    params((
        "seconds" = Option<usize>,
        Query,
        description = "How much of the series: 1 to 600.",
        minimum = 1,
        maximum = 600,
        example = 60,
    )),
    responses(
        (
            status = 200,
            description = "The series and the counts.",
            body = Told,
            example = json!({
                "every_ms": 1000,
                "series": [{
                    "at_ms": 784_111_777_000_i64,
                    "requests":
                        { "first": 7, "replayed": 2, "processing": 1, "mismatch": 0, "unknown": 0, "other": 0 },
                    "latency_ms": { "p50": 12.5, "p99": 48.0 },
                    "outbox": { "unsent": 3, "oldest_seconds": 0.2 },
                    "deliveries": { "unsent": 0, "oldest_seconds": 0.0, "results": { "applied": 5 } },
                }],
                "waiting": {
                    "unknown": 2, "oldest_unknown_seconds": 340.0, "parked_events": 0, "parked_deliveries": 1,
                },
            }),
        ),
        (status = 400, description = "problem"),
        (status = 401, description = "problem"),
        (status = 403, description = "problem"),
        (status = 503, description = "problem"),
    ),
    security((), ("bearer" = []))
)]
pub(in crate::http) async fn stats(
    State(admin): State<Admin>,
    query: Result<Query<StatsQuery>, QueryRejection>,
    caller: Caller,
) -> Response<Body> {
    let seconds = match query {
        Ok(Query(StatsQuery { seconds })) if (1..=KEPT).contains(&seconds) => seconds,
        Ok(_) => return caller.refuse(invalid(format!("`seconds` is from 1 to {KEPT}"))),
        Err(rejection) => return caller.refuse(invalid(rejection.body_text())),
    };
    let waiting = admin.waiting().await.inspect_err(|error| drop(store_problem(error))).ok();
    let every_ms = u64::try_from(EVERY.as_millis()).unwrap_or(u64::MAX);
    let series = admin.points(seconds).iter().map(PointTold::of).collect();
    Json(Told { every_ms, series, waiting: waiting.map(WaitingTold::of) }).into_response()
}

impl Admin {
    /// What happens in this process, for whoever keeps it.
    #[must_use]
    pub fn series(&self) -> Arc<Series> {
        Arc::clone(&self.0.stats.series)
    }

    /// The last points of the series.
    #[must_use]
    pub fn points(&self, seconds: usize) -> Vec<Point> {
        self.0.stats.series.last(seconds)
    }

    /// What waits for a person. The store is asked by one at a time, and not more often than once a second.
    ///
    /// # Errors
    /// If it can't be asked.
    pub async fn waiting(&self) -> Result<Waiting, StoreError> {
        let mut counted = self.0.stats.waiting.lock().await;
        let now = clock::now();
        if let Some((_, waiting)) = counted.filter(|(at, _)| now < *at + COUNT_EVERY) {
            return Ok(waiting);
        }
        let unknown = self.0.entries.unsettled(COUNTED).await?;
        let waiting = Waiting { unknown, parked: self.0.events.parked(COUNTED).await? };
        *counted = Some((now, waiting));
        Ok(waiting)
    }
}

impl PointTold {
    fn of(point: &Point) -> Self {
        let [first, replayed, processing, mismatch, unknown, other] = point.requests;
        let millis = |took: Duration| took.as_secs_f64() * 1_000.0;
        let Lag { count, oldest } = point.deliveries;
        Self {
            at_ms: point.at_ms,
            requests: Requests { first, replayed, processing, mismatch, unknown, other },
            latency_ms: Latency { p50: point.p50.map(millis), p99: point.p99.map(millis) },
            outbox: LagTold { unsent: point.events.count, oldest_seconds: point.events.oldest.as_secs_f64() },
            deliveries: Deliveries {
                unsent: count,
                oldest_seconds: oldest.as_secs_f64(),
                results: RESULTS.into_iter().zip(point.results).collect(),
            },
        }
    }
}

impl WaitingTold {
    fn of(Waiting { unknown, parked }: Waiting) -> Self {
        Self {
            unknown: unknown.count,
            oldest_unknown_seconds: unknown.oldest.map(|oldest| oldest.as_secs_f64()),
            parked_events: parked.events,
            parked_deliveries: parked.deliveries,
        }
    }
}
