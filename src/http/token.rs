//! Idempotency tokens at the door: made when they are asked for, and what one stands for that comes with a request.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Json};
use http::header::{CACHE_CONTROL, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use serde::Serialize;

use super::body::{self, BodyLimits};
use super::endpoints::Endpoints;
use super::guarded::Guarded;
use super::keyed::{self, Line};
use super::reply::{self, Caller};
use super::route::TokenUse;
use super::sender;
use crate::auth::token::{Owner, Permission, Refusal, Wanted};
use crate::clock;
use crate::engine::{Arrival, Reason};
use crate::entry::source::{ResolvedKey, Sent};
use crate::entry::{Key, Scope};
use crate::problem::{Problem, Situation};

/// The largest request for a token: what is bound by it must fit into 2 KiB, written with whatever white space.
const MAX_WANTED_BYTES: usize = 16 * 1024;

/// A token. Not to be shown: it is a right.
#[derive(Serialize, utoipa::ToSchema)]
struct Issued {
    /// What goes into `Idempotency-Key`.
    token: String,
    /// Until when it may begin something (RFC 3339). What it has begun is told for longer.
    expires_at: String,
}

/// `POST /idempotency/tokens`: a token for what the body says.
#[utoipa::path(
    post,
    path = "/idempotency/tokens",
    operation_id = "issueToken",
    tag = "requests",
    summary = "A token for a request to come",
    description = "A token goes into `Idempotency-Key` and permits one request of this caller, on this route, with these \
                   members. Nothing is executed or stored. Served where tokens have a secret (`secrets.token`).",
    request_body(
        content = serde_json::Value,
        description = "`route`, the route's name, and members that the request's JSON body will have, each with its value. \
                       A name that begins with `/` is a JSON pointer.",
        example = json!({"route": "create-payment", "order_no": "A-1", "amount": 100, "/card/currency": "EUR"}),
    ),
    responses(
        (
            status = 201,
            description = "The token.",
            body = Issued,
            example = json!({"token": "ogt_eyJ0eXAiOiJvZ3Qrand0In0.e30.c2ln", "expires_at": "1994-11-06T08:49:37.000Z"}),
        ),
        (status = 400, description = "problem"),
        (status = 401, description = "problem"),
        (status = 403, description = "problem"),
        (status = 408, description = "problem"),
        (status = 413, description = "problem"),
        (status = 503, description = "problem"),
    ),
    security((), ("bearer" = []), ("subject" = []))
)]
pub(super) async fn issue(
    State(endpoints): State<Endpoints>,
    caller: Caller,
    request: Request<Body>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    match endpoints.issue(&caller, &parts.headers, body).await {
        Ok(issued) => {
            let mut response = (StatusCode::CREATED, Json(issued)).into_response();
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        Err(problem) => caller.refuse(problem),
    }
}

impl Endpoints {
    async fn issue(&self, caller: &Caller, headers: &HeaderMap, body: Body) -> Result<Issued, Problem> {
        let inner = &self.gateway.0;
        let sender = inner.asking(&caller.peer, headers).await?;
        let limits = BodyLimits { bytes: inner.body.bytes.min(MAX_WANTED_BYTES), ..inner.body };
        let body = body::read(body, limits).await.map_err(|error| error.problem(limits))?;
        let bad = |because: String| Problem::new(Situation::BadRequest).because(because);
        let wanted = Wanted::parse(&body).map_err(|error| bad(error.to_string()))?;
        let takes_it = |guard: &&std::sync::Arc<super::route::Guard>| {
            *guard.policy.route == *wanted.route && guard.token != TokenUse::Off
        };
        let guard = inner.guards.iter().find(takes_it);
        let (Some(guard), Some(tokens)) = (guard, &inner.tokens) else {
            return Err(bad("No route of that name takes tokens.".to_owned()));
        };
        sender::grants(&sender, &guard.required_scopes)?;
        let scope = sender.scope(guard.scope).map_err(sender::problem)?;
        let expires = clock::wall().after(guard.token_lifetime);
        let permission = Permission::new(wanted, Owner::new(&sender, &scope), rand::random(), expires);
        let token = tokens.sign(&permission).map_err(|error| bad(error.to_string()))?;
        metrics::counter!("oncegate_tokens_issued_total", "route" => guard.policy.route.to_string()).increment(1);
        Ok(Issued { token, expires_at: permission.expires().rfc3339() })
    }
}

impl Guarded<'_> {
    /// What the token of a request permits; `None` of a request without one, where it needs none. What it says of the
    /// body is not looked at here.
    pub(super) fn permission(&self, line: Option<&Line<'_>>, scope: &Scope) -> Result<Option<Permission>, Problem> {
        let token = match (line, self.guard.token) {
            (Some(Line::Token(_)), TokenUse::Off) => return Err(invalid("This route takes no tokens.")),
            (Some(Line::Token(token)), TokenUse::Accepted | TokenUse::Required) => token,
            (Some(Line::Key(_)) | None, TokenUse::Required) => {
                return Err(invalid("This route wants a token in Idempotency-Key."));
            }
            (Some(Line::Key(_)) | None, TokenUse::Off | TokenUse::Accepted) => return Ok(None),
        };
        let tokens = self.gateway.tokens.as_ref().ok_or_else(|| invalid("This gateway has no secret for tokens."))?;
        let permission = tokens.verify(token).map_err(refused)?;
        let sender = self.sender.as_ref().ok_or_else(|| invalid("The token was made for somebody else."))?;
        permission.is_for(&self.guard.policy.route, &Owner::new(sender, scope)).map_err(refused)?;
        Ok(Some(permission))
    }

    /// The key of a request: with a token the number that the route keys by, else what the token stands for. Two tabs
    /// with two tokens are one payment.
    pub(super) fn key(&self, sent: &Sent<'_>, permission: Option<&Permission>) -> Result<Option<ResolvedKey>, Problem> {
        let sources = &self.guard.sources;
        let Some(permission) = permission else { return keyed::resolve(sources, sent) };
        permission.covers(sent.body.unwrap_or_default()).map_err(refused)?;
        let of_business = keyed::resolve(sources, &Sent { header: None, ..*sent })?;
        let resolved = match of_business {
            Some(key) => Some(key),
            None => keyed::resolve(sources, sent)?,
        };
        // Whoever sends a token wants to be guarded, whatever the route does with requests without a key.
        resolved.map(Some).ok_or_else(|| Problem::new(Situation::KeyMissing))
    }

    /// An expired token begins nothing; what was begun with it is told.
    pub(super) async fn still_counts(&self, permission: &Permission, arrival: &Arrival) -> Result<(), Problem> {
        if !permission.has_expired(clock::wall()) {
            return Ok(());
        }
        match self.gateway.engine.peek(arrival).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Problem::new(Situation::TokenExpired)),
            Err(error) => {
                tracing::warn!(%error, "entry could not be read");
                Err(reply::unavailable(Reason::Store))
            }
        }
    }
}

/// The key that the header stands for.
pub(super) fn header_key(line: Option<Line<'_>>, permission: Option<&Permission>) -> Option<Key> {
    match (line, permission) {
        (_, Some(permission)) => Some(permission.key()),
        (Some(Line::Key(key)), None) => Some(key),
        (Some(Line::Token(_)) | None, None) => None,
    }
}

fn invalid(because: &str) -> Problem {
    Problem::new(Situation::TokenInvalid).because(because)
}

fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Ambiguous => Problem::new(Situation::BadRequest).because(refusal.to_string()),
        Refusal::Forged | Refusal::Owner | Refusal::Route | Refusal::Payload => invalid(&refusal.to_string()),
    }
}
