//! `GET /routes`, `POST /routes/{name}/mode`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use http::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::Authority;
use super::switches::{nothing, switched};
use super::{Admin, answer, invalid, order};
use crate::engine::switches::Kind;
use crate::http::reply::Caller;
use crate::http::route::{Mode, RunMode};

/// A route, as operators see it.
#[derive(Debug, Clone)]
pub struct RouteShown {
    /// What it is called.
    pub name: Box<str>,
    /// The requests it takes.
    pub pattern: Box<str>,
    /// Where they go.
    pub upstream: Box<str>,
    /// Its mode, if anything guards it.
    pub mode: Option<Arc<RunMode>>,
}

/// The body of `POST /routes/{name}/mode`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ModeOrder {
    /// enforce, observe, replay_only; or configured, as the configuration says.
    #[schema(pattern = "^(enforce|observe|replay_only|configured)$")]
    mode: String,
    /// Kept on record.
    reason: String,
    /// Who says so. Not needed with an access token: its subject does.
    actor: Option<String>,
}

/// `GET /routes`: all of this configuration.
#[utoipa::path(
    get,
    path = "/routes",
    operation_id = "listRoutes",
    tag = "operators",
    summary = "The routes, and in which mode they are",
    description = "`mode` counts now, at this gateway; `switched` says who has set it otherwise than `configured_mode`, and \
                   why. A route without a policy has no mode: it passes everything on.",
    responses(
        (
            status = 200,
            description = "All routes of this gateway's configuration.",
            body = Object,
            example = json!({
                "routes": [{
                    "name": "create-payment",
                    "match": "POST /v1/payments",
                    "upstream": "payments",
                    "configured_mode": "enforce",
                    "mode": "replay_only",
                    "switched": {
                        "to": "replay_only",
                        "actor": "ann",
                        "authority": "token",
                        "reason": "the provider double-books",
                        "at_ms": 784_111_777_000_i64,
                    },
                }],
            }),
        ),
        (status = 401, description = "problem"),
        (status = 403, description = "problem"),
        (status = 503, description = "problem"),
    ),
    security((), ("operator" = []), ("bearer" = []))
)]
pub(super) async fn list(State(admin): State<Admin>, caller: Caller) -> Response<Body> {
    let told = async {
        admin.read_switches().await?;
        let routes: Vec<_> = admin.0.routes.iter().map(|route| admin.route(route)).collect();
        Ok(json!({ "routes": routes }))
    };
    answer(&caller, told.await)
}

/// `POST /routes/{name}/mode`: switches a route, at all gateways.
#[utoipa::path(
    post,
    path = "/routes/{name}/mode",
    operation_id = "switchRoute",
    tag = "operators",
    summary = "Switches a route's mode, at all gateways",
    description = "It acts here at once, and at other gateways within a second; a restart keeps it. `replay_only` is a kill \
                   switch: what is known is answered, and nothing new is sent. `observe` sends everything and guards \
                   nothing; callers still show who they are, and what it records is never taken for what `enforce` has \
                   recorded. `configured` leaves it to the configuration again.",
    params(("name" = String, Path, description = "The route's name.", example = "create-payment")),
    request_body(
        content = ModeOrder,
        description = "`mode`: enforce, observe, replay_only or configured; `reason` and `actor`, which are kept on record. \
                       With an access token the actor is its subject.",
        example = json!({ "mode": "replay_only", "reason": "the provider double-books", "actor": "ann" }),
    ),
    responses(
        (
            status = 200,
            description = "The route, and how it was switched before.",
            body = Object,
            example = json!({
                "name": "create-payment",
                "match": "POST /v1/payments",
                "upstream": "payments",
                "configured_mode": "enforce",
                "mode": "replay_only",
                "switched": {
                    "to": "replay_only",
                    "actor": "ann",
                    "authority": "token",
                    "reason": "the provider double-books",
                    "at_ms": 784_111_777_000_i64,
                },
                "was": "configured",
            }),
        ),
        (status = 400, description = "problem"),
        (status = 401, description = "problem"),
        (status = 403, description = "problem"),
        (status = 404, description = "problem"),
        (status = 408, description = "problem"),
        (status = 413, description = "problem"),
        (status = 503, description = "problem"),
    ),
    security((), ("operator" = []), ("bearer" = []))
)]
pub(super) async fn mode(
    State(admin): State<Admin>,
    Path(name): Path<String>,
    authority: Authority,
    caller: Caller,
    request: Request,
) -> Response<Body> {
    let told = async {
        let route = admin.0.routes.iter().find(|route| *route.name == *name).ok_or_else(nothing)?;
        let ModeOrder { mode, reason, actor } = order(&admin, request).await?;
        if route.mode.is_none() {
            return Err(invalid("The route has no policy, and so no mode: it passes everything on"));
        }
        let setting = match (Mode::read(&mode), &*mode) {
            (Some(mode), _) => Some(mode.as_str()),
            (None, "configured") => None,
            (None, _) => return Err(invalid("`mode` is enforce, observe, replay_only or configured")),
        };
        let was = admin.turn(Kind::Route, &name, setting, (&reason, actor.as_deref()), &authority).await?;
        let mut told = admin.route(route);
        told["was"] = json!(was.as_deref().unwrap_or("configured"));
        Ok(told)
    };
    answer(&caller, told.await)
}

impl Admin {
    fn route(&self, route: &RouteShown) -> Value {
        json!({
            "name": route.name,
            "match": route.pattern,
            "upstream": route.upstream,
            "configured_mode": route.mode.as_ref().map(|mode| mode.configured().as_str()),
            "mode": route.mode.as_ref().map(|mode| mode.now().as_str()),
            "switched": self.0.switches.of(Kind::Route, &route.name).as_ref().map(switched),
        })
    }
}
