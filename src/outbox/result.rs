//! What came of a delivery.

use std::fmt;
use std::str::FromStr;

/// What came of a delivery, in one word. It is put on record with the delivery, once it is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryResult {
    /// The handler has done it.
    Applied,
    /// It was done before, by another delivery of the same key and meaning.
    Duplicate,
    /// What it says is older than what was applied to its entity. It was not delivered.
    Stale,
    /// Not now: it will be tried again.
    Deferred,
    /// Its key stands for another message. It was not delivered, and waits for a person.
    Conflict,
    /// It can't be delivered, or the handler does not take it, for good or too often. It waits for a person.
    Rejected,
    /// Another delivery of its key is being worked: it will be tried again.
    InProgressElsewhere,
}

impl DeliveryResult {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Applied,
        Self::Duplicate,
        Self::Stale,
        Self::Deferred,
        Self::Conflict,
        Self::Rejected,
        Self::InProgressElsewhere,
    ];

    /// Those after which nothing more comes.
    pub const FINAL: [Self; 5] = [Self::Applied, Self::Duplicate, Self::Stale, Self::Conflict, Self::Rejected];

    /// As it is stored and as people write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Duplicate => "duplicate",
            Self::Stale => "stale",
            Self::Deferred => "deferred",
            Self::Conflict => "conflict",
            Self::Rejected => "rejected",
            Self::InProgressElsewhere => "in_progress_elsewhere",
        }
    }
}

impl fmt::Display for DeliveryResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no result of a delivery")]
pub struct UnknownResult(pub Box<str>);

impl FromStr for DeliveryResult {
    type Err = UnknownResult;

    fn from_str(word: &str) -> Result<Self, UnknownResult> {
        Self::ALL.into_iter().find(|result| result.as_str() == word).ok_or_else(|| UnknownResult(word.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_is_read_as_it_is_written() {
        for result in DeliveryResult::ALL {
            assert_eq!(result.to_string().parse(), Ok(result));
        }
        assert_eq!("Applied".parse::<DeliveryResult>(), Err(UnknownResult("Applied".into())));
    }
}
