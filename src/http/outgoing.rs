//! One execution of a guarded request against its upstream: what is sent, what comes back, and what that
//! means.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, response};
use http_body_util::BodyStream;
use hyper::body::Incoming;
use tokio::time::timeout_at;

use super::forwarded;
use super::route::{Guard, Route};
use super::tee;
use crate::clock::{self, Instant};
use crate::engine::{Attempt, Executed};
use crate::entry::{Answer, Key, Outcome, StoredResponse};
use crate::problem::{Problem, Situation};
use crate::upstream::{Class, Exchange, Failure, Reading, classify, hop_by_hop, read_answer};

/// The field that carries the key.
pub(super) static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
static ONCEGATE_ATTEMPT: HeaderName = HeaderName::from_static("oncegate-attempt");

/// What the caller of an execution gets.
#[derive(Debug)]
pub(super) enum Reply {
    /// What the upstream said.
    Upstream(Response<Body>),
    /// What the gateway says in its place.
    Problem(Problem),
}

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
            return finished(
                Outcome::NotExecuted,
                Reply::Problem(Problem::new(Situation::Unavailable).retry_after(LEASE_RETRY)),
            );
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

/// When a request that met a lost lease may come again: the next renewal has happened by then.
const LEASE_RETRY: std::time::Duration = std::time::Duration::from_secs(5);

fn finished(outcome: Outcome, answer: Reply) -> Executed<Reply> {
    Executed::Finished { outcome, answer }
}

fn problem(situation: Situation, failure: &Failure) -> Reply {
    Reply::Problem(Problem::new(situation).proxy_error(failure.reason.proxy_status()))
}

/// The upstream answered in time: reads the body as far as it is kept, then decides.
async fn answered(
    mut parts: response::Parts,
    body: Incoming,
    guard: &Arc<Guard>,
    number: u32,
    deadline: Instant,
) -> Executed<Reply> {
    let class = classify(parts.status, &guard.outcomes, number);
    prepare(&mut parts);
    if class == Class::Completed && is_event_stream(&parts.headers) {
        return streamed(parts, body, guard);
    }
    let (body, kept) = match read_answer(body, guard.response_limit, deadline).await {
        Reading::Kept(bytes) => (full(bytes.clone()), Some(bytes)),
        Reading::TooLarge { prefix, rest } => (prefix_and_rest(prefix, rest), None),
        Reading::Cut { prefix } if class == Class::Completed && !parts.status.is_success() => {
            return finished(Outcome::Unknown, Reply::Upstream(Response::from_parts(parts, cut(prefix))));
        }
        Reading::Cut { prefix } => (cut(prefix), None),
    };
    let outcome = outcome(class, &parts, kept, guard);
    finished(outcome, Reply::Upstream(Response::from_parts(parts, body)))
}

/// What an answer of this class is recorded as; `kept` is its body, where it could be kept.
fn outcome(class: Class, parts: &response::Parts, kept: Option<Bytes>, guard: &Guard) -> Outcome {
    match class {
        Class::NotExecuted => Outcome::NotExecuted,
        Class::Unknown => Outcome::Unknown,
        Class::Completed => Outcome::Completed(match kept {
            Some(body) => {
                Answer::Response(Arc::new(StoredResponse::of(parts.status, &parts.headers, body, &guard.excluded)))
            }
            None => Answer::StatusOnly(parts.status.as_u16()),
        }),
    }
}

/// An event stream is passed on as it comes and kept on the side, as far as the limit goes. It has no end
/// that a time-out could wait for.
fn streamed(parts: response::Parts, body: Incoming, guard: &Arc<Guard>) -> Executed<Reply> {
    let (body, copy) = tee::tee(body, guard.response_limit);
    let (status, headers, guard) = (parts.status, parts.headers.clone(), Arc::clone(guard));
    let finish = async move {
        Outcome::Completed(match copy.await.ok().flatten() {
            Some(body) => Answer::Response(Arc::new(StoredResponse::of(status, &headers, body, &guard.excluded))),
            None => Answer::StatusOnly(status.as_u16()),
        })
    };
    Executed::Streaming { answer: Reply::Upstream(Response::from_parts(parts, body)), finish: Box::pin(finish) }
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
    let class = classify(parts.status, &guard.outcomes, number);
    prepare(&mut parts);
    match read_answer(body, guard.response_limit, clock::now() + guard.late_window).await {
        Reading::Kept(bytes) => outcome(class, &parts, Some(bytes), &guard),
        Reading::Cut { .. } if class == Class::Completed && !parts.status.is_success() => Outcome::Unknown,
        Reading::TooLarge { .. } | Reading::Cut { .. } => outcome(class, &parts, None, &guard),
    }
}

fn prepare(parts: &mut response::Parts) {
    hop_by_hop::strip(&mut parts.headers);
    forwarded::apply_to_answer(parts);
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("text/event-stream")
}

fn full(bytes: Bytes) -> Body {
    if bytes.is_empty() { Body::empty() } else { Body::from(bytes) }
}

fn prefix_and_rest(prefix: Bytes, rest: Incoming) -> Body {
    let rest =
        BodyStream::new(rest).filter_map(|frame| async move { frame.map(|frame| frame.into_data().ok()).transpose() });
    Body::from_stream(stream::iter([Ok(prefix)]).chain(rest))
}

/// What came of a cut body, ended by an error: the caller sees a cut body too, never a shorter whole one.
fn cut(prefix: Bytes) -> Body {
    let error = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the upstream's answer was cut");
    let pieces: [Result<Bytes, std::io::Error>; 2] = [Ok(prefix), Err(error)];
    Body::from_stream(stream::iter(pieces))
}
