//! One execution of a guarded request against its upstream: what is sent, what comes back, and what that
//! means.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, response};
use hyper::body::Incoming;
use tokio::time::timeout_at;

use super::forwarded;
use super::keyed::IDEMPOTENCY_KEY;
use super::reply::{self, Reply};
use super::route::{Guard, Route};
use crate::clock::{self, Instant};
use crate::engine::{Attempt, Executed, Reason};
use crate::entry::{Key, Outcome};
use crate::problem::{Problem, Situation};
use crate::upstream::{Exchange, Failure, hop_by_hop};

static ONCEGATE_ATTEMPT: HeaderName = HeaderName::from_static("oncegate-attempt");

/// A guarded request on its way out.
pub(super) struct Outgoing {
    pub(super) route: Arc<Route>,
    pub(super) guard: Arc<Guard>,
    pub(super) key: Key,
    /// The head as received, prepared for the upstream but for the fields that the attempt decides.
    pub(super) parts: Parts,
    pub(super) body: Bytes,
}

impl Outgoing {
    /// Sends the request, as `attempt`, and says what came of it.
    pub(super) async fn execute(self, attempt: Attempt) -> Executed<Reply> {
        let (guard, number) = (Arc::clone(&self.guard), attempt.number);
        let upstream = self.route.upstream.clone();
        let request = self.into_request(&attempt);
        if attempt.dispatch().is_err() {
            return finished(Outcome::NotExecuted, Reply::Problem(reply::unavailable(Reason::Lease)));
        }
        let deadline = clock::now() + guard.timeout;
        let mut exchange = Box::pin(upstream.send(request));
        match timeout_at(deadline, &mut exchange).await {
            Ok(Exchange::Answered { parts, body }) => answered(parts, body, &guard, number, deadline).await,
            Ok(Exchange::NotSent(failure)) => {
                finished(Outcome::NotExecuted, problem(Situation::UpstreamUnreachable, &failure))
            }
            Ok(Exchange::Lost(failure)) => finished(Outcome::Unknown, problem(Situation::UpstreamFailed, &failure)),
            Err(_elapsed) => Executed::TimedOut {
                answer: Reply::Problem(Problem::new(Situation::UpstreamTimeout)),
                late: Box::pin(late(exchange, guard, number)),
            },
        }
    }

    fn into_request(self, attempt: &Attempt) -> Request<Bytes> {
        let Self { guard, key, mut parts, body, .. } = self;
        let headers = &mut parts.headers;
        // Ours, in one spelling, whatever the client sent.
        if let Ok(value) = HeaderValue::try_from(guard.forwarded_key(&key, attempt.id)) {
            headers.insert(IDEMPOTENCY_KEY.clone(), value);
        }
        headers.insert(ONCEGATE_ATTEMPT.clone(), HeaderValue::from(attempt.number));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        Request::from_parts(parts, body)
    }
}

fn finished(outcome: Outcome, answer: Reply) -> Executed<Reply> {
    Executed::Finished { outcome, answer }
}

fn problem(situation: Situation, failure: &Failure) -> Reply {
    Reply::Problem(Problem::new(situation).proxy_error(failure.reason.proxy_status()))
}

/// The upstream answered in time.
async fn answered(
    mut parts: response::Parts,
    body: Incoming,
    guard: &Guard,
    number: u32,
    deadline: Instant,
) -> Executed<Reply> {
    prepare(&mut parts);
    guard.keeping().answered(parts, body, number, deadline).await
}

/// What a timed-out exchange came to after all. The engine bounds how long it is listened to.
async fn late<E>(exchange: Pin<Box<E>>, guard: Arc<Guard>, number: u32) -> Outcome
where
    E: Future<Output = Exchange> + Send,
{
    let (mut parts, body) = match exchange.await {
        Exchange::Answered { parts, body } => (parts, body),
        Exchange::NotSent(_) => return Outcome::NotExecuted,
        Exchange::Lost(_) => return Outcome::Unknown,
    };
    prepare(&mut parts);
    guard.keeping().late(&parts, body, number, clock::now() + guard.late_window).await
}

fn prepare(parts: &mut response::Parts) {
    hop_by_hop::strip(&mut parts.headers);
    forwarded::apply_to_answer(parts);
}
