//! Guarded updates of a caller's own rows, in its own transaction: the number of rows that an update hit decides.
//!
//! Names of tables and columns are literals of the program and checked where they are declared; values are bound.

mod name;
mod row_key;
mod state;
mod version;

pub use row_key::RowKey;
pub use state::{StateMachine, Transitioned};
pub use version::{Advanced, Versioned};

use super::conn::{Conn, Row};
use super::dialect::Dialect;
use super::error::classify;
use super::text::Text;
use super::value::Value;
use crate::inbox::Error;

/// A column of a caller's table, and the unique column by which its rows are found.
#[derive(Debug, Clone, Copy)]
struct Target {
    table: &'static str,
    key: &'static str,
    column: &'static str,
    /// The types that PostgreSQL compares with no text: an enum, a `uuid`.
    key_type: Option<&'static str>,
    column_type: Option<&'static str>,
}

/// What an update of one row came to.
enum Hit {
    /// It holds.
    Done,
    /// The guard did not hold: the row as it is, if there is one.
    Not(Option<Row>),
}

impl Target {
    const fn new(table: &'static str, key: &'static str, column: &'static str) -> Self {
        assert!(name::is_table(table), "the table's name is no plain name, or two with a dot in between");
        assert!(name::is_plain(key) && name::is_plain(column), "a column's name is no plain name");
        Self { table, key, column, key_type: None, column_type: None }
    }

    /// The condition that finds the row.
    fn is_row(&self, dialect: Dialect) -> String {
        format!("{} = {}", self.key, placeholder(dialect, self.key_type))
    }

    /// The column's value for comparisons and assignments.
    fn value(&self, dialect: Dialect) -> String {
        placeholder(dialect, self.column_type)
    }

    /// Sets the column where `guard` holds; `values` are those of the assignment, the key and the guard. Where no row
    /// was hit, reads the column as `read` and locks its row, so that what is told stays true.
    async fn update(
        &self,
        conn: &mut Conn<'_>,
        guard: &str,
        values: &[Value<'_>],
        read: &str,
        key: RowKey<'_>,
    ) -> Result<Hit, Error> {
        let (dialect, Self { table, column, .. }) = (conn.dialect(), self);
        let (value, is_row) = (self.value(dialect), self.is_row(dialect));
        let update = format!("UPDATE {table} SET {column} = {value} WHERE {is_row} AND {guard}");
        match conn.execute(&Text::of(dialect, &update), values).await.map_err(failed)? {
            0 => {}
            1 => return Ok(Hit::Done),
            hit => return Err(Error::Misuse(format!("{}.{} is not unique: {hit} rows were hit", table, self.key))),
        }
        let read = format!("SELECT {read} FROM {table} WHERE {is_row}{}", dialect.for_update());
        let rows = conn.query(&Text::of(dialect, &read), &[key.into()]).await.map_err(failed)?;
        Ok(Hit::Not(rows.into_iter().next()))
    }
}

fn placeholder(dialect: Dialect, kind: Option<&'static str>) -> String {
    match (dialect, kind) {
        (Dialect::Postgres, Some(kind)) => format!("CAST(? AS {kind})"),
        (Dialect::Postgres | Dialect::MySql | Dialect::Sqlite, _) => "?".to_owned(),
    }
}

fn failed(error: sqlx::Error) -> Error {
    classify(&error).into()
}
