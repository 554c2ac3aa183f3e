//! Where a subscription's keys come from: its messages.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::resolve::{as_key, in_body};
use super::{KeySourceError, KeySources, ResolvedKey, Source, SourceError, pointer};
use crate::entry::{Key, Pointer};

/// One place in a message that a key, or a part of one, is taken from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MessageSource {
    /// `body:/pointer`: a string or plain integer in its JSON data.
    Body(Pointer),
    /// `attribute:name`: an attribute of CloudEvents, or a header.
    Attribute(Box<str>),
    /// `id`: the id that its producer gave it. The last resort: a producer that tries again may give another one.
    Id,
}

/// What a message offers to its subscription's sources.
#[derive(Clone, Copy)]
pub struct Said<'a> {
    /// Its id, where it has one.
    pub id: Option<&'a str>,
    /// Its attributes and headers.
    pub attributes: &'a BTreeMap<Box<str>, Box<str>>,
    /// Its data.
    pub data: &'a [u8],
}

impl Source for MessageSource {
    fn is_business(&self) -> bool {
        match self {
            Self::Body(_) | Self::Attribute(_) => true,
            Self::Id => false,
        }
    }
}

impl KeySources<MessageSource> {
    /// The key of a message, as [`KeySources::resolve`] takes that of a request.
    ///
    /// # Errors
    /// If a source before or in the alternative that wins is ambiguous, or holds what can't be a key.
    pub fn resolve_message(&self, said: &Said<'_>) -> Result<Option<ResolvedKey>, SourceError<MessageSource>> {
        self.resolve_by(|source| source.resolve(said))
    }
}

impl MessageSource {
    /// What it leads to in a message, as a key.
    ///
    /// # Errors
    /// If it is ambiguous, or holds what can't be a key.
    pub fn resolve(&self, said: &Said<'_>) -> Result<Option<Key>, SourceError<Self>> {
        match self {
            Self::Body(pointer) => as_key(in_body(said.data, pointer, self)?.as_deref(), self),
            Self::Attribute(name) => as_key(said.attributes.get(name).map(|value| &**value), self),
            Self::Id => as_key(said.id, self),
        }
    }
}

impl FromStr for MessageSource {
    type Err = KeySourceError;

    fn from_str(text: &str) -> Result<Self, KeySourceError> {
        match text.split_once(':') {
            None if text == "id" => Ok(Self::Id),
            Some(("body" | "attribute", "")) => Err(KeySourceError::Nameless(text.to_owned())),
            Some(("body", body)) => pointer(text, body).map(Self::Body),
            Some(("attribute", name)) => Ok(Self::Attribute(name.into())),
            Some(_) | None => {
                Err(KeySourceError::Form(text.to_owned(), "\"body:/pointer\", \"attribute:name\" or \"id\""))
            }
        }
    }
}

/// The form that the configuration has.
impl fmt::Display for MessageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(pointer) => write!(f, "body:{pointer}"),
            Self::Attribute(name) => write!(f, "attribute:{name}"),
            Self::Id => f.write_str("id"),
        }
    }
}

/// Shows what there is, not what it says.
impl fmt::Debug for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Said")
            .field("id", &self.id.is_some())
            .field("attributes", &self.attributes.len())
            .field("data", &self.data.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(written: &str, said: &Said<'_>) -> Result<Option<(String, bool)>, String> {
        let sources: KeySources<MessageSource> = serde_json::from_str(written).map_err(|error| error.to_string())?;
        assert_eq!(sources.to_string(), written, "one spelling");
        let resolved = sources.resolve_message(said).map_err(|error| error.to_string())?;
        Ok(resolved.map(|resolved| (resolved.key.as_str().to_owned(), resolved.business)))
    }

    fn attributes(pairs: &[(&str, &str)]) -> BTreeMap<Box<str>, Box<str>> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn keys_come_from_data_attributes_and_at_last_the_id() {
        let attributes = attributes(&[("subject", "A-1"), ("tenant", "")]);
        let said = Said { id: Some("m-1"), attributes: &attributes, data: br#"{"no":42,"text":"42"}"# };
        let key = |text: &str, business| Ok(Some((text.to_owned(), business)));
        assert_eq!(resolve(r#"["body:/no"]"#, &said), key("42", true));
        assert_eq!(resolve(r#"["body:/text"]"#, &said), key("42", true), "a number and its text are one key");
        assert_eq!(resolve(r#"["attribute:subject"]"#, &said), key("A-1", true));
        assert_eq!(resolve(r#"["attribute:tenant", "id"]"#, &said), key("m-1", false), "empty is not there");
        assert_eq!(resolve(r#"["body:/none", "attribute:none"]"#, &said), Ok(None));
        let composite = resolve(r#"[["body:/no", "attribute:subject"]]"#, &said).unwrap().unwrap();
        assert!(composite.0.starts_with("c-") && composite.1, "{composite:?}");
        assert_eq!(resolve(r#"["id"]"#, &Said { id: None, ..said }), Ok(None));
    }

    #[test]
    fn what_can_not_be_a_key_is_never_passed_over() {
        let long = "x".repeat(256);
        let attributes = attributes(&[("a", &long)]);
        let said = Said { id: Some("a\nb"), attributes: &attributes, data: br#"{"no":1,"no":2}"# };
        for (written, told) in [
            (r#"["attribute:a", "body:/x"]"#, "longer than"),
            (r#"["body:/no"]"#, "more than once"),
            (r#"["id"]"#, "the key is neither"),
        ] {
            let error = resolve(written, &said).unwrap_err();
            assert!(error.contains(told), "{written}: {error}");
        }
    }

    #[test]
    fn what_is_no_source_of_a_message_is_told_why() {
        for (written, told) in [
            (r#"["header"]"#, "it is \"body:/pointer\", \"attribute:name\" or \"id\""),
            (r#"["path:id"]"#, "is no key source"),
            (r#"["attribute:"]"#, "names nothing"),
            (r#"["body:no"]"#, "begins with /"),
            ("[]", "is empty"),
        ] {
            let error = serde_json::from_str::<KeySources<MessageSource>>(written).unwrap_err().to_string();
            assert!(error.contains(told), "{written}: {error}");
        }
    }
}
