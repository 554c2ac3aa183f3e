//! The operators' endpoints: entries, events, deliveries, decisions about them, and switches. All are JSON, under [`Access`], and on a listener of
//! their own.

pub mod access;
pub(crate) mod cross_site;
mod decisions;
mod deliveries;
mod document;
pub(crate) mod entries;
mod events;
pub(crate) mod given;
pub mod routes;
mod rows;
mod settle;
pub mod shapes;
pub mod stats;
pub mod subscriptions;
mod switches;
mod trouble;
mod work;

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json};
use axum::routing::{get, post};
use http::header::{CACHE_CONTROL, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use serde::de::DeserializeOwned;

use self::access::{ADMIN_SCOPE, Access, Authority, Denied};
pub(super) use self::document::Document;
use self::routes::RouteShown;
use self::subscriptions::SubscriptionShown;
use super::body::{self, BodyLimits};
use super::reply::{Caller, unavailable};
use super::sender;
use crate::engine::by_hand::Settler;
use crate::engine::desk::EntryDesk;
use crate::engine::ledger::StoreError;
use crate::engine::switchboard::Switchboard;
use crate::engine::{Policy, Reason};
use crate::outbox::desk::Desk;
use crate::problem::{Problem, Situation};

/// What operators are answered from.
#[derive(Debug, Clone)]
pub struct Admin(Arc<AdminParts>);

/// What [`Admin`] is made of.
pub struct AdminParts {
    /// The ledger, as people see it.
    pub entries: Arc<dyn EntryDesk>,
    /// The outbox, as people see it.
    pub events: Arc<dyn Desk>,
    /// Carries decisions out.
    pub settler: Settler,
    /// All policies by their route's name.
    pub policies: HashMap<Box<str>, Arc<Policy>>,
    /// What people have switched.
    pub switches: Arc<Switchboard>,
    /// All routes, as configured.
    pub routes: Vec<RouteShown>,
    /// All subscriptions, as configured.
    pub subscriptions: Vec<SubscriptionShown>,
    /// What happens now.
    pub stats: stats::Stats,
    /// Who may.
    pub access: Access,
    /// What bounds the bodies of orders.
    pub body: BodyLimits,
    /// Where the problem pages are, with a slash at its end.
    pub problems: Box<str>,
}

impl std::fmt::Debug for AdminParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminParts").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Admin {
    /// Answers from `parts`.
    #[must_use]
    pub fn new(parts: AdminParts) -> Self {
        Self(Arc::new(parts))
    }

    /// What it is made of.
    #[must_use]
    pub fn parts(&self) -> &AdminParts {
        &self.0
    }
}

/// All of the operators' endpoints on one screen.
pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/entries", get(entries::list))
        .route("/entries/settle", post(settle::many))
        .route("/entries/{id}", get(entries::show))
        .route("/entries/{id}/settle", post(settle::one))
        .route("/decisions", get(decisions::list))
        .route("/events", get(events::list))
        .route("/events/retry", post(events::retry))
        .route("/events/discard", post(events::discard))
        .route("/events/{id}", get(events::show))
        .route("/deliveries", get(deliveries::list))
        .route("/deliveries/retry", post(deliveries::retry))
        .route("/deliveries/discard", post(deliveries::discard))
        .route("/deliveries/{id}", get(deliveries::show))
        .route("/routes", get(routes::list))
        .route("/routes/{name}/mode", post(routes::mode))
        .route("/switches", get(switches::list))
        .route("/subscriptions", get(subscriptions::list))
        .route("/subscriptions/{name}/pause", post(subscriptions::pause))
        .route("/subscriptions/{name}/resume", post(subscriptions::resume))
        .route("/stats", get(stats::stats))
        .route_layer(from_fn_with_state(admin.clone(), guard))
        .method_not_allowed_fallback(other_method)
        .fallback(nothing_here)
        .with_state(admin)
}

/// Before anything is read: who asks, and whether a page of somebody else's makes a browser ask.
async fn guard(State(admin): State<Admin>, request: Request, next: Next) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let caller = Caller::new(&mut parts, &admin.0.problems);
    let authority = match admin.0.access.admit(caller.peer.addr.ip(), &parts).await {
        Ok(authority) => authority,
        Err(denied) => return caller.refuse(denied_problem(denied)),
    };
    if let Some(why) = cross_site::refusal(&parts) {
        return caller.refuse(Problem::new(Situation::Forbidden).because(why));
    }
    parts.extensions.insert(authority);
    let mut response = next.run(Request::from_parts(parts, body)).await;
    response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn denied_problem(denied: Denied) -> Problem {
    let because = |situation| Problem::new(situation).because(denied.to_string());
    match denied {
        Denied::NoToken => because(Situation::Unauthenticated).challenge("Bearer realm=\"oncegate\""),
        Denied::Token(error) => sender::problem(error),
        Denied::NotGranted => because(Situation::Forbidden)
            .challenge(format!("Bearer realm=\"oncegate\", error=\"insufficient_scope\", scope=\"{ADMIN_SCOPE}\"")),
        Denied::OtherName => because(Situation::Forbidden),
    }
}

async fn other_method(caller: Caller) -> Response<Body> {
    caller.refuse(Problem::new(Situation::MethodNotAllowed))
}

async fn nothing_here(caller: Caller) -> Response<Body> {
    caller.refuse(Problem::new(Situation::NoRoute))
}

impl FromRequestParts<Admin> for Caller {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, admin: &Admin) -> Result<Self, Self::Rejection> {
        Ok(Self::new(parts, &admin.0.problems))
    }
}

impl FromRequestParts<Admin> for Authority {
    type Rejection = StatusCode;

    /// There always is one, behind the guard.
    async fn from_request_parts(parts: &mut Parts, _: &Admin) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Self>().cloned().ok_or(StatusCode::FORBIDDEN)
    }
}

/// An order that can't be followed as it is written.
fn invalid(why: impl std::fmt::Display) -> Problem {
    Problem::new(Situation::OrderInvalid).because(format!("{why}."))
}

/// The store did not answer.
fn store_problem(error: &StoreError) -> Problem {
    tracing::warn!(%error, "an operator could not be answered");
    match error {
        StoreError::CommitUnknown(_) => {
            let unclear = "Whether the decision was recorded is not known: look at the entry again.";
            Problem::new(Situation::Unavailable).because(unclear)
        }
        StoreError::Refused(_) => invalid("The store takes nothing of it"),
        StoreError::Conflict(_) | StoreError::Locked(_) | StoreError::Unavailable(_) => unavailable(Reason::Store),
    }
}

/// Reads an order.
async fn order<T: DeserializeOwned>(admin: &Admin, request: Request) -> Result<T, Problem> {
    let limits = admin.0.body;
    let bytes = body::read(request.into_body(), limits).await.map_err(|error| error.problem(limits))?;
    serde_json::from_slice(&bytes).map_err(|error| invalid(format!("The body is no such order: {error}")))
}

/// Answers with what was found, or says why not.
fn answer(caller: &Caller, told: Result<serde_json::Value, Problem>) -> Response<Body> {
    match told {
        Ok(value) => Json(value).into_response(),
        Err(problem) => caller.refuse(problem),
    }
}
