//! What people switch while gateways run; `GET /switches`.

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use http::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::Authority;
use super::entries::{limited, parameters};
use super::given::{MAX_REASON_BYTES, actor, given_text};
use super::{Admin, answer, store_problem};
use crate::engine::switches::{Kind, Order, Switch, Turn};
use crate::http::reply::Caller;
use crate::problem::{Problem, Situation};

/// The query of `GET /switches`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TurnsQuery {
    kind: Option<GivenKind>,
    before: Option<i64>,
    limit: Option<u32>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GivenKind {
    Route,
    Subscription,
}

/// `GET /switches`: who has turned which switch, the latest first.
#[utoipa::path(
    get,
    path = "/switches",
    operation_id = "listSwitches",
    tag = "operators",
    summary = "Who has switched routes and subscriptions, the latest first",
    params(
        ("kind" = Option<String>, Query, pattern = "^(route|subscription)$", description = "Only those of a route, or of a subscription.", example = "route"),
        ("before" = Option<i64>, Query, description = "Only those before this number: the `next` of the page before.", example = 13),
        ("limit" = Option<u32>, Query, description = "Most to list: 1 to 1000.", minimum = 1, maximum = 1000, example = 50),
    ),
    responses(
        (
            status = 200,
            description = "The turns, and the `next` of the page if there may be more. They are kept for ever.",
            body = Object,
            example = json!({
                "switches": [{
                    "number": 12,
                    "kind": "route",
                    "name": "create-payment",
                    "was": "configured",
                    "to": "replay_only",
                    "actor": "ann",
                    "authority": "token",
                    "reason": "the provider double-books",
                    "at_ms": 784_111_777_000_i64,
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
    query: Result<Query<TurnsQuery>, QueryRejection>,
    caller: Caller,
) -> Response<Body> {
    let told = async {
        let TurnsQuery { kind, before, limit } = parameters(query)?;
        let limit = limited(limit)?;
        let kind = kind.map(|kind| match kind {
            GivenKind::Route => Kind::Route,
            GivenKind::Subscription => Kind::Subscription,
        });
        let found = admin.0.switches.turns(kind, before, limit).await.map_err(|error| store_problem(&error))?;
        let is_full = found.len() as u64 == u64::from(limit);
        let next = found.last().filter(|_| is_full).map(|last| last.number);
        Ok(json!({ "switches": found.iter().map(turn).collect::<Vec<_>>(), "next": next }))
    };
    answer(&caller, told.await)
}

fn turn(turn: &Turn) -> Value {
    json!({
        "number": turn.number,
        "kind": turn.kind.as_str(),
        "name": turn.name,
        "was": turn.was.as_deref().unwrap_or("configured"),
        "to": turn.setting.as_deref().unwrap_or("configured"),
        "actor": turn.by.name,
        "authority": turn.by.authority,
        "reason": turn.reason,
        "at_ms": turn.at.0,
    })
}

impl Admin {
    pub(super) async fn read_switches(&self) -> Result<(), Problem> {
        self.0.switches.step().await.map_err(|error| store_problem(&error))
    }

    /// Turns a switch, and tells how it was set before.
    pub(super) async fn turn(
        &self,
        kind: Kind,
        name: &str,
        setting: Option<&str>,
        (reason, who): (&str, Option<&str>),
        authority: &Authority,
    ) -> Result<Option<Box<str>>, Problem> {
        let (by, reason) = (actor(who, authority)?, given_text("reason", reason, MAX_REASON_BYTES)?);
        let order = Order { kind, name: name.into(), setting: setting.map(Into::into), by, reason };
        self.0.switches.turn(&order).await.map(|turned| turned.was).map_err(|error| store_problem(&error))
    }
}

/// Who has turned a switch, and why.
pub(super) fn switched(switch: &Switch) -> Value {
    json!({
        "to": switch.setting,
        "actor": switch.by.name,
        "authority": switch.by.authority,
        "reason": switch.reason,
        "at_ms": switch.at.0,
    })
}

/// Of what is not configured.
pub(super) fn nothing() -> Problem {
    Problem::new(Situation::NotConfigured)
}
