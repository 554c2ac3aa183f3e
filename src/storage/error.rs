//! What went wrong, in the ways that callers differ: database errors by their codes, never by their texts.

use crate::engine::ledger::StoreError;

/// Why a store could not be opened or migrated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL names no database that this build speaks to.
    #[error("store.url: {0}")]
    Url(String),
    /// The schema could not be brought up to date.
    #[error("migration failed: {0}")]
    Migration(String),
    /// The database may lose a confirmed commit, and nobody has allowed that.
    #[error(
        "it may lose a confirmed commit, and a lost commit is a payment that may happen twice: {0}. Set it right, or take the risk with allow_weak_durability"
    )]
    WeakDurability(String),
    /// The database did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Sorts a database's error into the ways that callers differ.
pub(super) fn classify(error: &sqlx::Error) -> StoreError {
    let text = error.to_string();
    match error {
        sqlx::Error::Database(database) => {
            if let Some(error) = database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
                return by_sqlstate(error.code(), text);
            }
            if let Some(error) = database.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
                return by_mysql_number(error.number(), error.code().unwrap_or_default(), text);
            }
            by_sqlite_code(database.code().and_then(|code| code.parse().ok()).unwrap_or(0), text)
        }
        sqlx::Error::Encode(_) => StoreError::Refused(text),
        _ => StoreError::Unavailable(text),
    }
}

/// What an error of COMMIT itself says. Only a plain refusal is certain; when the server went away, or says
/// that it is going, the commit may have been written.
pub(super) fn classify_commit(error: &sqlx::Error) -> StoreError {
    match classify(error) {
        StoreError::Unavailable(text) | StoreError::CommitUnknown(text) => StoreError::CommitUnknown(text),
        certain @ (StoreError::Conflict(_) | StoreError::Locked(_) | StoreError::Refused(_)) => certain,
    }
}

/// What an error of a statement says that commits by itself. An error that ends the statement alone has rolled it
/// back; whatever ends the connection may have come after its commit.
pub(super) fn classify_autocommit(error: &sqlx::Error) -> StoreError {
    use sqlx::postgres::{PgDatabaseError, PgSeverity};
    let postgres = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    match postgres.map(PgDatabaseError::severity) {
        Some(PgSeverity::Error) => classify(error),
        Some(_) | None => classify_commit(error),
    }
}

/// Whether a statement was ended by its own guard, a division by zero.
pub(super) fn is_guard(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("22012"))
}

/// Whether PostgreSQL refuses a row whose unique key exists.
pub(super) fn is_there_already(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("23505"))
}

/// Whether PostgreSQL refuses a statement because an earlier one of its transaction has failed: it can only roll back.
pub(super) fn is_of_failed_transaction(error: &sqlx::Error) -> bool {
    let postgres = |error: &sqlx::postgres::PgDatabaseError| error.code() == "25P02";
    error.as_database_error().and_then(|error| error.try_downcast_ref()).is_some_and(postgres)
}

fn by_sqlstate(code: &str, text: String) -> StoreError {
    match code {
        "40001" | "40P01" => StoreError::Conflict(text),
        "55P03" => StoreError::Locked(text),
        // Data exceptions, constraints, a value above the row or index limits.
        _ if code.starts_with("22") || code.starts_with("23") || code.starts_with("54") => StoreError::Refused(text),
        _ => StoreError::Unavailable(text),
    }
}

fn by_mysql_number(number: u16, sqlstate: &str, text: String) -> StoreError {
    match number {
        1213 => StoreError::Conflict(text),
        1205 | 3572 => StoreError::Locked(text),
        // Too large a packet (1153) or result (1301), too long for its column (1406) or its row (1118, 1139),
        // a character that the column can't hold (1366), a failed CHECK (3819, MariaDB 4025).
        1118 | 1139 | 1153 | 1301 | 1366 | 1406 | 3819 | 4025 => StoreError::Refused(text),
        _ if sqlstate.starts_with("22") || sqlstate.starts_with("23") => StoreError::Refused(text),
        _ => StoreError::Unavailable(text),
    }
}

fn by_sqlite_code(code: i32, text: String) -> StoreError {
    const BUSY_SNAPSHOT: i32 = 517;
    match (code, code & 0xff) {
        (BUSY_SNAPSHOT, _) => StoreError::Conflict(text),
        // BUSY, LOCKED.
        (_, 5 | 6) => StoreError::Locked(text),
        // TOOBIG, CONSTRAINT, MISMATCH, RANGE.
        (_, 18 | 19 | 20 | 25) => StoreError::Refused(text),
        _ => StoreError::Unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart_where_callers_differ() {
        let conflict = |error| matches!(error, StoreError::Conflict(_));
        let locked = |error| matches!(error, StoreError::Locked(_));
        let refused = |error| matches!(error, StoreError::Refused(_));
        let unavailable = |error| matches!(error, StoreError::Unavailable(_));
        let text = String::new;
        assert!(conflict(by_sqlstate("40P01", text())) && conflict(by_mysql_number(1213, "40001", text())));
        assert!(conflict(by_sqlite_code(517, text())) && locked(by_sqlite_code(5, text())));
        assert!(locked(by_sqlstate("55P03", text())) && locked(by_mysql_number(1205, "HY000", text())));
        assert!(refused(by_sqlstate("22021", text())) && refused(by_mysql_number(1062, "23000", text())));
        assert!(refused(by_sqlite_code(1299, text())), "NOT NULL is a constraint");
        // A node that became read-only, a server shutting down, a full disk: somebody else's fault.
        assert!(unavailable(by_sqlstate("25006", text())) && unavailable(by_sqlstate("57P01", text())));
        assert!(unavailable(by_mysql_number(1290, "HY000", text())) && unavailable(by_sqlite_code(13, text())));
    }

    #[test]
    fn a_connection_lost_in_commit_leaves_the_outcome_open() {
        let lost = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert!(matches!(classify(&lost), StoreError::Unavailable(_)));
        assert!(matches!(classify_commit(&lost), StoreError::CommitUnknown(_)));
    }
}
