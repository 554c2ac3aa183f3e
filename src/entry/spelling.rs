//! Spellings that end by themselves: a sequence of them can be read in one way only, so that no two
//! different sequences are the same bytes.

/// Appends `bytes`, preceded by their length.
pub(super) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends how many items follow.
pub(super) fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u64).to_be_bytes());
}
