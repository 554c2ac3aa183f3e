//! Lengths of time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// Units and their milliseconds, the largest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// A hundred years: longer means a typing error, and anything up to it can be added to any date.
const MAX_MS: u64 = 36_525 * 86_400_000;

/// A length of time, written as an integer and one of `ms s m h d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(Duration);

/// Why a text is no length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PeriodError {
    /// Another form.
    #[error("a duration is an integer and one of ms s m h d, such as \"10s\"")]
    Form,
    /// Too long.
    #[error("a duration is a hundred years at most")]
    TooLong,
}

impl Period {
    /// So many milliseconds.
    #[must_use]
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// So many seconds.
    #[must_use]
    pub const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// So many days.
    #[must_use]
    pub const fn days(days: u64) -> Self {
        Self::secs(days * 86_400)
    }

    /// The length of time.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, PeriodError> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(PeriodError::Form)?;
        if number.is_empty() {
            return Err(PeriodError::Form);
        }
        let total = number.parse().ok().and_then(|number: u64| number.checked_mul(*millis));
        total.filter(|total| *total <= MAX_MS).map(Self::millis).ok_or(PeriodError::TooLong)
    }
}

/// The shortest spelling.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if millis == 0 {
            return f.write_str("0s");
        }
        let unit = UNITS.iter().find(|(_, unit)| millis.is_multiple_of(*unit));
        let (name, unit) = unit.copied().unwrap_or(("ms", 1));
        write!(f, "{}{name}", millis / unit)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::from_text(deserializer, "a duration such as \"10s\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_read_and_shown_in_its_shortest_spelling() {
        let table = [("50ms", "50ms"), ("1000ms", "1s"), ("90s", "90s"), ("60m", "1h"), ("24h", "1d"), ("0s", "0s")];
        for (text, shown) in table {
            assert_eq!(text.parse::<Period>().unwrap().to_string(), shown);
        }
        assert_eq!("2d".parse::<Period>().unwrap().get(), Duration::from_secs(172_800));
    }

    #[test]
    fn a_number_without_a_unit_or_with_a_fraction_sign_or_space_is_refused() {
        for text in ["10", "", "s", "1.5s", "-1s", "+1s", "1 s", "1S", "1w", "ms1", "1s1"] {
            assert_eq!(text.parse::<Period>(), Err(PeriodError::Form), "{text}");
        }
        for text in ["36526d", "99999999999999999999s", "18446744073709551615d"] {
            assert_eq!(text.parse::<Period>(), Err(PeriodError::TooLong), "{text}");
        }
        assert!("36525d".parse::<Period>().is_ok());
    }
}
