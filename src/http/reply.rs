//! Answers on their way to the caller.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Response};

use super::keyed::IDEMPOTENCY_KEY;
use super::peer::Peer;
use super::{preference, replay};
use crate::clock::Timestamp;
use crate::engine::{Arrived, Reason, Recorded, Verdict};
use crate::entry::Key;
use crate::problem::{Problem, Situation};

static IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
static IDEMPOTENCY_KEY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-key-expires");
static ONCEGATE_RECORDED: HeaderName = HeaderName::from_static("oncegate-recorded");
static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What the caller of an execution gets.
#[derive(Debug)]
pub(crate) enum Reply {
    /// What the upstream (or the handler) said.
    Answer(Response<Body>),
    /// What is said in its place.
    Problem(Problem),
}

/// Whoever is to be answered.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(super) peer: Peer,
    problems: Box<str>,
    request_id: String,
}

impl Caller {
    /// The sender of a request. One without an id gets one, which the upstream sees as well.
    pub(crate) fn new(parts: &mut Parts, problems: &str) -> Self {
        let nobody = || Peer::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), false);
        let peer = parts.extensions.get::<Peer>().cloned().unwrap_or_else(nobody);
        Self { peer, problems: problems.into(), request_id: request_id(&mut parts.headers) }
    }

    /// Answers with a problem.
    pub(crate) fn refuse(&self, problem: Problem) -> Response<Body> {
        let mut response = problem.respond(&self.problems, &self.request_id);
        if let Ok(value) = HeaderValue::try_from(&self.request_id) {
            response.headers_mut().insert(X_REQUEST_ID.clone(), value);
        }
        response
    }

    /// Answers a guarded request.
    pub(crate) fn tell(&self, key: &Key, arrived: Arrived<Reply>, preferred: Option<Duration>) -> Response<Body> {
        let mut response = match arrived {
            Arrived::Executed { answer, recorded } => self.executed(answer, recorded),
            Arrived::Told(verdict) => self.told(verdict),
        };
        let headers = response.headers_mut();
        if let Ok(value) = HeaderValue::try_from(key.to_structured()) {
            headers.insert(IDEMPOTENCY_KEY.clone(), value);
        }
        if let Some(wait) = preferred {
            preference::applied(headers, wait);
        }
        response
    }

    fn executed(&self, answer: Reply, recorded: Recorded) -> Response<Body> {
        let mut response = match answer {
            Reply::Answer(response) => response,
            Reply::Problem(problem) => self.refuse(problem),
        };
        let headers = response.headers_mut();
        replayed(headers, "false");
        match recorded {
            Recorded::Completed(expires) => kept_until(headers, expires),
            Recorded::Nothing => drop(headers.insert(ONCEGATE_RECORDED.clone(), HeaderValue::from_static("false"))),
            Recorded::Released | Recorded::Unknown | Recorded::Streaming => {}
        }
        response
    }

    fn told(&self, verdict: Verdict) -> Response<Body> {
        match verdict {
            Verdict::Replay { response, expires } => {
                let mut response = replay::response(&response);
                replayed(response.headers_mut(), "true");
                kept_until(response.headers_mut(), expires);
                response
            }
            Verdict::NotKept { status, expires } => {
                let mut response =
                    self.refuse_guarded(Problem::new(Situation::ResponseNotKept).original_status(status));
                kept_until(response.headers_mut(), expires);
                response
            }
            Verdict::Expired => self.refuse_guarded(Problem::new(Situation::KeyExpired)),
            Verdict::Mismatch => self.refuse_guarded(Problem::new(Situation::KeyReused)),
            Verdict::InProgress { retry_after } => {
                self.refuse_guarded(Problem::new(Situation::Processing).retry_after(retry_after))
            }
            Verdict::Held { retry_after } => {
                self.refuse_guarded(Problem::new(Situation::OutcomeUnknown).retry_after(retry_after))
            }
            Verdict::Unavailable(reason) => self.refuse_guarded(unavailable(reason)),
        }
    }

    fn refuse_guarded(&self, problem: Problem) -> Response<Body> {
        let mut response = self.refuse(problem);
        replayed(response.headers_mut(), "false");
        response
    }
}

impl FromRequestParts<super::endpoints::Endpoints> for Caller {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &super::endpoints::Endpoints,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self::new(parts, &state.gateway.0.problems))
    }
}

/// Why nothing was done, and when to come again.
/// Why a namespace is closed.
pub(super) const IDENTITY_CHANGED: &str = "What makes two requests the same one was configured otherwise before; an operator must accept the change (oncegate identity accept).";

pub(crate) fn unavailable(reason: Reason) -> Problem {
    let (because, seconds) = match reason {
        Reason::Store => ("Its store can't be reached.", 5),
        Reason::Overload => ("Too many requests wait to be recorded.", 1),
        Reason::Lease => ("It has just come back from a pause.", 5),
        Reason::Incomparable => {
            tracing::error!("a stored fingerprint was made under a secret or rule that is not configured here");
            ("It lacks the secret under which the first request was recorded.", 60)
        }
        Reason::Sealed => ("It lacks the key under which the first answer was sealed.", 60),
    };
    Problem::new(Situation::Unavailable).because(because).retry_after(Duration::from_secs(seconds))
}

fn replayed(headers: &mut HeaderMap, whether: &'static str) {
    headers.insert(IDEMPOTENT_REPLAYED.clone(), HeaderValue::from_static(whether));
}

fn kept_until(headers: &mut HeaderMap, expires: Timestamp) {
    if let Ok(value) = HeaderValue::try_from(httpdate::fmt_http_date(expires.to_system())) {
        headers.insert(IDEMPOTENCY_KEY_EXPIRES.clone(), value);
    }
}

/// The request's id: the client's where it is short and plain, else a fresh one.
fn request_id(headers: &mut HeaderMap) -> String {
    let sent = headers.get(&X_REQUEST_ID).and_then(|value| value.to_str().ok());
    if let Some(sent) = sent.filter(|sent| (1..=128).contains(&sent.len())) {
        return sent.to_owned();
    }
    let id = format!("{:032x}", rand::random::<u128>());
    if let Ok(value) = HeaderValue::try_from(&id) {
        headers.insert(X_REQUEST_ID.clone(), value);
    }
    id
}
