//! Choices, taken from bytes: the same bytes make the same ones, and where they end everything is nought.

/// Bytes that are still to be used.
pub(super) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Below `most`, which is at least 1.
    pub(super) fn below(&mut self, most: usize) -> usize {
        usize::from(self.byte()) % most
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    pub(super) fn number(&mut self) -> i64 {
        let bytes = std::array::from_fn(|_| self.byte());
        i64::from_le_bytes(bytes)
    }

    /// Some of the bytes: how many, they say themselves.
    pub(super) fn some(&mut self) -> &'a [u8] {
        let length = (usize::from(self.byte()) | usize::from(self.byte()) << 8).min(self.0.len());
        let (some, rest) = self.0.split_at(length);
        self.0 = rest;
        some
    }

    /// A short text of any characters.
    pub(super) fn text(&mut self) -> String {
        let length = self.below(12);
        (0..length)
            .map(|_| match self.byte() {
                byte @ 0..=0x7f => char::from(byte),
                byte => {
                    ['\u{e9}', '\u{20ac}', '\u{1f600}', '\u{fffd}', '\u{2028}', '\u{10ffff}'][usize::from(byte) % 6]
                }
            })
            .collect()
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }
}
