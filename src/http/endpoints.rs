//! The gateway's own public endpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{Html, IntoResponse, Json};
use futures_util::future::BoxFuture;
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::gateway::Gateway;
use super::reply::{Caller, IDENTITY_CHANGED};
use super::sender;
use crate::auth::ScopeKind;
use crate::clock::Timestamp;
use crate::engine::Reason;
use crate::entry::{Admission, Comparison, Entry, Identity, Key, Namespace, StoredResponse, admit};
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
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: new requests are welcome here. A broker's outage would not matter: it is no payment outage.
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

/// The query of `GET /idempotency/requests/{key}`.
#[derive(Debug, Deserialize)]
pub(super) struct RequestQuery {
    namespace: String,
}

/// The state of a request, as its own caller may know it.
#[derive(Debug, Serialize)]
struct RequestState {
    namespace: String,
    key: String,
    state: &'static str,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<KnownResponse>,
}

#[derive(Debug, Serialize)]
struct KnownResponse {
    status: u16,
    headers: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

/// `GET /idempotency/requests/{key}?namespace=`: the caller's own entry.
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
        if Namespace::new(name).is_ok_and(|name| {
            let observed = name.observed();
            self.guards.iter().any(|guard| guard.policy.namespace == observed)
        }) {
            return untold("The route only observes: it keeps no answers, and does not know what was executed.");
        }
        let guards = || self.guards.iter().filter(|guard| guard.policy.namespace.as_str() == name);
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

impl RequestState {
    /// What a retry would be told now; `None`: the key is new again.
    fn of(identity: &Identity, entry: &Entry, now: Timestamp) -> Option<Self> {
        let (state, expires, response) = match admit(entry, Comparison::Same, now) {
            Admission::InProgress => ("in_progress", None, None),
            Admission::Held { .. } => ("unknown", None, None),
            Admission::Replay { response, expires } => {
                ("completed", Some(expires), Some(KnownResponse::whole(&response)))
            }
            Admission::NotKept { status, expires } => {
                ("completed", Some(expires), Some(KnownResponse::status_only(status)))
            }
            Admission::Expired => ("expired", None, None),
            // The last two are told of other requests only.
            Admission::Forgotten { .. } | Admission::Mismatch | Admission::Incomparable => return None,
        };
        Some(Self {
            namespace: identity.namespace.to_string(),
            key: identity.key.as_str().to_owned(),
            state,
            attempt: entry.attempt,
            expires: expires.map(|expires| httpdate::fmt_http_date(expires.to_system())),
            response,
        })
    }
}

impl KnownResponse {
    fn status_only(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: None, body_base64: None }
    }

    fn whole(response: &StoredResponse) -> Self {
        use base64::Engine as _;
        let headers = response.headers.iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
        let (body, body_base64) = match std::str::from_utf8(&response.body) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(base64::engine::general_purpose::STANDARD.encode(&response.body))),
        };
        Self { status: response.status.as_u16(), headers: headers.collect(), body, body_base64 }
    }
}
