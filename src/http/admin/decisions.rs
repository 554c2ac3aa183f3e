//! `GET /decisions`.

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use http::Response;
use serde::Deserialize;
use serde_json::json;

use super::entries::{limited, parameters};
use super::shapes::{self, Data};
use super::{Admin, answer, store_problem};
use crate::http::reply::Caller;

/// The query of `GET /decisions`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionsQuery {
    before: Option<i64>,
    limit: Option<u32>,
    #[serde(default)]
    data: bool,
}

/// `GET /decisions`: what operators have decided, the latest first.
#[utoipa::path(
    get,
    path = "/decisions",
    operation_id = "listDecisions",
    tag = "operators",
    summary = "What people have decided about requests, the latest first",
    params(
        ("before" = Option<i64>, Query, description = "Only those before this number: the `next` of the page before.", example = 13),
        ("limit" = Option<u32>, Query, description = "Most to list: 1 to 1000.", minimum = 1, maximum = 1000, example = 50),
        ("data" = Option<bool>, Query, description = "Whether headers and bodies are shown as well, which may be nobody's business.", example = false),
    ),
    responses(
        (
            status = 200,
            description = "The decisions, and the `next` of the page if there may be more.",
            body = Object,
            example = json!({
                "decisions": [{
                    "number": 12,
                    "entry": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                    "namespace": "create-payment",
                    "scope": "global",
                    "key": "A-1001",
                    "route": "create-payment",
                    "attempt": 1,
                    "unknown_since_ms": 784_111_787_000_i64,
                    "outcome": "completed",
                    "status": 201,
                    "actor": "ann",
                    "authority": "token",
                    "reason": "the provider's books have it",
                    "at_ms": 784_115_387_000_i64,
                    "late_answer_was": null,
                }],
                "next": null,
            }),
        ),
        (status = 400, description = "problem"),
        (status = 401, description = "problem"),
        (status = 403, description = "problem"),
        (status = 503, description = "problem"),
    ),
    security((), ("operator" = []), ("bearer" = []))
)]
pub(super) async fn list(
    State(admin): State<Admin>,
    query: Result<Query<DecisionsQuery>, QueryRejection>,
    caller: Caller,
) -> Response<Body> {
    let decided = async {
        let DecisionsQuery { before, limit, data } = parameters(query)?;
        let (limit, data) = (limited(limit)?, if data { Data::Shown } else { Data::Hidden });
        let found = admin.0.entries.decisions(None, before, limit).await.map_err(|error| store_problem(&error))?;
        let next = (found.len() as u64 == u64::from(limit)).then(|| found.last().map(|last| last.number)).flatten();
        let decisions: Vec<_> = found.iter().map(|decision| shapes::decision(decision, data)).collect();
        Ok(json!({ "decisions": decisions, "next": next }))
    };
    answer(&caller, decided.await)
}
