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
use super::route::Forwarding;
use crate::clock::{self, Instant};
use crate::engine::{Attempt, Executed, Reason};
use crate::entry::{Key, Outcome};
use crate::problem::{Problem, Situation};
use crate::upstream::{Exchange, Failure, Permit, hop_by_hop};

static ONCEGATE_ATTEMPT: HeaderName = HeaderName::from_static("oncegate-attempt");

/// A guarded request, or a delivery, on its way out.
pub(crate) struct Outgoing {
    pub(crate) forwarding: Arc<Forwarding>,
    pub(crate) key: Key,
    /// The head, prepared for the upstream but for the fields that the attempt decides.
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
}

impl Outgoing {
    /// Sends the request, as `attempt`, and says what came of it.
    pub(crate) async fn execute(self, attempt: Attempt) -> Executed<Reply> {
        let (forwarding, number) = (Arc::clone(&self.forwarding), attempt.number);
        let request = self.into_request(&attempt);
        if attempt.dispatch().is_err() {
            return finished(Outcome::NotExecuted, Reply::Problem(reply::unavailable(Reason::Lease)));
        }
        let deadline = clock::now() + forwarding.timeout;
        let permit = Permit::while_holds(deadline, move || attempt.may_begin());
        let mut exchange = Box::pin(forwarding.upstream.send(request, permit));
        match timeout_at(deadline, &mut exchange).await {
            Ok(Exchange::Answered { parts, body }) => answered(parts, body, &forwarding, number, deadline).await,
            Ok(Exchange::NotSent(failure)) => {
                finished(Outcome::NotExecuted, problem(Situation::UpstreamUnreachable, &failure))
            }
            Ok(Exchange::Lost(failure)) => finished(Outcome::Unknown, problem(Situation::UpstreamFailed, &failure)),
            Err(_elapsed) => Executed::TimedOut {
                answer: Reply::Problem(Problem::new(Situation::UpstreamTimeout)),
                late: Box::pin(late(exchange, forwarding, number)),
            },
        }
    }

    fn into_request(self, attempt: &Attempt) -> Request<Bytes> {
        let Self { forwarding, key, mut parts, body } = self;
        let headers = &mut parts.headers;
        // Ours, in one spelling, whatever the client sent.
        if let Ok(value) = HeaderValue::try_from(forwarding.forwarded_key(&key, attempt.id)) {
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
    forwarding: &Forwarding,
    number: u32,
    deadline: Instant,
) -> Executed<Reply> {
    prepare(&mut parts);
    forwarding.keeping().answered(parts, body, number, deadline).await
}

/// What a timed-out exchange came to after all. The engine bounds how long it is listened to.
async fn late<E>(exchange: Pin<Box<E>>, forwarding: Arc<Forwarding>, number: u32) -> Outcome
where
    E: Future<Output = Exchange> + Send,
{
    let (mut parts, body) = match exchange.await {
        Exchange::Answered { parts, body } => (parts, body),
        Exchange::NotSent(_) => return Outcome::NotExecuted,
        Exchange::Lost(_) => return Outcome::Unknown,
    };
    prepare(&mut parts);
    forwarding.keeping().late(&parts, body, number, clock::now() + forwarding.late_window).await
}

fn prepare(parts: &mut response::Parts) {
    hop_by_hop::strip(&mut parts.headers);
    forwarded::apply_to_answer(parts);
}
