//! JSON pointers (RFC 6901).

use std::fmt;
use std::str::FromStr;

/// Most tokens of a pointer. Pointers may come from clients, and following one costs a stack frame per
/// token; as many levels as count by meaning are enough.
pub const MAX_POINTER_TOKENS: usize = super::json::MAX_DEPTH;

/// A JSON pointer: the way from a document's root to one value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct Pointer(Vec<Token>);

/// One step of a pointer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Token {
    /// The member's name, unescaped.
    pub(super) name: Box<str>,
    /// The element's index, where the name spells one.
    pub(super) index: Option<usize>,
}

/// Why a text is no JSON pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// It begins otherwise.
    #[error("a JSON pointer is empty or begins with /")]
    Start,
    /// `~` stands for itself nowhere.
    #[error("in a JSON pointer ~ is written ~0 and / inside a name ~1; no other ~ is allowed")]
    Escape,
    /// More than [`MAX_POINTER_TOKENS`].
    #[error("a JSON pointer has at most {MAX_POINTER_TOKENS} parts")]
    TooDeep,
}

impl Pointer {
    /// Parses the text form; the empty one points to the whole document.
    ///
    /// # Errors
    /// If the text is no pointer, or has more than [`MAX_POINTER_TOKENS`] tokens.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let tokens = text.strip_prefix('/').ok_or(PointerError::Start)?;
        let tokens: Vec<Token> =
            tokens.split('/').take(MAX_POINTER_TOKENS + 1).map(Token::parse).collect::<Result<_, _>>()?;
        if tokens.len() > MAX_POINTER_TOKENS {
            return Err(PointerError::TooDeep);
        }
        Ok(Self(tokens))
    }

    /// The pointer to the whole document.
    #[must_use]
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// The names (or indices) on the way, unescaped.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|token| &*token.name)
    }

    pub(super) fn steps(&self) -> &[Token] {
        &self.0
    }
}

impl Token {
    fn parse(text: &str) -> Result<Self, PointerError> {
        let mut name = String::with_capacity(text.len());
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            name.push(match (char, chars.as_str().as_bytes().first()) {
                ('~', Some(b'0')) => '~',
                ('~', Some(b'1')) => '/',
                ('~', _) => return Err(PointerError::Escape),
                (char, _) => char,
            });
            if char == '~' {
                chars.next();
            }
        }
        Ok(Self { index: parse_index(&name), name: name.into() })
    }
}

/// An array index has one spelling: no sign, no leading zeros.
fn parse_index(name: &str) -> Option<usize> {
    let plain = name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
    if plain { name.parse().ok() } else { None }
}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, PointerError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Pointer {
    type Error = PointerError;

    fn try_from(text: String) -> Result<Self, PointerError> {
        Self::parse(&text)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tokens().try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_pointers_of_the_rfc_are_parsed_and_shown_as_written() {
        let table: [(&str, &[&str]); 8] = [
            ("", &[]),
            ("/foo", &["foo"]),
            ("/foo/0", &["foo", "0"]),
            ("/", &[""]),
            ("/a~1b", &["a/b"]),
            ("/m~0n", &["m~n"]),
            ("/~01", &["~1"]),
            ("/caf\u{e9}/ ", &["caf\u{e9}", " "]),
        ];
        for (text, tokens) in table {
            let pointer = Pointer::parse(text).unwrap();
            assert_eq!(pointer.tokens().collect::<Vec<_>>(), tokens, "{text:?}");
            assert_eq!(pointer.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_pointer_is_told_why() {
        let table = [
            ("foo", PointerError::Start),
            ("#/foo", PointerError::Start),
            ("/a~", PointerError::Escape),
            ("/a~2", PointerError::Escape),
            ("/~~0", PointerError::Escape),
        ];
        for (text, error) in table {
            assert_eq!(Pointer::parse(text), Err(error), "{text:?}");
        }
        assert!(Pointer::parse(&"/a".repeat(MAX_POINTER_TOKENS)).is_ok());
        assert_eq!(Pointer::parse(&"/a".repeat(MAX_POINTER_TOKENS + 1)), Err(PointerError::TooDeep));
        assert_eq!(Pointer::parse(&"/".repeat(10_000_000)), Err(PointerError::TooDeep));
    }

    #[test]
    fn an_index_has_one_spelling() {
        let index = |text: &str| Pointer::parse(text).unwrap().steps()[0].index;
        assert_eq!((index("/0"), index("/10")), (Some(0), Some(10)));
        for not_one in ["/", "/00", "/01", "/-", "/-1", "/+1", "/1a", "/99999999999999999999999"] {
            assert_eq!(index(not_one), None, "{not_one}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_parses_to_the_same_pointer(text in "(/[a~/0-1é]{0,4}){0,5}") {
            if let Ok(pointer) = Pointer::parse(&text) {
                prop_assert_eq!(Pointer::parse(&pointer.to_string()), Ok(pointer));
            }
        }
    }
}
