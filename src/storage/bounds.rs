//! What a column or a statement takes at most.

use super::value::Value;

/// The columns' bounds on MySQL, in bytes: the names of queues, and other texts.
pub(super) const MAX_QUEUE_BYTES: usize = 100;
pub(super) const MAX_TEXT_BYTES: usize = 255;

/// Lengths are checked here: on MySQL, an insert that ignores duplicates would also truncate.
pub(super) fn bounded<'a>(what: &str, text: &'a str, limit: usize) -> sqlx::Result<&'a str> {
    if text.len() > limit {
        return Err(sqlx::Error::Encode(format!("the {what} has {} bytes, {limit} are kept", text.len()).into()));
    }
    Ok(text)
}

/// Refuses a statement that the server would refuse by closing the connection, which would look like an
/// outage that comes again and again.
pub(super) fn check_size(values: &[Value<'_>], limit: usize) -> sqlx::Result<()> {
    match size(values) {
        size if size > limit => {
            Err(sqlx::Error::Encode(format!("{size} bytes in one statement, the server takes {limit}").into()))
        }
        _ => Ok(()),
    }
}

/// About how large a statement with these values is.
pub(super) fn size(values: &[Value<'_>]) -> usize {
    /// Per value: type, length, placeholder.
    const OVERHEAD: usize = 16;
    values.iter().map(|value| value.len() + OVERHEAD).sum()
}
