//! What a service does with a message, and what it says of it.

use super::error::Error;
use super::message::{Message, MessageError};
use crate::broker::subscriber::Received;
use crate::engine::ledger::StoreError;

/// A service's own part of a [`Consumer`](super::Consumer): what makes messages the same, what one does, and where one
/// goes that is given up. `C` is the connection of the service's database (sqlx's `PgConnection`, for one), with a
/// transaction open on it.
///
/// All effects belong on `tx`. What leaves the database (a call to another service) can't be rolled back: give it the
/// message's key as its idempotency key, or write it to an outbox in the same transaction.
pub trait Handler<C>: Send + Sync + 'static {
    /// Which message this is. By default: its producer's id, and all that it says. Better: a business key out of what it
    /// says.
    ///
    /// # Errors
    /// If it can't be told from others: it is given up.
    fn message(&self, received: &Received) -> Result<Message, MessageError> {
        let id = received.id.as_deref().ok_or(MessageError::NoKey)?;
        Ok(Message::new(id)?.payload(&received.data))
    }

    /// Does what the message asks for, on `tx`, which is then committed together with the record that it was done; or
    /// rolled back where this fails or panics. Called again after that, and after a crash before the commit.
    fn handle(&self, tx: &mut C, delivery: &Delivery<'_>) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Keeps a message that is given up where a person finds it, with the reason: on `tx`, which is then committed, or
    /// anywhere else durable. After that it is acknowledged. It may come here again if that fails, so let its id decide
    /// whether it is there. An error is tried again until it works: nothing is lost.
    fn dead_letter(&self, tx: &mut C, dead: &DeadLetter<'_>) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// A message for a handler.
#[derive(Debug)]
#[non_exhaustive]
pub struct Delivery<'a> {
    /// As it was received.
    pub received: &'a Received,
    /// What it was taken for.
    pub message: &'a Message,
    /// The version of its entity that was applied before, if it has one and there was one.
    pub previous: Option<i64>,
    /// Which try it is, from 1: see [`Policy::attempts`](super::Policy::attempts).
    pub attempt: u32,
}

/// A message that is given up.
#[derive(Debug)]
#[non_exhaustive]
pub struct DeadLetter<'a> {
    /// As it was received.
    pub received: &'a Received,
    /// Why.
    pub reason: &'a Reason,
    /// How often it was tried.
    pub attempts: u32,
}

/// Why a message is given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It can't be told from others.
    #[error(transparent)]
    Unidentified(#[from] MessageError),
    /// Another message of its key, or of its entity's version, said something else.
    #[error("another message of the same key said something else")]
    Conflict,
    /// The handler has rejected it.
    #[error("rejected: {0}")]
    Rejected(String),
    /// It was tried as often as it may be.
    #[error("tried {attempts} times; at last: {last}")]
    AttemptsUsedUp {
        /// How often.
        attempts: u32,
        /// What came of the last try.
        last: String,
    },
}

/// Why a handler has not done what a message asks for. Everything it wrote is rolled back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandlerError {
    /// It may work later: again after a pause, as often as the policy allows.
    #[error("to be tried again: {0}")]
    Retry(String),
    /// It never will: an illegal transition, a message that makes no sense.
    #[error("rejected: {0}")]
    Reject(String),
    /// Nothing is wrong with the message: what the handler needs is not there. Again after a pause, and no attempt is
    /// counted.
    #[error("not now: {0}")]
    Unavailable(String),
}

/// A database that is not there is nothing that is wrong with the message.
impl From<StoreError> for HandlerError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict(_) | StoreError::Locked(_) | StoreError::Refused(_) => Self::Retry(error.to_string()),
            StoreError::Unavailable(_) | StoreError::CommitUnknown(_) => Self::Unavailable(error.to_string()),
        }
    }
}

/// Nor is another delivery of it that is being handled.
impl From<Error> for HandlerError {
    fn from(error: Error) -> Self {
        match error {
            Error::Busy(_) => Self::Unavailable(error.to_string()),
            Error::RolledBack | Error::Misuse(_) => Self::Retry(error.to_string()),
            Error::Store(error) => error.into(),
        }
    }
}
