//! Documentation, served from the binary: the OpenAPI documents, and Swagger UI over them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use tokio::time::timeout;

use super::endpoints::Endpoints;
use super::openapi::beside::View;
use super::openapi::served;
use super::reply::Caller;
use crate::clock;
use crate::problem::{Problem, Situation};
use crate::upstream::{Exchange, Permit, Reading, Upstream, read_answer};

/// The largest document of an upstream: some hundred times an ordinary one.
pub const MAX_DOCUMENT: usize = 4 << 20;

/// How long an upstream may take for its document. A person waits for it.
const FETCH: Duration = Duration::from_secs(5);

/// Nothing from outside. Swagger UI writes styles into its page, and has pictures in it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// What is documented, and where clients find what it describes.
#[derive(Debug, Clone, Default)]
pub struct Docs(Arc<Parts>);

/// Where documentation is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shown {
    /// On the public listener, and on the operators'.
    Publicly,
    /// On the operators' listener.
    ToOperators,
    /// Nowhere.
    #[default]
    Nowhere,
}

/// What [`Docs`] are made of.
#[derive(Debug, Default)]
pub struct Parts {
    /// Where it is shown.
    pub shown: Shown,
    /// Where clients reach the gateway; empty: where they have the documents from.
    pub base: Box<str>,
    /// What comes before our own paths.
    pub prefix: Box<str>,
    /// Upstreams with documents of their own.
    pub upstreams: Vec<Documented>,
}

/// An upstream with a document of its own.
#[derive(Debug)]
pub struct Documented {
    /// What routes call it.
    pub upstream: Box<str>,
    /// Where the document is.
    pub source: Source,
}

/// Where a document is.
#[derive(Debug)]
pub enum Source {
    /// Here, since the start.
    Read(Bytes),
    /// There, and asked for when somebody wants to see it: a service that is down keeps no gateway from its start.
    There {
        /// The host.
        host: Upstream,
        /// The path and query.
        target: Uri,
    },
}

impl Docs {
    /// Documentation of these parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    pub(super) fn shown(&self) -> Shown {
        self.0.shown
    }
}

/// `GET /openapi.json`: our own document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    tag = "documentation",
    summary = "This document",
    responses(
        (
            status = 200,
            description = "An OpenAPI document of the gateway's own endpoints.",
            body = serde_json::Value,
            example = json!({"openapi": "3.1.0", "info": {"title": "Oncegate", "version": "0.1.0"}, "paths": {}}),
        ),
        (status = 400, description = "problem"),
    ),
    security(())
)]
pub(super) async fn openapi(State(endpoints): State<Endpoints>) -> Response<Body> {
    let Parts { base, prefix, .. } = &*endpoints.docs.0;
    Json(served(&format!("{base}{prefix}"))).into_response()
}

/// `GET /openapi/{upstream}`: an upstream's document, as clients of the gateway see it.
#[utoipa::path(
    get,
    path = "/openapi/{upstream}",
    operation_id = "openapiOfUpstream",
    tag = "documentation",
    summary = "The document of a service behind the gateway",
    description = "What the gateway forwards of it, with what the routes' policies add: the `Idempotency-Key` header, \
                   and the problems that the gateway answers by itself.",
    params(("upstream" = String, Path, description = "The upstream by its name.", example = "payments")),
    responses(
        (
            status = 200,
            description = "An OpenAPI document.",
            body = serde_json::Value,
            example = json!({"openapi": "3.1.0", "info": {"title": "Payments", "version": "1"}, "paths": {}}),
        ),
        (status = 400, description = "problem"),
        (status = 404, description = "problem"),
        (status = 502, description = "problem"),
    ),
    security(())
)]
pub(super) async fn beside(
    State(endpoints): State<Endpoints>,
    Path(name): Path<String>,
    caller: Caller,
) -> Response<Body> {
    let docs = &endpoints.docs.0;
    let Some(documented) = docs.upstreams.iter().find(|documented| *documented.upstream == *name) else {
        return caller.refuse(Problem::new(Situation::NoRoute).because("No upstream of this name has a document."));
    };
    let failed = |situation, reason: String| {
        tracing::warn!(upstream = %name, %reason, "an upstream's OpenAPI document can't be shown");
        caller.refuse(Problem::new(situation).because("The service's document can't be shown; the log says why."))
    };
    let document = match &documented.source {
        Source::Read(document) => document.clone(),
        Source::There { host, target } => match fetch(host, target).await {
            Ok(document) => document,
            Err(reason) => return failed(Situation::UpstreamUnreachable, reason),
        },
    };
    let view = View { routes: &endpoints.gateway.0.routes, upstream: &documented.upstream, base: &docs.base };
    match view.of(&document) {
        Ok(document) => Json(document).into_response(),
        Err(error) => failed(Situation::UpstreamFailed, error.to_string()),
    }
}

async fn fetch(host: &Upstream, target: &Uri) -> Result<Bytes, String> {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = target.clone();
    let deadline = clock::now() + FETCH;
    match timeout(FETCH, host.send(request, Permit::until(deadline))).await {
        Ok(Exchange::Answered { parts, body }) if parts.status.is_success() => {
            match read_answer(body, MAX_DOCUMENT, deadline).await {
                Reading::Kept(document) => Ok(document),
                Reading::TooLarge { .. } => Err(format!("it is larger than {MAX_DOCUMENT} bytes")),
                Reading::Cut { .. } => Err("it did not come whole, or not in time".to_owned()),
            }
        }
        Ok(Exchange::Answered { parts, .. }) => Err(format!("it answered {}", parts.status)),
        Ok(Exchange::NotSent(failure) | Exchange::Lost(failure)) => Err(failure.to_string()),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

/// `GET /docs`: the page's files are found relative to the slash.
pub(super) async fn enter() -> Response<Body> {
    (StatusCode::SEE_OTHER, [(LOCATION, "docs/")]).into_response()
}

/// `GET /docs/`: Swagger UI.
pub(super) async fn page(state: State<Endpoints>, caller: Caller) -> Response<Body> {
    file(state, Path("index.html".to_owned()), caller).await
}

/// `GET /docs/{*file}`: a file of Swagger UI.
pub(super) async fn file(
    State(endpoints): State<Endpoints>,
    Path(file): Path<String>,
    caller: Caller,
) -> Response<Body> {
    let upstreams = endpoints.docs.0.upstreams.iter().map(|documented| &documented.upstream);
    let paths: Vec<String> = upstreams.clone().map(|upstream| format!("../openapi/{upstream}")).collect();
    // Our own first. Relative: a listener may be anywhere.
    let own = utoipa_swagger_ui::Url::new("Oncegate", "../openapi.json");
    let beside = upstreams.zip(&paths).map(|(upstream, path)| utoipa_swagger_ui::Url::new(upstream, path));
    // The usual validator is a service on the Internet.
    let config = utoipa_swagger_ui::Config::new(std::iter::once(own).chain(beside)).validator_url("none");
    let found = utoipa_swagger_ui::serve(&file, Arc::new(config));
    let Ok(Some(found)) = found else { return caller.refuse(Problem::new(Situation::NoRoute)) };
    let mut response = Response::new(Body::from(found.bytes.into_owned()));
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::try_from(found.content_type) {
        headers.insert(CONTENT_TYPE, value);
    }
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
