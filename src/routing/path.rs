//! Paths that two servers could read differently are refused before anything is matched.

use std::borrow::Cow;

/// Why a path is refused. The text is for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ambiguous {
    /// `*`, or the authority form.
    #[error("the path does not begin with /")]
    NotAbsolute,
    /// `.` or `..`, plain or encoded, also before a `;`, where some servers cut.
    #[error("the path holds a dot segment")]
    DotSegment,
    /// `//`: some servers merge them.
    #[error("the path holds an empty segment")]
    EmptySegment,
    /// An encoded `/`, or a `\` in either spelling, which some servers take for one.
    #[error("the path holds an encoded slash or a backslash")]
    Separator,
    /// A control character in either spelling; NUL ends the string in some servers.
    #[error("the path holds a control character")]
    Control,
    /// A `%` without two hex digits, or an encoded text that is not UTF-8.
    #[error("the path's percent-encoding is invalid")]
    Encoding,
}

/// Says whether every server reads `raw_path` (as it came, without the query) in the same way. To be asked
/// before matching; what fails is answered 400.
///
/// # Errors
/// If gateway and upstream could read different paths: the upstream might then execute what another
/// route should have guarded.
pub fn check(raw_path: &str) -> Result<(), Ambiguous> {
    let mut segments = raw_path.strip_prefix('/').ok_or(Ambiguous::NotAbsolute)?.split('/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_some() {
            return Err(Ambiguous::EmptySegment);
        }
        check_segment(segment)?;
    }
    Ok(())
}

fn check_segment(segment: &str) -> Result<(), Ambiguous> {
    if !valid_escapes(segment.as_bytes()) {
        return Err(Ambiguous::Encoding);
    }
    let decoded = decode(segment).ok_or(Ambiguous::Encoding)?;
    if decoded.contains(['/', '\\']) {
        return Err(Ambiguous::Separator);
    }
    if decoded.contains(|c: char| c.is_ascii_control()) {
        return Err(Ambiguous::Control);
    }
    match decoded.split(';').next() {
        Some("." | "..") => Err(Ambiguous::DotSegment),
        Some(_) | None => Ok(()),
    }
}

fn valid_escapes(segment: &[u8]) -> bool {
    let escape = |rest: &[u8]| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit);
    segment.iter().enumerate().all(|(at, &byte)| byte != b'%' || escape(&segment[at + 1..]))
}

/// The segment's text; borrowed where nothing is encoded. `None` if it is not UTF-8: replacing what can't
/// be read would make two paths one.
pub(super) fn decode(segment: &str) -> Option<Cow<'_, str>> {
    percent_encoding::percent_decode_str(segment).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_and_encoded_paths_pass() {
        for path in ["/", "/a", "/a/", "/a%20b/c", "/caf%C3%A9", "/a..b/.c/...", "/a;v=1/b", "/100%25"] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn what_two_servers_could_read_differently_is_refused() {
        let table = [
            ("*", Ambiguous::NotAbsolute),
            ("", Ambiguous::NotAbsolute),
            ("a/b", Ambiguous::NotAbsolute),
            ("/a/./b", Ambiguous::DotSegment),
            ("/a/..", Ambiguous::DotSegment),
            ("/%2e%2E/b", Ambiguous::DotSegment),
            ("/.%2e", Ambiguous::DotSegment),
            ("/a/..;x/b", Ambiguous::DotSegment),
            ("/a/..%3bx/b", Ambiguous::DotSegment),
            ("//", Ambiguous::EmptySegment),
            ("/a//b", Ambiguous::EmptySegment),
            ("/a//", Ambiguous::EmptySegment),
            ("/a%2Fb", Ambiguous::Separator),
            ("/a%2fb", Ambiguous::Separator),
            ("/a%5Cb", Ambiguous::Separator),
            ("/a\\b", Ambiguous::Separator),
            ("/a%00b", Ambiguous::Control),
            ("/a%0d%0a", Ambiguous::Control),
            ("/a%", Ambiguous::Encoding),
            ("/a%2", Ambiguous::Encoding),
            ("/a%zz", Ambiguous::Encoding),
            ("/a%2/2f", Ambiguous::Encoding),
            ("/caf%E9", Ambiguous::Encoding),
        ];
        for (path, error) in table {
            assert_eq!(check(path), Err(error), "{path}");
        }
    }

    proptest! {
        #[test]
        fn what_passes_decodes_to_the_same_number_of_segments(path in "/[a%25eEfFcC0./;\\\\]{0,12}") {
            if check(&path).is_ok() {
                let decoded = decode(&path).unwrap();
                prop_assert_eq!(decoded.split('/').count(), path.split('/').count());
                prop_assert!(!decoded.split('/').any(|segment| segment == "." || segment == ".."));
            }
        }
    }
}
