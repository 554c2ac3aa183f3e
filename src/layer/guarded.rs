//! A guarded request: whose it is, its key, what it means, and then the engine.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, OriginalUri, RawPathParams};
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use tower::Service;

use super::handler::Handler;
use super::idempotency::Shared;
use crate::engine::{Arrival, Arrived};
use crate::entry::Key;
use crate::entry::fingerprint::{self, Meaning};
use crate::entry::source::Sent;
use crate::http::reply::Caller;
use crate::http::route::Keyless;
use crate::http::{body, keyed, preference};
use crate::outbox::seed::Asked;
use crate::problem::{Problem, Situation};

/// A request that may go on.
enum Admitted {
    /// To the engine, under its key.
    Keyed(Box<Arrival>, Key, Bytes),
    /// To the handler: it has no key and needs none.
    Keyless(Bytes),
}

/// Answers `request`, with `service` as its handler if it is the first of its key.
pub(super) async fn answer<S>(
    shared: Arc<Shared>,
    mut service: S,
    request: Request<Body>,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<Body>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    let caller = Caller::new(&mut parts, &shared.problems);
    let preferred = preference::wait(&parts.headers, shared.operation.longest_wait);
    match shared.admit(&mut parts, body, preferred).await {
        Err(problem) => Ok(caller.refuse(problem)),
        Ok(Admitted::Keyless(body)) => service.call(Request::from_parts(parts, Body::from(body))).await,
        Ok(Admitted::Keyed(arrival, key, body)) => {
            let kind = arrival.kind;
            let engine = Arc::clone(&shared.engine);
            let handler = Handler { shared, kind, service, request: Request::from_parts(parts, body) };
            let arrived = match engine.arrive(*arrival, |attempt| handler.execute(attempt)).await {
                Arrived::Executed { answer, recorded } => {
                    Arrived::Executed { answer: answer.given(recorded)?, recorded }
                }
                Arrived::Told(verdict) => Arrived::Told(verdict),
            };
            Ok(caller.tell(&key, arrived, preferred))
        }
    }
}

impl Shared {
    async fn admit(&self, parts: &mut Parts, body: Body, preferred: Option<Duration>) -> Result<Admitted, Problem> {
        let operation = &self.operation;
        let scope = (operation.scope)(parts)?;
        let header = keyed::from_header(&parts.headers)?;
        let limits = operation.body;
        let body = body::read(body, limits).await.map_err(|error| error.problem(limits))?;
        // Without any, the request did not come through an axum route with parameters.
        let params = RawPathParams::from_request_parts(parts, &()).await.ok();
        let params: Vec<_> = params.iter().flatten().map(|(name, value)| (name, Cow::Borrowed(value))).collect();
        let sent = Sent { header: header.as_ref(), path: &params, query: parts.uri.query(), body: Some(&body) };
        let Some(key) = keyed::resolve(&operation.keys, &sent)? else {
            return match operation.keyless {
                Keyless::Refused => Err(Problem::new(Situation::KeyMissing)),
                Keyless::Passed => Ok(Admitted::Keyless(body)),
            };
        };
        // A nested router hides its prefix from what is in it, and two shops' orders are not one request.
        let path = parts.extensions.get::<OriginalUri>().map_or(parts.uri.path(), |uri| uri.path());
        let said = fingerprint::Parts {
            method: &parts.method,
            path,
            query: parts.uri.query(),
            headers: &parts.headers,
            body: body.clone(),
        };
        let meaning = Meaning::of(said, &operation.rules);
        let wait = operation.concurrent.wait(preferred, operation.longest_wait);
        let asked = Asked { sent, headers: &parts.headers, body: &body };
        // Also where no rule asks for it: the handler may announce something, and that belongs to the same trace.
        let seed = Arc::new(self.policy.events.seed(&asked, rand::random()));
        let arrival = Arrival { seed, ..self.engine.arrival(&self.policy, scope, &key, meaning, wait) };
        Ok(Admitted::Keyed(Box::new(arrival), key.key, body))
    }
}
