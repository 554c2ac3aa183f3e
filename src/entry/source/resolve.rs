//! Taking the key from a request, or a message.

use std::borrow::Cow;
use std::fmt;

use super::{Alternative, KeySource, KeySources, Source};
use crate::entry::json::{self, Found};
use crate::entry::{Key, KeyError, Pointer, query};

/// What a request offers to its route's key sources.
#[derive(Clone, Copy, Default)]
pub struct Sent<'a> {
    /// The key of the `Idempotency-Key` header. A malformed one is refused before this.
    pub header: Option<&'a Key>,
    /// The parameters of the route's path and their segments, percent-decoded, as routing gives them.
    pub path: &'a [(&'a str, Cow<'a, str>)],
    /// The query as sent, without `?`.
    pub query: Option<&'a str>,
    /// The whole body; `None` if it was not read.
    pub body: Option<&'a [u8]>,
}

/// A request's key and what kind it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedKey {
    /// The key.
    pub key: Key,
    /// Whether it is a business number: such a key is remembered for ever unless configured otherwise.
    pub business: bool,
}

/// Why a key can't be taken. All are the client's mistake (400); the text is for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError<S = KeySource> {
    /// Gateway and upstream could read different values.
    #[error("{0} is given more than once, or can be read in more than one way")]
    Ambiguous(S),
    /// It is there, and can't be a key. Never truncated, and never passed over for the next alternative.
    #[error("{0}: {1}")]
    Invalid(S, KeyError),
}

impl KeySources {
    /// The key of a request: of the first alternative whose every source is present.
    ///
    /// A value that is missing, `null`, empty, only white space, or of another type than string or plain
    /// integer is not present. 42 and `"42"` are one key; `42.0` and `4.2e1` are of another type, since
    /// whoever numbers orders does not write them so, and two numbers must not meet by rounding.
    ///
    /// # Errors
    /// If a source before or in that alternative is ambiguous, or holds what can't be a key.
    pub fn resolve(&self, sent: &Sent<'_>) -> Result<Option<ResolvedKey>, SourceError> {
        self.resolve_by(|source| source.resolve(sent))
    }
}

impl<S: Source> KeySources<S> {
    /// The key of the first alternative whose every source is there, by what `take` finds.
    pub(super) fn resolve_by<E>(&self, take: impl Fn(&S) -> Result<Option<Key>, E>) -> Result<Option<ResolvedKey>, E> {
        for alternative in self.alternatives() {
            if let Some(key) = alternative.resolve_by(&take)? {
                return Ok(Some(ResolvedKey { key, business: alternative.is_business() }));
            }
        }
        Ok(None)
    }
}

impl<S> Alternative<S> {
    fn resolve_by<E>(&self, take: impl Fn(&S) -> Result<Option<Key>, E>) -> Result<Option<Key>, E> {
        let Some(parts) = self.sources().iter().map(take).collect::<Result<_, _>>()? else { return Ok(None) };
        let parts: Vec<Key> = parts;
        Ok(Some(match &parts[..] {
            [key] => key.clone(),
            parts => Key::composite(&parts.iter().map(Key::as_str).collect::<Vec<_>>()),
        }))
    }
}

impl KeySource {
    fn resolve(&self, sent: &Sent<'_>) -> Result<Option<Key>, SourceError> {
        let value = match self {
            Self::Header => return Ok(sent.header.cloned()),
            Self::Body(pointer) => in_body(sent.body.unwrap_or_default(), pointer, self)?.map(Cow::Owned),
            Self::Query(name) => self.query_value(name, sent.query.unwrap_or_default())?,
            Self::Path(name) => path_value(name, sent.path),
        };
        as_key(value.as_deref(), self)
    }

    fn query_value<'a>(&self, name: &str, query: &'a str) -> Result<Option<Cow<'a, str>>, SourceError> {
        let mut values = query::pairs(query)
            .filter(|(sent, _)| query::decode_form(sent).as_deref() == Some(name))
            .map(|(_, value)| value.unwrap_or_default());
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => query::decode_form(value)
                .map(Cow::Owned)
                .map(Some)
                .ok_or_else(|| SourceError::Invalid(self.clone(), KeyError::Malformed)),
            (Some(_), Some(_)) => Err(SourceError::Ambiguous(self.clone())),
        }
    }
}

/// The string or plain integer that `pointer` leads to.
pub(super) fn in_body<S: Clone>(body: &[u8], pointer: &Pointer, source: &S) -> Result<Option<String>, SourceError<S>> {
    match json::find(body, pointer) {
        Ok(Some(Found::String(text) | Found::Integer(text))) => Ok(Some(text)),
        Ok(Some(Found::Other) | None) => Ok(None),
        Err(json::Ambiguous) => Err(SourceError::Ambiguous(source.clone())),
    }
}

/// What was found as a key; what is empty is not there.
pub(super) fn as_key<S: Clone>(value: Option<&str>, source: &S) -> Result<Option<Key>, SourceError<S>> {
    match value.map(Key::from_business) {
        None | Some(Err(KeyError::Empty)) => Ok(None),
        Some(Ok(key)) => Ok(Some(key)),
        Some(Err(error)) => Err(SourceError::Invalid(source.clone(), error)),
    }
}

fn path_value<'a>(name: &str, path: &'a [(&str, Cow<'_, str>)]) -> Option<Cow<'a, str>> {
    path.iter().find(|(sent, _)| *sent == name).map(|(_, segment)| Cow::Borrowed(&**segment))
}

/// Shows what there is, not what it says.
impl fmt::Debug for Sent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sent")
            .field("header", &self.header)
            .field("path", &self.path.len())
            .field("query", &self.query.map(str::len))
            .field("body", &self.body.map(<[u8]>::len))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::MAX_KEY_BYTES;

    fn sources(written: &str) -> KeySources {
        serde_json::from_str(written).unwrap()
    }

    fn resolve(written: &str, sent: &Sent<'_>) -> Result<Option<(String, bool)>, SourceError> {
        let resolved = sources(written).resolve(sent)?;
        Ok(resolved.map(|resolved| (resolved.key.as_str().to_owned(), resolved.business)))
    }

    fn key(text: &str, business: bool) -> Result<Option<(String, bool)>, SourceError> {
        Ok(Some((text.to_owned(), business)))
    }

    fn body(body: &str) -> Sent<'_> {
        Sent { body: Some(body.as_bytes()), ..Sent::default() }
    }

    fn query(query: &str) -> Sent<'_> {
        Sent { query: Some(query), ..Sent::default() }
    }

    #[test]
    fn strings_and_integers_are_one_key() {
        for no in ["42", "\"42\"", r#""\u0034\u0032""#] {
            assert_eq!(resolve(r#""body:/no""#, &body(&format!(r#"{{"no":{no}}}"#))), key("42", true), "{no}");
        }
        assert_eq!(resolve(r#""body:/no""#, &body(r#"{"no":-9007199254740993}"#)), key("-9007199254740993", true));
        assert_eq!(resolve(r#""query:no""#, &query("x=1&no=42")), key("42", true));
        let path = Sent { path: &[("shop", "7".into()), ("no", "42".into())], ..Sent::default() };
        assert_eq!(resolve(r#""path:no""#, &path), key("42", true));
    }

    #[test]
    fn what_is_missing_null_empty_or_of_another_type_is_not_present() {
        let bodies = [
            "",
            "no=42",
            "{}",
            r#"{"no":null}"#,
            r#"{"no":""}"#,
            r#"{"no":"  "}"#,
            r#"{"no":true}"#,
            r#"{"no":[42]}"#,
            r#"{"no":{}}"#,
            r#"{"no":42.0}"#,
            r#"{"no":4.2e1}"#,
            r#"{"NO":42}"#,
            r#"[{"no":42}]"#,
            r#"{"no":42"#,
        ];
        for sent in bodies.iter().map(|text| body(text)).chain([Sent::default()]) {
            assert_eq!(resolve(r#""body:/no""#, &sent), Ok(None), "{sent:?}");
        }
        for sent in ["", "no", "no=", "no=+", "NO=1", "%ff=1"] {
            assert_eq!(resolve(r#""query:no""#, &query(sent)), Ok(None), "{sent}");
        }
        let path = Sent { path: &[("other", "1".into()), ("no", "".into())], ..Sent::default() };
        assert_eq!(resolve(r#""path:no""#, &path), Ok(None));
    }

    #[test]
    fn the_first_alternative_that_is_wholly_present_wins() {
        let written = r#"[["body:/shop","body:/no"],"query:no","header"]"#;
        let header = Key::from_header(b"random").unwrap();
        let all = Sent { header: Some(&header), query: Some("no=7"), ..body(r#"{"shop":"a","no":42}"#) };
        let composite = Key::composite(&["a", "42"]);
        assert_eq!(resolve(written, &all), key(composite.as_str(), true));
        let half = Sent { body: Some(br#"{"shop":"a"}"#), ..all };
        assert_eq!(resolve(written, &half), key("7", true));
        let neither = Sent { query: None, ..half };
        assert_eq!(resolve(written, &neither), key("random", false));
        assert_eq!(resolve(written, &Sent::default()), Ok(None));
    }

    #[test]
    fn a_composite_of_one_is_the_plain_key_and_of_more_keeps_its_parts_apart() {
        let one = body(r#"{"a":"1","b":"23"}"#);
        let other = body(r#"{"a":"12","b":"3"}"#);
        assert_eq!(resolve(r#"[["body:/a"]]"#, &one), key("1", true));
        assert_ne!(resolve(r#"[["body:/a","body:/b"]]"#, &one), resolve(r#"[["body:/a","body:/b"]]"#, &other));
        let header = Key::from_header(b"random").unwrap();
        let mixed = resolve(r#"[["body:/a","header"]]"#, &Sent { header: Some(&header), ..one });
        assert_eq!(mixed, key(Key::composite(&["1", "random"]).as_str(), false));
    }

    #[test]
    fn a_value_that_gateway_and_upstream_could_read_differently_is_refused() {
        let source = |written: &str| SourceError::Ambiguous(written.parse().unwrap());
        let written = r#"["body:/no","query:no","header"]"#;
        for text in [r#"{"no":1,"no":2}"#, r#"{"no":1,"n\u006f":1}"#, r#"{"no":"\udc00"}"#] {
            assert_eq!(resolve(written, &body(text)), Err(source("body:/no")), "{text}");
        }
        for text in ["no=1&no=1", "no=1&n%6f=2", "no&no=1"] {
            assert_eq!(resolve(written, &query(text)), Err(source("query:no")), "{text}");
        }
        assert_eq!(resolve(written, &body(r#"{"no":1,"x":{"no":2,"no":3},"y":4,"y":5}"#)), key("1", true));
    }

    #[test]
    fn a_value_that_can_not_be_a_key_is_refused_and_never_passed_over() {
        let header = Key::from_header(b"random").unwrap();
        let invalid = |written: &str, error| Err(SourceError::Invalid(written.parse().unwrap(), error));
        let written = r#"["body:/no","query:no","path:no","header"]"#;
        let with = |sent| resolve(written, &Sent { header: Some(&header), ..sent });
        let long = format!(r#"{{"no":{}}}"#, "9".repeat(MAX_KEY_BYTES + 1));
        assert_eq!(with(body(&long)), invalid("body:/no", KeyError::TooLong));
        assert_eq!(with(body(r#"{"no":"4\u00002"}"#)), invalid("body:/no", KeyError::Malformed));
        assert_eq!(with(query("no=4%0A2")), invalid("query:no", KeyError::Malformed));
        assert_eq!(with(query("no=%ff")), invalid("query:no", KeyError::Malformed));
        let path = Sent { path: &[("no", "4\n2".into())], ..Sent::default() };
        assert_eq!(with(path), invalid("path:no", KeyError::Malformed));
        let composite = resolve(r#"[["body:/no","body:/b"]]"#, &body(&long.replace('}', ",\"b\":1}")));
        assert_eq!(composite, invalid("body:/no", KeyError::TooLong));
    }

    #[test]
    fn query_parameters_are_decoded_as_forms_and_segments_not_once_more() {
        assert_eq!(resolve(r#""query:order no""#, &query("order+no=a+b%2Bc%C3%A9")), key("a b+c\u{e9}", true));
        let path = Sent { path: &[("no", "a+b%2Bc".into())], ..Sent::default() };
        assert_eq!(resolve(r#""path:no""#, &path), key("a+b%2Bc", true));
    }

    #[test]
    fn errors_and_debug_tell_no_values() {
        let error = resolve(r#""query:no""#, &query("no=secret%00")).unwrap_err();
        assert!(error.to_string().starts_with("query:no: the key is"), "{error}");
        assert!(!format!("{:?}", body(r#"{"no":"secret"}"#)).contains("secret"));
    }
}
