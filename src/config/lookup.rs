//! `lookup` of a policy: how the upstream is asked what became of a request.

use std::borrow::Cow;
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
    /// What is asked: `GET /path/{key}`, or with `{forwarded_key}`, `{tenant}`, `{subject}`.
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

/// The target of a lookup: a path and query with places for what names the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupRequest {
    parts: Box<[Part]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Value(Asked),
}

/// What names a request to the upstream that is asked about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// `{key}`: the key as its source has it, such as an order number.
    Key,
    /// `{forwarded_key}`: the `Idempotency-Key` that the upstream was sent. No two callers' are equal.
    ForwardedKey,
    /// `{tenant}`: whose key it is, where the scope has a tenant.
    Tenant,
    /// `{subject}`: whose key it is, where the scope has a subject.
    Subject,
}

impl Asked {
    const ALL: [(&str, Self); 4] = [
        ("{key}", Self::Key),
        ("{forwarded_key}", Self::ForwardedKey),
        ("{tenant}", Self::Tenant),
        ("{subject}", Self::Subject),
    ];
}

/// Why a text is no lookup request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "write GET and a path that has {{key}} or {{forwarded_key}} in it, and {{tenant}} and {{subject}} where keys have owners; each once, such as \"GET /v1/payments/by-order/{{key}}\""
)]
pub struct LookupRequestError;

impl LookupRequest {
    /// Whether it says `what`.
    #[must_use]
    pub fn says(&self, what: Asked) -> bool {
        self.parts.contains(&Part::Value(what))
    }

    /// The path and query to GET, with the values that `of` gives, each encoded so that it stays one segment or value.
    ///
    /// `None` where there is no such value, or one that some servers would take for more than a segment (`..`, `a/b`
    /// in the path): clients choose keys, and such a one could have another resource asked, whose 200 would settle.
    #[must_use]
    pub fn target<'v>(&self, of: impl Fn(Asked) -> Option<Cow<'v, str>>) -> Option<String> {
        use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
        const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
        let mut target = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => target.push_str(text),
                Part::Value(what) => target.extend(utf8_percent_encode(&of(*what)?, PLAIN)),
            }
        }
        let path = target.split('?').next().unwrap_or_default();
        routing::check(path).is_ok().then_some(target)
    }
}

impl FromStr for LookupRequest {
    type Err = LookupRequestError;

    fn from_str(text: &str) -> Result<Self, LookupRequestError> {
        let mut rest = text.strip_prefix("GET ").filter(|target| target.starts_with('/')).ok_or(LookupRequestError)?;
        let mut parts = Vec::new();
        while let Some(open) = rest.find('{') {
            let (before, from) = rest.split_at(open);
            let known = Asked::ALL.iter().find(|(name, _)| from.starts_with(name)).ok_or(LookupRequestError)?;
            let value = Part::Value(known.1);
            if parts.contains(&value) {
                return Err(LookupRequestError);
            }
            parts.extend([Part::Text(before.into()), value]);
            rest = &from[known.0.len()..];
        }
        parts.push(Part::Text(rest.into()));
        let request = Self { parts: parts.into() };
        let texts: String = request.parts.iter().filter_map(Part::text).collect();
        let is_valid = texts.parse::<http::uri::PathAndQuery>().is_ok() && !texts.contains(['{', '}', '#', ' ']);
        let names_a_request = request.says(Asked::Key) || request.says(Asked::ForwardedKey);
        (is_valid && names_a_request).then_some(request).ok_or(LookupRequestError)
    }
}

impl Part {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Value(_) => None,
        }
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

    fn target(request: &str, key: &str) -> Option<String> {
        request.parse::<LookupRequest>().unwrap().target(|what| match what {
            Asked::Key => Some(key.into()),
            Asked::ForwardedKey => Some("f0".into()),
            Asked::Tenant => Some("acme/1".into()),
            Asked::Subject => None,
        })
    }

    #[test]
    fn a_value_stays_inside_its_segment_or_value() {
        assert_eq!(target("GET /payments/{key}/state", "b?c#d e%").unwrap(), "/payments/b%3Fc%23d%20e%25/state");
        for key in ["..", ".", "a/b", "a\\b", "..;x", ""] {
            assert_eq!(target("GET /payments/{key}/state", key), None, "{key}");
        }
        assert_eq!(target("GET /payments?order={key}", "1&x=2/..").unwrap(), "/payments?order=1%26x%3D2%2F..");
        assert_eq!(target("GET /of/{forwarded_key}?tenant={tenant}", "").unwrap(), "/of/f0?tenant=acme%2F1");
        assert_eq!(target("GET /of/{key}?subject={subject}", "1"), None, "nobody's");
    }

    #[test]
    fn a_lookup_is_a_get_that_names_a_request() {
        for text in [
            "POST /p/{key}",
            "/p/{key}",
            "GET /p",
            "GET p/{key}",
            "GET {key}/p",
            "GET /{key}/{key}",
            "GET /{id}/{key}",
            "GET /{tenant}",
            "GET /a b{key}",
            "GET /{key}}",
        ] {
            assert_eq!(text.parse::<LookupRequest>(), Err(LookupRequestError), "{text}");
        }
    }
}
