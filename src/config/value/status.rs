//! Sets of HTTP statuses.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor, value::SeqAccessDeserializer};

const FORM: &str = "a status such as 404, a class such as \"2xx\", or a list of them";

/// One status, or a class of a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatusMatch {
    /// Exactly this one.
    Code(u16),
    /// Every one that begins with this digit.
    Class(u8),
}

/// A set of statuses: written as one match or a list of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statuses(pub Vec<StatusMatch>);

impl StatusMatch {
    /// Whether `status` is meant.
    #[must_use]
    pub fn contains(self, status: u16) -> bool {
        match self {
            Self::Code(code) => code == status,
            Self::Class(class) => status / 100 == u16::from(class),
        }
    }

    fn code<E: Error>(code: u64) -> Result<Self, E> {
        let valid = u16::try_from(code).ok().filter(|code| (100..=599).contains(code));
        valid.map(Self::Code).ok_or_else(|| E::custom(format_args!("`{code}` is no status: write {FORM}")))
    }

    fn text<E: Error>(text: &str) -> Result<Self, E> {
        match text.as_bytes() {
            [digit @ b'1'..=b'5', b'x', b'x'] => Ok(Self::Class(digit - b'0')),
            [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => Self::code(text.parse().map_err(E::custom)?),
            _ => Err(E::custom(format_args!("`{text}` is no status: write {FORM}"))),
        }
    }
}

impl Statuses {
    /// Exactly these.
    #[must_use]
    pub fn codes(codes: &[u16]) -> Self {
        Self(codes.iter().copied().map(StatusMatch::Code).collect())
    }

    /// Every status that is one of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        (100..600).filter(|status| self.contains(*status))
    }

    /// Whether `status` is one of them.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|one| one.contains(status))
    }
}

impl fmt::Display for StatusMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "{code}"),
            Self::Class(class) => write!(f, "{class}xx"),
        }
    }
}

struct One;

impl Visitor<'_> for One {
    type Value = StatusMatch;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a status such as 404 or \"2xx\"")
    }

    fn visit_i64<E: Error>(self, code: i64) -> Result<StatusMatch, E> {
        StatusMatch::code(u64::try_from(code).unwrap_or(0))
    }

    fn visit_u64<E: Error>(self, code: u64) -> Result<StatusMatch, E> {
        StatusMatch::code(code)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<StatusMatch, E> {
        StatusMatch::text(text)
    }
}

impl<'de> Deserialize<'de> for StatusMatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(One)
    }
}

struct Several;

impl<'de> Visitor<'de> for Several {
    type Value = Statuses;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORM)
    }

    fn visit_i64<E: Error>(self, code: i64) -> Result<Statuses, E> {
        One.visit_i64(code).map(|one| Statuses(vec![one]))
    }

    fn visit_u64<E: Error>(self, code: u64) -> Result<Statuses, E> {
        One.visit_u64(code).map(|one| Statuses(vec![one]))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Statuses, E> {
        One.visit_str(text).map(|one| Statuses(vec![one]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Statuses, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Statuses)
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Several)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Statuses, String> {
        let value: toml::Value = text.parse().unwrap();
        Statuses::deserialize(value).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn codes_classes_and_lists_are_sets() {
        let set = parse("[\"2xx\", 404, \"503\"]").unwrap();
        for (status, inside) in [(200, true), (299, true), (404, true), (503, true), (300, false), (403, false)] {
            assert_eq!(set.contains(status), inside, "{status}");
        }
        assert!(parse("\"4xx\"").unwrap().contains(499));
        assert_eq!(parse("[404, \"2xx\", 404]").unwrap().iter().count(), 101);
        assert_eq!(parse("410"), Ok(Statuses::codes(&[410])));
        assert_eq!(parse("[]"), Ok(Statuses::default()));
    }

    #[test]
    fn what_is_no_status_is_refused_with_its_value() {
        for text in ["99", "600", "-200", "\"2XX\"", "\"6xx\"", "\"20\"", "\"\"", "[200, \"ok\"]"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("is no status"), "{text}: {error}");
        }
        assert!(parse("true").unwrap_err().contains("a status such as"));
    }
}
