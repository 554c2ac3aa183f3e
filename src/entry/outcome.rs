//! What an execution came to.

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

/// A completed request's answer as it shall be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Kept whole.
    Response(StoredResponse),
    /// Cut, or larger than the limit: only the status is kept.
    StatusOnly(u16),
}
