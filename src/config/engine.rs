//! `[engine]`: leases, rescue and clearing away. All times run on the database's clock.

use std::num::NonZeroU32;

use serde::Deserialize;

use super::value::Period;

/// `[engine]`.
///
/// `lease - renew > upstream timeout + margin`: an execution always ends while its process's lease holds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Engine {
    /// How long a process counts as alive after its last renewal. Default 30 s: twice what an execution
    /// takes at most with the default timeouts.
    pub lease: Period,
    /// How often a process renews. Default 5 s: five renewals may fail before the lease ends.
    pub renew: Period,
    /// What a lease has to spare beyond an upstream's timeout: for the commits before and after the call,
    /// and for pauses. Default 5 s.
    pub margin: Period,
    /// How long a call that timed out is still listened to: its late answer settles the entry. Default
    /// 60 s: what most proxies in between keep a silent connection.
    pub late_answer: Period,
    /// The most calls that timed out and are listened to at a time. Default 1000: each holds its request, and a
    /// connection to an upstream that hangs. What comes on top is Unknown, and its late answer is lost.
    pub max_late_answers: NonZeroU32,
    /// How long a caller waits for a completion that can't be committed, before it gets the upstream's
    /// answer with `Oncegate-Recorded: false`. Default 5 s; the commit is tried on as long as the process
    /// lives.
    pub record_wait: Period,
    /// The most requests that wait for another's answer (`concurrent = "wait"`). Default 10000, the
    /// connections that can hold one.
    pub max_waiters: NonZeroU32,
    /// The most lookups under way at a time in the background, so that a recovering upstream is not
    /// flooded. Default 16.
    pub max_lookups: NonZeroU32,
    /// The most entries that one housekeeping statement rescues or clears away, so that no request waits
    /// for it. Default 500.
    pub sweep_limit: NonZeroU32,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            lease: Period::secs(30),
            renew: Period::secs(5),
            margin: Period::secs(5),
            late_answer: Period::secs(60),
            max_late_answers: super::at_least_one(1_000),
            record_wait: Period::secs(5),
            max_waiters: super::at_least_one(10_000),
            max_lookups: super::at_least_one(16),
            sweep_limit: super::at_least_one(500),
        }
    }
}
