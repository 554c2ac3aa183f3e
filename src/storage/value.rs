//! Values on their way into a statement, in no database's own terms.

/// One value of a statement, borrowed from the caller.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    /// A 64-bit integer.
    Int(Option<i64>),
    /// Bytes.
    Bytes(Option<&'a [u8]>),
    /// Text.
    Text(Option<&'a str>),
    /// A column of integers: PostgreSQL takes rows as one array per column.
    Ints(Vec<Option<i64>>),
    /// A column of bytes.
    ManyBytes(Vec<Option<&'a [u8]>>),
    /// A column of texts.
    Texts(Vec<Option<&'a str>>),
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Bytes(Some(value))
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Value<'a> {
    fn from(value: &'a [u8; N]) -> Self {
        Self::Bytes(Some(value))
    }
}

impl<'a> From<Option<&'a [u8]>> for Value<'a> {
    fn from(value: Option<&'a [u8]>) -> Self {
        Self::Bytes(value)
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(value: Option<&'a str>) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Some(value))
    }
}

impl Value<'_> {
    /// About how many bytes the value takes in a statement.
    pub(super) fn len(&self) -> usize {
        let bytes = |bytes: &Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        match self {
            Self::Int(_) => 8,
            Self::Bytes(value) => bytes(value),
            Self::Text(value) => value.map_or(0, str::len),
            Self::Ints(values) => values.len() * 8,
            Self::ManyBytes(values) => values.iter().map(bytes).sum(),
            Self::Texts(values) => values.iter().map(|value| value.map_or(0, str::len)).sum(),
        }
    }
}

/// A column of the rows that a statement writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    /// Its name in the statement. Prefixed `v_`, so that it never meets a column of a table.
    pub(super) name: &'static str,
    /// What it holds.
    pub(super) kind: Kind,
}

/// What a column holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Int,
    Bytes,
    Text,
    /// The database's time in milliseconds. Where it is not given, PostgreSQL takes its own.
    Now,
}

impl Column {
    pub(super) const fn int(name: &'static str) -> Self {
        Self { name, kind: Kind::Int }
    }

    pub(super) const fn bytes(name: &'static str) -> Self {
        Self { name, kind: Kind::Bytes }
    }

    pub(super) const fn text(name: &'static str) -> Self {
        Self { name, kind: Kind::Text }
    }

    pub(super) const fn now(name: &'static str) -> Self {
        Self { name, kind: Kind::Now }
    }
}

/// No rows, as columns.
pub(super) fn no_rows(columns: &[Column]) -> Vec<Value<'static>> {
    let column = |column: &Column| match column.kind {
        Kind::Int | Kind::Now => Value::Ints(Vec::new()),
        Kind::Bytes => Value::ManyBytes(Vec::new()),
        Kind::Text => Value::Texts(Vec::new()),
    };
    columns.iter().map(column).collect()
}

/// Turns rows into columns. Each column is of one kind; values of another would be a mistake in this crate
/// and become NULL, which the schema refuses.
pub(super) fn transpose<'a, const N: usize>(rows: &[[Value<'a>; N]]) -> Vec<Value<'a>> {
    let column = |index: usize| match rows.first().map(|row| &row[index]) {
        Some(Value::Bytes(_)) => Value::ManyBytes(rows.iter().map(|row| bytes(&row[index])).collect()),
        Some(Value::Text(_)) => Value::Texts(rows.iter().map(|row| text(&row[index])).collect()),
        _ => Value::Ints(rows.iter().map(|row| int(&row[index])).collect()),
    };
    (0..N).map(column).collect()
}

fn int(value: &Value<'_>) -> Option<i64> {
    if let Value::Int(value) = value { *value } else { None }
}

fn bytes<'a>(value: &Value<'a>) -> Option<&'a [u8]> {
    if let Value::Bytes(value) = value { *value } else { None }
}

fn text<'a>(value: &Value<'a>) -> Option<&'a str> {
    if let Value::Text(value) = value { *value } else { None }
}
