//! What differs between the three databases, as text. Statements are written once, with `?` for values and
//! `v` for the rows that they write; a [`Dialect`] spells them.

use std::fmt::Write as _;

use super::value::{Column, Kind, Value, transpose};

/// Most rows of one statement. Larger batches take several; bounds the statement's parameters (MySQL: 65,535)
/// and, with the sizes padded to powers of two, the number of its shapes.
pub(super) const MAX_ROWS: usize = 256;

/// A database's way of saying things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Dialect {
    Postgres,
    MySql,
    Sqlite,
}

impl Dialect {
    /// Opens a transaction and, in the same round trip, asks for the time in milliseconds and for the largest
    /// statement in bytes that the server takes.
    ///
    /// READ COMMITTED: a read after a refused insert must see the row that refused it, which a snapshot taken
    /// before would not. SQLite takes the write lock at once: a read lock can't always be upgraded.
    pub(super) const fn begin(self) -> &'static str {
        match self {
            Self::Postgres => {
                "BEGIN ISOLATION LEVEL READ COMMITTED; \
                 SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT), 268435456"
            }
            Self::MySql => {
                "START TRANSACTION; \
                 SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED), CAST(@@max_allowed_packet AS SIGNED)"
            }
            Self::Sqlite => "BEGIN IMMEDIATE; SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER), 268435456",
        }
    }

    /// The time in milliseconds, as an expression.
    pub(super) const fn now(self) -> &'static str {
        match self {
            Self::Postgres => "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
            Self::MySql => "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
            Self::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        }
    }

    /// How many rows a statement for `rows` rows is written for. Few sizes, so that few statements are
    /// prepared; an array on PostgreSQL has any length.
    pub(super) fn padded(self, rows: usize) -> usize {
        match self {
            Self::Postgres => 1,
            Self::MySql | Self::Sqlite => rows.next_power_of_two(),
        }
    }

    /// The values of `rows` for a statement of [`Self::padded`] size. The last row is repeated as padding,
    /// which is harmless, since all our writes may be repeated.
    pub(super) fn bind_rows<'a, const N: usize>(self, rows: &[[Value<'a>; N]]) -> Vec<Value<'a>> {
        match self {
            Self::Postgres => transpose(rows),
            Self::MySql | Self::Sqlite => {
                let padding = rows.last().into_iter().cycle().take(self.padded(rows.len()) - rows.len());
                rows.iter().chain(padding).flatten().cloned().collect()
            }
        }
    }

    /// ` = ANY(?)` or ` IN (?, …)`: whether a column of bytes is among `size` values.
    pub(super) fn among(self, size: usize) -> String {
        match self {
            Self::Postgres => " = ANY(?::bytea[])".to_owned(),
            Self::MySql | Self::Sqlite => format!(" IN ({})", vec!["?"; size].join(", ")),
        }
    }

    /// Changes rows of `entries` (as `e`) from the rows `v` that have their id.
    ///
    /// An assignment may read the column that it sets and columns of `v`, nothing else: MySQL does not
    /// promise an order of assignments.
    pub(super) fn update(self, columns: &[Column], size: usize, set: &str, guard: &str) -> String {
        match self {
            Self::Postgres | Self::Sqlite => {
                let with = self.with(columns, size);
                format!("{with} UPDATE entries AS e SET {set} FROM v WHERE e.id = v.v_id AND {guard}")
            }
            Self::MySql => {
                let rows = derived(columns, size);
                // In this order: the rows first, then each one's entry by its primary key.
                format!("UPDATE {rows} STRAIGHT_JOIN entries AS e ON e.id = v.v_id SET {set} WHERE {guard}")
            }
        }
    }

    /// Inserts into `target` the rows `select` that are taken from `v`, but those whose primary key exists.
    ///
    /// MySQL's IGNORE would also truncate what is too long: the caller has checked lengths.
    pub(super) fn insert_new(
        self,
        columns: &[Column],
        size: usize,
        target: &str,
        select: &str,
        filter: &str,
    ) -> String {
        match self {
            Self::Postgres | Self::Sqlite => {
                let with = self.with(columns, size);
                format!("{with} INSERT INTO {target} SELECT {select} FROM v WHERE {filter} ON CONFLICT DO NOTHING")
            }
            Self::MySql => {
                let rows = derived(columns, size);
                format!("INSERT IGNORE INTO {target} SELECT {select} FROM {rows} WHERE {filter}")
            }
        }
    }

    /// The rows `v` as a common table expression.
    fn with(self, columns: &[Column], size: usize) -> String {
        let names = columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
        let rows = match self {
            Self::Postgres => {
                let arrays = columns.iter().map(|column| match column.kind {
                    Kind::Int => "?::bigint[]",
                    Kind::Bytes => "?::bytea[]",
                    Kind::Text => "?::text[]",
                });
                format!("SELECT * FROM UNNEST({})", arrays.collect::<Vec<_>>().join(", "))
            }
            Self::MySql | Self::Sqlite => {
                let row = format!("({})", vec!["?"; columns.len()].join(", "));
                format!("VALUES {}", vec![row.as_str(); size].join(", "))
            }
        };
        format!("WITH v({names}) AS ({rows})")
    }

    /// `statement` with this database's placeholders. Our statements hold no `?` but placeholders.
    pub(super) fn place(self, statement: &str) -> String {
        if self != Self::Postgres {
            return statement.to_owned();
        }
        let mut parts = statement.split('?');
        let mut placed = parts.next().unwrap_or_default().to_owned();
        for (index, part) in parts.enumerate() {
            // Writing to a String can't fail.
            if write!(placed, "${}{part}", index + 1).is_err() {
                break;
            }
        }
        placed
    }
}

/// The rows `v` as a derived table for MySQL and MariaDB, which spell VALUES differently. The casts tell the
/// server the types, which it would otherwise guess as text.
fn derived(columns: &[Column], size: usize) -> String {
    let cast = |column: &Column| match column.kind {
        Kind::Int => "CAST(? AS SIGNED)",
        Kind::Bytes | Kind::Text => "CAST(? AS BINARY)",
    };
    let first = columns.iter().map(|column| format!("{} AS {}", cast(column), column.name)).collect::<Vec<_>>();
    let other = columns.iter().map(cast).collect::<Vec<_>>();
    let mut rows = vec![format!("SELECT {}", first.join(", "))];
    rows.resize(size, format!("SELECT {}", other.join(", ")));
    format!("({}) AS v", rows.join(" UNION ALL "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 2] = [Column::bytes("v_id"), Column::int("v_state")];

    #[test]
    fn postgres_takes_arrays_and_numbers_its_placeholders() {
        let text = Dialect::Postgres.update(&COLUMNS, 1, "state = v.v_state, changed_at = ?", "e.state = 1");
        assert_eq!(
            Dialect::Postgres.place(&text),
            "WITH v(v_id, v_state) AS (SELECT * FROM UNNEST($1::bytea[], $2::bigint[])) \
             UPDATE entries AS e SET state = v.v_state, changed_at = $3 FROM v WHERE e.id = v.v_id AND e.state = 1"
        );
    }

    #[test]
    fn rows_are_padded_to_a_power_of_two_by_repeating_the_last() {
        let rows = [[Value::from(1)], [Value::from(2)], [Value::from(3)]];
        let ints = |values: Vec<Value<'_>>| values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>();
        let padded = ints(Dialect::Sqlite.bind_rows(&rows));
        assert_eq!(padded, ["Int(Some(1))", "Int(Some(2))", "Int(Some(3))", "Int(Some(3))"]);
        assert_eq!(ints(Dialect::Postgres.bind_rows(&rows)), ["Ints([Some(1), Some(2), Some(3)])"]);
    }
}
