//! What a request means.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use super::{multipart, percent};
use crate::entry::spelling::{put, put_count};
use crate::entry::{Pointer, json, query};

/// What a request means, spelled canonically: two requests are the same one if their spellings are.
///
/// These count:
/// 1. the method, byte for byte;
/// 2. the path, percent-encoding normalised (upper-case hex, unreserved characters decoded);
/// 3. the query's parameters, normalised likewise and sorted by name; values of one name keep their order;
/// 4. the header fields that the [`Rules`] select, each line's value byte for byte;
/// 5. the body: JSON (`application/json`, `+json`) by its meaning less what the rules ignore; `multipart/…`
///    by its parts whatever their boundary; and everything else by its bytes, as does a body with a
///    `Content-Encoding` or of several types, and JSON or multipart that readers could take for different
///    things. Ignored pointers have no effect where the body counts by bytes.
///
/// The content type decides how the body counts and is not part of the meaning itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Meaning {
    /// Everything, less a body that counts by its bytes.
    head: Vec<u8>,
    /// The body where it counts by its bytes, shared with the request.
    body: Bytes,
}

/// The request as received, before anything has touched it.
pub struct Parts<'a> {
    /// Its method.
    pub method: &'a Method,
    /// The path as sent.
    pub path: &'a str,
    /// The query as sent, without `?`.
    pub query: Option<&'a str>,
    /// All header fields.
    pub headers: &'a HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// What counts beyond or less than usual, by the route's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    ignore: Vec<Pointer>,
    headers: Vec<HeaderName>,
}

impl Rules {
    /// Rules by which what `ignore` points to in a JSON body does not count (an ignored array element keeps
    /// its place) and the fields named by `headers` do. The order of the lists does not matter.
    #[must_use]
    pub fn new(ignore: Vec<Pointer>, mut headers: Vec<HeaderName>) -> Self {
        headers.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        headers.dedup();
        Self { ignore, headers }
    }
}

/// How a body counts. The tags keep bodies that count in different ways apart.
enum Kind<'a> {
    Json,
    Multipart { boundary: &'a str },
    Bytes,
}

const JSON: u8 = b'J';
const MULTIPART: u8 = b'M';
const BYTES: u8 = b'B';

impl Meaning {
    /// Takes the meaning of a request by `rules`.
    #[must_use]
    pub fn of(parts: Parts<'_>, rules: &Rules) -> Self {
        let mut head = Vec::with_capacity(256);
        put(&mut head, parts.method.as_str().as_bytes());
        put(&mut head, percent::normalise(parts.path).as_bytes());
        put_query(&mut head, parts.query.unwrap_or_default());
        put_headers(&mut head, parts.headers, &rules.headers);
        let spelled = match Kind::of(parts.headers) {
            Kind::Json => put_body(&mut head, JSON, |head| json::spell(&parts.body, &rules.ignore, head).is_ok()),
            Kind::Multipart { boundary } => {
                put_body(&mut head, MULTIPART, |head| multipart::spell(&parts.body, boundary, head).is_ok())
            }
            Kind::Bytes => false,
        };
        if spelled {
            return Self { head, body: Bytes::new() };
        }
        head.push(BYTES);
        Self { head, body: parts.body }
    }

    /// The spelling, in two pieces so that the body need not be copied.
    pub(super) fn spelling(&self) -> [&[u8]; 2] {
        [&self.head, &self.body]
    }
}

/// Appends `tag` and what `spell` appends, or nothing if it can't; says which.
fn put_body(head: &mut Vec<u8>, tag: u8, spell: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
    let start = head.len();
    head.push(tag);
    let spelled = spell(head);
    if !spelled {
        head.truncate(start);
    }
    spelled
}

fn put_query(out: &mut Vec<u8>, query: &str) {
    let mut parameters: Vec<(Cow<'_, str>, Option<Cow<'_, str>>)> =
        query::pairs(query).map(|(name, value)| (percent::normalise(name), value.map(percent::normalise))).collect();
    parameters.sort_by(|one, other| one.0.cmp(&other.0));
    put_count(out, parameters.len());
    for (name, value) in parameters {
        put(out, name.as_bytes());
        out.push(u8::from(value.is_some()));
        put(out, value.unwrap_or_default().as_bytes());
    }
}

/// The order of different names is the rules', of equal names the request's. An absent field differs from
/// an empty one.
fn put_headers(out: &mut Vec<u8>, headers: &HeaderMap, names: &[HeaderName]) {
    put_count(out, names.len());
    for name in names {
        put(out, name.as_str().as_bytes());
        put_count(out, headers.get_all(name).iter().count());
        for value in headers.get_all(name) {
            put(out, value.as_bytes());
        }
    }
}

impl<'a> Kind<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let encoded = |value: &HeaderValue| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
        if headers.get_all(header::CONTENT_ENCODING).iter().any(encoded) {
            return Self::Bytes;
        }
        let mut types = headers.get_all(header::CONTENT_TYPE).iter();
        match (types.next().and_then(|value| value.to_str().ok()), types.next()) {
            (Some(content_type), None) => Self::of_type(content_type),
            (None, _) | (Some(_), Some(_)) => Self::Bytes,
        }
    }

    fn of_type(content_type: &'a str) -> Self {
        let (essence, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
        let essence = essence.trim_ascii().to_ascii_lowercase();
        if essence == "application/json" || essence.ends_with("+json") {
            return Self::Json;
        }
        match multipart::boundary(parameters) {
            Some(boundary) if essence.starts_with("multipart/") => Self::Multipart { boundary },
            Some(_) | None => Self::Bytes,
        }
    }
}

/// Shows lengths only: bodies are not logged.
impl fmt::Debug for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meaning({} bytes, body of {} bytes)", self.head.len(), self.body.len())
    }
}

/// Shows no query, header or body.
impl fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} with a body of {} bytes", self.method, self.path, self.body.len())
    }
}

#[cfg(test)]
mod tests;
