//! JSON pointers (RFC 6901).

/// A JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer(Vec<String>);

/// Why a text is no JSON pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a JSON pointer is empty or begins with /")]
pub struct PointerError;
