//! Collects a body's pieces. One piece, the usual case, is passed on without a copy.

use bytes::{Bytes, BytesMut};

/// The pieces so far.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    first: Bytes,
    /// All pieces, once there is a second.
    all: BytesMut,
}

impl Pieces {
    pub(crate) fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }

    pub(crate) fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
            return;
        }
        if self.all.is_empty() {
            self.all.reserve(self.first.len() + piece.len());
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&piece);
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(pieces: &[&'static str]) -> Bytes {
        let mut all = Pieces::default();
        for piece in pieces {
            all.push(Bytes::from_static(piece.as_bytes()));
        }
        assert_eq!(all.len(), pieces.concat().len());
        all.into_bytes()
    }

    #[test]
    fn pieces_are_joined_in_order() {
        for pieces in [&[][..], &["a"], &["", "a"], &["a", ""], &["a", "b"], &["ab", "", "c", "d"]] {
            assert_eq!(joined(pieces), pieces.concat(), "{pieces:?}");
        }
    }

    #[test]
    fn a_single_piece_is_not_copied() {
        let piece = Bytes::from(vec![7; 100]);
        let mut all = Pieces::default();
        all.push(piece.clone());
        assert_eq!(all.into_bytes().as_ptr(), piece.as_ptr());
    }
}
