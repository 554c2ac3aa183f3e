//! Multipart bodies by their parts (RFC 2046, section 5.1): the boundary is random and means nothing.

use crate::entry::spelling::{put, put_count};

/// Longest boundary (RFC 2046, section 5.1.1).
const MAX_BOUNDARY_BYTES: usize = 70;

/// The body is not multipart as senders write it: it counts by bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// The boundary that the parameters of a content type name (what follows the first `;`). `None` if they
/// name none or several, or if anything in them could be read in two ways.
pub(super) fn boundary(parameters: &str) -> Option<&str> {
    let mut boundary = None;
    for parameter in parameters.split(';').map(str::trim_ascii).filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=')?;
        let value = unquote(value)?;
        if name.eq_ignore_ascii_case("boundary") && boundary.replace(value).is_some() {
            return None;
        }
    }
    boundary.filter(|boundary| is_boundary(boundary))
}

/// A `;` or an escape inside quotes is refused: no boundary has one, and so it needs no parser.
fn unquote(value: &str) -> Option<&str> {
    let inside = match value.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?,
        None => value,
    };
    (!inside.contains(['"', '\\'])).then_some(inside)
}

fn is_boundary(boundary: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    (1..=MAX_BOUNDARY_BYTES).contains(&boundary.len()) && boundary.bytes().all(allowed) && !boundary.ends_with(' ')
}

/// Appends the parts of `body` in order, each as its header block and its bytes, and how many there are.
/// Nested multipart parts count by bytes.
///
/// # Errors
/// If `body` has another form than senders give it: text before the first boundary or after the last, no
/// end, a part without the empty line after its headers, or a line that only begins like the boundary.
/// Nothing is appended then.
pub(super) fn spell(body: &[u8], boundary: &str, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let parts = split(body, boundary)?;
    put_count(out, parts.len());
    for (headers, content) in parts {
        put(out, headers);
        put(out, content);
    }
    Ok(())
}

type Part<'a> = (&'a [u8], &'a [u8]);

fn split<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<Part<'a>>, Malformed> {
    let delimiter = format!("\r\n--{boundary}");
    let mut rest = body.strip_prefix(&delimiter.as_bytes()[2..]).ok_or(Malformed)?;
    let mut parts = Vec::new();
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            return if matches!(end, b"" | b"\r\n") { Ok(parts) } else { Err(Malformed) };
        }
        let part = rest.strip_prefix(b"\r\n").ok_or(Malformed)?;
        let (part, after) = split_at(part, delimiter.as_bytes())?;
        parts.push(split_part(part)?);
        rest = after;
    }
}

/// A part without headers begins with the empty line itself.
fn split_part(part: &[u8]) -> Result<Part<'_>, Malformed> {
    match part.strip_prefix(b"\r\n") {
        Some(content) => Ok((b"", content)),
        None => split_at(part, b"\r\n\r\n"),
    }
}

/// What is before and after the first `delimiter`, which begins with CR.
fn split_at<'a>(bytes: &'a [u8], delimiter: &[u8]) -> Result<(&'a [u8], &'a [u8]), Malformed> {
    let mut from = 0;
    while let Some(found) = bytes[from..].iter().position(|byte| *byte == b'\r') {
        let at = from + found;
        if let Some(after) = bytes[at..].strip_prefix(delimiter) {
            return Ok((&bytes[..at], after));
        }
        from = at + 1;
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spelled(body: &str, boundary: &str) -> Result<Vec<u8>, Malformed> {
        let mut out = Vec::new();
        spell(body.as_bytes(), boundary, &mut out).map(|()| out)
    }

    fn form(boundary: &str, parts: &[(&str, &str)]) -> String {
        let parts: String =
            parts.iter().map(|(headers, content)| format!("--{boundary}\r\n{headers}\r\n{content}\r\n")).collect();
        format!("{parts}--{boundary}--\r\n")
    }

    const A: (&str, &str) = ("Content-Disposition: form-data; name=\"a\"\r\n", "1\r\n-2");
    const B: (&str, &str) = ("", "");

    #[test]
    fn the_boundary_does_not_count_and_the_parts_and_their_order_do() {
        let one = spelled(&form("one", &[A, B]), "one");
        assert!(one.is_ok());
        assert_eq!(one, spelled(&form("--two'()+_,-./:=?", &[A, B]), "--two'()+_,-./:=?"));
        assert_eq!(one, spelled(form("one", &[A, B]).trim_end(), "one"));
        for parts in [&[B, A][..], &[A], &[A, B, B], &[(A.0, "1\r\n-3"), B], &[("X: 1\r\n", A.1), B]] {
            assert_ne!(one, spelled(&form("one", parts), "one"), "{parts:?}");
        }
    }

    #[test]
    fn what_senders_do_not_write_is_malformed() {
        let table = [
            "",
            "--b",
            "--b\r\n",
            "--b\r\n\r\nx",
            "--b\r\n\r\nx\r\n--b\r\n",
            "--b\r\nno empty line\r\n--b--",
            "--b\r\n\r\nx\r\n--bb--\r\n--b--",
            "before\r\n--b\r\n\r\nx\r\n--b--",
            "--b\r\n\r\nx\r\n--b--after",
            "--b\n\nx\n--b--",
        ];
        for body in table {
            assert_eq!(spelled(body, "b"), Err(Malformed), "{body:?}");
        }
    }

    #[test]
    fn the_boundary_is_taken_from_the_parameters_if_it_is_beyond_doubt() {
        let longest = "b".repeat(MAX_BOUNDARY_BYTES);
        let good = [
            ("boundary=b", "b"),
            (" charset=utf-8 ; BOUNDARY=\"b c\";", "b c"),
            ("boundary=--x=y", "--x=y"),
            (&format!("boundary={longest}"), &longest),
        ];
        for (parameters, expected) in good {
            assert_eq!(boundary(parameters), Some(expected), "{parameters}");
        }
        let bad = [
            "",
            "boundary",
            "boundary=",
            "boundary=\"\"",
            "boundary=\"b",
            "boundary=b\"",
            "boundary=\"b\\c\"",
            "boundary=\"b \"",
            "boundary=b; boundary=c",
            "start-info=\"x;boundary=b\"",
            "boundary=b\u{e9}",
            "boundary=\"b;c\"",
            &format!("boundary={longest}b"),
        ];
        for parameters in bad {
            assert_eq!(boundary(parameters), None, "{parameters}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_read_back_whatever_they_hold(
            contents in proptest::collection::vec("[ab\r\n-]{0,12}", 0..4), boundary in "[xy]{1,5}",
        ) {
            let parts: Vec<(&str, &str)> = contents.iter().map(|content| ("X: 1\r\n", &content[..])).collect();
            let body = form(&boundary, &parts);
            let expected: Vec<Part<'_>> = contents.iter().map(|content| (&b"X: 1"[..], content.as_bytes())).collect();
            prop_assert_eq!(split(body.as_bytes(), &boundary), Ok(expected));
        }

        #[test]
        fn any_bytes_are_split_or_refused_without_panicking(body in "(--b|\r\n|--|x|\r|\n){0,16}") {
            let refused = split(body.as_bytes(), "b").is_err();
            prop_assert!(!refused || spelled(&body, "b").is_err());
        }
    }
}
