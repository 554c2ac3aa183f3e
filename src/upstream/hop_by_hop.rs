//! Removes what belongs to one connection and must not be passed on (RFC 9110, section 7.6.1).
//!
//! Strip first, set our own fields afterwards: then no `Connection: idempotency-key` of a client can take
//! away what we add.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Fields of a connection, whether or not `Connection` names them.
const FIELDS: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Strips a message whose body is kept or was read whole: `Trailer` goes as well, since the trailers do.
pub fn strip(headers: &mut HeaderMap) {
    strip_fields(headers);
    headers.remove(header::TRAILER);
}

/// Strips a message that is streamed: `TE: trailers`, `Trailer` and an upgrade that the message asks for or
/// grants are kept, the latter two as new fields of our own connection.
pub fn strip_streamed(headers: &mut HeaderMap) {
    let trailers = mentions(headers, &header::TE, "trailers");
    let upgrade = headers.get(header::UPGRADE).filter(|_| mentions(headers, &header::CONNECTION, "upgrade")).cloned();
    strip_fields(headers);
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if let Some(upgrade) = upgrade {
        headers.insert(header::UPGRADE, upgrade);
        headers.insert(header::CONNECTION, HeaderValue::from_static(if trailers { "te, upgrade" } else { "upgrade" }));
    } else if trailers {
        headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
    }
}

fn strip_fields(headers: &mut HeaderMap) {
    // The names are collected first: they borrow the map that they are to be removed from.
    let named: Vec<HeaderName> = options(headers, &header::CONNECTION)
        .filter(|option| !is_usual(option))
        .filter_map(|option| HeaderName::from_bytes(option).ok())
        .collect();
    for name in FIELDS.iter().chain(&named) {
        headers.remove(name);
    }
}

/// Options that name no further field to remove; nearly all that are seen.
fn is_usual(option: &[u8]) -> bool {
    [&b"keep-alive"[..], b"close", b"upgrade", b"te"].iter().any(|usual| option.eq_ignore_ascii_case(usual))
}

fn mentions(headers: &HeaderMap, name: &HeaderName, option: &str) -> bool {
    options(headers, name).any(|found| found.eq_ignore_ascii_case(option.as_bytes()))
}

/// The members of a comma list that may be spread over several lines.
fn options<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).into_iter();
    lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b',')).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn fields_of_the_connection_go_and_those_of_the_message_stay() {
        let mut message = headers(&[
            ("connection", "close, X-Hop"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authenticate", "Basic"),
            ("proxy-authorization", "Basic eA=="),
            ("te", "trailers"),
            ("trailer", "x-sum"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("x-hop", "1"),
            ("authorization", "Bearer t"),
            ("content-type", "text/plain"),
        ]);
        strip(&mut message);
        assert_eq!(names(&message), ["authorization", "content-type"]);
    }

    #[test]
    fn every_line_and_spelling_of_connection_counts() {
        let mut message = HeaderMap::new();
        for line in ["X-One,,x-two ", "\tX-THREE"] {
            message.append(header::CONNECTION, HeaderValue::from_static(line));
        }
        for name in ["x-one", "x-two", "x-three", "x-four"] {
            message.append(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        strip(&mut message);
        assert_eq!(names(&message), ["x-four"]);
    }

    #[test]
    fn a_field_set_after_stripping_stays_whatever_connection_named() {
        let mut message = headers(&[("connection", "idempotency-key, oncegate-attempt"), ("idempotency-key", "mine")]);
        strip(&mut message);
        message.insert("idempotency-key", HeaderValue::from_static("derived"));
        assert_eq!(message["idempotency-key"], "derived");
        assert!(!message.contains_key(header::CONNECTION));
    }

    #[test]
    fn a_streamed_message_keeps_trailers_and_a_real_upgrade() {
        let mut message = headers(&[
            ("connection", "Upgrade, TE, x-hop"),
            ("upgrade", "websocket"),
            ("te", "gzip, trailers"),
            ("trailer", "x-sum"),
            ("x-hop", "1"),
        ]);
        strip_streamed(&mut message);
        assert_eq!(names(&message), ["connection", "te", "trailer", "upgrade"]);
        assert_eq!(message[header::CONNECTION], "te, upgrade");
        assert_eq!(message[header::TE], "trailers");
    }

    #[test]
    fn an_upgrade_field_without_its_connection_option_is_no_upgrade() {
        let mut message = headers(&[("upgrade", "websocket"), ("connection", "keep-alive"), ("te", "gzip")]);
        strip_streamed(&mut message);
        assert!(message.is_empty(), "{message:?}");
    }
}
