//! Pauses that double.

use std::time::Duration;

/// Pauses that double from `first` up to `max`, each cut by up to a half so that many who failed together do not
/// come again together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub max: Duration,
}

impl Backoff {
    /// The pause after failure number `failures`, counted from 1. `jitter` is between 0 and 1.
    #[must_use]
    pub fn pause(&self, failures: u32, jitter: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let pause = self.first.saturating_mul(1 << doublings).min(self.max);
        pause.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_secs(1) };

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses: Vec<u128> = [1, 2, 3, 4, 5, 6, u32::MAX].map(|n| BACKOFF.pause(n, 1.0).as_millis()).into();
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000, 1000]);
    }

    #[test]
    fn jitter_takes_at_most_half_of_a_pause() {
        for (jitter, millis) in [(0.0, 100), (0.5, 150), (1.0, 200), (-3.0, 100), (7.0, 200)] {
            assert_eq!(BACKOFF.pause(2, jitter).as_millis(), millis, "{jitter}");
        }
    }
}
