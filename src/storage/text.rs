//! Statements, each written once for all databases and all sizes; their texts are made at first use.

use std::sync::{Arc, OnceLock};

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use super::dialect::{Dialect, MAX_ROWS};

/// Sizes are powers of two up to [`MAX_ROWS`].
const SIZES: usize = MAX_ROWS.ilog2() as usize + 1;

/// A statement of this crate.
#[derive(Debug)]
pub(super) struct Statement {
    /// Writes it for a number of rows, with `?` for values.
    write: fn(Dialect, usize) -> String,
    /// By dialect, by the size's logarithm.
    texts: [[OnceLock<Text>; SIZES]; 3],
}

impl Statement {
    pub(super) const fn new(write: fn(Dialect, usize) -> String) -> Self {
        Self { write, texts: [const { [const { OnceLock::new() }; SIZES] }; 3] }
    }

    /// The text for `rows` rows, of which a statement takes [`MAX_ROWS`] at most.
    pub(super) fn text(&self, dialect: Dialect, rows: usize) -> &Text {
        let size = dialect.padded(rows.clamp(1, MAX_ROWS));
        let text = &self.texts[dialect as usize][size.ilog2() as usize];
        text.get_or_init(|| Text::of(dialect, &(self.write)(dialect, size)))
    }
}

/// The text of a statement. The server's prepared statements are found by it.
#[derive(Debug, Clone)]
pub(super) struct Text(Arc<str>);

impl Text {
    /// `statement`, whose values are `?`.
    pub(super) fn of(dialect: Dialect, statement: &str) -> Self {
        Self(dialect.place(statement).into())
    }

    /// The text for sqlx. Safe: texts are put together from this crate's constants and from names that were checked
    /// (`guards`); values are bound.
    pub(super) fn sql(&self) -> SqlStr {
        AssertSqlSafe(Arc::clone(&self.0)).into_sql_str()
    }
}
