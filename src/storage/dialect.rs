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

    /// Commits without waiting for the disk, where that can be asked for one transaction.
    pub(super) const fn commit_without_flush(self) -> &'static str {
        match self {
            Self::Postgres => "SET LOCAL synchronous_commit = off; COMMIT",
            Self::MySql | Self::Sqlite => "COMMIT",
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

    /// The time in milliseconds at which the statement arrived, as an expression: the same wherever the statement
    /// asks for it.
    pub(super) const fn statement_now(self) -> &'static str {
        match self {
            Self::Postgres => "CAST(EXTRACT(EPOCH FROM STATEMENT_TIMESTAMP()) * 1000 AS BIGINT)",
            Self::MySql | Self::Sqlite => self.now(),
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

    /// The values of `rows` for a statement of [`Self::padded`] size. The smallest row is repeated as padding,
    /// which is harmless, since all our writes may be repeated: what is sent is less than twice as large for it.
    pub(super) fn bind_rows<'a, const N: usize>(self, rows: &[[Value<'a>; N]]) -> Vec<Value<'a>> {
        match self {
            Self::Postgres => transpose(rows),
            Self::MySql | Self::Sqlite => {
                let smallest = rows.iter().min_by_key(|row| row.iter().map(Value::len).sum::<usize>());
                let padding = smallest.into_iter().cycle().take(self.padded(rows.len()) - rows.len());
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

    /// As [`Self::among`], for a column of integers.
    pub(super) fn among_ints(self, size: usize) -> String {
        match self {
            Self::Postgres => " = ANY(?::bigint[])".to_owned(),
            Self::MySql | Self::Sqlite => format!(" IN ({})", vec!["?"; size].join(", ")),
        }
    }

    /// As [`Self::among`], for a column of text.
    pub(super) fn among_texts(self, size: usize) -> String {
        match self {
            Self::Postgres => " = ANY(?::text[])".to_owned(),
            Self::MySql | Self::Sqlite => format!(" IN ({})", vec!["?"; size].join(", ")),
        }
    }

    /// At the end of a read: locks what it found until the commit. On SQLite a writer has locked everything.
    pub(super) const fn for_update(self) -> &'static str {
        match self {
            Self::Postgres | Self::MySql => " FOR UPDATE",
            Self::Sqlite => "",
        }
    }

    /// At the end of a read: asks for what is committed now, also in a transaction whose reads are of its beginning,
    /// as a MySQL session's are unless it is told otherwise. On PostgreSQL an insert fails in such a transaction.
    pub(super) const fn latest(self) -> &'static str {
        match self {
            Self::MySql => " LOCK IN SHARE MODE",
            Self::Postgres | Self::Sqlite => "",
        }
    }

    /// After a table: the index to go through. PostgreSQL has no such word; its sessions are told not to scan.
    pub(super) fn by_index(self, index: &str) -> String {
        match self {
            Self::Postgres => String::new(),
            Self::MySql => format!(" FORCE INDEX ({index})"),
            Self::Sqlite => format!(" INDEXED BY {index}"),
        }
    }

    /// Whether `text` has a value somewhere in it, byte by byte.
    pub(super) fn contains(self, text: &str) -> String {
        match self {
            Self::Postgres => format!("STRPOS({text}, ?) > 0"),
            Self::MySql | Self::Sqlite => format!("INSTR({text}, ?) > 0"),
        }
    }

    /// Bytes that were read from a column of text, as its value again.
    pub(super) fn as_text(self, bytes: &str) -> String {
        match self {
            Self::Postgres => format!("CONVERT_FROM({bytes}, 'UTF8')"),
            Self::MySql => bytes.to_owned(),
            Self::Sqlite => format!("CAST({bytes} AS TEXT)"),
        }
    }

    /// For [`Self::for_each`]: that an event `e` is of the state, queue and lane of `v` and at its position or a
    /// later one, and the order of positions. `v` has `v_state`, `v_queue`, `v_lane` and `v_from`.
    ///
    /// On PostgreSQL an order that only `events_by_state` has. Where state, queue and lane are compared as equal,
    /// the order of positions is the primary key's as well, and with statistics from before a million events
    /// were sent the planner walks over all of them.
    pub(super) const fn of_lane(self) -> (&'static str, &'static str) {
        match self {
            Self::Postgres => (
                "(e.state, e.queue, e.lane, e.position) >= (v.v_state, v.v_queue, v.v_lane, v.v_from) \
                 AND (e.state, e.queue, e.lane) <= (v.v_state, v.v_queue, v.v_lane)",
                "e.state, e.queue, e.lane, e.position",
            ),
            Self::MySql | Self::Sqlite => (
                "e.state = v.v_state AND e.queue = v.v_queue AND e.lane = v.v_lane AND e.position >= v.v_from",
                "e.position",
            ),
        }
    }

    /// Beside [`Self::of_lane`], whose order the bound is to be of as well: that the event is at `v_to` or before.
    pub(super) const fn up_to(self) -> &'static str {
        match self {
            Self::Postgres => "(e.state, e.queue, e.lane, e.position) <= (v.v_state, v.v_queue, v.v_lane, v.v_to)",
            Self::MySql | Self::Sqlite => "e.position <= v.v_to",
        }
    }

    /// Inserts into `target` what `select` finds, but rows whose key exists.
    pub(super) fn insert_found(self, target: &str, select: &str) -> String {
        match self {
            Self::Postgres | Self::Sqlite => format!("INSERT INTO {target} {select} ON CONFLICT DO NOTHING"),
            Self::MySql => format!("INSERT IGNORE INTO {target} {select}"),
        }
    }

    /// The rows that `select` finds for each row `v`, as the table `p`: for what a join can't say, "the first
    /// ones of each". `select` names each of `columns` once, as `v.v_name`, and in their order. Rows are found
    /// again for the padding: read them as a set.
    pub(super) fn for_each(self, columns: &[Column], size: usize, select: &str) -> String {
        match self {
            Self::Postgres => {
                let with = self.with(columns, size);
                format!("({with} SELECT r.* FROM v CROSS JOIN LATERAL ({select}) AS r) AS p")
            }
            Self::MySql | Self::Sqlite => {
                let one = columns
                    .iter()
                    .fold(select.to_owned(), |text, column| text.replacen(&format!("v.{}", column.name), "?", 1));
                let each = format!("SELECT * FROM ({one}) AS r");
                format!("({}) AS p", vec![each.as_str(); size].join(" UNION ALL "))
            }
        }
    }

    /// Changes rows of `entries` (as `e`) from the rows `v` that have their id.
    ///
    /// An assignment may read the column that it sets and columns of `v`, nothing else: MySQL does not
    /// promise an order of assignments.
    pub(super) fn update(self, columns: &[Column], size: usize, set: &str, guard: &str) -> String {
        self.update_of("entries AS e", "e.id = v.v_id", columns, size, set, guard)
    }

    /// As [`Self::update`], of the rows of `target` that `key` finds by their primary key.
    pub(super) fn update_of(
        self,
        target: &str,
        key: &str,
        columns: &[Column],
        size: usize,
        set: &str,
        guard: &str,
    ) -> String {
        match self {
            Self::Postgres | Self::Sqlite => {
                let with = self.with(columns, size);
                format!("{with} UPDATE {target} SET {set} FROM v WHERE {key} AND {guard}")
            }
            Self::MySql => {
                let rows = derived(columns, size);
                // In this order: the rows first, then what each one finds by its primary key. A small table would be
                // read as a whole otherwise, and rows that others have written and not committed waited for.
                format!("UPDATE {rows} STRAIGHT_JOIN {target} FORCE INDEX (PRIMARY) ON {key} SET {set} WHERE {guard}")
            }
        }
    }

    /// Inserts into `target` the rows `select` that are taken from `v`, but those whose unique key exists.
    /// `filter` may end with an order.
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

    /// As [`Self::insert_new`] on MySQL, but takes the lock for a change of the rows that exist. `same` is a column of
    /// theirs, which keeps its value.
    pub(super) fn insert_or_lock(
        self,
        columns: &[Column],
        size: usize,
        target: &str,
        select: &str,
        filter: &str,
        same: &str,
    ) -> String {
        let rows = derived(columns, size);
        format!(
            "INSERT INTO {target} SELECT {select} FROM {rows} WHERE {filter} ON DUPLICATE KEY UPDATE {same} = {same}"
        )
    }

    /// The rows `v` as a common table expression.
    pub(super) fn with(self, columns: &[Column], size: usize) -> String {
        let names = columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
        let rows = match self {
            Self::Postgres => {
                let arrays = columns.iter().map(|column| match column.kind {
                    Kind::Int | Kind::Now => "?::bigint[]",
                    Kind::Bytes => "?::bytea[]",
                    Kind::Text => "?::text[]",
                });
                let arrays = arrays.collect::<Vec<_>>().join(", ");
                if columns.iter().any(|column| matches!(column.kind, Kind::Now)) {
                    let value = |column: &Column| match column.kind {
                        Kind::Now => format!("COALESCE(u.{}, {})", column.name, self.statement_now()),
                        Kind::Int | Kind::Bytes | Kind::Text => format!("u.{}", column.name),
                    };
                    let values = columns.iter().map(value).collect::<Vec<_>>().join(", ");
                    format!("SELECT {values} FROM UNNEST({arrays}) AS u({names})")
                } else {
                    format!("SELECT * FROM UNNEST({arrays})")
                }
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
        Kind::Int | Kind::Now => "CAST(? AS SIGNED)",
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
    fn what_is_found_for_each_row_takes_its_values_in_order() {
        let select = "SELECT e.id FROM entries AS e WHERE e.id = v.v_id AND e.state = v.v_state LIMIT 1";
        let each = "SELECT * FROM (SELECT e.id FROM entries AS e WHERE e.id = ? AND e.state = ? LIMIT 1) AS r";
        let text = Dialect::Sqlite.for_each(&COLUMNS, 2, select);
        assert_eq!(text, format!("({each} UNION ALL {each}) AS p"));
    }

    #[test]
    fn rows_are_padded_to_a_power_of_two_by_repeating_the_smallest() {
        let rows = [[Value::from(1)], [Value::from(2)], [Value::from(3)]];
        let ints = |values: Vec<Value<'_>>| values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>();
        let padded = ints(Dialect::Sqlite.bind_rows(&rows));
        assert_eq!(padded, ["Int(Some(1))", "Int(Some(2))", "Int(Some(3))", "Int(Some(1))"]);
        assert_eq!(ints(Dialect::Postgres.bind_rows(&rows)), ["Ints([Some(1), Some(2), Some(3)])"]);
    }

    #[test]
    fn padding_does_not_make_a_statement_twice_as_large() {
        let (data, small) = (vec![0; 1 << 20], [0; 100]);
        let rows: Vec<_> = (0..129).map(|row| [Value::from(if row < 128 { &small[..] } else { &data })]).collect();
        let size = |rows: &[Value<'_>]| rows.iter().map(Value::len).sum::<usize>();
        let bound = Dialect::Sqlite.bind_rows(&rows);
        assert_eq!(bound.len(), 256);
        assert!(size(&bound) < 2 * size(rows.as_flattened()), "{}", size(&bound));
    }
}
