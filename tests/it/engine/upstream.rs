//! Executions: closures that count how often they ran and wait until the test says how they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, StatusCode};
use oncegate::engine::{Attempt, Executed};
use oncegate::entry::{Answer, Outcome, StoredResponse};
use tokio::sync::oneshot;

use super::soon;

/// What a request runs when it is admitted.
pub(super) type Run = Box<dyn FnOnce(Attempt) -> BoxFuture<'static, Executed<&'static str>> + Send>;

/// How one execution ends.
pub(super) type End = Executed<&'static str>;

/// Counts how often it was reached.
#[derive(Debug, Clone, Default)]
pub(super) struct Upstream {
    calls: Arc<AtomicU32>,
}

/// An execution that has begun and waits for its end.
pub(super) struct Held {
    begun: oneshot::Receiver<Attempt>,
    end: oneshot::Sender<End>,
}

impl Upstream {
    pub(super) fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Ends at once. Nothing is sent where the lease is lost.
    pub(super) fn run(&self, end: impl FnOnce(Attempt) -> End + Send + 'static) -> Run {
        let calls = self.calls.clone();
        Box::new(move |attempt| {
            async move {
                if attempt.dispatch().is_err() {
                    return not_executed();
                }
                calls.fetch_add(1, Ordering::SeqCst);
                end(attempt)
            }
            .boxed()
        })
    }

    pub(super) fn pays(&self) -> Run {
        self.run(|_| completed("paid"))
    }

    /// Must not be reached; counts if it is.
    pub(super) fn never(&self) -> Run {
        self.run(|_| completed("a second payment"))
    }

    pub(super) fn loses_it(&self) -> Run {
        self.run(|_| unknown())
    }

    /// Waits after its first byte until it is told how to end.
    pub(super) fn held(&self) -> (Run, Held) {
        let (begin, begun) = oneshot::channel();
        let (end, ending) = oneshot::channel();
        let calls = self.calls.clone();
        let run: Run = Box::new(move |attempt| {
            async move {
                if attempt.dispatch().is_err() {
                    return not_executed();
                }
                calls.fetch_add(1, Ordering::SeqCst);
                begin.send(attempt).unwrap();
                ending.await.unwrap_or_else(|_| unknown())
            }
            .boxed()
        });
        (run, Held { begun, end })
    }
}

impl Held {
    /// Waits until it has begun.
    pub(super) async fn begun(&mut self) -> Attempt {
        soon(&mut self.begun).await.unwrap()
    }

    pub(super) fn ends(self, end: End) {
        assert!(self.end.send(end).is_ok(), "nobody runs it");
    }
}

pub(super) fn response(body: impl Into<Bytes>) -> StoredResponse {
    let mut headers = HeaderMap::new();
    headers.append("link", HeaderValue::from_static("</a>"));
    headers.append("link", HeaderValue::from_bytes(b"caf\xe9").unwrap());
    StoredResponse { status: StatusCode::CREATED, headers, body: body.into() }
}

pub(super) fn answer(body: &'static str) -> Answer {
    Answer::Response(Arc::new(response(body)))
}

pub(super) fn completed(body: &'static str) -> End {
    Executed::Finished { outcome: Outcome::Completed(answer(body)), answer: body }
}

pub(super) fn not_executed() -> End {
    Executed::Finished { outcome: Outcome::NotExecuted, answer: "refused" }
}

pub(super) fn unknown() -> End {
    Executed::Finished { outcome: Outcome::Unknown, answer: "lost" }
}

/// Timed out; the rest of the exchange is what the returned sender says.
pub(super) fn timed_out() -> (End, oneshot::Sender<Outcome>) {
    let (say, said) = oneshot::channel();
    let late = async move { said.await.unwrap_or(Outcome::Unknown) }.boxed();
    (Executed::TimedOut { answer: "timed out", late }, say)
}
