//! `GET /deliveries`, `GET /deliveries/{id}`, `POST /deliveries/retry`, `POST /deliveries/discard`: what subscriptions
//! have received, and what came of it.

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use http::Response;
use serde::{Deserialize, Deserializer};

use super::access::Authority;
use super::work::{GivenOrder, Pair, States, Wanted};
use super::{Admin, answer, order};
use crate::entry::{EntryId, Identity, Key, Namespace, Scope};
use crate::http::reply::Caller;
use crate::outbox::delivery::queue_of;
use crate::outbox::desk::{Action, Filter, Of};
use crate::outbox::result::DeliveryResult;

/// Which deliveries.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeliveryFilter {
    /// One, or a list of them.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    state: States,
    #[schema(value_type = Option<String>)]
    subscription: Option<Box<str>>,
    #[schema(value_type = Option<String>)]
    topic: Option<Box<str>>,
    #[schema(value_type = Option<String>)]
    key: Option<Box<str>>,
    #[serde(default, deserialize_with = "result")]
    #[schema(value_type = Option<String>)]
    result: Option<DeliveryResult>,
}

fn result<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DeliveryResult>, D::Error> {
    let Some(word) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let known = || DeliveryResult::FINAL.map(DeliveryResult::as_str).join(", ");
    let unknown = || serde::de::Error::custom(format!("`result` is one of {}, not {word}", known()));
    let result = DeliveryResult::FINAL.into_iter().find(|result| result.as_str() == word);
    result.ok_or_else(unknown).map(Some)
}

impl Wanted for DeliveryFilter {
    const MANY: &'static str = "deliveries";

    fn filter(self) -> Filter {
        let Self { state: States(states), subscription, topic, key, result } = self;
        Filter {
            of: Of::Deliveries,
            states,
            queue: subscription.as_deref().map(queue_of),
            topic,
            entry: subscription.as_deref().zip(key.as_deref()).and_then(|(name, key)| entry(name, key)),
            key,
            result: result.map(|result| result.as_str().into()),
            ..Filter::default()
        }
    }
}

/// The entry of a business key of a subscription.
fn entry(subscription: &str, key: &str) -> Option<EntryId> {
    let namespace = Namespace::from_stored(&queue_of(subscription));
    Some(Identity { namespace, scope: Scope::Global, key: Key::from_business(key).ok()? }.id())
}

/// `GET /deliveries`: those that are not done, unless `state` or `result` says otherwise.
#[utoipa::path(
    get,
    path = "/deliveries",
    operation_id = "listDeliveries",
    tag = "operators",
    summary = "What subscriptions have received, the newest first",
    description = "Those that are not done (all but sent and discarded), or those in the states that are named; by \
                   `result`, those of all states that have one. `troubles` says, by queue (`sub:` and the subscription's \
                   name), why nothing of it is delivered now.",
    params(
        ("state" = Option<String>, Query, description = "ready, retrying, waiting, early, parked, sent or discarded; several with commas between them.", example = "parked"),
        ("subscription" = Option<String>, Query, description = "Of this subscription.", example = "award-points"),
        ("topic" = Option<String>, Query, description = "Of this topic.", example = "payments"),
        ("key" = Option<String>, Query, description = "Of this key: the business key (where what is stored is sealed, with `subscription`), or what they are ordered by.", example = "A-1001"),
        ("result" = Option<String>, Query, pattern = "^(applied|duplicate|stale|conflict|rejected)$", description = "applied, duplicate, stale, conflict or rejected.", example = "rejected"),
        ("limit" = Option<u32>, Query, description = "Most to list: 1 to 1000.", minimum = 1, maximum = 1000, example = 50),
        ("after" = Option<i64>, Query, description = "What comes after a page: its `next`.", example = 4711),
    ),
    responses(
        (
            status = 200,
            description = "They, the `next` of the page if there may be more, and what is in their way.",
            body = Object,
            example = json!({
                "deliveries": [{
                    "position": 4713,
                    "id": "7be3c1a05d5e4e0c8f1a2b3c4d5e6f70",
                    "queue": "sub:award-points",
                    "lane": 1,
                    "key": "A-1001",
                    "state": "parked",
                    "in_hand": false,
                    "attempts": 1,
                    "deferrals": 0,
                    "deaths": 0,
                    "on_failure": "skip",
                    "reason": "the handler answered 422 Unprocessable Entity",
                    "waits": null,
                    "created_at_ms": 784_111_777_000_i64,
                    "changed_at_ms": 784_111_779_500_i64,
                    "due_at_ms": null,
                    "route": "award-points",
                    "topic": "payments",
                    "type": "com.example.payment.created",
                    "subscription": "award-points",
                    "message": "5c1d7e1f0a6b4cb2a3f8e2d90c4b7a16",
                    "business_key": "A-1001",
                    "result": "rejected",
                    "finished_at_ms": 784_111_779_500_i64,
                    "elapsed_ms": 2500,
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
    answer(&caller, admin.work::<DeliveryFilter>(query).await)
}

/// `GET /deliveries/{id}`: everything about one.
#[utoipa::path(
    get,
    path = "/deliveries/{id}",
    operation_id = "showDelivery",
    tag = "operators",
    summary = "Everything about a delivery",
    params(
        ("id" = String, Path, description = "32 hexadecimal digits.", example = "7be3c1a05d5e4e0c8f1a2b3c4d5e6f70"),
        ("data" = Option<bool>, Query, description = "Whether its data is shown as well, which may be nobody's business.", example = false),
    ),
    responses(
        (
            status = 200,
            description = "The delivery, and what people have decided about it.",
            body = Object,
            example = json!({
                "id": "7be3c1a05d5e4e0c8f1a2b3c4d5e6f70",
                "subscription": "award-points",
                "state": "sent",
                "result": "applied",
                "business_key": "A-1001",
                "message": "5c1d7e1f0a6b4cb2a3f8e2d90c4b7a16",
                "attempts": 1,
                "elapsed_ms": 35,
                "entry": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                "attributes": { "subject": "A-1001" },
                "bytes": 512,
                "actions": [],
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

/// `POST /deliveries/retry`: delivers again.
#[utoipa::path(
    post,
    path = "/deliveries/retry",
    operation_id = "retryDeliveries",
    tag = "operators",
    summary = "Delivers again",
    description = "Those of these `ids`, or the oldest that a `filter` finds (parked ones, unless it names states), at most \
                   `limit` (100). An order by filter only says which, unless `dry_run` is false; one by ids is carried \
                   out, unless it is true. Each keeps its id, its key and its version.",
    request_body(
        content = GivenOrder<DeliveryFilter>,
        description = "`ids` or `filter` (`state`, `subscription`, `topic`, `key`, `result`), `limit`, `dry_run`; `reason` \
                       and `actor`, which are kept on record. With an access token the actor is its subject.",
        example = json!({
            "filter": { "subscription": "award-points", "result": "rejected" },
            "dry_run": false,
            "reason": "the handler knows the currency now",
            "actor": "ann",
        }),
    ),
    responses(
        (
            status = 200,
            description = "What was changed, as it was before; what was left alone; and ids that are not there.",
            body = Object,
            example = json!({ "action": "retry", "dry_run": false, "changed": [], "left": [], "missing": [] }),
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

/// `POST /deliveries/discard`: gives deliveries up.
#[utoipa::path(
    post,
    path = "/deliveries/discard",
    operation_id = "discardDeliveries",
    tag = "operators",
    summary = "Gives deliveries up",
    description = "As a retry, but they are never delivered, and those of their key that waited behind them go on. They are \
                   kept for a week, for people.",
    request_body(
        content = GivenOrder<DeliveryFilter>,
        description = "As of a retry.",
        example = json!({ "ids": ["7be3c1a05d5e4e0c8f1a2b3c4d5e6f70"], "reason": "a test payment", "actor": "ann" }),
    ),
    responses(
        (
            status = 200,
            description = "As of a retry.",
            body = Object,
            example = json!({ "action": "discard", "dry_run": false, "changed": [], "left": [], "missing": [] }),
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
        let order = order::<GivenOrder<DeliveryFilter>>(admin, request).await?;
        admin.act(order, action, authority).await
    };
    answer(caller, acted.await)
}
