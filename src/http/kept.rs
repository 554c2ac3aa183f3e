//! An answer on its way to the caller of an execution: how much of it is kept, and what it says of the
//! outcome.

use std::sync::Arc;

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{self, HeaderMap, HeaderName};
use http::{Response, response};
use http_body::Body as HttpBody;
use http_body_util::BodyStream;

use super::reply::Reply;
use super::tee;
use crate::clock::Instant;
use crate::engine::Executed;
use crate::entry::{Answer, Outcome, StoredResponse};
use crate::upstream::{Class, OutcomeRules, Reading, classify, read_answer};

/// What is kept of a route's answers, and what their statuses mean.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keeping<'a> {
    /// What the statuses mean.
    pub(crate) outcomes: &'a OutcomeRules,
    /// The largest body kept, in bytes.
    pub(crate) response_limit: usize,
    /// Fields that a replay leaves out.
    pub(crate) excluded: &'a [HeaderName],
}

impl Keeping<'_> {
    /// Takes the answer to the `attempt`-th execution, its head prepared for the caller: reads the body as
    /// far as it is kept, until `deadline`, then decides.
    pub(crate) async fn answered<B>(
        self,
        parts: response::Parts,
        body: B,
        attempt: u32,
        deadline: Instant,
    ) -> Executed<Reply>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError> + Send,
    {
        let class = classify(parts.status, self.outcomes, attempt);
        if class == Class::Completed && is_stream(&parts.headers) {
            return self.streamed(parts, body);
        }
        let (body, kept) = match read_answer(body, self.response_limit, deadline).await {
            Reading::Kept(bytes) => (full(bytes.clone()), Some(bytes)),
            Reading::TooLarge { prefix, rest } => (prefix_and_rest(prefix, rest), None),
            Reading::Cut { prefix } if class == Class::Completed && !parts.status.is_success() => {
                let answer = Reply::Answer(Response::from_parts(parts, cut(prefix)));
                return Executed::Finished { outcome: Outcome::Unknown, answer };
            }
            Reading::Cut { prefix } => (cut(prefix), None),
        };
        let outcome = self.outcome(class, &parts, kept);
        Executed::Finished { outcome, answer: Reply::Answer(Response::from_parts(parts, body)) }
    }

    /// What an answer that came too late for its caller says of the outcome.
    pub(crate) async fn late<B>(self, parts: &response::Parts, body: B, attempt: u32, deadline: Instant) -> Outcome
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let class = classify(parts.status, self.outcomes, attempt);
        match read_answer(body, self.response_limit, deadline).await {
            Reading::Kept(bytes) => self.outcome(class, parts, Some(bytes)),
            Reading::Cut { .. } if class == Class::Completed && !parts.status.is_success() => Outcome::Unknown,
            Reading::TooLarge { .. } | Reading::Cut { .. } => self.outcome(class, parts, None),
        }
    }

    /// What an answer of this class is recorded as; `kept` is its body, where it could be kept.
    fn outcome(self, class: Class, parts: &response::Parts, kept: Option<Bytes>) -> Outcome {
        match class {
            Class::NotExecuted => Outcome::NotExecuted,
            Class::Unknown => Outcome::Unknown,
            Class::Completed => Outcome::Completed(match kept {
                Some(body) => {
                    Answer::Response(Arc::new(StoredResponse::of(parts.status, &parts.headers, body, self.excluded)))
                }
                None => Answer::StatusOnly(parts.status.as_u16()),
            }),
        }
    }

    /// A stream is passed on as it comes and kept on the side, as far as the limit goes. It has no end
    /// that a time-out could wait for.
    fn streamed<B>(self, parts: response::Parts, body: B) -> Executed<Reply>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError> + Send,
    {
        let (body, copy) = tee::tee(body, self.response_limit);
        let (status, headers, excluded) = (parts.status, parts.headers.clone(), self.excluded.to_vec());
        let finish = async move {
            Outcome::Completed(match copy.await.ok().flatten() {
                Some(body) => Answer::Response(Arc::new(StoredResponse::of(status, &headers, body, &excluded))),
                None => Answer::StatusOnly(status.as_u16()),
            })
        };
        Executed::Streaming { answer: Reply::Answer(Response::from_parts(parts, body)), finish: Box::pin(finish) }
    }
}

/// Media types whose parts are meant to be read as they come: server-sent events (HTML), JSON texts one by one
/// (ndjson, JSON Lines, RFC 7464), and parts that replace each other. Any other answer is committed before it is
/// passed on, though it comes in chunks: most servers send all their answers so.
const STREAMS: [&str; 6] = [
    "text/event-stream",
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/json-seq",
    "multipart/x-mixed-replace",
];

fn is_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    STREAMS.iter().any(|stream| essence.eq_ignore_ascii_case(stream))
}

fn full(bytes: Bytes) -> Body {
    if bytes.is_empty() { Body::empty() } else { Body::from(bytes) }
}

fn prefix_and_rest<B>(prefix: Bytes, rest: B) -> Body
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError> + Send,
{
    let rest =
        BodyStream::new(rest).filter_map(|frame| async move { frame.map(|frame| frame.into_data().ok()).transpose() });
    Body::from_stream(stream::iter([Ok(prefix)]).chain(rest))
}

/// What came of a cut body, ended by an error: the caller sees a cut body too, never a shorter whole one.
fn cut(prefix: Bytes) -> Body {
    let error = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the answer was cut");
    let pieces: [Result<Bytes, std::io::Error>; 2] = [Ok(prefix), Err(error)];
    Body::from_stream(stream::iter(pieces))
}
