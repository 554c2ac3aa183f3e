//! Lanes: the parts into which a queue's events are split, each published by one relay at a time.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// The queue of events that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// How many lanes a queue has unless it is configured otherwise: as many relays can share its work.
pub const DEFAULT_LANES: NonZeroU32 = NonZeroU32::new(32).expect("not zero");

/// The number of each queue's lanes, as the store has it: it must be the same wherever events are written, or a
/// key's events would be in two lanes and lose their order.
#[derive(Debug, Clone)]
pub struct Lanes(Arc<HashMap<Box<str>, NonZeroU32>>);

/// An event goes to a queue that there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no queue called {0:?}")]
pub struct UnknownQueue(pub Box<str>);

impl Lanes {
    /// The number of lanes of `queue`.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn of(&self, queue: &str) -> Result<NonZeroU32, UnknownQueue> {
        self.0.get(queue).copied().ok_or_else(|| UnknownQueue(queue.into()))
    }
}

/// The default queue alone.
impl Default for Lanes {
    fn default() -> Self {
        Self::from_iter([(DEFAULT_QUEUE.into(), DEFAULT_LANES)])
    }
}

impl FromIterator<(Box<str>, NonZeroU32)> for Lanes {
    fn from_iter<I: IntoIterator<Item = (Box<str>, NonZeroU32)>>(queues: I) -> Self {
        Self(Arc::new(queues.into_iter().collect()))
    }
}

/// The lane, from 0, of the events that are ordered by `key`, in a queue of so many. For ever the same: events of
/// a key that changed its lane could overtake each other.
#[must_use]
pub fn lane_of(key: &str, lanes: NonZeroU32) -> u32 {
    let digest = Sha256::digest(key.as_bytes());
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) % lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keys_lane_is_stable_for_ever() {
        let lanes = |key| lane_of(key, DEFAULT_LANES);
        // SHA-256("a") begins with ca978112, of "" with e3b0c442.
        assert_eq!((lanes("a"), lanes("")), (0xca97_8112 % 32, 0xe3b0_c442 % 32));
        assert_eq!(lane_of("anything", NonZeroU32::MIN), 0);
    }

    #[test]
    fn keys_are_spread_over_all_lanes() {
        let mut hit = [0_u32; 32];
        for key in 0..3200 {
            hit[lane_of(&key.to_string(), DEFAULT_LANES) as usize] += 1;
        }
        assert!(hit.iter().all(|keys| (50..200).contains(keys)), "{hit:?}");
    }

    #[test]
    fn a_queue_that_there_is_not_has_no_lanes() {
        assert_eq!(Lanes::default().of("default"), Ok(DEFAULT_LANES));
        assert_eq!(Lanes::default().of("other"), Err(UnknownQueue("other".into())));
    }
}
