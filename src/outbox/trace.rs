//! `traceparent` (W3C Trace Context): the trace that a request belongs to, carried on by its events.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderName};

/// The field that carries it.
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The length of a `traceparent` of version 00.
const LEN: usize = 55;

/// The trace of a request: the one that it was sent with, or, where it was sent with none or with what is none, a
/// new one of `fresh` random bytes that nobody samples. A wrong one is never a reason to refuse a request.
#[must_use]
pub fn traceparent(headers: &HeaderMap, fresh: [u8; 24]) -> Box<str> {
    let mut sent = headers.get_all(&TRACEPARENT).iter();
    match (sent.next(), sent.next()) {
        (Some(one), None) => parse(one.as_bytes()).unwrap_or_else(|| new(fresh)),
        (None | Some(_), _) => new(fresh),
    }
}

/// A `traceparent` of a later version is read as far as this one goes (section 3.3 of the specification).
fn parse(sent: &[u8]) -> Option<Box<str>> {
    let (known, rest) = sent.split_at_checked(LEN)?;
    let known = str::from_utf8(known).ok()?;
    let parts: Vec<&str> = known.split('-').collect();
    let [version, trace, parent, flags] = parts[..] else { return None };
    let is_hex =
        |part: &str, len| part.len() == len && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_id = |part: &str, len| is_hex(part, len) && part.bytes().any(|byte| byte != b'0');
    let is_over = rest.is_empty() || (version != "00" && rest.starts_with(b"-"));
    let is_valid = is_hex(version, 2) && version != "ff" && is_id(trace, 32) && is_id(parent, 16) && is_hex(flags, 2);
    (is_valid && is_over).then(|| format!("00-{trace}-{parent}-{flags}").into())
}

fn new(mut fresh: [u8; 24]) -> Box<str> {
    // No id is all zeros.
    fresh[15] |= 1;
    fresh[23] |= 1;
    let mut text = String::with_capacity(LEN);
    text.push_str("00-");
    for (index, byte) in fresh.iter().enumerate() {
        let dash = if index == 16 { "-" } else { "" };
        let written = write!(text, "{dash}{byte:02x}");
        debug_assert!(written.is_ok(), "a String takes every write");
    }
    text.push_str("-00");
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const FRESH: &str = "00-09090909090909090909090909090909-0909090909090909-00";

    fn of(sent: &[&str]) -> Box<str> {
        let mut headers = HeaderMap::new();
        for value in sent {
            headers.append(&TRACEPARENT, HeaderValue::from_str(value).unwrap());
        }
        traceparent(&headers, [9; 24])
    }

    #[test]
    fn a_requests_own_trace_is_kept() {
        assert_eq!(&*of(&[TRACE]), TRACE);
        let later = TRACE.replacen("00-", "cc-", 1);
        assert_eq!(&*of(&[&later]), TRACE, "a later version has the same beginning");
        assert_eq!(&*of(&[&format!("{later}-what-the-future-brings")]), TRACE);
    }

    #[test]
    fn what_is_none_is_replaced_by_a_new_one() {
        let table = [
            "",
            "00",
            &TRACE[..54],
            &format!("{TRACE}-00"),
            &format!("{TRACE}0"),
            &TRACE.to_uppercase(),
            &TRACE.replacen("00-", "ff-", 1),
            &TRACE.replace('-', "_"),
            &TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &TRACE.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &TRACE.replace("4b", "4g"),
            &"\u{e9}".repeat(30),
        ];
        for sent in table {
            assert_eq!(&*of(&[sent]), FRESH, "{sent:?}");
        }
        assert_eq!(&*of(&[]), FRESH);
        assert_eq!(&*of(&[TRACE, TRACE]), FRESH, "which one would it be?");
    }

    #[test]
    fn no_id_of_a_new_one_is_all_zeros() {
        let made = traceparent(&HeaderMap::new(), [0; 24]);
        assert_eq!(parse(made.as_bytes()), Some(made.clone()));
    }
}
