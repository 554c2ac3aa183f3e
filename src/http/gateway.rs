//! The HTTP door: every request that is not for one of our own endpoints.
//!
//! Order of what is checked: framing and path (before anything else sees the request), route, credentials and what
//! they grant, then on guarded routes the key's spelling, the body's bounds, the key, and only then the store.

use std::sync::Arc;

use axum::body::Body;
use http::header::{ALLOW, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response};

use super::body::BodyLimits;
use super::guarded::Guarded;
use super::peer::Peer;
use super::reply::Caller;
use super::route::{Guard, Route};
use super::{forwarded, framing};
use crate::auth::token::Tokens;
use crate::auth::{Authenticator, Principal};
use crate::engine::Engine;
use crate::problem::{Problem, Situation};
use crate::routing::{self, Match, NotFound, Router};
use crate::upstream::{StreamFailure, hop_by_hop};

/// The door.
#[derive(Debug, Clone)]
pub struct Gateway(pub(super) Arc<Inner>);

/// What the door is made of.
#[derive(Debug)]
pub struct Inner {
    /// All routes.
    pub routes: Router<Arc<Route>>,
    /// The guards among them.
    pub guards: Vec<Arc<Guard>>,
    /// What guards them.
    pub engine: Arc<Engine>,
    /// How senders are told apart.
    pub authenticator: Authenticator,
    /// What makes idempotency tokens and verifies them.
    pub tokens: Option<Tokens>,
    /// What bounds the bodies of guarded requests.
    pub body: BodyLimits,
    /// Where the problem pages are, with a slash at its end.
    pub problems: Box<str>,
}

impl Gateway {
    /// The door made of `inner`.
    #[must_use]
    pub fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    /// Answers a request.
    pub async fn handle(&self, request: Request<Body>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::new(&mut parts, &self.0.problems);
        if let Err(ambiguous) = framing::check(&parts) {
            return caller.refuse(Problem::new(Situation::BadRequest).because(ambiguous.to_string()));
        }
        let path = parts.uri.path().to_owned();
        if let Err(ambiguous) = routing::check(&path) {
            return caller
                .refuse(Problem::new(Situation::BadRequest).because(format!("Its path is ambiguous: {ambiguous}.")));
        }
        let Match { value: route, params } = match self.0.routes.find(&parts.method, &path) {
            Ok(found) => found,
            Err(NotFound::NoRoute) => return caller.refuse(Problem::new(Situation::NoRoute)),
            Err(NotFound::MethodNotAllowed { allow }) => return method_not_allowed(&caller, &allow),
        };
        let guard = route.guard.as_ref().filter(|_| is_guarded(&parts.method)).map(|guard| (guard, guard.mode.now()));
        self.0.authenticator.cleanse(caller.peer.addr.ip(), &mut parts.headers);
        let sender = match self.0.sender(route, guard.map(|(guard, mode)| (&**guard, mode)), &parts, &caller.peer).await
        {
            Ok(sender) => sender,
            Err(problem) => return caller.refuse(problem),
        };
        match guard {
            Some((guard, mode)) => {
                let gateway = &self.0;
                // Boxed: the guarded way is much larger than passing through, and rarer.
                let guarded = Guarded { gateway, route, guard, mode, params: &params, caller: &caller, sender };
                Box::pin(guarded.answer(parts, body)).await
            }
            None => self.0.pass(route, Request::from_parts(parts, body), sender.as_ref(), &caller).await,
        }
    }
}

/// Methods that are safe by themselves pass through (RFC 9110, section 9.2.1): repeating them has no effect.
fn is_guarded(method: &Method) -> bool {
    !method.is_safe()
}

fn method_not_allowed(caller: &Caller, allow: &[Method]) -> Response<Body> {
    let mut response = caller.refuse(Problem::new(Situation::MethodNotAllowed));
    let allow: Vec<&str> = allow.iter().map(Method::as_str).collect();
    if let Ok(value) = HeaderValue::try_from(allow.join(", ")) {
        response.headers_mut().insert(ALLOW, value);
    }
    response
}

impl Inner {
    /// Forwards a request as it comes, and its answer as it comes.
    pub(super) async fn pass(
        &self,
        route: &Route,
        request: Request<Body>,
        sender: Option<&Principal>,
        caller: &Caller,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        hop_by_hop::strip_streamed(&mut parts.headers);
        self.prepare(&mut parts, sender, &caller.peer);
        match route.upstream.forward_streaming(Request::from_parts(parts, body)).await {
            Ok(answer) => {
                let (mut parts, body) = answer.into_parts();
                hop_by_hop::strip_streamed(&mut parts.headers);
                forwarded::apply_to_answer(&mut parts);
                Response::from_parts(parts, Body::new(body))
            }
            Err(failure) => caller.refuse(stream_problem(&failure)),
        }
    }

    /// Makes the head one that the upstream may believe. After stripping: a client's `Connection` must not take away
    /// what we say of the sender.
    pub(super) fn prepare(&self, parts: &mut Parts, sender: Option<&Principal>, peer: &Peer) {
        let trusted = self.authenticator.trusts(peer.addr.ip());
        self.authenticator.identify(sender, &mut parts.headers);
        let trust = if trusted { forwarded::Trust::Proxy } else { forwarded::Trust::Nobody };
        forwarded::apply(parts, peer, trust);
    }
}

fn stream_problem(failure: &StreamFailure) -> Problem {
    match failure {
        StreamFailure::NotSent(failure) => {
            Problem::new(Situation::UpstreamUnreachable).proxy_error(failure.reason.proxy_status())
        }
        StreamFailure::Lost(failure) => {
            Problem::new(Situation::UpstreamFailed).proxy_error(failure.reason.proxy_status())
        }
        StreamFailure::TimedOut => Problem::new(Situation::UpstreamTimeout),
    }
}
