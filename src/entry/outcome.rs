//! What an execution came to.

use std::sync::Arc;

use super::StoredResponse;

/// What an execution came to, as far as anybody can know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It happened; this is the answer. Final.
    Completed(Answer),
    /// It certainly did not happen: the same key may run again.
    NotExecuted,
    /// It may or may not have happened. Held until settled, never blindly re-sent.
    Unknown,
}

/// What is kept of a completed request's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// All of it.
    Response(Arc<StoredResponse>),
    /// Only the status: the answer was cut, larger than the limit, or could not be stored.
    StatusOnly(u16),
}

impl Answer {
    /// The status that the upstream answered with.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Response(response) => response.status.as_u16(),
            Self::StatusOnly(status) => *status,
        }
    }
}
