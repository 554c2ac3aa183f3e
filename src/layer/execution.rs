//! What a handler knows of its own execution, and how it finishes the entry in its own transaction.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::IntoResponse;
use http::request::Parts;
use http::{Extensions, Response, StatusCode};

use super::completed::Completed;
use super::ending::Ending;
use super::event::{self, Event, EventError};
use super::idempotency::Shared;
use crate::engine::Attempt;
use crate::engine::ledger::{FromState, Guarded, StoreError, To, Transition};
use crate::engine::policy::KeyKind;
use crate::entry::{Answer, EntryId, Key, StoredResponse};
use crate::storage::{TxConnection, apply_on};

/// One execution of a request: an axum extractor for handlers behind an
/// [`IdempotencyLayer`](super::IdempotencyLayer). A request is executed once, so a second extraction fails.
///
/// Where requests without a key are let through, extract `Option<Execution>`.
#[derive(Debug)]
pub struct Execution {
    attempt: Attempt,
    kind: KeyKind,
    shared: Arc<Shared>,
    ending: Arc<Ending>,
}

/// Why an entry was not finished. Roll the transaction back: whatever it holds must not happen.
#[derive(Debug, thiserror::Error)]
pub enum CompleteError {
    /// Somebody else has settled the entry, or executes it again: this process was suspended or cut off for
    /// longer than its lease. (Or the connection is to another database than the layer's store.)
    #[error("the request was settled by somebody else")]
    Fenced,
    /// The handler has ended, and its answer has decided the outcome.
    #[error("the request's execution has ended before")]
    Ended,
    /// An event can't be one.
    #[error("event: {0}")]
    Event(#[from] EventError),
    /// The database refused the statement.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why there is no [`Execution`] to extract: a mistake in the service, answered with 500.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExecutionRejection {
    /// The request has no execution: the route is not behind an idempotency layer, the method is safe, or
    /// the request has no key.
    #[error("this request is not guarded by an idempotency layer")]
    NotGuarded,
    /// It was extracted before.
    #[error("this request's execution was extracted before")]
    Taken,
}

/// Extensions are cloned; an execution is not.
#[derive(Clone)]
struct Slot(Arc<Mutex<Option<Execution>>>);

impl Execution {
    pub(super) fn new(attempt: Attempt, shared: &Arc<Shared>, kind: KeyKind, ending: Arc<Ending>) -> Self {
        Self { attempt, kind, shared: Arc::clone(shared), ending }
    }

    pub(super) fn put_into(self, extensions: &mut Extensions) {
        extensions.insert(Slot(Arc::new(Mutex::new(Some(self)))));
    }

    /// The entry: the same for every retry of the request.
    #[must_use]
    pub fn id(&self) -> EntryId {
        self.attempt.id
    }

    /// The number of this execution, from 1. Above 1 an earlier one ended Unknown.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt.number
    }

    /// The idempotency key for a call to another service: derived from namespace, scope and key, the same for
    /// every retry, another one for every other request. It tells that service nothing of the client's key.
    #[must_use]
    pub fn downstream_key(&self) -> String {
        self.attempt.id.to_hex()
    }

    /// The same for one of several calls to the same service.
    #[must_use]
    pub fn downstream_key_of(&self, step: &str) -> String {
        Key::composite(&[&self.attempt.id.to_hex(), step]).to_bare()
    }

    /// Finishes the entry on `tx`, inside the transaction that the caller has open there: the handler's own
    /// rows, the answer that every retry gets, and the events that announce it are one commit. `events` come
    /// after those of the operation itself ([`Operation::events`](super::Operation::events)), in this order.
    ///
    /// 1. Make it the last statement: it locks the entry's row until the end of the transaction.
    /// 2. Then commit.
    /// 3. Then return the [`Completed`]: it answers with exactly what was stored. Fields that belong to one
    ///    exchange (`Date`, `Set-Cookie` and the like) are not stored.
    ///
    /// On an error, roll back. Calling this promises that all of the handler's effects are in that
    /// transaction: if it does not commit, whatever the handler then returns, the key is free again.
    ///
    /// What a crash leaves, by the last step done:
    /// - before the commit: no rows of the handler's, no events, and an entry in progress, which becomes Unknown;
    /// - after the commit, before or while answering: the handler's rows, the events and the completed entry. A
    ///   retry gets the answer; the events are published by whichever process relays their queue.
    ///
    /// On SQLite there is one writer at a time: see [`crate::layer`].
    ///
    /// # Errors
    /// If the entry is no longer this execution's, an event can't be one, or the database refuses.
    pub async fn complete_in(
        self,
        tx: &mut impl TxConnection,
        response: StoredResponse,
        events: &[Event],
    ) -> Result<Completed, CompleteError> {
        let operation = &self.shared.operation;
        let StoredResponse { status, headers, body } = response;
        let response = Arc::new(StoredResponse::of(status, &headers, body, &operation.excluded));
        // From here on the row decides: nobody can tell from outside how far the statement came.
        if !self.ending.begin(Arc::clone(&response)) {
            return Err(CompleteError::Ended);
        }
        // After that: a mistake in an event must not leave the answer to decide.
        let answer = if response.body.len() <= operation.response_limit {
            Answer::Response(Arc::clone(&response))
        } else {
            Answer::StatusOnly(status.as_u16())
        };
        let (policy, id, nonce) = (&self.shared.policy, self.attempt.id, self.attempt.nonce);
        let events = event::resolve(events, &self.attempt, &self.shared, &answer)?;
        let tombstone = policy.tombstones.of(self.kind);
        let to = To::Completed { nonce, answer, retention: policy.retention, tombstone, events };
        let transition = Transition { id, nonce, from: FromState::Unfinished, to };
        match apply_on(tx, &self.shared.sealer, &transition).await? {
            Guarded::Done => Ok(Completed::new(response, self.ending)),
            Guarded::Fenced => Err(CompleteError::Fenced),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Execution {
    type Rejection = ExecutionRejection;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        let Slot(slot) = parts.extensions.get::<Slot>().ok_or(ExecutionRejection::NotGuarded)?;
        slot.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(ExecutionRejection::Taken)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Execution {
    type Rejection = ExecutionRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Option<Self>, Self::Rejection> {
        match <Self as FromRequestParts<S>>::from_request_parts(parts, state).await {
            Ok(execution) => Ok(Some(execution)),
            Err(ExecutionRejection::NotGuarded) => Ok(None),
            Err(ExecutionRejection::Taken) => Err(ExecutionRejection::Taken),
        }
    }
}

impl IntoResponse for ExecutionRejection {
    fn into_response(self) -> Response<Body> {
        tracing::error!(error = %self, "execution can't be extracted");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
