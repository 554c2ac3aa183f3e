//! `lookup` of a policy: how the upstream is asked what became of a request.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::value::{FieldName, FieldValue, Period, StatusMatch, Statuses, from_text};
use crate::entry::Pointer;
use crate::routing;

/// `[routes.idempotency.lookup]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lookup {
    /// What is asked: `GET /path/{key}`.
    pub request: LookupRequest,
    /// Fields sent along, such as `authorization`. Default none.
    #[serde(default)]
    pub headers: BTreeMap<FieldName, FieldValue>,
    /// What an answer must be to mean that the request was executed; it then is the stored response.
    #[serde(default)]
    pub completed_when: CompletedWhen,
    /// What a 404 means. Default "unknown": the first call may still be on its way.
    #[serde(default)]
    pub absent: Absent,
    /// With `absent = "not_executed"`: how long after the outcome became unknown a 404 is believed. No default: it is
    /// the upstream's own longest time, which only its owner knows.
    #[serde(default)]
    pub after: Option<Period>,
    /// When the first lookup in the background is due. Default 1 s.
    #[serde(default = "first")]
    pub first: Period,
    /// The longest pause between two; each is twice the one before. Default 5 m.
    #[serde(default = "max")]
    pub max: Period,
    /// How long one lookup may take. Default 5 s: reading is quicker than paying.
    #[serde(default = "timeout")]
    pub timeout: Period,
}

/// What a 404 means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Absent {
    /// Nothing: the entry stays Unknown.
    #[default]
    Unknown,
    /// The request was not executed, once `after` has passed.
    NotExecuted,
}

/// What an answer must be to mean "executed".
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompletedWhen {
    /// Its status. Default "2xx".
    pub status: Statuses,
    /// Values of the JSON body by pointer, all of which must hold. Default none.
    pub equals: HashMap<Pointer, serde_json::Value>,
}

impl Default for CompletedWhen {
    fn default() -> Self {
        Self { status: Statuses(vec![StatusMatch::Class(2)]), equals: HashMap::new() }
    }
}

/// The target of a lookup: a path and query with the key's place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupRequest {
    before: Box<str>,
    after: Box<str>,
}

/// Why a text is no lookup request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write GET, a path and {{key}} in it once, such as \"GET /v1/payments/by-order/{{key}}\"")]
pub struct LookupRequestError;

impl LookupRequest {
    /// The path and query to GET for `key`, which is encoded so that it stays one segment or value.
    ///
    /// `None` for a key that some servers would take for more than a segment (`..`, `a/b` in the path):
    /// clients choose keys, and such a one could have another resource asked, whose 200 would settle.
    #[must_use]
    pub fn target(&self, key: &str) -> Option<String> {
        use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
        const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
        let target = format!("{}{}{}", self.before, utf8_percent_encode(key, PLAIN), self.after);
        let path = target.split('?').next().unwrap_or_default();
        routing::check(path).is_ok().then_some(target)
    }
}

impl FromStr for LookupRequest {
    type Err = LookupRequestError;

    fn from_str(text: &str) -> Result<Self, LookupRequestError> {
        let target = text.strip_prefix("GET ").ok_or(LookupRequestError)?;
        let (before, after) = target.split_once("{key}").ok_or(LookupRequestError)?;
        let rest = [before, after].concat();
        let valid = target.starts_with('/') && rest.parse::<http::uri::PathAndQuery>().is_ok();
        if !valid || rest.contains(['{', '}', '#', ' ']) {
            return Err(LookupRequestError);
        }
        Ok(Self { before: before.into(), after: after.into() })
    }
}

impl<'de> Deserialize<'de> for LookupRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a request such as \"GET /v1/payments/{key}\"")
    }
}

fn first() -> Period {
    Period::secs(1)
}

fn max() -> Period {
    Period::secs(300)
}

fn timeout() -> Period {
    Period::secs(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_inside_its_segment_or_value() {
        let request: LookupRequest = "GET /payments/{key}/state".parse().unwrap();
        assert_eq!(request.target("b?c#d e%").unwrap(), "/payments/b%3Fc%23d%20e%25/state");
        for key in ["..", ".", "a/b", "a\\b", "..;x", ""] {
            assert_eq!(request.target(key), None, "{key}");
        }
        let request: LookupRequest = "GET /payments?order={key}".parse().unwrap();
        assert_eq!(request.target("1&x=2/..").unwrap(), "/payments?order=1%26x%3D2%2F..");
    }

    #[test]
    fn a_lookup_is_a_get_with_one_key() {
        for text in [
            "POST /p/{key}",
            "/p/{key}",
            "GET /p",
            "GET p/{key}",
            "GET /{key}/{key}",
            "GET /{id}/{key}",
            "GET /a b{key}",
        ] {
            assert_eq!(text.parse::<LookupRequest>(), Err(LookupRequestError), "{text}");
        }
    }
}
