//! A guarded request: who sends it, its key, what it means, and then the engine.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response, header};

use super::gateway::Inner;
use super::outgoing::Outgoing;
use super::reply::{Caller, IDENTITY_CHANGED, Reply};
use super::route::{Guard, Keyless, Mode, Route, TokenUse};
use super::{body, forwarded, keyed, preference, reply, sender, token};
use crate::auth::{AuthError, Principal};
use crate::clock::{self, Instant};
use crate::engine::{Arrival, Arrived, Policy, Reason, Verdict};
use crate::entry::fingerprint::{self, Meaning};
use crate::entry::source::{ResolvedKey, Sent};
use crate::entry::{Answer, Key, Outcome, Scope};
use crate::outbox::seed::Asked;
use crate::problem::{Problem, Situation};
use crate::upstream::{Class, classify, hop_by_hop};

/// A guarded request on its way in.
pub(super) struct Guarded<'a> {
    pub(super) gateway: &'a Inner,
    pub(super) route: &'a Arc<Route>,
    pub(super) guard: &'a Arc<Guard>,
    /// The guard's, when the request came.
    pub(super) mode: Mode,
    pub(super) params: &'a [(&'a str, Cow<'a, str>)],
    pub(super) caller: &'a Caller,
    /// Who sends it; `None` where nobody had to say, and nobody did.
    pub(super) sender: Option<Principal>,
}

impl Guarded<'_> {
    /// Answers the request.
    pub(super) async fn answer(self, parts: Parts, body: Body) -> Response<Body> {
        let answered = match self.mode {
            Mode::Observe => self.observe(parts, body).await,
            Mode::Enforce | Mode::ReplayOnly => self.admit(parts, body).await,
        };
        answered.unwrap_or_else(|problem| self.caller.refuse(problem))
    }

    async fn admit(&self, parts: Parts, body: Body) -> Result<Response<Body>, Problem> {
        let begun = clock::now();
        let scope = self.scope()?;
        let line = keyed::line(&parts.headers)?;
        let permission = self.permission(line.as_ref(), &scope)?;
        let header = token::header_key(line, permission.as_ref());
        let limits = self.gateway.body;
        let body = body::read(body, limits).await.map_err(|error| error.problem(limits))?;
        let sent = self.sent(&parts, header.as_ref(), &body);
        let Some(key) = self.key(&sent, permission.as_ref())? else {
            return match self.guard.keyless {
                Keyless::Refused => Err(Problem::new(Situation::KeyMissing)),
                Keyless::Passed if self.mode == Mode::ReplayOnly => Err(Problem::new(Situation::RoutePaused)),
                Keyless::Passed => Ok(self.pass(parts, body).await),
            };
        };
        if !self.guard.identity.holds() {
            let closed = Problem::new(Situation::Unavailable).because(IDENTITY_CHANGED);
            return Err(closed.retry_after(Duration::from_secs(60)));
        }
        let preferred = preference::wait(&parts.headers, self.guard.longest_wait);
        let wait = self.guard.concurrent.wait(preferred, self.guard.longest_wait);
        let arrival = self.arrival(&parts, &body, &sent, scope, &key, wait);
        if self.mode == Mode::ReplayOnly {
            return self.replay_only(&arrival, &key.key).await;
        }
        if let Some(permission) = &permission {
            self.still_counts(permission, &arrival).await?;
        }
        let arrived = self.gateway.engine.arrive(arrival, self.outgoing(parts, body, key.key.clone())).await;
        self.count(&arrived, begun);
        Ok(self.tell(&key.key, arrived, preferred))
    }

    fn scope(&self) -> Result<Scope, Problem> {
        let sender = self.sender.as_ref().ok_or(AuthError::NoSubject).map_err(sender::problem)?;
        sender.scope(self.guard.scope).map_err(sender::problem)
    }

    /// What is wanted of the engine in this mode.
    fn policy(&self) -> &'_ Arc<Policy> {
        match self.mode {
            Mode::Observe => &self.guard.observing,
            Mode::Enforce | Mode::ReplayOnly => &self.guard.policy,
        }
    }

    fn sent<'s>(&'s self, parts: &'s Parts, header: Option<&'s Key>, body: &'s Bytes) -> Sent<'s> {
        Sent { header, path: self.params, query: parts.uri.query(), body: Some(body) }
    }

    fn arrival(
        &self,
        parts: &Parts,
        body: &Bytes,
        sent: &Sent<'_>,
        scope: Scope,
        key: &ResolvedKey,
        wait: Duration,
    ) -> Arrival {
        let said = fingerprint::Parts {
            method: &parts.method,
            path: parts.uri.path(),
            query: parts.uri.query(),
            headers: &parts.headers,
            body: body.clone(),
        };
        let meaning = Meaning::of(said, &self.guard.rules);
        let arrival = self.gateway.engine.arrival(self.policy(), scope, key, meaning, wait);
        let events = &self.policy().events;
        if events.is_empty() {
            return arrival;
        }
        let asked = Asked { sent: *sent, headers: &parts.headers, body };
        Arrival { seed: Arc::new(events.seed(&asked, rand::random())), ..arrival }
    }

    fn outgoing(
        &self,
        mut parts: Parts,
        body: Bytes,
        key: Key,
    ) -> impl FnOnce(crate::engine::Attempt) -> futures_util::future::BoxFuture<'static, crate::engine::Executed<Reply>>
    + Send
    + 'static {
        hop_by_hop::strip(&mut parts.headers);
        self.gateway.prepare(&mut parts, self.sender.as_ref(), &self.caller.peer);
        parts.extensions.clear();
        if self.guard.policy.events.read_response() {
            // Nobody reads in a compressed response here, and its events could say nothing of it.
            parts.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        let forwarding = Arc::clone(&self.guard.forwarding);
        move |attempt| Box::pin(Outgoing { forwarding, key, parts, body }.execute(attempt))
    }

    /// A replay goes through this gateway as the first answer did.
    fn tell(&self, key: &Key, arrived: Arrived<Reply>, preferred: Option<Duration>) -> Response<Body> {
        let is_replay = matches!(arrived, Arrived::Told(Verdict::Replay { .. }));
        let (mut parts, body) = self.caller.tell(key, arrived, preferred).into_parts();
        if is_replay {
            forwarded::apply_to_answer(&mut parts);
        }
        Response::from_parts(parts, body)
    }

    /// A route that is switched to replays tells what is known and refuses what is new.
    async fn replay_only(&self, arrival: &Arrival, key: &Key) -> Result<Response<Body>, Problem> {
        match self.gateway.engine.peek(arrival).await {
            Ok(Some(verdict)) => Ok(self.tell(key, Arrived::Told(verdict), None)),
            Ok(None) => Err(Problem::new(Situation::RoutePaused).retry_after(Duration::from_secs(60))),
            Err(error) => {
                tracing::warn!(%error, "entry could not be read");
                Err(reply::unavailable(Reason::Store))
            }
        }
    }

    /// Forwards a request that has no key, and needs none.
    async fn pass(&self, parts: Parts, body: Bytes) -> Response<Body> {
        let request = Request::from_parts(parts, Body::from(body));
        self.gateway.pass(self.route, request, self.sender.as_ref(), self.caller).await
    }

    /// Forwards the request as if there were no guard, and lets the engine follow what it would have done.
    async fn observe(&self, parts: Parts, body: Body) -> Result<Response<Body>, Problem> {
        let length = http_body::Body::size_hint(&body).exact();
        let is_small = length.is_some_and(|length| length <= self.gateway.body.bytes as u64);
        let wants_token = self.guard.token == TokenUse::Required && self.guard.demands(self.mode);
        if !is_small && !wants_token {
            // Reading it in order to observe it would alter what happens to it.
            let request = Request::from_parts(parts, body);
            return Ok(self.gateway.pass(self.route, request, self.sender.as_ref(), self.caller).await);
        }
        let limits = self.gateway.body;
        let body = body::read(body, limits).await.map_err(|error| error.problem(limits))?;
        if wants_token {
            self.permitted(&parts, &body)?;
        }
        let Some(arrival) = self.observed(&parts, &body) else { return Ok(self.pass(parts, body).await) };
        let outcome = self.gateway.engine.observe(arrival);
        let response = self.pass(parts, body).await;
        let status = response.status();
        let answer = match classify(status, &self.guard.forwarding.outcomes, 1) {
            Class::Completed => Outcome::Completed(Answer::StatusOnly(status.as_u16())),
            Class::NotExecuted => Outcome::NotExecuted,
            Class::Unknown => Outcome::Unknown,
        };
        // Nobody follows a request that was a duplicate.
        drop(outcome.send(answer));
        Ok(response)
    }

    /// Whether a token permits the request, where nothing is sent without one.
    fn permitted(&self, parts: &Parts, body: &Bytes) -> Result<(), Problem> {
        let line = keyed::line(&parts.headers)?;
        let permission = self.permission(line.as_ref(), &self.scope()?)?;
        let header = token::header_key(line, permission.as_ref());
        self.key(&self.sent(parts, header.as_ref(), body), permission.as_ref())?;
        match permission.is_some_and(|permission| permission.has_expired(clock::wall())) {
            true => Err(Problem::new(Situation::TokenExpired)),
            false => Ok(()),
        }
    }

    fn observed(&self, parts: &Parts, body: &Bytes) -> Option<Arrival> {
        let scope = self.scope().ok()?;
        let line = keyed::line(&parts.headers).ok()?;
        let permission = self.permission(line.as_ref(), &scope).ok()?;
        let header = token::header_key(line, permission.as_ref());
        let sent = self.sent(parts, header.as_ref(), body);
        let key = self.key(&sent, permission.as_ref()).ok()??;
        Some(self.arrival(parts, body, &sent, scope, &key, Duration::ZERO))
    }

    fn count<A>(&self, arrived: &Arrived<A>, begun: Instant) {
        let admission = match arrived {
            Arrived::Executed { .. } => "execute",
            Arrived::Told(verdict) => verdict.name(),
        };
        let labels = [("route", self.route.name.to_string()), ("admission", admission.to_owned())];
        metrics::counter!("oncegate_requests_total", &labels).increment(1);
        metrics::histogram!("oncegate_request_duration_seconds", &labels).record(clock::now() - begun);
    }
}
