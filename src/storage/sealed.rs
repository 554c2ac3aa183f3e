//! Which keys are still needed to read what is stored.

use std::collections::BTreeSet;

use super::Store;
use super::dialect::Dialect;
use super::error::classify;
use super::text::Statement;
use crate::engine::ledger::StoreError;
use crate::sealer::{KeyId, key_of};

/// How many rows of each kind are looked at: a table may hold millions, and nobody waits for a start.
const LOOKED_AT: usize = 1_000;

/// The answers that are kept for the shortest time yet: those that were sealed first, mostly.
static RESPONSES: Statement =
    Statement::new(|_, _| heads("e.response", "entries AS e WHERE e.state = 3 ORDER BY e.due_at"));

static IN_PROGRESS: Statement =
    Statement::new(|_, _| heads("e.context", "entries AS e WHERE e.state = 1 ORDER BY e.due_at"));

static UNKNOWN: Statement =
    Statement::new(|_, _| heads("e.context", "entries AS e WHERE e.state = 2 ORDER BY e.due_at"));

static READY: Statement = Statement::new(|dialect, _| events(dialect, 1));
static RETRYING: Statement = Statement::new(|dialect, _| events(dialect, 2));
static WAITING: Statement = Statement::new(|dialect, _| events(dialect, 3));
static PARKED: Statement = Statement::new(|dialect, _| events(dialect, 4));
static EARLY: Statement = Statement::new(|dialect, _| events(dialect, 7));

static MESSAGES: Statement = Statement::new(|_, _| heads("m.data", "messages AS m ORDER BY m.position"));

fn events(dialect: Dialect, state: u8) -> String {
    let index = dialect.by_index("events_by_state");
    heads("e.data", &format!("events AS e{index} WHERE e.state = {state} ORDER BY e.queue, e.lane, e.position"))
}

fn heads(column: &str, from: &str) -> String {
    format!(
        "SELECT DISTINCT SUBSTR(s.stored, 1, 8) FROM (SELECT {column} AS stored FROM {from} LIMIT {LOOKED_AT}) AS s \
         WHERE s.stored IS NOT NULL"
    )
}

impl Store {
    /// The keys that are not here and under which rows are sealed, by a look at some thousand rows: those that are to
    /// be read soonest, or are the oldest. Another one may still be in use.
    ///
    /// # Errors
    /// If the database can't be asked.
    pub async fn missing_keys(&self) -> Result<Vec<KeyId>, StoreError> {
        let mut missing = BTreeSet::new();
        for statement in [&RESPONSES, &IN_PROGRESS, &UNKNOWN, &READY, &RETRYING, &WAITING, &PARKED, &EARLY, &MESSAGES] {
            for row in self.query(statement, &[]).await? {
                let head = row.bytes(0).map_err(|error| classify(&error))?;
                missing.extend(key_of(&head).filter(|key| !self.sealer.has(*key)));
            }
        }
        Ok(missing.into_iter().collect())
    }

    /// Says in the log which keys are missing. No reason not to start: what they have sealed is answered 503, and
    /// everything else is as ever.
    ///
    /// # Errors
    /// If the database can't be asked.
    pub async fn tell_missing_keys(&self) -> Result<(), StoreError> {
        for key in self.missing_keys().await? {
            tracing::error!(
                %key,
                "rows are sealed under a key that is not among secrets.encryption: what they say can't be read, and \
                 requests with their keys are answered 503. Put the secret back, behind the one that seals, until the \
                 last of them is gone"
            );
        }
        Ok(())
    }
}
