//! Refuses heads that two readers could understand differently, as far as hyper lets us see them.
//!
//! What hyper 1.12 decides before we do (`tests/it/listener/framing.rs` holds it to this). Its answers have no
//! body and close the connection; they can't be replaced by a problem document, since hyper writes them
//! without asking the service.
//!
//! | an HTTP/1.1 client sends | it gets |
//! |---|---|
//! | different `Content-Length`s, a list, a sign or no number | bare 400 |
//! | `Transfer-Encoding` that does not end in `chunked`, or in HTTP/1.0 | bare 400 |
//! | `Content-Length` and `Transfer-Encoding: chunked` | served by its chunks; hyper drops the length, and closes after the answer (RFC 9112, section 6.3) |
//! | the same `Content-Length` twice | served; hyper keeps one |
//! | an obs-fold, NUL in a value, space before a colon, a wrong version | bare 400 |
//! | more or longer fields than the limits, or too long a target | bare 431 |
//! | a malformed chunk or a body that ends early | our answer ([`super::body::BodyError::Cut`]), if it still listens |
//! | a head that does not come in time | nothing; closed |
//!
//! In HTTP/2 a length that differs from the frames' is a stream error, and `Transfer-Encoding` is not allowed.

use http::header::{self, HeaderMap};
use http::request::Parts;
use http::{HeaderName, Version};

/// Why a head is refused. The texts are for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// The length of the body is told twice, differently, or not as a number.
    #[error("Its length is given in conflicting ways.")]
    Length,
    /// HTTP/1.1 without `Host`, or with several.
    #[error("It names no host, or several.")]
    Host,
}

/// Checks what is visible of a request's framing (RFC 9112, sections 3.2 and 6.3).
///
/// # Errors
/// If both `Transfer-Encoding` and `Content-Length` are there, if `Content-Length` values differ or are no
/// number, or if an HTTP/1.1 request has not exactly one `Host`.
pub fn check(parts: &Parts) -> Result<(), FramingError> {
    let headers = &parts.headers;
    if headers.contains_key(header::CONTENT_LENGTH)
        && (headers.contains_key(header::TRANSFER_ENCODING) || !is_one_number(headers))
    {
        return Err(FramingError::Length);
    }
    let hosts = count(headers, &header::HOST);
    if hosts > 1 || (hosts == 0 && parts.version == Version::HTTP_11) {
        return Err(FramingError::Host);
    }
    Ok(())
}

fn count(headers: &HeaderMap, name: &HeaderName) -> usize {
    headers.get_all(name).iter().count()
}

fn is_one_number(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(header::CONTENT_LENGTH).iter().map(http::HeaderValue::as_bytes);
    let Some(first) = lines.next() else { return true };
    !first.is_empty() && first.iter().all(u8::is_ascii_digit) && lines.all(|line| line == first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Request};

    fn checked(version: Version, fields: &[(&'static str, &'static str)]) -> Result<(), FramingError> {
        let mut parts = Request::builder().version(version).body(()).unwrap().into_parts().0;
        for &(name, value) in fields {
            parts.headers.append(name, HeaderValue::from_static(value));
        }
        check(&parts)
    }

    #[test]
    fn one_number_or_chunks_are_a_length() {
        for fields in [&[][..], &[("content-length", "3")], &[("content-length", "3"), ("content-length", "3")]] {
            assert_eq!(checked(Version::HTTP_2, fields), Ok(()));
        }
        assert_eq!(checked(Version::HTTP_11, &[("host", "a"), ("transfer-encoding", "chunked")]), Ok(()));
    }

    #[test]
    fn two_lengths_are_none() {
        for other in [("content-length", "4"), ("content-length", "03"), ("transfer-encoding", "chunked")] {
            assert_eq!(checked(Version::HTTP_2, &[("content-length", "3"), other]), Err(FramingError::Length));
        }
        for bad in ["", "+3", "-3", "3, 3", "0x3", "3 "] {
            let fields = [("content-length", bad)];
            assert_eq!(checked(Version::HTTP_2, &fields), Err(FramingError::Length), "{bad:?}");
        }
    }

    #[test]
    fn http_1_1_names_one_host() {
        assert_eq!(checked(Version::HTTP_11, &[]), Err(FramingError::Host));
        assert_eq!(checked(Version::HTTP_11, &[("host", "a"), ("host", "b")]), Err(FramingError::Host));
        assert_eq!(checked(Version::HTTP_10, &[]), Ok(()));
        assert_eq!(checked(Version::HTTP_2, &[]), Ok(()), "it has an authority");
    }
}
