//! Idempotency keys and the namespaces they belong to.

use std::fmt;

use super::id::{digest_parts, hex};

/// Longest key in bytes, as Stripe and the `Idempotency-Key` draft's examples have it.
pub const MAX_KEY_BYTES: usize = 255;

/// Longest namespace in bytes; it is part of every row.
pub const MAX_NAMESPACE_BYTES: usize = 64;

/// The client's key, 1 to [`MAX_KEY_BYTES`] bytes, compared byte for byte.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Box<str>);

/// Why a text is no key. The text is what the client is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing between the quotes, or only white space.
    #[error("the key is empty")]
    Empty,
    /// More than [`MAX_KEY_BYTES`] bytes. Never truncated.
    #[error("the key is longer than {MAX_KEY_BYTES} bytes")]
    TooLong,
    /// More than one header line, or a comma list.
    #[error("more than one key was sent")]
    Several,
    /// Anything else that is neither an RFC 9651 string nor plain visible ASCII.
    #[error("the key is neither a quoted string (RFC 9651) nor visible ASCII without , ; \" \\")]
    Malformed,
}

impl Key {
    /// Parses the value of an `Idempotency-Key` header: an RFC 9651 string without parameters, or unquoted
    /// visible ASCII without `, ; " \`. Both spell the same key.
    ///
    /// # Errors
    /// If the value is neither.
    pub fn from_header(value: &[u8]) -> Result<Self, KeyError> {
        let value = value.trim_ascii();
        match value.first() {
            None => Err(KeyError::Empty),
            Some(b'"') => Self::checked(unquote(&value[1..])?),
            Some(_) => Self::checked(bare(value)?),
        }
    }

    /// Takes a business number (a JSON string or integer, a query parameter, a path segment) as the key.
    ///
    /// # Errors
    /// If it is empty, too long, or holds a control character.
    pub fn from_business(value: &str) -> Result<Self, KeyError> {
        if value.trim().is_empty() {
            return Err(KeyError::Empty);
        }
        if value.chars().any(char::is_control) {
            return Err(KeyError::Malformed);
        }
        Self::checked(value.to_owned())
    }

    /// One key for several values, `c-` and the hex SHA-256 of the length-prefixed parts: no two lists of
    /// parts spell the same key.
    #[must_use]
    pub fn composite(parts: &[&str]) -> Self {
        Self(format!("c-{}", hex(&digest_parts(parts))).into())
    }

    /// The key of an idempotency token that stands for none but itself: `t-` and its id, which is short.
    #[must_use]
    pub fn of_token(id: &str) -> Self {
        Self(format!("t-{id}").into())
    }

    fn checked(key: String) -> Result<Self, KeyError> {
        if key.trim().is_empty() {
            return Err(KeyError::Empty);
        }
        if key.len() > MAX_KEY_BYTES {
            return Err(KeyError::TooLong);
        }
        Ok(Self(key.into()))
    }

    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as a structured field: an RFC 9651 string, or a display string (section 3.3.8) where it holds
    /// more than ASCII. Always visible ASCII.
    #[must_use]
    pub fn to_structured(&self) -> String {
        if self.0.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return format!("\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\""));
        }
        let mut out = String::from("%\"");
        for byte in self.0.bytes() {
            match byte {
                b'%' | b'"' | 0..=0x1f | 0x7f..=0xff => out.push_str(&format!("%{byte:02x}")),
                0x20..=0x7e => out.push(char::from(byte)),
            }
        }
        out.push('"');
        out
    }

    /// The key as unquoted text where a header can carry it so, else as [`Self::to_structured`].
    #[must_use]
    pub fn to_bare(&self) -> String {
        if bare(self.0.as_bytes()).is_ok() { self.0.to_string() } else { self.to_structured() }
    }
}

/// Shows no more than the first characters: keys are not logged in full.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.0.chars().take(4).collect();
        write!(f, "{shown}…({} bytes)", self.0.len())
    }
}

/// The inside of an RFC 9651 string whose opening quote has been read (section 4.2.5).
fn unquote(rest: &[u8]) -> Result<String, KeyError> {
    let mut key = String::with_capacity(rest.len());
    let mut bytes = rest.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => return end_of_item(bytes.as_slice()).map(|()| key),
            b'\\' => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => key.push(char::from(*escaped)),
                Some(_) | None => return Err(KeyError::Malformed),
            },
            0x20..=0x7e => key.push(char::from(byte)),
            _ => return Err(KeyError::Malformed),
        }
    }
    Err(KeyError::Malformed)
}

fn end_of_item(rest: &[u8]) -> Result<(), KeyError> {
    match rest.trim_ascii_start().first() {
        None => Ok(()),
        Some(b',') => Err(KeyError::Several),
        Some(_) => Err(KeyError::Malformed),
    }
}

fn bare(value: &[u8]) -> Result<String, KeyError> {
    if value.contains(&b',') {
        return Err(KeyError::Several);
    }
    let plain = |byte: &u8| (0x21..=0x7e).contains(byte) && !matches!(byte, b';' | b'"' | b'\\');
    if !value.iter().all(plain) {
        return Err(KeyError::Malformed);
    }
    Ok(value.iter().copied().map(char::from).collect())
}

/// What kind of operation a key belongs to. Business type and business id together are a key, never the id
/// alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(Box<str>);

/// Why a text is no namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a namespace is 1 to {MAX_NAMESPACE_BYTES} characters of a-z A-Z 0-9 . _ - (and : in reserved ones)")]
pub struct NamespaceError;

/// What the namespaces of `mode = "observe"` begin with. No configured one can.
const OBSERVED: &str = "observe:";

impl Namespace {
    /// A namespace from the configuration. `:` is kept for the reserved ones.
    ///
    /// # Errors
    /// If the name is empty, too long or holds another character.
    pub fn new(name: &str) -> Result<Self, NamespaceError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > MAX_NAMESPACE_BYTES || !name.bytes().all(plain) {
            return Err(NamespaceError);
        }
        Ok(Self(name.into()))
    }

    /// The namespace in which `mode = "observe"` keeps this one's entries, so that they are never lent to
    /// `enforce`.
    #[must_use]
    pub fn observed(&self) -> Self {
        Self(format!("{OBSERVED}{}", self.0).into())
    }

    /// Whether nothing real hangs on its entries: their requests were forwarded whatever they say.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.0.starts_with(OBSERVED)
    }

    /// A namespace as the store has it.
    #[must_use]
    pub fn from_stored(name: &str) -> Self {
        Self(name.into())
    }

    /// The namespace's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: &str) -> Result<String, KeyError> {
        Key::from_header(value.as_bytes()).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn quoted_and_bare_spell_the_same_key() {
        for spelling in ["abc-1", "\"abc-1\"", "  abc-1 ", " \"abc-1\" "] {
            assert_eq!(parse(spelling), Ok("abc-1".to_owned()), "{spelling:?}");
        }
        assert_eq!(parse(r#""a\"b\\c""#), Ok(r#"a"b\c"#.to_owned()));
        assert_eq!(parse("\"a, b; c\""), Ok("a, b; c".to_owned()));
    }

    #[test]
    fn what_is_no_key_is_told_why() {
        let table = [
            ("", KeyError::Empty),
            ("   ", KeyError::Empty),
            ("\"\"", KeyError::Empty),
            ("\"  \"", KeyError::Empty),
            ("\"", KeyError::Malformed),
            ("\"abc", KeyError::Malformed),
            ("abc\"", KeyError::Malformed),
            (r#""a\n""#, KeyError::Malformed),
            (r#""a\"#, KeyError::Malformed),
            ("\"a\";v=1", KeyError::Malformed),
            ("a;v=1", KeyError::Malformed),
            ("a b", KeyError::Malformed),
            ("a\\b", KeyError::Malformed),
            ("caf\u{e9}", KeyError::Malformed),
            ("\"caf\u{e9}\"", KeyError::Malformed),
            ("a\0b", KeyError::Malformed),
            ("a\tb", KeyError::Malformed),
            ("\"a\tb\"", KeyError::Malformed),
            ("\"a\u{7f}b\"", KeyError::Malformed),
            ("a,b", KeyError::Several),
            ("\"a\", \"b\"", KeyError::Several),
        ];
        for (value, error) in table {
            assert_eq!(parse(value), Err(error), "{value:?}");
        }
    }

    #[test]
    fn the_limit_counts_the_keys_bytes_not_the_quotes() {
        let longest = "k".repeat(MAX_KEY_BYTES);
        assert_eq!(parse(&format!("\"{longest}\"")), Ok(longest.clone()));
        assert_eq!(parse(&format!("{longest}k")), Err(KeyError::TooLong));
        assert_eq!(Key::from_business(&"\u{e9}".repeat(128)), Err(KeyError::TooLong), "bytes, not characters");
    }

    #[test]
    fn a_business_number_may_be_any_text_but_control_characters() {
        assert!(Key::from_business("Bestellung 42, \u{e9}").is_ok());
        assert_eq!(Key::from_business(" "), Err(KeyError::Empty));
        assert_eq!(Key::from_business("4\n2"), Err(KeyError::Malformed));
    }

    #[test]
    fn composites_can_not_be_shifted_into_each_other() {
        assert_ne!(Key::composite(&["a", "bc"]), Key::composite(&["ab", "c"]));
        assert_eq!(Key::composite(&["a", "bc"]), Key::composite(&["a", "bc"]));
        assert!(Key::composite(&["a", "b"]).as_str().len() <= MAX_KEY_BYTES);
    }

    #[test]
    fn a_key_is_spelled_the_way_it_is_parsed() {
        let key = Key::from_header(br#""a\"b\\c""#).unwrap();
        assert_eq!(parse(&key.to_structured()), Ok(key.as_str().to_owned()));
        assert_eq!(key.to_bare(), key.to_structured(), "no bare spelling holds quotes");
        assert_eq!(Key::from_business("order-1").unwrap().to_bare(), "order-1");
        assert_eq!(Key::from_business("f\u{fc}\"%").unwrap().to_structured(), "%\"f%c3%bc%22%25\"");
    }

    #[test]
    fn debug_shows_a_part_of_the_key_only() {
        assert_eq!(format!("{:?}", Key::from_business("secret-key-1").unwrap()), "secr…(12 bytes)");
    }

    #[test]
    fn configured_namespaces_can_not_take_a_reserved_name() {
        assert!(Namespace::new("create-payment").is_ok());
        for bad in ["", "sub:points", "observe:x", "a b", &"n".repeat(65)] {
            assert_eq!(Namespace::new(bad), Err(NamespaceError), "{bad:?}");
        }
    }
}
