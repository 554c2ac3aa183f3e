//! Names of tables, columns and types, checked when the program is compiled where they stand in a constant.

/// Longest name: PostgreSQL's, the shortest of the three's.
const MAX_BYTES: usize = 63;

/// Whether `name` is a plain SQL name: letters, digits and underscores, no digit first.
pub(super) const fn is_plain(name: &str) -> bool {
    is_plain_between(name.as_bytes(), 0, name.len())
}

/// Whether `name` is a plain name, or a schema's and a table's with a dot in between.
pub(super) const fn is_table(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut dot = 0;
    while dot < bytes.len() {
        if bytes[dot] == b'.' {
            return is_plain_between(bytes, 0, dot) && is_plain_between(bytes, dot + 1, bytes.len());
        }
        dot += 1;
    }
    is_plain(name)
}

const fn is_plain_between(bytes: &[u8], start: usize, end: usize) -> bool {
    if start == end || end - start > MAX_BYTES || bytes[start].is_ascii_digit() {
        return false;
    }
    let mut place = start;
    while place < end {
        if !bytes[place].is_ascii_alphanumeric() && bytes[place] != b'_' {
            return false;
        }
        place += 1;
    }
    true
}

/// Whether two texts are the same: `==` is not for constants.
pub(super) const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut place = 0;
    while place < one.len() {
        if one[place] != other[place] {
            return false;
        }
        place += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_taken() {
        for name in ["a", "order_no", "_x", "Payments2", &"n".repeat(63)] {
            assert!(is_plain(name) && is_table(name), "{name}");
        }
        for name in ["", "1a", "a b", "a;b", "a\"", "a-b", "b\u{e9}", "a--", "x'", &"n".repeat(64)] {
            assert!(!is_plain(name) && !is_table(name), "{name}");
        }
        assert!(is_table("shop.payments") && !is_plain("shop.payments"));
        for name in [".a", "a.", "a.b.c", "a.1", "."] {
            assert!(!is_table(name), "{name}");
        }
    }

    #[test]
    fn texts_are_compared_whole() {
        assert!(is_same("paid", "paid") && is_same("", ""));
        assert!(!is_same("paid", "pai") && !is_same("paid", "paie"));
    }
}
