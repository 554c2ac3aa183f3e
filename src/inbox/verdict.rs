//! The decisions, without I/O: what a message is, given what is on record.

use super::message::MessageDigest;

/// What is on record of a message's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) digest: Option<MessageDigest>,
}

/// What is on record of a message's entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AppliedVersion {
    pub(crate) number: i64,
    pub(crate) digest: Option<MessageDigest>,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The first of its key, and newer than what was applied of its entity: version `previous`, if any was.
    First { previous: Option<i64> },
    /// It was handled before, and says the same.
    Duplicate,
    /// A newer version of its entity was applied.
    Stale { applied: i64 },
    /// It says something else than the one that was handled before.
    Conflict,
}

/// A message whose key is on record. Where one of the two does not say what it means, the key decides.
pub(crate) fn by_record(message: Option<MessageDigest>, recorded: Recorded) -> Verdict {
    if differs(message, recorded.digest) { Verdict::Conflict } else { Verdict::Duplicate }
}

/// A message whose key is new, by its version. Another key with the same version of the same entity is the same
/// state sent twice, unless the two say different things.
pub(crate) fn by_version(number: i64, digest: Option<MessageDigest>, applied: Option<AppliedVersion>) -> Verdict {
    match applied {
        None => Verdict::First { previous: None },
        Some(applied) if applied.number < number => Verdict::First { previous: Some(applied.number) },
        Some(applied) if applied.number > number => Verdict::Stale { applied: applied.number },
        Some(applied) => by_record(digest, Recorded { digest: applied.digest }),
    }
}

fn differs(one: Option<MessageDigest>, other: Option<MessageDigest>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<MessageDigest> = Some(MessageDigest([1; 32]));
    const B: Option<MessageDigest> = Some(MessageDigest([2; 32]));

    #[test]
    fn a_known_key_is_a_duplicate_unless_both_say_what_they_mean_and_differ() {
        for (message, digest, verdict) in [
            (A, A, Verdict::Duplicate),
            (A, B, Verdict::Conflict),
            (A, None, Verdict::Duplicate),
            (None, B, Verdict::Duplicate),
            (None, None, Verdict::Duplicate),
        ] {
            assert_eq!(by_record(message, Recorded { digest }), verdict, "{message:?} {digest:?}");
        }
    }

    #[test]
    fn versions_only_grow() {
        let applied = |number, digest| Some(AppliedVersion { number, digest });
        for (number, digest, applied, verdict) in [
            (1, A, None, Verdict::First { previous: None }),
            (3, A, applied(1, B), Verdict::First { previous: Some(1) }),
            (2, A, applied(3, A), Verdict::Stale { applied: 3 }),
            (3, A, applied(3, A), Verdict::Duplicate),
            (3, None, applied(3, A), Verdict::Duplicate),
            (3, A, applied(3, B), Verdict::Conflict),
            (i64::MIN, None, applied(i64::MAX, None), Verdict::Stale { applied: i64::MAX }),
        ] {
            assert_eq!(by_version(number, digest, applied), verdict, "{number} {applied:?}");
        }
    }
}
