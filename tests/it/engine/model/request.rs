//! What a schedule sends.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::story::End;

/// Few, so that everything meets at the same one; one for each rule at least.
pub(super) const KEYS: usize = 3;

/// A request of the schedule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) key: usize,
    pub(super) variant: &'static str,
    pub(super) wait: Duration,
    /// Whether its execution stands still between the claim and the first byte.
    pub(super) hesitates: bool,
    pub(super) end: End,
}

impl Request {
    pub(super) fn random(rng: &mut StdRng) -> Self {
        Self {
            key: rng.random_range(0..KEYS),
            variant: if rng.random_bool(0.1) { "2" } else { "1" },
            wait: if rng.random_bool(0.3) { Duration::from_millis(100) } else { Duration::ZERO },
            hesitates: rng.random_bool(0.3),
            end: End::random(rng),
        }
    }
}
