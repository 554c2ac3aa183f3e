//! One execution by the inner service: what it is given, what comes back, and what that means.
//!
//! | the handler | before `complete_in` | after it |
//! |---|---|---|
//! | answers | the status decides, as an upstream's does | the row decides |
//! | fails, or panics | Unknown: it was called | the row decides |
//! | takes too long | Unknown; what it comes to later still counts | Unknown; released later unless it has committed |

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};
use tokio::time::timeout_at;
use tower::Service;

use super::ending::Ending;
use super::execution::Execution;
use super::idempotency::Shared;
use crate::clock::{self, Instant};
use crate::engine::policy::KeyKind;
use crate::engine::{Attempt, Executed, Reason, Recorded};
use crate::entry::Outcome;
use crate::http::reply::{self, Reply};
use crate::problem::{Problem, Situation};
use crate::upstream::hop_by_hop;

/// How long the body of an answer that came too late may take.
const LATE_BODY: Duration = Duration::from_secs(10);

/// When to ask again about an outcome that the store is about to know.
const SOON: Duration = Duration::from_secs(1);

/// The inner service and the request that it is to execute.
pub(super) struct Handler<S> {
    pub(super) shared: Arc<Shared>,
    pub(super) kind: KeyKind,
    pub(super) service: S,
    pub(super) request: Request<Bytes>,
}

/// What a handler came to.
pub(super) enum Handled<E> {
    Answered(Response<Body>),
    Failed(E),
    Panicked,
}

/// What an execution has for its caller.
pub(super) enum Answer<E> {
    /// This.
    Reply(Reply),
    /// The inner service's own error.
    Failed(E),
    /// What the row says, once it is known.
    ByRow(Arc<Ending>, Handled<E>),
}

impl<S> Handler<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    /// Calls the inner service, as `attempt`, and says what came of it.
    pub(super) async fn execute(self, attempt: Attempt) -> Executed<Answer<S::Error>> {
        let Self { shared, kind, mut service, request } = self;
        if attempt.dispatch().is_err() {
            let answer = Answer::Reply(Reply::Problem(reply::unavailable(Reason::Lease)));
            return Executed::Finished { outcome: Outcome::NotExecuted, answer };
        }
        let ending = Arc::new(Ending::default());
        let mut request = request.map(Body::from);
        let number = attempt.number;
        Execution::new(attempt, &shared, kind, Arc::clone(&ending)).put_into(request.extensions_mut());
        let deadline = clock::now() + shared.operation.timeout;
        let calling = AssertUnwindSafe(async move { service.call(request).await }).catch_unwind();
        let mut calling = Box::pin(calling.map(Handled::from));
        match timeout_at(deadline, &mut calling).await {
            Ok(handled) => concluded(handled, ending, &shared, number, deadline).await,
            Err(_elapsed) => Executed::TimedOut {
                answer: Answer::Reply(Reply::Problem(Problem::new(Situation::UpstreamTimeout))),
                late: Box::pin(late(calling, ending, shared, number)),
            },
        }
    }
}

async fn concluded<E>(
    handled: Handled<E>,
    ending: Arc<Ending>,
    shared: &Shared,
    number: u32,
    deadline: Instant,
) -> Executed<Answer<E>> {
    if ending.close() {
        return Executed::InTransaction { answer: Answer::ByRow(ending, handled) };
    }
    match handled {
        Handled::Answered(response) => {
            let (mut parts, body) = response.into_parts();
            hop_by_hop::strip(&mut parts.headers);
            let keeping = shared.operation.keeping();
            keeping.answered(parts, body, number, deadline).await.map(Answer::Reply)
        }
        Handled::Failed(error) => Executed::Finished { outcome: Outcome::Unknown, answer: Answer::Failed(error) },
        Handled::Panicked => {
            let problem = Problem::new(Situation::OutcomeUnknown).retry_after(SOON);
            Executed::Finished { outcome: Outcome::Unknown, answer: Answer::Reply(Reply::Problem(problem)) }
        }
    }
}

/// What a handler that took too long came to after all. The engine bounds how long it is let go on.
async fn late<E>(
    calling: impl Future<Output = Handled<E>>,
    ending: Arc<Ending>,
    shared: Arc<Shared>,
    number: u32,
) -> Outcome {
    let handled = calling.await;
    if ending.close() {
        // All its effects are in that transaction. The release hits nothing if it has committed, and waits
        // for the row's lock if it is about to.
        return Outcome::NotExecuted;
    }
    match handled {
        Handled::Answered(response) => {
            let (mut parts, body) = response.into_parts();
            hop_by_hop::strip(&mut parts.headers);
            shared.operation.keeping().late(&parts, body, number, clock::now() + LATE_BODY).await
        }
        Handled::Failed(_) | Handled::Panicked => Outcome::Unknown,
    }
}

impl<E> Answer<E> {
    /// What the caller is given, now that it is known what is on record.
    pub(super) fn given(self, recorded: Recorded) -> Result<Reply, E> {
        match self {
            Self::Reply(reply) => Ok(reply),
            Self::Failed(error) => Err(error),
            Self::ByRow(ending, handled) => match (ending.completed_as(recorded), handled) {
                // What the handler made of it, if it made something of it: it may carry a cookie besides.
                (Some(_), Handled::Answered(response)) if ending.is_answered() => Ok(Reply::Answer(response)),
                // Whatever happened after the commit: what a retry gets is the answer.
                (Some(stored), _) => Ok(Reply::Answer(stored)),
                (None, Handled::Answered(response)) if !ending.is_answered() => Ok(Reply::Answer(response)),
                (None, Handled::Failed(error)) => Err(error),
                (None, Handled::Answered(_) | Handled::Panicked) => Ok(Reply::Problem(not_committed(recorded))),
            },
        }
    }
}

/// What the caller is told in place of a success that was not committed.
fn not_committed(recorded: Recorded) -> Problem {
    match recorded {
        Recorded::Released => {
            tracing::error!("handler ended without committing its transaction: nothing was executed");
            Problem::new(Situation::Unavailable).because("Its transaction was not committed.").retry_after(SOON)
        }
        Recorded::Completed(_) | Recorded::Unknown | Recorded::Streaming | Recorded::Nothing => {
            tracing::error!("handler ended without a commit that the store knows of");
            Problem::new(Situation::OutcomeUnknown).retry_after(SOON)
        }
    }
}

impl<E> From<Result<Result<Response<Body>, E>, Box<dyn Any + Send>>> for Handled<E> {
    fn from(result: Result<Result<Response<Body>, E>, Box<dyn Any + Send>>) -> Self {
        match result {
            Ok(Ok(response)) => Self::Answered(response),
            Ok(Err(error)) => Self::Failed(error),
            // The panic hook has printed where and why.
            Err(_) => {
                tracing::error!("handler panicked");
                Self::Panicked
            }
        }
    }
}
