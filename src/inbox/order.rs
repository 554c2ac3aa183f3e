//! The order of an entity's versions: a pure decision.
//!
//! | the message's version is | it is |
//! |---|---|
//! | lower than the one that was applied | stale: the handler must not see it any more |
//! | the one that was applied, and says the same | a duplicate |
//! | the one that was applied, and says something else | a conflict |
//! | the next one, or any higher one where gaps are ignored | its turn |
//! | higher than the next one, and young | early: those between may still come |
//! | higher than the next one, and has waited for long enough | its turn, or missing its predecessor for good: as configured |
//!
//! Nothing was applied to an entity that nobody has seen: its first version is 1, or 0. An entity that is older than
//! the subscription so waits once, where gaps are waited for.

use std::time::Duration;

use crate::entry::Comparison;

/// What a version means that is not the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// How long those between are waited for, from the message's arrival.
    pub wait: Duration,
    /// What then.
    pub then: AfterGap,
}

/// What becomes of a message whose predecessor did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterGap {
    /// It is its turn.
    Apply,
    /// It is dead-lettered.
    DeadLetter,
}

/// The version of an entity that was applied last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Its number.
    pub number: i64,
    /// How what the message says compares with what that one said.
    pub comparison: Comparison,
}

/// Where a message comes in the order of its entity's versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It is its turn.
    Turn,
    /// It is older than what was applied.
    Stale,
    /// It was applied.
    Duplicate,
    /// Another one of its number was applied.
    Conflict,
    /// Those before it may still come.
    Early,
    /// Those before it did not come.
    Missing,
    /// Nobody here can tell whether it was applied: the secret is missing.
    Incomparable,
}

/// Where the version `number` comes, `age` after its message's arrival.
#[must_use]
pub fn place(number: i64, applied: Option<Applied>, gap: Option<Gap>, age: Duration) -> Place {
    let last = applied.map_or(0, |applied| applied.number);
    match applied {
        Some(applied) if number < applied.number => Place::Stale,
        Some(applied) if number == applied.number => match applied.comparison {
            Comparison::Same => Place::Duplicate,
            Comparison::Differs => Place::Conflict,
            Comparison::Incomparable => Place::Incomparable,
        },
        Some(_) | None => match gap {
            Some(gap) if number > last.saturating_add(1) => after(gap, age),
            Some(_) | None => Place::Turn,
        },
    }
}

fn after(gap: Gap, age: Duration) -> Place {
    match gap.then {
        _ if age < gap.wait => Place::Early,
        AfterGap::Apply => Place::Turn,
        AfterGap::DeadLetter => Place::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(30);
    const YOUNG: Duration = Duration::from_secs(29);

    fn applied(number: i64, comparison: Comparison) -> Option<Applied> {
        Some(Applied { number, comparison })
    }

    fn gap(then: AfterGap) -> Option<Gap> {
        Some(Gap { wait: WAIT, then })
    }

    #[test]
    fn without_a_gap_to_wait_for_only_what_was_applied_counts() {
        let (same, other) = (applied(5, Comparison::Same), applied(5, Comparison::Differs));
        for (number, before, expected) in [
            (0, None, Place::Turn),
            (7, None, Place::Turn),
            (4, same, Place::Stale),
            (4, other, Place::Stale),
            (5, same, Place::Duplicate),
            (5, other, Place::Conflict),
            (5, applied(5, Comparison::Incomparable), Place::Incomparable),
            (6, same, Place::Turn),
            (i64::MAX, other, Place::Turn),
        ] {
            assert_eq!(place(number, before, None, Duration::ZERO), expected, "{number} after {before:?}");
        }
    }

    #[test]
    fn a_gap_is_waited_for_and_then_ends_as_configured() {
        let five = applied(5, Comparison::Differs);
        for then in [AfterGap::Apply, AfterGap::DeadLetter] {
            assert_eq!(place(6, five, gap(then), YOUNG), Place::Turn, "no gap");
            assert_eq!(place(7, five, gap(then), YOUNG), Place::Early);
            assert_eq!(place(4, five, gap(then), YOUNG), Place::Stale);
            assert_eq!(place(5, five, gap(then), YOUNG), Place::Conflict);
        }
        assert_eq!(place(7, five, gap(AfterGap::Apply), WAIT), Place::Turn);
        assert_eq!(place(7, five, gap(AfterGap::DeadLetter), WAIT), Place::Missing);
    }

    #[test]
    fn an_entity_that_nobody_has_seen_begins_with_nought_or_one() {
        for (number, expected) in [(0, Place::Turn), (1, Place::Turn), (2, Place::Early), (57, Place::Early)] {
            assert_eq!(place(number, None, gap(AfterGap::Apply), YOUNG), expected, "{number}");
        }
        assert_eq!(place(57, None, gap(AfterGap::Apply), WAIT), Place::Turn);
    }

    #[test]
    fn the_last_number_of_all_has_no_next_one() {
        let last = applied(i64::MAX, Comparison::Same);
        assert_eq!(place(i64::MAX, last, gap(AfterGap::Apply), YOUNG), Place::Duplicate);
        assert_eq!(place(i64::MAX, applied(i64::MAX - 1, Comparison::Same), gap(AfterGap::Apply), YOUNG), Place::Turn);
    }
}
