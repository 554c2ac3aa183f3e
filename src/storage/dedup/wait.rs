//! How long a call waits for somebody else's transaction.

use std::time::Duration;

use crate::clock::millis;
use crate::storage::conn::Conn;
use crate::storage::dialect::Dialect;
use crate::storage::text::Statement;
use crate::storage::value::Value;

static RESTORE: Statement = Statement::new(|_, _| "SELECT set_config('lock_timeout', ?, true)".to_owned());

/// A bound for the waits of one call. PostgreSQL's sessions wait for ever unless told otherwise, so they are told, and
/// told their own again. MySQL and SQLite sessions have a bound of their own, and no way to change it for a
/// statement.
#[derive(Debug)]
pub(super) struct Wait {
    /// As PostgreSQL spells it.
    pub(super) bound: String,
    /// Whether statements follow that may wait as well.
    pub(super) goes_on: bool,
    /// What the session had before.
    pub(super) before: Option<String>,
}

impl Wait {
    pub(super) fn new(bound: Duration, goes_on: bool) -> Self {
        // Zero would mean "for ever".
        Self { bound: millis(bound).clamp(1, i64::from(i32::MAX)).to_string(), goes_on, before: None }
    }

    /// Gives the session what it had.
    pub(super) async fn end(self, conn: &mut Conn<'_>) -> sqlx::Result<()> {
        if let Some(before) = self.before.as_deref().filter(|_| self.goes_on) {
            conn.query(RESTORE.text(Dialect::Postgres, 1), &[Value::from(before)]).await?;
        }
        Ok(())
    }
}
