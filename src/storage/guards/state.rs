//! State machines: a row's state changes only along the ways that are declared.

use futures_util::future::BoxFuture;

use super::{Hit, RowKey, Target, failed, name};
use crate::inbox::Error;
use crate::storage::dialect::Dialect;
use crate::storage::transaction::TxConnection;
use crate::storage::value::Value;

/// The states of a caller's rows, and the ways between them.
///
/// Declared once, as a constant, so that its names are checked when the program is compiled:
///
/// ```
/// use oncegate::inbox::StateMachine;
///
/// const PAYMENTS: StateMachine = StateMachine::new("payments", "order_no", "status", &[
///     ("pending", "paid"),
///     ("pending", "failed"),
///     ("paid", "refunded"),
/// ]);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct StateMachine {
    target: Target,
    ways: &'static [(&'static str, &'static str)],
}

/// What a transition came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a transition that is not applied must have no effect"]
pub enum Transitioned {
    /// The row has changed its state in this transaction. Now do what comes with it.
    Applied,
    /// It was in that state before: nothing is to be done again.
    AlreadyThere,
    /// No way leads there from where it is: reject the message. More tries will not help, unless another message is
    /// to come first.
    Illegal {
        /// The state that it is in; empty where the column is NULL.
        found: String,
    },
    /// There is no such row.
    Missing,
}

impl StateMachine {
    /// The machine of the rows of `table` that are found by their unique column `key` and have their state, a text, in
    /// `state`. `ways` are (from, to).
    ///
    /// # Panics
    /// If a name is not a plain one, if there is no way, or if one leads from a state to itself: when the program is
    /// compiled, where it stands in a constant.
    #[must_use]
    pub const fn new(
        table: &'static str,
        key: &'static str,
        state: &'static str,
        ways: &'static [(&'static str, &'static str)],
    ) -> Self {
        assert!(!ways.is_empty(), "a state machine without a way");
        let mut place = 0;
        while place < ways.len() {
            assert!(!name::is_same(ways[place].0, ways[place].1), "a way that leads nowhere else");
            place += 1;
        }
        Self { target: Target::new(table, key, state), ways }
    }

    /// On PostgreSQL, the type of the key's column where it is none of text, integers and bytes: `uuid`.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub const fn key_type(mut self, name: &'static str) -> Self {
        assert!(name::is_table(name), "the type's name is no plain name");
        self.target.key_type = Some(name);
        self
    }

    /// On PostgreSQL, the type of the state's column where it is an enum.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub const fn state_type(mut self, name: &'static str) -> Self {
        assert!(name::is_table(name), "the type's name is no plain name");
        self.target.column_type = Some(name);
        self
    }

    /// Moves the row of `key` into the state `to`, if it is in one from which a way leads there:
    /// `UPDATE … SET status = 'paid' WHERE order_no = … AND status IN ('pending')`. The row is locked until the end of
    /// the transaction, whatever the answer, unless it is missing.
    ///
    /// # Errors
    /// If no way leads to `to` at all, if `key` finds several rows, or if the database can't be asked.
    pub fn transition<'a>(
        &'a self,
        tx: &'a mut impl TxConnection,
        key: impl Into<RowKey<'a>>,
        to: &'a str,
    ) -> BoxFuture<'a, Result<Transitioned, Error>> {
        let key = key.into();
        Box::pin(async move {
            let conn = &mut tx.as_conn();
            let from: Vec<&str> = self.ways.iter().filter(|(_, end)| *end == to).map(|(start, _)| *start).collect();
            if from.is_empty() {
                return Err(Error::Misuse(format!(
                    "no way leads to {to:?} in {}.{}",
                    self.target.table, self.target.column
                )));
            }
            let state = self.target.value(conn.dialect());
            let guard = format!("{} IN ({})", self.target.column, vec![&*state; from.len()].join(", "));
            let values: Vec<Value<'_>> =
                [to.into(), key.into()].into_iter().chain(from.into_iter().map(Value::from)).collect();
            let read = match conn.dialect() {
                Dialect::MySql => format!("CAST({} AS CHAR)", self.target.column),
                Dialect::Postgres | Dialect::Sqlite => format!("CAST({} AS TEXT)", self.target.column),
            };
            Ok(match self.target.update(conn, &guard, &values, &read, key).await? {
                Hit::Done => Transitioned::Applied,
                Hit::Not(None) => Transitioned::Missing,
                Hit::Not(Some(row)) => match row.maybe_text(0).map_err(failed)?.unwrap_or_default() {
                    found if found == to => Transitioned::AlreadyThere,
                    found => Transitioned::Illegal { found },
                },
            })
        })
    }
}
