//! What a subscription makes of a message: its key, its place in order, and what it means. Pure: the same message is
//! understood the same way when it is received and each time it is delivered.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};

use crate::entry::fingerprint::{self, Meaning};
use crate::entry::source::{Alternative, MessageSource, Said, SourceError};
use crate::entry::{Key, KeySources, ResolvedKey};

/// What makes two messages one, and which comes first.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Where the business key comes from.
    pub key: KeySources<MessageSource>,
    /// Whose versions they are, and what they are ordered by; `None`: the business key.
    pub entity: Option<KeySources<MessageSource>>,
    /// The number that grows with each state of an entity.
    pub version: Option<MessageSource>,
    /// What does not count.
    pub fingerprint: fingerprint::Rules,
}

/// A message, understood.
#[derive(Debug, Clone)]
pub struct Understood {
    /// What the engine knows it by. With versions each one is an operation of its own, so the version is a part of it.
    pub key: ResolvedKey,
    /// The business key as the message has it, for people.
    pub business: Key,
    /// What it is ordered by.
    pub line: Key,
    /// Its version, where the subscription has versions.
    pub version: Option<i64>,
    /// What it means.
    pub meaning: Meaning,
}

/// Why a message can't be handled as it is. For people; says nothing of its data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// No source leads to a key: an empty key shared by all that lack one would make them one message.
    #[error("it has no key: none of {0} is there")]
    NoKey(KeySources<MessageSource>),
    /// No source leads to an entity.
    #[error("it has no entity: none of {0} is there")]
    NoEntity(KeySources<MessageSource>),
    /// No version, or none that can be compared.
    #[error("it has no version: {0} is no integer between 0 and 9223372036854775807")]
    NoVersion(MessageSource),
    /// What a source leads to can't be a key. Never truncated, never passed over for the next one.
    #[error(transparent)]
    Source(#[from] SourceError<MessageSource>),
}

impl Rules {
    /// What `said` means.
    ///
    /// # Errors
    /// If it lacks what the subscription goes by.
    pub fn understand(&self, said: &Said<'_>, content_type: &str, data: &Bytes) -> Result<Understood, Unusable> {
        let found = self.key.resolve_message(said)?.ok_or_else(|| Unusable::NoKey(self.key.clone()))?;
        let line = match &self.entity {
            None => found.key.clone(),
            Some(entity) => entity
                .resolve_message(said)?
                .ok_or_else(|| Unusable::NoEntity(entity.clone()))
                .map(|found| found.key)?,
        };
        let version = self.version.as_ref().map(|source| version(source, said)).transpose()?;
        let key = match version {
            None => found.key.clone(),
            Some(version) => Key::composite(&[found.key.as_str(), &version.to_string()]),
        };
        Ok(Understood {
            key: ResolvedKey { key, business: found.business },
            business: found.key,
            line,
            version,
            meaning: self.meaning(content_type, data),
        })
    }

    /// Whether a message's id and data, which tell it from any other, tell its key and version as well.
    pub(super) fn go_by_data(&self) -> bool {
        let of_key = self.key.alternatives().iter().flat_map(Alternative::sources);
        of_key.chain(&self.version).all(|source| match source {
            MessageSource::Body(_) | MessageSource::Id => true,
            MessageSource::Attribute(_) => false,
        })
    }

    /// The payload alone counts: what carries it, and to where, changes nothing of what it means.
    fn meaning(&self, content_type: &str, data: &Bytes) -> Meaning {
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::try_from(content_type) {
            headers.insert(header::CONTENT_TYPE, value);
        }
        let parts =
            fingerprint::Parts { method: &Method::POST, path: "/", query: None, headers: &headers, body: data.clone() };
        Meaning::of(parts, &self.fingerprint)
    }
}

fn version(source: &MessageSource, said: &Said<'_>) -> Result<i64, Unusable> {
    let found = source.resolve(said)?;
    let number = found.and_then(|text| text.as_str().parse().ok()).filter(|number: &i64| *number >= 0);
    number.ok_or_else(|| Unusable::NoVersion(source.clone()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::entry::Pointer;

    fn rules(key: &str, entity: Option<&str>, version: Option<&str>) -> Rules {
        Rules {
            key: serde_json::from_str(key).unwrap(),
            entity: entity.map(|entity| serde_json::from_str(entity).unwrap()),
            version: version.map(|version| version.parse().unwrap()),
            fingerprint: fingerprint::Rules::new(vec![Pointer::parse("/sent_at").unwrap()], Vec::new()),
        }
    }

    fn understand(rules: &Rules, data: &str) -> Result<Understood, String> {
        let attributes = BTreeMap::from([("sequence".into(), "0000000000000000042".into())]);
        let data = Bytes::copy_from_slice(data.as_bytes());
        let said = Said { id: Some("m-1"), attributes: &attributes, data: &data };
        rules.understand(&said, "application/json", &data).map_err(|error| error.to_string())
    }

    #[test]
    fn a_message_is_ordered_by_its_entity_or_its_key() {
        let by_key = understand(&rules(r#""body:/no""#, None, None), r#"{"no":"A-1","shop":"s"}"#).unwrap();
        assert_eq!((by_key.key.key.as_str(), by_key.line.as_str(), by_key.version), ("A-1", "A-1", None));
        let rules = rules(r#""body:/no""#, Some(r#""body:/shop""#), None);
        let by_shop = understand(&rules, r#"{"no":"A-1","shop":"s"}"#).unwrap();
        assert_eq!((by_shop.key.key.as_str(), by_shop.line.as_str()), ("A-1", "s"));
    }

    #[test]
    fn each_version_is_an_operation_of_its_own() {
        let rules = rules(r#""body:/no""#, Some(r#""body:/no""#), Some("body:/version"));
        let understood = |version: &str| understand(&rules, &format!(r#"{{"no":"A-1","version":{version}}}"#));
        let (one, two) = (understood("1").unwrap(), understood("2").unwrap());
        assert_ne!(one.key, two.key);
        assert_eq!((one.line.as_str(), one.business.as_str(), one.version), ("A-1", "A-1", Some(1)));
        assert_eq!(understood("\"1\"").unwrap().key, one.key, "a number and its text are one version");
        for none in ["-1", "1.5", "1e3", "null", "\"\"", "\"v1\"", "9223372036854775808", "{}"] {
            let error = understood(none).unwrap_err();
            assert_eq!(error, "it has no version: body:/version is no integer between 0 and 9223372036854775807");
        }
    }

    #[test]
    fn versions_may_be_spelled_with_zeros_in_front() {
        let rules = rules(r#""body:/no""#, Some(r#""body:/no""#), Some("attribute:sequence"));
        assert_eq!(understand(&rules, r#"{"no":1}"#).unwrap().version, Some(42));
    }

    #[test]
    fn what_is_missing_is_named_and_what_can_not_be_a_key_too() {
        let both = rules(r#"["body:/no", "attribute:subject"]"#, Some(r#""body:/shop""#), None);
        let table = [
            ("{}", r#"it has no key: none of ["body:/no", "attribute:subject"] is there"#),
            (r#"{"no":""}"#, "it has no key"),
            (r#"{"no":{"a":1}}"#, "it has no key"),
            ("not JSON", "it has no key"),
            (r#"{"no":1}"#, r#"it has no entity: none of ["body:/shop"] is there"#),
            (r#"{"no":1,"no":2,"shop":1}"#, "body:/no is given more than once"),
        ];
        for (data, told) in table {
            let error = understand(&both, data).unwrap_err();
            assert!(error.starts_with(told), "{data}: {error}");
        }
        let long = format!(r#"{{"no":"{}","shop":1}}"#, "x".repeat(256));
        assert_eq!(understand(&both, &long).unwrap_err(), "body:/no: the key is longer than 255 bytes");
    }

    #[test]
    fn what_does_not_count_changes_no_meaning() {
        let rules = rules(r#""body:/no""#, None, None);
        let meaning = |data: &str| understand(&rules, data).unwrap().meaning;
        let first = meaning(r#"{"no":1,"amount":1.10e2,"sent_at":1}"#);
        assert_eq!(meaning(r#"{ "sent_at": 2, "amount": 110, "no": 1 }"#), first);
        assert_ne!(meaning(r#"{"no":1,"amount":111,"sent_at":1}"#), first);
    }
}
