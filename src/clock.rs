//! The only place that reads a clock. Everything else takes time as an argument.
//!
//! Two kinds of time exist and are never mixed: the *database's* ([`Timestamp`], shared by every gateway
//! on it, decides leases and retention) and this process's monotonic one ([`Instant`], measures how long
//! something took here).

mod calendar;

use std::time::Duration;

pub use tokio::time::Instant;

/// Milliseconds since the Unix epoch by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This time moved on by `duration`, saturating.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// How long ago `earlier` was, zero if it is later than this time.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// `2026-03-01T12:34:56.789Z` (RFC 3339).
    #[must_use]
    pub fn rfc3339(self) -> String {
        calendar::rfc3339(self)
    }

    /// The same point in time for HTTP dates.
    #[must_use]
    pub fn to_system(self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + Duration::from_millis(u64::try_from(self.0).unwrap_or(0))
    }
}

/// Whole milliseconds of `duration` as the storage's integer, saturating.
#[must_use]
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The monotonic clock of this process. Follows tokio's paused time in tests.
#[expect(clippy::disallowed_methods, reason = "this module is where the clock is read")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// This machine's wall clock: for log lines, `Date` headers and the age of certificates, never for a
/// decision about an entry.
#[expect(clippy::disallowed_methods, reason = "this module is where the clock is read")]
#[must_use]
pub fn wall() -> Timestamp {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(millis(since_epoch.unwrap_or_default()))
}
