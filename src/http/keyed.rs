//! The key of a request, or what its sender is told instead.

use http::{HeaderMap, HeaderName};

use crate::entry::source::{ResolvedKey, Sent, SourceError};
use crate::entry::{Key, KeyError, KeySources};
use crate::problem::{Problem, Situation};

/// The field that carries the key.
pub(crate) static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The key of the header, if it was sent. Two lines are refused: which one the upstream would take is
/// anybody's guess.
pub(crate) fn from_header(headers: &HeaderMap) -> Result<Option<Key>, Problem> {
    let mut lines = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let key = match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => Key::from_header(line.as_bytes()).map(Some),
        (Some(_), Some(_)) => Err(KeyError::Several),
    };
    key.map_err(|error| Problem::new(Situation::KeyInvalid).because(format!("{}.", capitalised(&error.to_string()))))
}

/// The key by the route's sources, if there is one.
pub(crate) fn resolve(sources: &KeySources, sent: &Sent<'_>) -> Result<Option<ResolvedKey>, Problem> {
    sources.resolve(sent).map_err(|error| {
        let situation = match error {
            SourceError::Ambiguous(_) => Situation::BadRequest,
            SourceError::Invalid(..) => Situation::KeyInvalid,
        };
        Problem::new(situation).because(format!("{error}."))
    })
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
