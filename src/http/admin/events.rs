//! `GET /events`, `GET /events/{id}`, `POST /events/retry`, `POST /events/discard`: what lies in the outbox.

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use http::Response;
use serde::Deserialize;

use super::access::Authority;
use super::work::{GivenOrder, Pair, States, Wanted};
use super::{Admin, answer, order};
use crate::http::reply::Caller;
use crate::outbox::desk::{Action, Filter, Of};

/// Which events.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventFilter {
    /// One, or a list of them.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    state: States,
    #[schema(value_type = Option<String>)]
    queue: Option<Box<str>>,
    #[schema(value_type = Option<String>)]
    topic: Option<Box<str>>,
    #[schema(value_type = Option<String>)]
    route: Option<Box<str>>,
    #[schema(value_type = Option<String>)]
    key: Option<Box<str>>,
}

impl Wanted for EventFilter {
    const MANY: &'static str = "events";

    fn filter(self) -> Filter {
        let Self { state: States(states), queue, topic, route, key } = self;
        Filter { of: Of::Events, states, queue, topic, route, key, ..Filter::default() }
    }
}

/// `GET /events`: those that are not done, unless `state` says otherwise.
#[utoipa::path(
    get,
    path = "/events",
    operation_id = "listEvents",
    tag = "operators",
    summary = "Events in the outbox, the newest first",
    description = "Those that are not done (all but sent and discarded), or those in the states that are named. `troubles` \
                   says, by queue, why nothing of it is taken now.",
    params(
        ("state" = Option<String>, Query, description = "ready, retrying, waiting, early, parked, sent or discarded; several with commas between them.", example = "parked"),
        ("queue" = Option<String>, Query, description = "Of this queue.", example = "default"),
        ("topic" = Option<String>, Query, description = "Of this topic.", example = "payments"),
        ("route" = Option<String>, Query, description = "Of this route.", example = "create-payment"),
        ("key" = Option<String>, Query, description = "Ordered by this key.", example = "A-1001"),
        ("limit" = Option<u32>, Query, description = "Most to list: 1 to 1000.", minimum = 1, maximum = 1000, example = 50),
        ("after" = Option<i64>, Query, description = "What comes after a page: its `next`.", example = 4711),
    ),
    responses(
        (
            status = 200,
            description = "They, the `next` of the page if there may be more, and what is in their way.",
            body = Object,
            example = json!({
                "events": [{
                    "position": 4712,
                    "id": "5c1d7e1f0a6b4cb2a3f8e2d90c4b7a16",
                    "queue": "default",
                    "lane": 3,
                    "key": "A-1001",
                    "state": "parked",
                    "in_hand": false,
                    "attempts": 20,
                    "deferrals": 0,
                    "deaths": 0,
                    "on_failure": "skip",
                    "reason": "the broker refused it: message too large",
                    "waits": null,
                    "created_at_ms": 784_111_777_000_i64,
                    "changed_at_ms": 784_198_177_000_i64,
                    "due_at_ms": null,
                    "route": "create-payment",
                    "topic": "payments",
                    "type": "com.example.payment.created",
                }],
                "next": null,
                "troubles": {},
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
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
    caller: Caller,
) -> Response<Body> {
    answer(&caller, admin.work::<EventFilter>(query).await)
}

/// `GET /events/{id}`: everything about one.
#[utoipa::path(
    get,
    path = "/events/{id}",
    operation_id = "showEvent",
    tag = "operators",
    summary = "Everything about an event",
    params(
        ("id" = String, Path, description = "32 hexadecimal digits.", example = "5c1d7e1f0a6b4cb2a3f8e2d90c4b7a16"),
        ("data" = Option<bool>, Query, description = "Whether its data is shown as well, which may be nobody's business.", example = false),
    ),
    responses(
        (
            status = 200,
            description = "The event, and what people have decided about it.",
            body = Object,
            example = json!({
                "position": 4712,
                "id": "5c1d7e1f0a6b4cb2a3f8e2d90c4b7a16",
                "queue": "default",
                "lane": 3,
                "key": "A-1001",
                "state": "ready",
                "in_hand": false,
                "epoch": null,
                "attempts": 0,
                "deferrals": 0,
                "deaths": 0,
                "on_failure": "skip",
                "reason": null,
                "waits": null,
                "created_at_ms": 784_111_777_000_i64,
                "changed_at_ms": 784_198_177_000_i64,
                "due_at_ms": null,
                "route": "create-payment",
                "topic": "payments",
                "type": "com.example.payment.created",
                "entry": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                "source": "/payments",
                "content_type": "application/json",
                "traceparent": null,
                "attributes": {},
                "bytes": 512,
                "actions": [{
                    "action": "retry",
                    "state": "parked",
                    "reason": "the topic takes larger messages now",
                    "actor": "ann",
                    "authority": "token",
                    "at_ms": 784_198_177_000_i64,
                }],
            }),
        ),
        (status = 400, description = "problem"),
        (status = 401, description = "problem"),
        (status = 403, description = "problem"),
        (status = 404, description = "problem"),
        (status = 503, description = "problem"),
    ),
    security((), ("operator" = []), ("bearer" = []))
)]
pub(super) async fn show(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    query: Pair,
    caller: Caller,
) -> Response<Body> {
    answer(&caller, admin.work_page(&id, query).await)
}

/// `POST /events/retry`: sends events again.
#[utoipa::path(
    post,
    path = "/events/retry",
    operation_id = "retryEvents",
    tag = "operators",
    summary = "Sends events again",
    description = "Those of these `ids`, or the oldest that a `filter` finds (parked ones, unless it names states), at most \
                   `limit` (100). An order by filter only says which, unless `dry_run` is false; one by ids is carried \
                   out, unless it is true. Each keeps its id and its place, and its attempts begin anew. What is in a \
                   relay's hands is left alone.",
    request_body(
        content = GivenOrder<EventFilter>,
        description = "`ids` or `filter` (`state`, `queue`, `topic`, `route`, `key`), `limit`, `dry_run`; `reason` and \
                       `actor`, which are kept on record. With an access token the actor is its subject.",
        example = json!({
            "filter": { "queue": "default", "topic": "payments" },
            "limit": 100,
            "dry_run": false,
            "reason": "the topic takes larger messages now",
            "actor": "ann",
        }),
    ),
    responses(
        (
            status = 200,
            description = "What was changed, as it was before; what was left alone; and ids that are not there.",
            body = Object,
            example = json!({
                "action": "retry",
                "dry_run": false,
                "changed": [{
                    "position": 4712,
                    "id": "5c1d7e1f0a6b4cb2a3f8e2d90c4b7a16",
                    "queue": "default",
                    "key": "A-1001",
                    "state": "parked",
                }],
                "left": [],
                "missing": [],
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
pub(super) async fn retry(
    State(admin): State<Admin>,
    authority: Authority,
    caller: Caller,
    request: Request,
) -> Response<Body> {
    act(&admin, &authority, &caller, request, Action::Retry).await
}

/// `POST /events/discard`: gives events up.
#[utoipa::path(
    post,
    path = "/events/discard",
    operation_id = "discardEvents",
    tag = "operators",
    summary = "Gives events up",
    description = "As a retry, but they are never sent, and those of their key that waited behind them go on. They are kept \
                   for a week, for people.",
    request_body(
        content = GivenOrder<EventFilter>,
        description = "As of a retry.",
        example = json!({ "ids": ["5c1d7e1f0a6b4cb2a3f8e2d90c4b7a16"], "reason": "a test payment", "actor": "ann" }),
    ),
    responses(
        (
            status = 200,
            description = "As of a retry.",
            body = Object,
            example = json!({ "action": "discard", "dry_run": false, "changed": [], "left": [], "missing": ["5c1d7e1f0a6b4cb2a3f8e2d90c4b7a16"] }),
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
pub(super) async fn discard(
    State(admin): State<Admin>,
    authority: Authority,
    caller: Caller,
    request: Request,
) -> Response<Body> {
    act(&admin, &authority, &caller, request, Action::DISCARD).await
}

async fn act(
    admin: &Admin,
    authority: &Authority,
    caller: &Caller,
    request: Request,
    action: Action,
) -> Response<Body> {
    let acted = async {
        let order = order::<GivenOrder<EventFilter>>(admin, request).await?;
        admin.act(order, action, authority).await
    };
    answer(caller, acted.await)
}
