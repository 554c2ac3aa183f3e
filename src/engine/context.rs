//! What a claim stores of its request, for whoever settles the entry after a crash: where the key came from, and
//! the seed of its events.
//!
//! | context | meaning |
//! |---|---|
//! | `h` or `b` | the kind of key alone: nothing is announced |
//! | `2`, `h` or `b`, a seed | both |
//! | anything else, or nothing | of another version: the kind that is remembered longer, and no seed |

use bytes::{BufMut, Bytes, BytesMut};

use super::arrive::Arrival;
use super::policy::KeyKind;
use crate::outbox::seed::Seed;

/// The version that carries a seed.
const SEEDED: u8 = b'2';

impl KeyKind {
    fn to_byte(self) -> u8 {
        match self {
            Self::Header => b'h',
            Self::Business => b'b',
        }
    }
}

/// What the claim of `arrival` stores.
pub(super) fn encode(arrival: &Arrival) -> Bytes {
    let kind = arrival.kind.to_byte();
    if arrival.policy.events.is_empty() {
        return Bytes::copy_from_slice(&[kind]);
    }
    let mut context = BytesMut::new();
    context.put_u8(SEEDED);
    context.put_u8(kind);
    arrival.seed.encode(&mut context);
    context.freeze()
}

/// What a stored context says.
pub(super) fn decode(context: Option<&Bytes>) -> (KeyKind, Option<Seed>) {
    let (kind, seed) = match context.map(|context| &context[..]) {
        Some([kind]) => (*kind, None),
        Some([SEEDED, kind, ..]) => (*kind, context.and_then(|context| Seed::decode(context.slice(2..)))),
        Some(_) | None => (b'b', None),
    };
    (if kind == b'h' { KeyKind::Header } else { KeyKind::Business }, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_of_the_first_version_stays_readable() {
        assert_eq!(decode(Some(&Bytes::from_static(b"h"))), (KeyKind::Header, None));
        assert_eq!(decode(Some(&Bytes::from_static(b"b"))), (KeyKind::Business, None));
    }

    #[test]
    fn a_context_that_can_not_be_read_counts_as_the_kind_that_is_remembered_longer() {
        for context in [None, Some(""), Some("x"), Some("h2"), Some("3h")] {
            let context = context.map(|text| Bytes::from_static(text.as_bytes()));
            assert_eq!(decode(context.as_ref()), (KeyKind::Business, None), "{context:?}");
        }
        assert_eq!(decode(Some(&Bytes::from_static(b"2hdamaged"))), (KeyKind::Header, None));
    }

    #[test]
    fn a_seed_comes_back_with_its_kind() {
        for (kind, byte) in [(KeyKind::Header, b'h'), (KeyKind::Business, b'b')] {
            let mut context = BytesMut::from(&[SEEDED, byte][..]);
            Seed::default().encode(&mut context);
            assert_eq!(decode(Some(&context.freeze())), (kind, Some(Seed::default())));
        }
    }
}
