//! Refuses requests whose length can be read in two ways.

use http::header::{self, HeaderMap};
use http::request::Parts;

/// The length of the body is not certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request's length is ambiguous")]
pub struct AmbiguousLength;

/// Checks what is visible of a request's framing (RFC 9112, section 6.3).
///
/// # Errors
/// If both `Transfer-Encoding` and `Content-Length` are there, or `Content-Length` values that differ or are
/// no number.
pub fn check(parts: &Parts) -> Result<(), AmbiguousLength> {
    let headers = &parts.headers;
    let lengths = headers.contains_key(header::CONTENT_LENGTH);
    if lengths && (headers.contains_key(header::TRANSFER_ENCODING) || !is_one_number(headers)) {
        return Err(AmbiguousLength);
    }
    Ok(())
}

fn is_one_number(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(header::CONTENT_LENGTH).iter().map(|line| line.as_bytes());
    let Some(first) = lines.next() else { return true };
    !first.is_empty() && first.iter().all(u8::is_ascii_digit) && lines.all(|line| line == first)
}
