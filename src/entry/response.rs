//! The stored answer and its encoded form: what the ledger's row, the mark and the cache carry.
//!
//! Layout, all integers big-endian: format `1` (u8), status (u16), number of header fields (u16), per field
//! name length (u16), value length (u32), name, value; then the body to the end. Field values are bytes,
//! so one that is not UTF-8 survives.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

const FORMAT: u8 = 1;

/// What a completed request answered: exactly what a replay sends again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// The upstream's status.
    pub status: StatusCode,
    /// The header fields that are replayed; repeated ones stay repeated and in order.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub body: Bytes,
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

impl StoredResponse {
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
