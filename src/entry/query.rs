//! Query strings: `name=value` pairs joined by `&`.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// The parameters in the order sent, still encoded. A value is `None` where there is no `=`. What lies
/// empty between two `&` is no parameter.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| match pair.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (pair, None),
    })
}

/// A name or value decoded as HTML forms encode it: `+` is a space, `%XX` a byte. `None` if that is not
/// UTF-8.
pub(super) fn decode_form(encoded: &str) -> Option<String> {
    let spaced = if encoded.contains('+') { Cow::Owned(encoded.replace('+', " ")) } else { Cow::Borrowed(encoded) };
    percent_decode(spaced.as_bytes()).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_without_a_value_is_told_from_one_with_an_empty_value() {
        let all = |query| pairs(query).collect::<Vec<_>>();
        assert_eq!(all(""), []);
        assert_eq!(all("&&"), []);
        assert_eq!(all("a"), [("a", None)]);
        assert_eq!(all("a="), [("a", Some(""))]);
        assert_eq!(all("a=1=2&&b=%26"), [("a", Some("1=2")), ("b", Some("%26"))]);
    }

    #[test]
    fn plus_is_a_space_and_what_is_not_utf8_is_refused() {
        assert_eq!(decode_form("a+b%2Bc%c3%A9").as_deref(), Some("a b+c\u{e9}"));
        assert_eq!(decode_form("100%").as_deref(), Some("100%"));
        assert_eq!(decode_form("%ff"), None);
    }
}
