//! A connection of any of the three databases, owned or borrowed, and what comes back from it. The only
//! place that binds and reads values.

use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments as _, AssertSqlSafe, MySqlConnection, PgConnection, Row as _, SqliteConnection};

use super::dialect::Dialect;
use super::text::Text;
use super::value::Value;
use crate::sealer::Unopened;

/// A connection that we opened.
#[derive(Debug)]
pub(super) enum Connection {
    Postgres(PgConnection),
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
}

impl Connection {
    pub(super) fn borrow(&mut self) -> Conn<'_> {
        match self {
            Self::Postgres(connection) => Conn::Postgres(connection),
            Self::MySql(connection) => Conn::MySql(connection),
            Self::Sqlite(connection) => Conn::Sqlite(connection),
        }
    }

    /// Ends the connection in the way the server likes best.
    pub(super) async fn close(self) -> sqlx::Result<()> {
        use sqlx::Connection as _;
        match self {
            Self::Postgres(connection) => connection.close().await,
            Self::MySql(connection) => connection.close().await,
            Self::Sqlite(connection) => connection.close().await,
        }
    }
}

/// A connection to run statements on: ours, or a caller's in its own transaction.
#[derive(Debug)]
pub enum Conn<'c> {
    Postgres(&'c mut PgConnection),
    MySql(&'c mut MySqlConnection),
    Sqlite(&'c mut SqliteConnection),
}

/// Binds all values and runs the query by `$run` on whatever connection it is.
macro_rules! run {
    ($self:ident, $text:ident, $values:ident, $connection:ident, $query:ident => $run:expr) => {
        match $self {
            Conn::Postgres($connection) => {
                let mut arguments = PgArguments::default();
                for value in $values {
                    bind_postgres(&mut arguments, value).map_err(sqlx::Error::Encode)?;
                }
                let $query = sqlx::query_with($text.sql(), arguments);
                $run
            }
            Conn::MySql($connection) => {
                let mut arguments = MySqlArguments::default();
                bind_flat!(arguments, $values);
                let $query = sqlx::query_with($text.sql(), arguments);
                $run
            }
            Conn::Sqlite($connection) => {
                let mut arguments = SqliteArguments::default();
                bind_flat!(arguments, $values);
                let $query = sqlx::query_with($text.sql(), arguments);
                $run
            }
        }
    };
}

/// Binds values for a database that takes rows one value after the other.
macro_rules! bind_flat {
    ($arguments:ident, $values:ident) => {
        for value in $values {
            match value {
                Value::Int(value) => sqlx::Arguments::add(&mut $arguments, *value),
                Value::Bytes(value) => sqlx::Arguments::add(&mut $arguments, *value),
                Value::Text(value) => sqlx::Arguments::add(&mut $arguments, *value),
                Value::Ints(_) | Value::ManyBytes(_) | Value::Texts(_) => Err("only PostgreSQL takes arrays".into()),
            }
            .map_err(sqlx::Error::Encode)?
        }
    };
}

fn bind_postgres(arguments: &mut PgArguments, value: &Value<'_>) -> Result<(), sqlx::error::BoxDynError> {
    match value {
        Value::Int(value) => arguments.add(*value),
        Value::Bytes(value) => arguments.add(*value),
        Value::Text(value) => arguments.add(*value),
        Value::Ints(values) => arguments.add(values),
        Value::ManyBytes(values) => arguments.add(values),
        Value::Texts(values) => arguments.add(values),
    }
}

impl Conn<'_> {
    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Self::Postgres(_) => Dialect::Postgres,
            Self::MySql(_) => Dialect::MySql,
            Self::Sqlite(_) => Dialect::Sqlite,
        }
    }

    /// Runs a prepared statement and says how many rows it hit.
    pub(super) async fn execute(&mut self, text: &Text, values: &[Value<'_>]) -> sqlx::Result<u64> {
        run!(self, text, values, connection, query => Ok(query.execute(&mut **connection).await?.rows_affected()))
    }

    /// Runs a prepared statement and returns its rows.
    pub(super) async fn query(&mut self, text: &Text, values: &[Value<'_>]) -> sqlx::Result<Vec<Row>> {
        run!(self, text, values, connection, query => {
            let rows = query.fetch_all(&mut **connection).await?;
            Ok(rows.into_iter().map(Row::from).collect())
        })
    }

    /// Runs plain statements without values, in one round trip, and returns their rows.
    pub(super) async fn simple(&mut self, statements: &str) -> sqlx::Result<Vec<Row>> {
        let query = sqlx::raw_sql(AssertSqlSafe(statements));
        Ok(match self {
            Self::Postgres(connection) => rows(query.fetch_all(&mut **connection).await?),
            Self::MySql(connection) => rows(query.fetch_all(&mut **connection).await?),
            Self::Sqlite(connection) => rows(query.fetch_all(&mut **connection).await?),
        })
    }
}

fn rows<R: Into<Row>>(rows: Vec<R>) -> Vec<Row> {
    rows.into_iter().map(Into::into).collect()
}

/// A row of an answer. Columns are read by position, in the order of the statement that asked for them.
pub(super) enum Row {
    Postgres(PgRow),
    MySql(MySqlRow),
    Sqlite(SqliteRow),
}

/// Reads a column. Unchecked, since the statements are ours: it spares a name for each database's type of
/// the same column, and a value that does not fit is an error still.
macro_rules! get {
    ($self:ident, $column:ident) => {
        match $self {
            Self::Postgres(row) => row.try_get_unchecked($column),
            Self::MySql(row) => row.try_get_unchecked($column),
            Self::Sqlite(row) => row.try_get_unchecked($column),
        }
    };
}

impl Row {
    pub(super) fn int(&self, column: usize) -> sqlx::Result<i64> {
        get!(self, column)
    }

    pub(super) fn maybe_int(&self, column: usize) -> sqlx::Result<Option<i64>> {
        get!(self, column)
    }

    pub(super) fn bytes(&self, column: usize) -> sqlx::Result<Vec<u8>> {
        get!(self, column)
    }

    pub(super) fn maybe_bytes(&self, column: usize) -> sqlx::Result<Option<Vec<u8>>> {
        get!(self, column)
    }

    pub(super) fn text(&self, column: usize) -> sqlx::Result<String> {
        get!(self, column)
    }

    pub(super) fn maybe_text(&self, column: usize) -> sqlx::Result<Option<String>> {
        get!(self, column)
    }

    /// Bytes of a fixed length.
    pub(super) fn array<const N: usize>(&self, column: usize) -> sqlx::Result<[u8; N]> {
        let bytes = self.bytes(column)?;
        let found = bytes.len();
        bytes.try_into().map_err(|_| unreadable(column, format!("{found} bytes instead of {N}")))
    }
}

/// The error for a stored value that is not what it must be.
pub(super) fn unreadable(column: usize, what: impl std::fmt::Display) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_string(), source: what.to_string().into() }
}

/// The error for a stored value that does not open.
pub(super) fn unopened(error: Unopened) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

/// Whether it is [`unopened`]'s.
pub(super) fn is_unopened(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Decode(source) if source.is::<Unopened>())
}

impl From<PgRow> for Row {
    fn from(row: PgRow) -> Self {
        Self::Postgres(row)
    }
}

impl From<MySqlRow> for Row {
    fn from(row: MySqlRow) -> Self {
        Self::MySql(row)
    }
}

impl From<SqliteRow> for Row {
    fn from(row: SqliteRow) -> Self {
        Self::Sqlite(row)
    }
}
