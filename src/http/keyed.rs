//! The key of a request, or what its sender is told instead.

use http::{HeaderMap, HeaderName};

use crate::auth::token::PREFIX;
use crate::entry::source::{ResolvedKey, Sent, SourceError};
use crate::entry::{Key, KeyError, KeySources};
use crate::problem::{Problem, Situation};

/// The field that carries the key.
pub(crate) static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What the field says. Not to be shown: a token is a right.
pub(crate) enum Line<'a> {
    /// A plain key.
    Key(Key),
    /// What begins like a token, without its quotes. Never a plain key.
    Token(&'a str),
}

/// What the field says, if it was sent. Two lines are refused: which one the upstream would take is anybody's guess.
pub(crate) fn line(headers: &HeaderMap) -> Result<Option<Line<'_>>, Problem> {
    let mut lines = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let line = match (lines.next(), lines.next()) {
        (None, _) => return Ok(None),
        (Some(line), None) => line.as_bytes(),
        (Some(_), Some(_)) => return Err(invalid(&KeyError::Several)),
    };
    match token(line) {
        Some(token) => Ok(Some(Line::Token(token))),
        None => Key::from_header(line).map(|key| Some(Line::Key(key))).map_err(|error| invalid(&error)),
    }
}

/// The key of the header where no tokens are known.
pub(crate) fn from_header(headers: &HeaderMap) -> Result<Option<Key>, Problem> {
    match line(headers)? {
        Some(Line::Key(key)) => Ok(Some(key)),
        Some(Line::Token(_)) => Err(Problem::new(Situation::TokenInvalid).because("This service takes no tokens.")),
        None => Ok(None),
    }
}

/// Both spellings, quoted and bare. What has the beginning and can't be a token all the same, verifies as none.
fn token(line: &[u8]) -> Option<&str> {
    let line = line.trim_ascii();
    let line = line.strip_prefix(b"\"").map_or(line, |rest| rest.strip_suffix(b"\"").unwrap_or(rest));
    line.starts_with(PREFIX.as_bytes()).then(|| std::str::from_utf8(line).unwrap_or(PREFIX))
}

fn invalid(error: &KeyError) -> Problem {
    Problem::new(Situation::KeyInvalid).because(format!("{}.", capitalised(&error.to_string())))
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
