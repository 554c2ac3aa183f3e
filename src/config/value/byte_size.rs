//! Sizes in bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// Units and their bytes, the largest first.
const UNITS: [(&str, usize); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A size, written as an integer and one of `B KiB MiB GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(usize);

/// Why a text is no size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a size is an integer and one of B KiB MiB GiB, such as \"1MiB\"")]
pub struct ByteSizeError;

impl ByteSize {
    /// So many KiB.
    #[must_use]
    pub const fn kib(kib: usize) -> Self {
        Self(kib << 10)
    }

    /// So many MiB.
    #[must_use]
    pub const fn mib(mib: usize) -> Self {
        Self(mib << 20)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(ByteSizeError)?;
        let total = number.parse().ok().and_then(|number: usize| number.checked_mul(*bytes));
        total.map(Self).ok_or(ByteSizeError)
    }
}

/// The shortest spelling.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, unit)| self.0 != 0 && self.0.is_multiple_of(*unit));
        let (name, unit) = unit.copied().unwrap_or(("B", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::from_text(deserializer, "a size such as \"1MiB\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_read_and_shown_in_its_shortest_spelling() {
        for (text, shown) in [("7B", "7B"), ("1024B", "1KiB"), ("1536KiB", "1536KiB"), ("2GiB", "2GiB"), ("0B", "0B")] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), shown);
        }
        assert_eq!("1MiB".parse(), Ok(ByteSize(1_048_576)));
    }

    #[test]
    fn another_form_is_refused() {
        for text in ["1", "", "B", "1MB", "1 MiB", "1.5MiB", "-1B", "1mib", "99999999999999999999GiB"] {
            assert_eq!(text.parse::<ByteSize>(), Err(ByteSizeError), "{text}");
        }
    }
}
