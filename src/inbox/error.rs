//! What can go wrong inside a caller's transaction.

use crate::engine::ledger::StoreError;

/// Why a statement of the inbox did not do what it should. Roll the transaction back: nothing of it may be committed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else's open transaction has the row, and had it for as long as this one may wait; or the two waited
    /// for each other. Neither first nor duplicate: try again after a pause, with a new transaction.
    #[error("somebody else's transaction is in the way: {0}")]
    Busy(String),
    /// The transaction is not what it was: the database has rolled back what was recorded in it. A statement has
    /// failed and its error was swallowed, or a savepoint was rolled back.
    #[error("the database has rolled back what was recorded")]
    RolledBack,
    /// A mistake in the calling code.
    #[error("{0}")]
    Misuse(String),
    /// The database can't be asked, or refuses.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Locked(text) | StoreError::Conflict(text) => Self::Busy(text),
            other @ (StoreError::Refused(_) | StoreError::Unavailable(_) | StoreError::CommitUnknown(_)) => {
                Self::Store(other)
            }
        }
    }
}
