//! Where keys come from: a route's from its requests, a subscription's from its messages.

mod message;
mod resolve;

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use super::{Pointer, PointerError};

pub use message::{MessageSource, Said};
pub use resolve::{ResolvedKey, Sent, SourceError};

/// A kind of place that a key, or a part of one, is taken from. Its text is the configuration's.
pub trait Source: FromStr<Err = KeySourceError> + fmt::Display {
    /// Whether it is a business number, one that a new click on "pay" does not change.
    fn is_business(&self) -> bool;
}

/// One place in a request that a key, or a part of one, is taken from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeySource {
    /// `header`: the `Idempotency-Key` header.
    Header,
    /// `body:/pointer`: a string or plain integer in a JSON body.
    Body(Pointer),
    /// `query:name`: a query parameter.
    Query(Box<str>),
    /// `path:name`: a parameter of the route's path.
    Path(Box<str>),
}

/// Why a text is no key source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySourceError {
    /// None of the forms that there are.
    #[error("{0:?} is no key source: it is {1}")]
    Form(String, &'static str),
    /// A body source with a bad pointer.
    #[error("key source {0:?}: {1}")]
    Pointer(String, PointerError),
    /// No name after the colon; the whole body can't be a key either.
    #[error("key source {0:?} names nothing")]
    Nameless(String),
    /// No alternative, or one without a source.
    #[error("the list of key sources is empty")]
    Empty,
}

impl Source for KeySource {
    fn is_business(&self) -> bool {
        match self {
            Self::Header => false,
            Self::Body(_) | Self::Query(_) | Self::Path(_) => true,
        }
    }
}

/// The pointer of the source that is written as `text`.
fn pointer(text: &str, pointer: &str) -> Result<Pointer, KeySourceError> {
    Pointer::parse(pointer).map_err(|error| KeySourceError::Pointer(text.to_owned(), error))
}

impl FromStr for KeySource {
    type Err = KeySourceError;

    fn from_str(text: &str) -> Result<Self, KeySourceError> {
        match text.split_once(':') {
            None if text == "header" => Ok(Self::Header),
            Some(("body" | "query" | "path", "")) => Err(KeySourceError::Nameless(text.to_owned())),
            Some(("body", body)) => pointer(text, body).map(Self::Body),
            Some(("query", name)) => Ok(Self::Query(name.into())),
            Some(("path", name)) => Ok(Self::Path(name.into())),
            Some(_) | None => Err(KeySourceError::Form(
                text.to_owned(),
                "\"header\", \"body:/pointer\", \"query:name\" or \"path:name\"",
            )),
        }
    }
}

/// The form that the configuration has.
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("header"),
            Self::Body(pointer) => write!(f, "body:{pointer}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Path(name) => write!(f, "path:{name}"),
        }
    }
}

/// Key sources: alternatives, of which the first that is wholly present in a request (or message) wins.
///
/// In the configuration a source, or a list of sources and of lists of sources; an inner list is a
/// composite, one key of all its parts: `[["body:/shop", "body:/order_no"], "header"]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written", bound(deserialize = "S: Source"))]
pub struct KeySources<S = KeySource>(Vec<Alternative<S>>);

/// The sources of one key, in order; more than one make a composite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative<S = KeySource>(Vec<S>);

impl<S> KeySources<S> {
    /// Sources by their alternatives.
    ///
    /// # Errors
    /// If there is no alternative, or one is empty.
    pub fn new(alternatives: Vec<Vec<S>>) -> Result<Self, KeySourceError> {
        if alternatives.is_empty() || alternatives.iter().any(Vec::is_empty) {
            return Err(KeySourceError::Empty);
        }
        Ok(Self(alternatives.into_iter().map(Alternative).collect()))
    }

    /// The alternatives, the first to be tried first.
    #[must_use]
    pub fn alternatives(&self) -> &[Alternative<S>] {
        &self.0
    }
}

impl KeySources {
    /// Whether the body must have been read before a key can be resolved.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        self.0.iter().flat_map(Alternative::sources).any(|source| matches!(source, KeySource::Body(_)))
    }
}

impl<S: Source> KeySources<S> {
    /// Whether some alternative is a business number.
    #[must_use]
    pub fn is_business(&self) -> bool {
        self.0.iter().any(Alternative::is_business)
    }
}

impl<S> Alternative<S> {
    /// The parts of the key.
    #[must_use]
    pub fn sources(&self) -> &[S] {
        &self.0
    }
}

impl<S: Source> Alternative<S> {
    /// Whether the key is a business number. One with the header in it is not: the next click on "pay"
    /// makes another.
    #[must_use]
    pub fn is_business(&self) -> bool {
        self.0.iter().all(S::is_business)
    }
}

/// That source alone.
impl<S: Source> From<S> for KeySources<S> {
    fn from(source: S) -> Self {
        Self(vec![Alternative(vec![source])])
    }
}

/// One canonical spelling, a list of sources and lists: what the identity of a route's requests records.
impl<S: Source> fmt::Display for KeySources<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, alternative) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match alternative.sources() {
                [source] => write!(f, "{:?}", source.to_string())?,
                sources => write!(f, "{:?}", sources.iter().map(S::to_string).collect::<Vec<_>>())?,
            }
        }
        f.write_str("]")
    }
}

/// The configuration's form.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a key source, or a list of key sources and of lists of them")]
enum Written {
    One(String),
    List(Vec<WrittenAlternative>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a key source or a list of key sources")]
enum WrittenAlternative {
    One(String),
    Composite(Vec<String>),
}

impl<S: Source> TryFrom<Written> for KeySources<S> {
    type Error = KeySourceError;

    fn try_from(written: Written) -> Result<Self, KeySourceError> {
        let alternatives = match written {
            Written::One(source) => vec![vec![source.parse()?]],
            Written::List(alternatives) => {
                alternatives.into_iter().map(WrittenAlternative::parse).collect::<Result<_, _>>()?
            }
        };
        Self::new(alternatives)
    }
}

impl WrittenAlternative {
    fn parse<S: Source>(self) -> Result<Vec<S>, KeySourceError> {
        match self {
            Self::One(source) => Ok(vec![source.parse()?]),
            Self::Composite(sources) => sources.iter().map(|source| source.parse()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<KeySources, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn sources_are_written_as_in_the_configuration() {
        let table = [
            (r#""header""#, r#"["header"]"#),
            (r#"["body:/order_no","header"]"#, r#"["body:/order_no", "header"]"#),
            (r#"[["body:/shop","path:id"],"query:a:b"]"#, r#"[["body:/shop", "path:id"], "query:a:b"]"#),
            (r#"[["header"]]"#, r#"["header"]"#),
        ];
        for (written, shown) in table {
            let sources = parse(written).unwrap();
            assert_eq!(sources.to_string(), shown);
            assert_eq!(parse(shown), Ok(sources), "{shown}");
        }
    }

    #[test]
    fn what_is_no_source_is_told_why() {
        let table = [
            (r#""headers""#, "is no key source"),
            (r#""Header""#, "is no key source"),
            (r#""header:x-key""#, "is no key source"),
            (r#"["cookie:a"]"#, "is no key source"),
            (r#""body:order_no""#, "begins with /"),
            (r#""body:/a~""#, "~0"),
            (r#""body:""#, "names nothing"),
            (r#"[["query:"]]"#, "names nothing"),
            ("[]", "is empty"),
            (r#"["header",[]]"#, "is empty"),
            ("7", "expected a key source"),
            (r#"[[["header"]]]"#, "expected a key source"),
        ];
        for (written, reason) in table {
            let error = parse(written).unwrap_err();
            assert!(error.contains(reason), "{written}: {error}");
        }
    }

    #[test]
    fn a_key_with_the_header_in_it_is_no_business_number() {
        let table = [
            (r#""header""#, false, false),
            (r#"["header","query:no"]"#, true, false),
            (r#"["body:/no","header"]"#, true, true),
            (r#"[["body:/no","header"]]"#, false, true),
            (r#"[["body:/no","path:shop"]]"#, true, true),
        ];
        for (written, business, body) in table {
            let sources = parse(written).unwrap();
            assert_eq!((sources.is_business(), sources.needs_body()), (business, body), "{written}");
        }
    }
}
