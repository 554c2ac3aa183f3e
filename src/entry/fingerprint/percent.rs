//! Percent-encoding in one spelling (RFC 3986, section 6.2.2).

use std::borrow::Cow;

/// `text` with upper-case hex digits and with unreserved characters decoded: spellings that every reader
/// takes for the same. Reserved characters stay as they are (`/` and `%2F` differ), and so does a `%` that
/// no two hex digits follow.
pub(super) fn normalise(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut pieces = text.split('%');
    let mut normal = String::with_capacity(text.len());
    normal.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        match piece.get(..2).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            Some(hex) => {
                push(&mut normal, hex);
                normal.push_str(&piece[2..]);
            }
            None => {
                normal.push('%');
                normal.push_str(piece);
            }
        }
    }
    Cow::Owned(normal)
}

fn push(normal: &mut String, hex: &str) {
    match u8::from_str_radix(hex, 16) {
        Ok(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') => {
            normal.push(char::from(byte));
        }
        Ok(_) | Err(_) => {
            normal.push('%');
            normal.push_str(&hex.to_ascii_uppercase());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreserved_characters_are_decoded_and_hex_is_upper_case() {
        let table = [
            ("/plain", "/plain"),
            ("/%7euser/%41%2d%2E%5f", "/~user/A-._"),
            ("/a%2fb%2Fc", "/a%2Fb%2Fc"),
            ("%c3%a9", "%C3%A9"),
            ("a+b%20c%2b", "a+b%20c%2B"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%zz%%41", "%zz%A"),
            ("%+1%\u{e9}", "%+1%\u{e9}"),
            ("%2541", "%2541"),
        ];
        for (text, normal) in table {
            assert_eq!(normalise(text), normal, "{text}");
        }
    }
}
