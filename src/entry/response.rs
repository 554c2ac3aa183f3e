//! The stored answer and its encoded form: what the ledger's row, the mark and the cache carry.
//!
//! Layout, all integers big-endian: format `1` (u8), status (u16), number of header fields (u16), per field
//! name length (u16), value length (u32), name, value; then the body to the end. Field values are bytes,
//! so one that is not UTF-8 survives.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

const FORMAT: u8 = 1;

/// Fields that belong to one exchange and not to the answer: the time and place of sending, credentials and
/// cookies of the first caller, ids and quotas of the first request, and the length, which follows from the
/// body.
const OF_THE_EXCHANGE: [HeaderName; 14] = [
    header::DATE,
    header::SERVER,
    header::VIA,
    header::ALT_SVC,
    header::CONTENT_LENGTH,
    header::SET_COOKIE,
    header::WWW_AUTHENTICATE,
    HeaderName::from_static("request-id"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-correlation-id"),
    HeaderName::from_static("x-amzn-requestid"),
    HeaderName::from_static("x-amzn-trace-id"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// Families of such fields. CORS fields speak to the origin that asked first, not to the one that asks now.
const FAMILIES_OF_THE_EXCHANGE: [&str; 4] = ["access-control-", "ratelimit", "x-ratelimit", "x-rate-limit"];

/// What a completed request answered: exactly what a replay sends again.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// The upstream's status.
    pub status: StatusCode,
    /// The header fields that are replayed; repeated ones stay repeated and in order.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub body: Bytes,
}

/// Tells no value: whatever is logged of an entry says nothing of what was paid by whom.
impl fmt::Debug for StoredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fields, bytes) = (self.headers.len(), self.body.len());
        write!(f, "StoredResponse({} with {fields} fields and {bytes} bytes)", self.status.as_u16())
    }
}

/// A stored response that can't be read: written by a newer version, or damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A format this version does not know.
    #[error("stored response has format {0}, this version reads {FORMAT}")]
    Format(u8),
    /// The bytes end early or hold an impossible value.
    #[error("stored response is damaged")]
    Damaged,
}

/// What is smaller shares its memory with the whole buffer that the connection read it into. Kept for long, a
/// copy costs less than the rest of that buffer.
const READ_BUFFER: usize = 16 * 1024;

/// The value in memory of its own.
fn owned(value: &HeaderValue) -> HeaderValue {
    let mut owned = HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone());
    owned.set_sensitive(value.is_sensitive());
    owned
}

impl StoredResponse {
    /// What is stored of an answer: without what belongs to one exchange, and without what the route
    /// `excluded`. Fields of the connection are the caller's to strip, since it knows which side they are of.
    #[must_use]
    pub fn of(status: StatusCode, headers: &HeaderMap, body: Bytes, excluded: &[HeaderName]) -> Self {
        let mut kept = HeaderMap::with_capacity(headers.len());
        for (name, value) in headers {
            if !of_the_exchange(name) && !excluded.contains(name) {
                kept.append(name.clone(), owned(value));
            }
        }
        let body = if body.len() <= READ_BUFFER { Bytes::copy_from_slice(&body) } else { body };
        Self { status, headers: kept, body }
    }

    /// An answer of `body` as JSON.
    ///
    /// # Errors
    /// If `body` can't be spelled as JSON.
    pub fn json(status: StatusCode, body: &impl serde::Serialize) -> Result<Self, serde_json::Error> {
        let body = serde_json::to_vec(body)?.into();
        let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        Ok(Self { status, headers: headers.into_iter().collect(), body })
    }

    /// The encoded form.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.encoded_len());
        out.put_u8(FORMAT);
        out.put_u16(self.status.as_u16());
        out.put_u16(u16::try_from(self.headers.len()).unwrap_or(u16::MAX));
        for (name, value) in self.headers.iter().take(usize::from(u16::MAX)) {
            out.put_u16(u16::try_from(name.as_str().len()).unwrap_or(u16::MAX));
            out.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
            out.put_slice(name.as_str().as_bytes());
            out.put_slice(value.as_bytes());
        }
        out.put_slice(&self.body);
        out.freeze()
    }

    /// The length of [`Self::encode`]'s result in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let fields: usize = self.headers.iter().map(|(name, value)| 6 + name.as_str().len() + value.len()).sum();
        5 + fields + self.body.len()
    }

    /// Reads the encoded form. The body and the header values share `encoded`'s memory.
    ///
    /// # Errors
    /// If the format is unknown or the bytes are damaged. Never panics, whatever the bytes.
    pub fn decode(mut encoded: Bytes) -> Result<Self, DecodeError> {
        let format = encoded.try_get_u8().map_err(|_| DecodeError::Damaged)?;
        if format != FORMAT {
            return Err(DecodeError::Format(format));
        }
        let status = encoded.try_get_u16().map_err(|_| DecodeError::Damaged)?;
        let status = StatusCode::from_u16(status).map_err(|_| DecodeError::Damaged)?;
        let fields = encoded.try_get_u16().map_err(|_| DecodeError::Damaged)?;
        let mut headers = HeaderMap::new();
        for _ in 0..fields {
            let (name, value) = decode_field(&mut encoded)?;
            headers.try_append(name, value).map_err(|_| DecodeError::Damaged)?;
        }
        Ok(Self { status, headers, body: encoded })
    }
}

fn of_the_exchange(name: &HeaderName) -> bool {
    OF_THE_EXCHANGE.contains(name) || FAMILIES_OF_THE_EXCHANGE.iter().any(|family| name.as_str().starts_with(family))
}

fn decode_field(encoded: &mut Bytes) -> Result<(HeaderName, HeaderValue), DecodeError> {
    let name_len = usize::from(encoded.try_get_u16().map_err(|_| DecodeError::Damaged)?);
    let value_len = encoded.try_get_u32().map_err(|_| DecodeError::Damaged)?;
    let value_len = usize::try_from(value_len).map_err(|_| DecodeError::Damaged)?;
    if encoded.remaining() < name_len.saturating_add(value_len) {
        return Err(DecodeError::Damaged);
    }
    let name = HeaderName::from_bytes(&encoded.split_to(name_len)).map_err(|_| DecodeError::Damaged)?;
    let value = HeaderValue::from_maybe_shared(encoded.split_to(value_len)).map_err(|_| DecodeError::Damaged)?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> StoredResponse {
        let mut headers = HeaderMap::new();
        headers.append("link", HeaderValue::from_static("</a>; rel=next"));
        headers.append("link", HeaderValue::from_static("</b>; rel=prev"));
        headers.append("x-name", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        StoredResponse { status: StatusCode::CREATED, headers, body: Bytes::from_static(b"\x00{\"id\":1}\xff") }
    }

    #[test]
    fn a_response_survives_byte_for_byte_with_repeated_and_non_utf8_fields() {
        let response = sample();
        let encoded = response.encode();
        assert_eq!(encoded.len(), response.encoded_len());
        assert_eq!(StoredResponse::decode(encoded), Ok(response));
    }

    #[test]
    fn what_belongs_to_one_exchange_is_not_stored_and_the_rest_is_in_order() {
        let mut headers = HeaderMap::new();
        let dropped = [
            "date",
            "set-cookie",
            "www-authenticate",
            "x-request-id",
            "request-id",
            "x-correlation-id",
            "x-amzn-requestid",
            "x-amzn-trace-id",
            "traceparent",
            "tracestate",
            "via",
            "alt-svc",
            "ratelimit",
            "ratelimit-policy",
            "x-rate-limit-remaining",
            "x-ratelimit-remaining",
            "access-control-allow-origin",
            "server",
            "content-length",
            "x-secret",
        ];
        for name in dropped {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        for (name, value) in
            [("location", "/p/1"), ("etag", "\"1\""), ("link", "</a>"), ("link", "</b>"), ("content-type", "text/x")]
        {
            headers.append(name, HeaderValue::from_static(value));
        }
        let excluded = [HeaderName::from_static("x-secret")];
        let stored = StoredResponse::of(StatusCode::CREATED, &headers, Bytes::from_static(b"x"), &excluded);
        for name in dropped {
            assert!(!stored.headers.contains_key(name), "{name}");
        }
        let links: Vec<_> = stored.headers.get_all("link").iter().collect();
        assert_eq!(links, ["</a>", "</b>"]);
        assert_eq!(stored.headers.len(), 5);
    }

    #[test]
    fn every_truncation_inside_the_head_is_an_error() {
        let encoded = sample().encode();
        let head = encoded.len() - sample().body.len();
        for end in 0..head {
            assert!(StoredResponse::decode(encoded.slice(..end)).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn an_unknown_format_is_told_apart_from_damage() {
        assert_eq!(StoredResponse::decode(Bytes::from_static(&[9, 0, 200])), Err(DecodeError::Format(9)));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail_without_panicking(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(response) = StoredResponse::decode(Bytes::from(bytes)) {
                prop_assert_eq!(StoredResponse::decode(response.encode()), Ok(response));
            }
        }
    }
}
