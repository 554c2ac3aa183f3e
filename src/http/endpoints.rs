//! The gateway's own public endpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Json};
use futures_util::future::BoxFuture;
use http::{Response, StatusCode};
use serde::Deserialize;

use super::docs::Docs;
use super::gateway::Gateway;
use super::reply::{Caller, IDENTITY_CHANGED};
use super::request_state::RequestState;
use super::route::Mode;
use super::sender;
use crate::auth::ScopeKind;
use crate::auth::token::PREFIX;
use crate::engine::Reason;
use crate::entry::{Identity, Key, Namespace};
use crate::problem::{Problem, Situation};

/// Whether the store takes writes.
pub type Probe = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// What the endpoints answer from.
#[derive(Clone)]
pub struct Endpoints {
    /// The door, whose entries are asked for.
    pub gateway: Gateway,
    /// Whether the store takes writes.
    pub store_is_writable: Probe,
    /// Set when the process has been told to stop.
    pub draining: Arc<AtomicBool>,
    /// Who may ask for the state of a request.
    pub status: StatusAccess,
    /// What is documented, and where clients find it.
    pub docs: Docs,
}

impl std::fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoints").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Who may ask for the state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusAccess {
    /// A caller with an identity, for its own scope.
    Authenticated,
    /// Everybody.
    Anyone,
    /// Nobody.
    Off,
}

/// `GET /healthz`: the process answers.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    tag = "health",
    summary = "Whether the process answers",
    responses(
        (status = 200, description = "It does.", body = String, content_type = "text/plain", example = "ok\n"),
        (status = 400, description = "problem"),
    ),
    security(())
)]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: new requests are welcome here. A broker's outage would not matter: it is no payment outage.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "readyz",
    tag = "health",
    summary = "Whether requests are welcome here",
    responses(
        (
            status = 200,
            description = "The lease is held, and the store takes writes.",
            body = String,
            content_type = "text/plain",
            example = "ready\n",
        ),
        (status = 400, description = "problem"),
        (
            status = 503,
            description = "Not now, and why.",
            body = String,
            content_type = "text/plain",
            example = "draining\n",
        ),
    ),
    security(())
)]
pub(super) async fn readyz(State(endpoints): State<Endpoints>) -> Response<Body> {
    let missing = if endpoints.draining.load(Ordering::Acquire) {
        Some("draining\n")
    } else if !endpoints.gateway.0.engine.is_alive() {
        Some("lease is not held\n")
    } else if !endpoints.gateway.0.authenticator.is_ready() {
        Some("keys of access tokens are not known yet\n")
    } else if !(endpoints.store_is_writable)().await {
        Some("store does not take writes\n")
    } else {
        None
    };
    match missing {
        None => "ready\n".into_response(),
        Some(missing) => (StatusCode::SERVICE_UNAVAILABLE, missing).into_response(),
    }
}

/// `GET /problems/{slug}`: what a problem's `type` leads to.
#[utoipa::path(
    get,
    path = "/problems/{slug}",
    operation_id = "problem",
    tag = "documentation",
    summary = "What a problem means, and what to do next",
    params(("slug" = String, Path, description = "The last segment of the problem's `type`.", example = "processing")),
    responses(
        (
            status = 200,
            description = "A page for people.",
            body = String,
            content_type = "text/html",
            example = "<!doctype html>\n<html lang=\"en\">...</html>\n",
        ),
        (status = 400, description = "problem"),
        (status = 404, description = "problem"),
    ),
    security(())
)]
pub(super) async fn problem(Path(slug): Path<String>, caller: Caller) -> Response<Body> {
    let Some(facts) = Situation::ALL.map(Situation::facts).into_iter().find(|facts| facts.slug == slug) else {
        return caller.refuse(Problem::new(Situation::NoRoute));
    };
    let retry = match facts.retry {
        crate::problem::Retry::SameKey => "Send the same request with the same key.",
        crate::problem::Retry::NewKey => "Send a corrected request, with a key.",
        crate::problem::Retry::No => "Do not repeat the request.",
    };
    Html(format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{slug}</title>\
         <body style=\"font:1rem/1.6 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem;color-scheme:light dark\">\
         <p>{status}</p><h1>{title}</h1><p>{detail}</p><p><strong>{retry}</strong></p></body></html>\n",
        slug = facts.slug,
        status = facts.status,
        title = facts.title,
        detail = facts.detail,
    ))
    .into_response()
}

/// `GET /metrics`, for operators.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "operators",
    summary = "What is counted and measured",
    responses(
        (
            status = 200,
            description = "In Prometheus' text format.",
            body = String,
            content_type = "text/plain",
            example = "oncegate_requests_total{route=\"create-payment\",admission=\"replay\"} 7\n",
        ),
        (status = 400, description = "problem"),
    ),
    security(())
)]
pub(super) async fn metrics() -> String {
    crate::telemetry::metrics()
}

/// The query of `GET /idempotency/requests/{key}`.
#[derive(Debug, Deserialize)]
pub(super) struct RequestQuery {
    namespace: String,
}

/// `GET /idempotency/requests/{key}?namespace=`: the caller's own entry.
#[utoipa::path(
    get,
    path = "/idempotency/requests/{key}",
    operation_id = "requestState",
    tag = "requests",
    summary = "What became of a request",
    description = "The caller's own request with this key. Nothing is executed by asking. Served as \
                   `server.status_endpoint` allows.",
    params(
        ("key" = String, Path, description = "The key, percent-encoded; no quotes.", example = "order-7"),
        (
            "namespace" = String,
            Query,
            description = "The kind of operation: the route's name, unless it has a namespace of its own.",
            example = "create-payment",
        ),
    ),
    responses(
        (
            status = 200,
            description = "What is known of it.",
            body = RequestState,
            example = json!({
                "namespace": "create-payment",
                "key": "order-7",
                "state": "completed",
                "attempt": 1,
                "expires": "Sun, 06 Nov 1994 08:49:37 GMT",
                "response": {
                    "status": 201,
                    "headers": [["content-type", "application/json"]],
                    "body": "{\"payment\":\"p-1\"}",
                },
            }),
        ),
        (status = 400, description = "problem"),
        (status = 401, description = "problem"),
        (status = 403, description = "problem"),
        (status = 404, description = "problem"),
        (status = 503, description = "problem"),
    ),
    security((), ("bearer" = []), ("subject" = []))
)]
pub(super) async fn request_state(
    State(endpoints): State<Endpoints>,
    Path(key): Path<String>,
    query: Result<Query<RequestQuery>, QueryRejection>,
    caller: Caller,
    headers: http::HeaderMap,
) -> Response<Body> {
    let Ok(Query(query)) = query else {
        return caller.refuse(Problem::new(Situation::BadRequest).because("The query must name the key's namespace."));
    };
    match endpoints.find(&caller, &headers, &key, &query.namespace).await {
        Ok(state) => Json(state).into_response(),
        Err(problem) => caller.refuse(problem),
    }
}

impl Endpoints {
    async fn find(
        &self,
        caller: &Caller,
        headers: &http::HeaderMap,
        key: &str,
        namespace: &str,
    ) -> Result<RequestState, Problem> {
        let inner = &self.gateway.0;
        let principal = inner.asking(&caller.peer, headers).await?;
        if self.status == StatusAccess::Authenticated && !principal.is_known() {
            let because =
                "Only callers with an identity may ask, and none are told apart here (server.status_endpoint).";
            return Err(Problem::new(Situation::Unauthenticated).because(because));
        }
        let unknown = || Problem::new(Situation::KeyUnknown);
        let Asked { namespace, kind, required_scopes } = inner.namespace(namespace)?.ok_or_else(unknown)?;
        sender::grants(&principal, &required_scopes)?;
        if key.starts_with(PREFIX) {
            // It may stand for the number in a body that nobody sees here: "nothing was executed" would be a guess.
            let because =
                "A token is no key: ask by the Idempotency-Key of an answer, or by the number of the request.";
            return Err(Problem::new(Situation::KeyInvalid).because(because));
        }
        let key = Key::from_business(key).map_err(|_| unknown())?;
        let scope = principal.scope(kind).map_err(sender::problem)?;
        let identity = Identity { namespace, scope, key };
        match inner.engine.entry(identity.id()).await {
            Ok(entry) => {
                let now = inner.engine.database_now();
                entry.and_then(|entry| RequestState::of(&identity, &entry, now)).ok_or_else(unknown)
            }
            Err(error) => {
                tracing::warn!(%error, "entry could not be read");
                Err(super::reply::unavailable(Reason::Store))
            }
        }
    }
}

/// A namespace that is asked about.
struct Asked {
    namespace: Namespace,
    /// Whose its keys are.
    kind: ScopeKind,
    /// What its routes require together: whoever lacks some of it may not have sent the request.
    required_scopes: Vec<Box<str>>,
}

impl super::gateway::Inner {
    /// The namespace of this name, if a route has it. Where nobody can tell by a key what was executed, nobody is told
    /// that nothing was.
    fn namespace(&self, name: &str) -> Result<Option<Asked>, Problem> {
        let untold = |because| Err(Problem::new(Situation::Unavailable).because(because));
        let guards = || self.guards.iter().filter(|guard| guard.policy.namespace.as_str() == name);
        if guards().any(|guard| guard.mode.now() == Mode::Observe) {
            return untold("The route only observes: it keeps no answers, and does not know what was executed.");
        }
        let Some(guard) = guards().next() else { return Ok(None) };
        if !guards().all(|guard| guard.identity.holds()) {
            return untold(IDENTITY_CHANGED);
        }
        Ok(Some(Asked {
            namespace: guard.policy.namespace.clone(),
            kind: guard.scope,
            required_scopes: guards().flat_map(|guard| guard.required_scopes.iter().cloned()).collect(),
        }))
    }
}
