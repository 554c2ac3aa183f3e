//! Names and values of header fields.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use http::{HeaderName, HeaderValue};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::Secret;

/// The name of a header field, in any case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldName(HeaderName);

/// Why a text is no field name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write the name of a header field, such as \"x-request-id\"")]
pub struct FieldNameError;

impl FieldName {
    /// A name known when the program is built: lower case.
    pub(in crate::config) const fn from_static(name: &'static str) -> Self {
        Self(HeaderName::from_static(name))
    }

    /// The name.
    #[must_use]
    pub fn get(&self) -> &HeaderName {
        &self.0
    }
}

impl FromStr for FieldName {
    type Err = FieldNameError;

    fn from_str(text: &str) -> Result<Self, FieldNameError> {
        text.parse().map(Self).map_err(|_| FieldNameError)
    }
}

impl Ord for FieldName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.as_str().cmp(other.0.as_str())
    }
}

impl PartialOrd for FieldName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'de> Deserialize<'de> for FieldName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::from_text(deserializer, "the name of a header field")
    }
}

/// The value of a header field that the gateway sends: a text, or a secret's (then marked sensitive, so
/// that it is not shown).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldValue(HeaderValue);

impl FieldValue {
    /// The value.
    #[must_use]
    pub fn get(&self) -> &HeaderValue {
        &self.0
    }
}

impl<'de> Deserialize<'de> for FieldValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrSecret)
    }
}

struct TextOrSecret;

impl<'de> Visitor<'de> for TextOrSecret {
    type Value = FieldValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header field's value, or \"env:NAME\" or \"file:/path\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<FieldValue, E> {
        let value = HeaderValue::from_str(text);
        value.map(FieldValue).map_err(|_| E::custom("a header field's value holds no control characters"))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FieldValue, A::Error> {
        let secret = Secret::deserialize(MapAccessDeserializer::new(map))?;
        let FieldValue(mut value) = self.visit_str(secret.expose())?;
        value.set_sensitive(true);
        Ok(FieldValue(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_value_is_sent_but_not_shown() {
        let table: toml::Value = "{ reference = \"env:X\", value = \"Bearer abc\" }".parse().unwrap();
        let value = FieldValue::deserialize(table).unwrap();
        assert_eq!(value.get(), "Bearer abc");
        assert!(!format!("{value:?}").contains("abc"));
    }

    #[test]
    fn names_count_in_any_case() {
        assert_eq!("X-Tenant".parse::<FieldName>(), "x-tenant".parse());
        assert_eq!("x tenant".parse::<FieldName>(), Err(FieldNameError));
    }
}
