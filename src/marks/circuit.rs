//! When to ask a store that has failed: a pure state machine.
//!
//! | from | by | to |
//! |---|---|---|
//! | closed | the last of so many failures in a row | open |
//! | closed | success | closed, failures forgotten |
//! | open | the pause is over and somebody asks | probing, by that call alone |
//! | probing | the probe succeeds | closed |
//! | probing | the probe fails | open, for twice as long |
//! | probing | the probe is never heard of again (cancelled), a pause later | probing, by the next call |
//!
//! Calls admitted while it was closed that end later change nothing: the first to fail has told it.

use std::time::Duration;

use crate::clock::Instant;

/// When a circuit opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitOptions {
    /// Failures in a row that open it. More than one, since a single time-out under load says little.
    pub failures: u32,
    /// The first pause. Short: most outages are a restart.
    pub pause: Duration,
    /// The longest pause: how late the store's return is noticed at most.
    pub longest_pause: Duration,
}

impl Default for CircuitOptions {
    fn default() -> Self {
        Self { failures: 5, pause: Duration::from_millis(200), longest_pause: Duration::from_secs(5) }
    }
}

/// Whether the store is worth asking.
#[derive(Debug)]
pub struct Circuit {
    options: CircuitOptions,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant, pause: Duration },
    Probing { until: Instant, pause: Duration },
}

/// Leave to ask the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// As everybody.
    Normal,
    /// Alone, to see whether the store is back.
    Probe,
}

/// What a result changed; told once per outage each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// From now on the store is not asked.
    Opened,
    /// The store is back.
    Closed,
}

impl Circuit {
    /// A closed circuit.
    #[must_use]
    pub fn new(options: CircuitOptions) -> Self {
        Self { options, state: State::Closed { failures: 0 } }
    }

    /// Leave to ask the store now; `None`: don't.
    pub fn admit(&mut self, now: Instant) -> Option<Pass> {
        match self.state {
            State::Closed { .. } => Some(Pass::Normal),
            State::Open { until, pause } | State::Probing { until, pause } if until <= now => {
                self.state = State::Probing { until: now + pause, pause };
                Some(Pass::Probe)
            }
            State::Open { .. } | State::Probing { .. } => None,
        }
    }

    /// The store answered a call admitted by `pass`.
    pub fn succeeded(&mut self, pass: Pass) -> Option<Change> {
        match (self.state, pass) {
            (State::Closed { .. }, _) => {
                self.state = State::Closed { failures: 0 };
                None
            }
            (State::Open { .. } | State::Probing { .. }, Pass::Probe) => {
                self.state = State::Closed { failures: 0 };
                Some(Change::Closed)
            }
            (State::Open { .. } | State::Probing { .. }, Pass::Normal) => None,
        }
    }

    /// A call admitted by `pass` failed. `jitter`, between 0 and 1, spreads the probes of many gateways.
    pub fn failed(&mut self, pass: Pass, now: Instant, jitter: f64) -> Option<Change> {
        match (self.state, pass) {
            (State::Closed { failures }, _) if failures + 1 < self.options.failures => {
                self.state = State::Closed { failures: failures + 1 };
                None
            }
            (State::Closed { .. }, _) => {
                self.open(now, self.options.pause, jitter);
                Some(Change::Opened)
            }
            (State::Probing { pause, .. }, Pass::Probe) => {
                self.open(now, pause.saturating_mul(2).min(self.options.longest_pause), jitter);
                None
            }
            (State::Open { .. }, _) | (State::Probing { .. }, Pass::Normal) => None,
        }
    }

    /// Opens for between half of `pause` and all of it.
    fn open(&mut self, now: Instant, pause: Duration, jitter: f64) {
        let until = now + pause.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
        self.state = State::Open { until, pause };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const PAUSE: Duration = Duration::from_secs(1);
    const OPTIONS: CircuitOptions = CircuitOptions { failures: 3, pause: PAUSE, longest_pause: Duration::from_secs(3) };

    /// A circuit that has just opened.
    fn opened(now: Instant) -> Circuit {
        let mut circuit = Circuit::new(OPTIONS);
        for expected in [None, None, Some(Change::Opened)] {
            assert_eq!(circuit.admit(now), Some(Pass::Normal));
            assert_eq!(circuit.failed(Pass::Normal, now, 1.0), expected);
        }
        circuit
    }

    #[test]
    fn only_failures_in_a_row_open_it_and_it_then_refuses_for_the_pause() {
        let now = clock::now();
        let mut circuit = Circuit::new(OPTIONS);
        for _ in 0..2 {
            for _ in 0..2 {
                assert_eq!(circuit.failed(Pass::Normal, now, 1.0), None);
            }
            assert_eq!(circuit.succeeded(Pass::Normal), None);
        }
        let mut circuit = opened(now);
        assert_eq!(circuit.admit(now + PAUSE - Duration::from_millis(1)), None);
        assert_eq!(circuit.admit(now + PAUSE), Some(Pass::Probe));
    }

    #[test]
    fn one_probe_at_a_time_closes_it() {
        let now = clock::now();
        let mut circuit = opened(now);
        assert_eq!(circuit.admit(now + PAUSE), Some(Pass::Probe));
        assert_eq!(circuit.admit(now + PAUSE), None);
        assert_eq!(circuit.succeeded(Pass::Probe), Some(Change::Closed));
        assert_eq!(circuit.admit(now + PAUSE), Some(Pass::Normal));
        assert_eq!(circuit.failed(Pass::Normal, now + PAUSE, 1.0), None, "failures count anew");
    }

    #[test]
    fn each_failed_probe_doubles_the_pause_up_to_the_longest() {
        let mut now = clock::now();
        let mut circuit = opened(now);
        for pause in [1, 2, 3, 3].map(Duration::from_secs) {
            assert_eq!(circuit.admit(now + pause - Duration::from_millis(1)), None);
            now += pause;
            assert_eq!(circuit.admit(now), Some(Pass::Probe));
            assert_eq!(circuit.failed(Pass::Probe, now, 1.0), None, "told once");
        }
    }

    #[test]
    fn jitter_takes_at_most_half_of_the_pause() {
        let now = clock::now();
        let mut circuit = Circuit::new(CircuitOptions { failures: 1, ..OPTIONS });
        assert_eq!(circuit.failed(Pass::Normal, now, 0.0), Some(Change::Opened));
        assert_eq!(circuit.admit(now + PAUSE / 2 - Duration::from_millis(1)), None);
        assert_eq!(circuit.admit(now + PAUSE / 2), Some(Pass::Probe));
    }

    #[test]
    fn a_lost_probe_blocks_nobody_for_longer_than_a_pause() {
        let now = clock::now();
        let mut circuit = opened(now);
        assert_eq!(circuit.admit(now + PAUSE), Some(Pass::Probe));
        assert_eq!(circuit.admit(now + PAUSE * 2 - Duration::from_millis(1)), None);
        assert_eq!(circuit.admit(now + PAUSE * 2), Some(Pass::Probe));
    }

    #[test]
    fn calls_from_before_it_opened_change_nothing() {
        let now = clock::now();
        let mut circuit = opened(now);
        assert_eq!(circuit.succeeded(Pass::Normal), None);
        assert_eq!(circuit.failed(Pass::Normal, now + PAUSE / 2, 1.0), None);
        assert_eq!(circuit.admit(now + PAUSE), Some(Pass::Probe), "the pause is not longer");
        assert_eq!(circuit.succeeded(Pass::Normal), None);
        assert_eq!(circuit.failed(Pass::Normal, now + PAUSE, 1.0), None);
        assert_eq!(circuit.admit(now + PAUSE), None, "the probe still is out");
    }
}
