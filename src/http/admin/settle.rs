//! `POST /entries/{id}/settle`, `POST /entries/settle`.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use http::header::IF_MATCH;
use http::{HeaderMap, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::Authority;
use super::given::{GivenResponse, GivenWord, Outcome};
use super::{Admin, answer, entries, invalid, order, shapes, store_problem};
use crate::clock::Timestamp;
use crate::engine::by_hand::{Many, NotSettled, Outcomes, Settled};
use crate::engine::desk::{Filter, MAX_LISTED, Stage, Version};
use crate::http::reply::Caller;
use crate::outbox::desk::Mode;
use crate::problem::{Problem, Situation};

/// Entries of one order, unless it is told otherwise: what a person can still look through.
const AT_MOST: u32 = 100;

/// The body of `POST /entries/settle`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ManyOrder {
    filter: GivenFilter,
    #[serde(default = "at_most")]
    #[schema(minimum = 1, maximum = 1000)]
    limit: u32,
    #[serde(default = "only_say")]
    dry_run: bool,
    outcome: Outcome,
    /// Of what was completed.
    response: Option<GivenResponse>,
    /// Kept on record.
    reason: String,
    /// Who says so. Not needed with an access token: its subject does.
    actor: Option<String>,
}

/// Which entries; one member at least.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenFilter {
    #[schema(value_type = Option<String>)]
    namespace: Option<Box<str>>,
    #[schema(value_type = Option<String>)]
    route: Option<Box<str>>,
    #[schema(value_type = Option<String>)]
    scope: Option<Box<str>>,
    #[schema(value_type = Option<String>)]
    key: Option<Box<str>>,
    /// In their state for at least so long.
    older_than_seconds: Option<u32>,
}

const fn at_most() -> u32 {
    AT_MOST
}

const fn only_say() -> bool {
    true
}

/// `POST /entries/{id}/settle`: gives an Unknown entry its outcome, if it still is as the operator has seen it.
#[utoipa::path(
    post,
    path = "/entries/{id}/settle",
    operation_id = "settleEntry",
    tag = "operators",
    summary = "Gives a request its outcome by a person's word",
    description = "Only where that is unknown, and only if the entry still is as the operator has seen it: `If-Match` is the \
                   `ETag` of the entry. Completed: its retries are answered so, and its events are sent. Not executed: its \
                   key is new again.",
    params(
        ("id" = String, Path, description = "64 hexadecimal digits.", example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
        ("If-Match" = String, Header, description = "The state that was seen.", example = "\"4be43cb1d6b5a1f0e2a9c7d81f3b5a60\""),
    ),
    request_body(
        content = GivenWord,
        description = "`outcome`: completed or not_executed; of what was completed, the `response` (`status`, `headers`, \
                       `body` or `body_base64`); `reason` and `actor`, which are kept on record. With an access token the \
                       actor is its subject.",
        example = json!({
            "outcome": "completed",
            "response": { "status": 201, "headers": [["content-type", "application/json"]], "body": "{\"status\":\"paid\"}" },
            "reason": "the provider's books have it",
            "actor": "ann",
        }),
    ),
    responses(
        (
            status = 200,
            description = "What it was, and the events that it announces.",
            body = Object,
            example = json!({
                "id": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                "outcome": "completed",
                "was": { "id": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "state": "unknown", "key": "A-1001", "route": "create-payment" },
                "events": ["5c1d7e1f0a6b4cb2a3f8e2d90c4b7a16"],
            }),
        ),
        (status = 400, description = "problem"),
        (status = 401, description = "problem"),
        (status = 403, description = "problem"),
        (status = 404, description = "problem"),
        (status = 408, description = "problem"),
        (status = 409, description = "problem"),
        (status = 412, description = "problem"),
        (status = 413, description = "problem"),
        (status = 428, description = "problem"),
        (status = 503, description = "problem"),
    ),
    security((), ("operator" = []), ("bearer" = []))
)]
pub(super) async fn one(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    authority: Authority,
    caller: Caller,
    request: Request,
) -> Response<Body> {
    let settled = async {
        let id = entries::read_id(&id)?;
        let seen = seen(request.headers())?;
        let word = order::<GivenWord>(&admin, request).await?.read(&authority)?;
        let settled = admin.0.settler.settle(id, &seen, &word).await.map_err(|why| problem(&why))?;
        let mut told = one_settled(&settled, admin.now().await);
        told["outcome"] = json!(word.outcome.as_str());
        Ok(told)
    };
    answer(&caller, settled.await)
}

/// `POST /entries/settle`: many Unknown entries, the oldest first. Only says which, unless `dry_run` is false.
#[utoipa::path(
    post,
    path = "/entries/settle",
    operation_id = "settleEntries",
    tag = "operators",
    summary = "Gives many requests their outcome by a person's word",
    description = "The oldest of those whose outcome is unknown and that the `filter` finds (`namespace`, `route`, `scope`, \
                   `key`, `older_than_seconds`; one of them at least), at most `limit` (100). Only says which, unless \
                   `dry_run` is false.",
    request_body(
        content = ManyOrder,
        description = "`filter`, `limit`, `dry_run`, and what an order for one has.",
        example = json!({
            "filter": { "route": "create-payment", "older_than_seconds": 3600 },
            "limit": 100,
            "dry_run": false,
            "outcome": "not_executed",
            "reason": "the provider was down, and has none of them",
            "actor": "ann",
        }),
    ),
    responses(
        (
            status = 200,
            description = "What was settled, or would be; and what was left alone, and why.",
            body = Object,
            example = json!({
                "dry_run": false,
                "outcome": "not_executed",
                "settled": [{
                    "id": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                    "was": { "id": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "state": "unknown", "key": "A-1001", "route": "create-payment" },
                    "events": [],
                }],
                "left": [],
            }),
        ),
        (status = 400, description = "problem"),
        (status = 401, description = "problem"),
        (status = 403, description = "problem"),
        (status = 408, description = "problem"),
        (status = 413, description = "problem"),
        (status = 503, description = "problem"),
    ),
    security((), ("operator" = []), ("bearer" = []))
)]
pub(super) async fn many(
    State(admin): State<Admin>,
    authority: Authority,
    caller: Caller,
    request: Request,
) -> Response<Body> {
    let settled = async {
        let order = order::<ManyOrder>(&admin, request).await?;
        let many = order.many()?;
        let ManyOrder { outcome, response, reason, actor, .. } = order;
        let word = GivenWord { outcome, response, reason, actor }.read(&authority)?;
        let outcomes = admin.0.settler.settle_many(&many, &word).await.map_err(|error| store_problem(&error))?;
        let mut told = admin.many_settled(&outcomes).await;
        told["dry_run"] = json!(many.mode == Mode::DryRun);
        told["outcome"] = json!(word.outcome.as_str());
        Ok(told)
    };
    answer(&caller, settled.await)
}

impl ManyOrder {
    fn many(&self) -> Result<Many, Problem> {
        let GivenFilter { namespace, route, scope, key, older_than_seconds } = &self.filter;
        let filter = Filter {
            namespace: namespace.clone(),
            route: route.clone(),
            scope: scope.clone(),
            key: key.clone(),
            older_than: Duration::from_secs(older_than_seconds.unwrap_or(0).into()),
            ..Filter::of(Stage::Unknown)
        };
        if !filter.names_some() {
            return Err(invalid("`filter` names nothing: that would be every unknown entry there is"));
        }
        if self.limit == 0 || self.limit > MAX_LISTED {
            return Err(invalid(format!("`limit` is from 1 to {MAX_LISTED}")));
        }
        let mode = if self.dry_run { Mode::DryRun } else { Mode::Carry };
        Ok(Many { filter, limit: self.limit, mode })
    }
}

impl Admin {
    /// The database's time, for ages; without it they are zero.
    async fn now(&self) -> Timestamp {
        self.0.entries.find(&[]).await.map_or(Timestamp(0), |page| page.now)
    }

    async fn many_settled(&self, outcomes: &Outcomes) -> Value {
        let now = self.now().await;
        let settled: Vec<_> = outcomes.settled.iter().map(|settled| one_settled(settled, now)).collect();
        let left: Vec<_> = outcomes
            .left
            .iter()
            .map(|(entry, why)| json!({ "was": shapes::entry(entry, now), "why": why.to_string() }))
            .collect();
        json!({ "settled": settled, "left": left })
    }
}

fn one_settled(settled: &Settled, now: Timestamp) -> Value {
    let events: Vec<_> = settled.events.iter().map(ToString::to_string).collect();
    json!({ "id": settled.entry.id.to_hex(), "was": shapes::entry(&settled.entry, now), "events": events })
}

/// The states that the operator has seen (RFC 9110, section 13.1.1). `*` is none: it says that nothing was looked at.
fn seen(headers: &HeaderMap) -> Result<Vec<Version>, Problem> {
    let mut seen = Vec::new();
    for field in headers.get_all(IF_MATCH) {
        for tag in field.to_str().unwrap_or_default().split(',') {
            let version = tag.trim().strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            seen.extend(version.and_then(Version::from_hex));
        }
    }
    match headers.contains_key(IF_MATCH) {
        // A tag that is none of ours matches nothing.
        true if headers.get(IF_MATCH).is_none_or(|field| field != "*") => Ok(seen),
        true | false => Err(Problem::new(Situation::StateNotNamed)),
    }
}

fn problem(why: &NotSettled) -> Problem {
    match why {
        NotSettled::Absent => Problem::new(Situation::NoEntry),
        NotSettled::Changed => Problem::new(Situation::EntryChanged),
        NotSettled::NotUnknown(Stage::InProgress) => {
            Problem::new(Situation::NotSettled).because("It is in progress: whoever executes it may still do so.")
        }
        NotSettled::NotUnknown(Stage::Unknown | Stage::Completed | Stage::Tombstone)
        | NotSettled::Observed
        | NotSettled::NoRoute(_)
        | NotSettled::Sealed
        | NotSettled::Unreadable => Problem::new(Situation::NotSettled).because(format!("Here: {why}.")),
        NotSettled::Store(error) => store_problem(error),
    }
}
