//! `GET /subscriptions`, `POST /subscriptions/{name}/pause`, `POST /subscriptions/{name}/resume`.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use http::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::Authority;
use super::switches::{nothing, switched};
use super::trouble::Relays;
use super::{Admin, answer, order, store_problem};
use crate::engine::switches::{Kind, PAUSED};
use crate::http::reply::Caller;
use crate::outbox::delivery::queue_of;
use crate::outbox::desk::Seen;
use crate::problem::Problem;

/// A subscription, as operators see it.
#[derive(Debug, Clone)]
pub struct SubscriptionShown {
    /// What it is called.
    pub name: Box<str>,
    /// Where its messages come from.
    pub queue: Box<str>,
    /// Which of them.
    pub topic: Box<str>,
}

/// The body of a pause, and of a resumption.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseOrder {
    /// Kept on record.
    reason: String,
    /// Who says so. Not needed with an access token: its subject does.
    actor: Option<String>,
}

/// `GET /subscriptions`: all of this configuration.
#[utoipa::path(
    get,
    path = "/subscriptions",
    operation_id = "listSubscriptions",
    tag = "operators",
    summary = "The subscriptions, and whether they deliver",
    description = "`state` is `delivering`; `paused`, by the person that `switched` names; `troubled`, since the handler \
                   can't be reached or answers 401, 403, 404 or 405, as `trouble` says (it goes on by itself once the \
                   handler answers for itself); or `unattended`, where no process delivers.",
    responses(
        (
            status = 200,
            description = "All subscriptions of this gateway's configuration.",
            body = Object,
            example = json!({
                "subscriptions": [{
                    "name": "award-points",
                    "queue": "default",
                    "topic": "payments",
                    "state": "paused",
                    "switched": {
                        "to": "paused",
                        "actor": "ann",
                        "authority": "token",
                        "reason": "points are awarded twice",
                        "at_ms": 784_111_777_000_i64,
                    },
                    "trouble": null,
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
        let relays = admin.0.events.relays().await.map_err(|error| store_problem(&error))?;
        let all = admin.0.subscriptions.iter().map(|one| admin.subscription(one, &relays));
        Ok(json!({ "subscriptions": all.collect::<Vec<_>>() }))
    };
    answer(&caller, told.await)
}

/// `POST /subscriptions/{name}/pause`: delivers nothing, at all gateways.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/pause",
    operation_id = "pauseSubscription",
    tag = "operators",
    summary = "Delivers nothing of a subscription, at all gateways",
    description = "It acts here at once, and at other gateways within a second; a restart keeps it. What is under way is \
                   finished. Messages are still received, up to the subscription's `max_backlog`, and no attempt is \
                   counted.",
    params(("name" = String, Path, description = "The subscription's name.", example = "award-points")),
    request_body(
        content = PauseOrder,
        description = "`reason` and `actor`, which are kept on record. With an access token the actor is its subject.",
        example = json!({ "reason": "points are awarded twice", "actor": "ann" }),
    ),
    responses(
        (
            status = 200,
            description = "The subscription, and how it was switched before.",
            body = Object,
            example = json!({
                "name": "award-points",
                "queue": "default",
                "topic": "payments",
                "state": "paused",
                "switched": {
                    "to": "paused",
                    "actor": "ann",
                    "authority": "token",
                    "reason": "points are awarded twice",
                    "at_ms": 784_111_777_000_i64,
                },
                "trouble": null,
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
pub(super) async fn pause(
    State(admin): State<Admin>,
    Path(name): Path<String>,
    authority: Authority,
    caller: Caller,
    request: Request,
) -> Response<Body> {
    answer(&caller, admin.turn_subscription(&name, Some(PAUSED), request, &authority).await)
}

/// `POST /subscriptions/{name}/resume`: delivers again, at all gateways.
#[utoipa::path(
    post,
    path = "/subscriptions/{name}/resume",
    operation_id = "resumeSubscription",
    tag = "operators",
    summary = "Delivers again, at all gateways",
    params(("name" = String, Path, description = "The subscription's name.", example = "award-points")),
    request_body(
        content = PauseOrder,
        description = "As of a pause.",
        example = json!({ "reason": "the handler is mended", "actor": "ann" }),
    ),
    responses(
        (
            status = 200,
            description = "The subscription, and how it was switched before.",
            body = Object,
            example = json!({
                "name": "award-points",
                "queue": "default",
                "topic": "payments",
                "state": "delivering",
                "switched": null,
                "trouble": null,
                "was": "paused",
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
pub(super) async fn resume(
    State(admin): State<Admin>,
    Path(name): Path<String>,
    authority: Authority,
    caller: Caller,
    request: Request,
) -> Response<Body> {
    answer(&caller, admin.turn_subscription(&name, None, request, &authority).await)
}

impl Admin {
    async fn turn_subscription(
        &self,
        name: &str,
        setting: Option<&str>,
        request: Request,
        authority: &Authority,
    ) -> Result<Value, Problem> {
        let shown = self.0.subscriptions.iter().find(|one| *one.name == *name).ok_or_else(nothing)?;
        let PauseOrder { reason, actor } = order(self, request).await?;
        let was = self.turn(Kind::Subscription, name, setting, (&reason, actor.as_deref()), authority).await?;
        // It is turned whatever becomes of this question.
        let relays = self.0.events.relays().await.unwrap_or_default();
        let mut told = self.subscription(shown, &relays);
        told["was"] = json!(was.as_deref().unwrap_or("configured"));
        Ok(told)
    }

    fn subscription(&self, one: &SubscriptionShown, relays: &[Seen]) -> Value {
        let relays = Relays::of(&queue_of(&one.name), relays);
        let by_hand = self.0.switches.of(Kind::Subscription, &one.name);
        let state = match (&by_hand, relays.alive, relays.first) {
            (Some(_), _, _) => "paused",
            (None, 0, _) => "unattended",
            (None, _, Some(_)) => "troubled",
            (None, _, None) => "delivering",
        };
        json!({
            "name": one.name,
            "queue": one.queue,
            "topic": one.topic,
            "state": state,
            "switched": by_hand.as_ref().map(switched),
            "trouble": relays.first.map(|(reason, since)| json!({ "reason": reason, "since_ms": since.0 })),
        })
    }
}
