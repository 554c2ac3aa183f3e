//! The value of a mark in a store of bytes.
//!
//! Layout, integers big-endian:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 1 | format, `1` |
//! | 1 | 1 | state: `1` in progress, `2` completed |
//! | 2 | 16 | nonce |
//! | 18 | 37 | fingerprint |
//! | 55 | 8 | completed only: when the answer expires, milliseconds since the epoch |
//! | 63 | 1 | completed only: `1` if the encoded response follows, else `0` |
//! | 64 | rest | the encoded response |
//!
//! State and nonce stand before everything of variable length and keep their places in every format, so
//! that a script in the store can compare them, also while two versions of the gateway share it.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::clock::Timestamp;
use crate::engine::marks::{Mark, MarkState};
use crate::entry::{Fingerprint, Nonce, fingerprint};

const FORMAT: u8 = 1;
const IN_PROGRESS: u8 = 1;
const COMPLETED: u8 = 2;

const NONCE_LEN: usize = 16;
/// Format, state, nonce and fingerprint: all that a mark in progress has.
const HEAD_LEN: usize = 2 + NONCE_LEN + fingerprint::ENCODED_LEN;
/// When the answer expires, and whether it follows.
const COMPLETION_LEN: usize = 9;

/// The bytes are no mark that this version can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the mark is unreadable")]
pub struct Unreadable;

/// The stored form of `mark`.
#[must_use]
pub fn encode(mark: &Mark) -> Bytes {
    let mut out = BytesMut::with_capacity(encoded_len(mark));
    out.put_u8(FORMAT);
    out.put_u8(match mark.state {
        MarkState::InProgress => IN_PROGRESS,
        MarkState::Completed { .. } => COMPLETED,
    });
    out.put_slice(&mark.nonce.0);
    out.put_slice(&mark.fingerprint.encode());
    if let MarkState::Completed { expires, response } = &mark.state {
        out.put_i64(expires.0);
        out.put_u8(u8::from(response.is_some()));
        out.put_slice(response.as_deref().unwrap_or_default());
    }
    out.freeze()
}

/// The length of [`encode`]'s result in bytes.
#[must_use]
pub fn encoded_len(mark: &Mark) -> usize {
    match &mark.state {
        MarkState::InProgress => HEAD_LEN,
        MarkState::Completed { response, .. } => HEAD_LEN + COMPLETION_LEN + response.as_ref().map_or(0, Bytes::len),
    }
}

/// Reads the stored form. The response shares `encoded`'s memory.
///
/// # Errors
/// If the bytes are anything but what [`encode`] writes. Never panics, whatever the bytes.
pub fn decode(mut encoded: Bytes) -> Result<Mark, Unreadable> {
    if encoded.len() < HEAD_LEN {
        return Err(Unreadable);
    }
    let (format, state) = (encoded.get_u8(), encoded.get_u8());
    let mut nonce = Nonce([0; NONCE_LEN]);
    encoded.copy_to_slice(&mut nonce.0);
    let fingerprint = Fingerprint::decode(&encoded.split_to(fingerprint::ENCODED_LEN)).ok_or(Unreadable)?;
    let state = match (format, state) {
        (FORMAT, IN_PROGRESS) if encoded.is_empty() => MarkState::InProgress,
        (FORMAT, COMPLETED) => decode_completion(encoded)?,
        (_, _) => return Err(Unreadable),
    };
    Ok(Mark { nonce, fingerprint, state })
}

fn decode_completion(mut encoded: Bytes) -> Result<MarkState, Unreadable> {
    let expires = Timestamp(encoded.try_get_i64().map_err(|_| Unreadable)?);
    let response = match encoded.try_get_u8().map_err(|_| Unreadable)? {
        0 if encoded.is_empty() => None,
        1 => Some(encoded),
        _ => return Err(Unreadable),
    };
    Ok(MarkState::Completed { expires, response })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::fingerprint::SecretId;
    use proptest::prelude::*;

    fn mark(state: MarkState) -> Mark {
        let fingerprint = Fingerprint { version: 3, secret: SecretId([4; 4]), digest: [5; 32] };
        Mark { nonce: Nonce([7; 16]), fingerprint, state }
    }

    fn states() -> [MarkState; 4] {
        let completed = |response| MarkState::Completed { expires: Timestamp(-1), response };
        [
            MarkState::InProgress,
            completed(None),
            completed(Some(Bytes::new())),
            completed(Some(Bytes::from_static(b"\x00answer\xff"))),
        ]
    }

    #[test]
    fn every_mark_survives_and_an_empty_response_differs_from_none() {
        for mark in states().map(mark) {
            let encoded = encode(&mark);
            assert_eq!(encoded.len(), encoded_len(&mark));
            assert_eq!(decode(encoded), Ok(mark));
        }
    }

    /// The scripts in the store compare the bytes at these places.
    #[test]
    fn state_and_nonce_stand_at_fixed_places() {
        for (mark, state) in states().map(mark).iter().zip([1, 2, 2, 2]) {
            let encoded = encode(mark);
            assert_eq!(encoded[1], state);
            assert_eq!(encoded[2..18], mark.nonce.0);
        }
    }

    #[test]
    fn cut_extended_or_foreign_bytes_are_unreadable() {
        let whole = encode(&mark(MarkState::Completed { expires: Timestamp(1), response: None }));
        for end in 0..whole.len() {
            assert_eq!(decode(whole.slice(..end)), Err(Unreadable), "cut at {end}");
        }
        for state in states().into_iter().take(2) {
            let extended = [&encode(&mark(state))[..], b"x"].concat();
            assert_eq!(decode(extended.into()), Err(Unreadable));
        }
        for (place, value) in [(0, 2), (1, 0), (1, 3), (63, 2)] {
            let mut foreign = whole.to_vec();
            foreign[place] = value;
            assert_eq!(decode(foreign.into()), Err(Unreadable), "{value} at {place}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_what_encodes_to_them_or_fail(
            head in prop_oneof![Just(vec![1, 1]), Just(vec![1, 2]), any::<[u8; 2]>().prop_map(Vec::from)],
            rest in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            let bytes = Bytes::from([head, rest].concat());
            if let Ok(mark) = decode(bytes.clone()) {
                prop_assert_eq!(encode(&mark), bytes);
            }
        }
    }
}
