//! The decision for an arriving request: a pure function of the existing entry, the comparison of the
//! fingerprints and the time. Acting on it is a second step, in the engine.

use std::sync::Arc;

use super::{Answer, Comparison, Entry, Nonce, State, StoredResponse};
use crate::clock::Timestamp;

/// What an arriving request is told, given what the ledger knows of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The stored answer.
    Replay {
        /// The first answer.
        response: Arc<StoredResponse>,
        /// Until when it is kept.
        expires: Timestamp,
    },
    /// It happened, but the answer was not kept.
    NotKept {
        /// What the upstream answered with.
        status: u16,
        /// Until when even this much is kept.
        expires: Timestamp,
    },
    /// It happened longer ago than answers are kept.
    Expired,
    /// It is being executed.
    InProgress,
    /// The key belongs to another request.
    Mismatch,
    /// Nobody knows whether it happened. The nonce is what a lookup or a second forward must present.
    Held {
        /// Fences the settling against everybody else's.
        nonce: Nonce,
        /// Lookups made so far.
        lookups: u32,
        /// When the next lookup in the background is due.
        next_lookup: Option<Timestamp>,
    },
    /// The entry's time is over: forget it under this nonce, then claim anew.
    Forgotten {
        /// Fences the removal.
        nonce: Nonce,
    },
    /// The entry's fingerprint was made under a secret or a rule that this process does not have. Neither
    /// a mismatch nor a second run would be right.
    Incomparable,
}

/// Decides what a request whose key has an `entry` is told.
///
/// A mismatch is told even while the first request still runs: it can't become right by waiting.
#[must_use]
pub fn admit(entry: &Entry, comparison: Comparison, now: Timestamp) -> Admission {
    if let Some(forgotten) = forgotten(entry, now) {
        return forgotten;
    }
    match comparison {
        Comparison::Incomparable => return Admission::Incomparable,
        Comparison::Differs => return Admission::Mismatch,
        Comparison::Same => {}
    }
    match &entry.state {
        State::InProgress { .. } => Admission::InProgress,
        State::Unknown { next_lookup, lookups } => {
            Admission::Held { nonce: entry.nonce, lookups: *lookups, next_lookup: *next_lookup }
        }
        State::Completed { expires, .. } if *expires <= now => Admission::Expired,
        State::Completed { answer: Answer::Response(response), expires, .. } => {
            Admission::Replay { response: Arc::clone(response), expires: *expires }
        }
        State::Completed { answer: Answer::StatusOnly(status), expires, .. } => {
            Admission::NotKept { status: *status, expires: *expires }
        }
        State::Tombstone { .. } => Admission::Expired,
    }
}

/// An entry whose retention and tombstone are over counts as gone, whether or not the reaper has come by.
fn forgotten(entry: &Entry, now: Timestamp) -> Option<Admission> {
    let until = match &entry.state {
        State::InProgress { .. } | State::Unknown { .. } => return None,
        State::Completed { expires, tombstone_ms, .. } => Timestamp(expires.0.saturating_add((*tombstone_ms)?)),
        State::Tombstone { until } => (*until)?,
    };
    (until <= now).then_some(Admission::Forgotten { nonce: entry.nonce })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{EntryId, Fingerprint, InstanceId, fingerprint::SecretId};
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    const NOW: Timestamp = Timestamp(1_000_000);
    const NONCE: Nonce = Nonce([7; 16]);

    fn entry(state: State) -> Entry {
        Entry {
            id: EntryId([1; 32]),
            nonce: NONCE,
            origin: NONCE,
            attempt: 1,
            fingerprint: Fingerprint { version: 1, secret: SecretId([0; 4]), digest: [0; 32] },
            state,
            started_at: Timestamp(0),
            changed_at: Timestamp(0),
        }
    }

    fn completed(expires: i64, tombstone_ms: Option<i64>) -> Entry {
        let response = StoredResponse { status: StatusCode::CREATED, headers: HeaderMap::new(), body: Bytes::new() };
        entry(State::Completed {
            answer: Answer::Response(Arc::new(response)),
            expires: Timestamp(expires),
            tombstone_ms,
        })
    }

    fn in_progress() -> Entry {
        entry(State::InProgress { instance: InstanceId([2; 16]) })
    }

    fn unknown() -> Entry {
        entry(State::Unknown { next_lookup: None, lookups: 3 })
    }

    #[test]
    fn a_mismatch_is_told_in_every_state_that_remembers_the_key() {
        let tombstone = entry(State::Tombstone { until: None });
        for entry in [in_progress(), unknown(), completed(NOW.0 + 1, Some(0)), tombstone] {
            assert_eq!(admit(&entry, Comparison::Differs, NOW), Admission::Mismatch, "{entry:?}");
            assert_eq!(admit(&entry, Comparison::Incomparable, NOW), Admission::Incomparable, "{entry:?}");
        }
    }

    #[test]
    fn the_same_request_is_told_the_state() {
        assert_eq!(admit(&in_progress(), Comparison::Same, NOW), Admission::InProgress);
        let held = Admission::Held { nonce: NONCE, lookups: 3, next_lookup: None };
        assert_eq!(admit(&unknown(), Comparison::Same, NOW), held);
        assert!(matches!(admit(&completed(NOW.0 + 1, None), Comparison::Same, NOW), Admission::Replay { .. }));
        let cut = entry(State::Completed {
            answer: Answer::StatusOnly(201),
            expires: Timestamp(NOW.0 + 1),
            tombstone_ms: None,
        });
        assert_eq!(
            admit(&cut, Comparison::Same, NOW),
            Admission::NotKept { status: 201, expires: Timestamp(NOW.0 + 1) }
        );
    }

    #[test]
    fn a_completed_entry_passes_through_expired_to_forgotten_at_the_exact_millisecond() {
        let at = |expires, tombstone| admit(&completed(expires, tombstone), Comparison::Same, NOW);
        assert!(matches!(at(NOW.0 + 1, Some(10)), Admission::Replay { .. }));
        assert_eq!(at(NOW.0, Some(10)), Admission::Expired);
        assert_eq!(at(NOW.0 - 9, Some(10)), Admission::Expired);
        assert_eq!(at(NOW.0 - 10, Some(10)), Admission::Forgotten { nonce: NONCE });
        assert_eq!(at(NOW.0, Some(0)), Admission::Forgotten { nonce: NONCE });
        assert_eq!(at(0, None), Admission::Expired, "for ever is for ever");
    }

    #[test]
    fn a_forgotten_key_may_carry_another_request() {
        let gone = entry(State::Tombstone { until: Some(NOW) });
        assert_eq!(admit(&gone, Comparison::Differs, NOW), Admission::Forgotten { nonce: NONCE });
    }

    #[test]
    fn unknown_and_in_progress_never_expire() {
        let far = Timestamp(i64::MAX);
        assert_eq!(admit(&in_progress(), Comparison::Same, far), Admission::InProgress);
        assert!(matches!(admit(&unknown(), Comparison::Same, far), Admission::Held { .. }));
    }
}
