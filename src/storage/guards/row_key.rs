//! The values that rows are found by.

use crate::storage::value::Value;

/// The value of a row's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKey<'a> {
    /// Of a column of text.
    Text(&'a str),
    /// Of a column of integers.
    Int(i64),
    /// Of a column of bytes.
    Bytes(&'a [u8]),
}

impl<'a> From<&'a str> for RowKey<'a> {
    fn from(key: &'a str) -> Self {
        Self::Text(key)
    }
}

impl<'a> From<&'a String> for RowKey<'a> {
    fn from(key: &'a String) -> Self {
        Self::Text(key)
    }
}

impl From<i64> for RowKey<'_> {
    fn from(key: i64) -> Self {
        Self::Int(key)
    }
}

impl<'a> From<&'a [u8]> for RowKey<'a> {
    fn from(key: &'a [u8]) -> Self {
        Self::Bytes(key)
    }
}

impl<'a> From<RowKey<'a>> for Value<'a> {
    fn from(key: RowKey<'a>) -> Self {
        match key {
            RowKey::Text(key) => key.into(),
            RowKey::Int(key) => key.into(),
            RowKey::Bytes(key) => key.into(),
        }
    }
}
