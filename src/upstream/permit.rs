//! Until when a request may be begun.

use std::fmt;
use std::sync::Arc;

use crate::clock::{self, Instant};

/// The right to begin to send a request.
///
/// A request that lies in a queue, waits for a connection, or belongs to a process that was suspended must not go out
/// after others have been told what became of it. So the right is looked at in the last moment that hyper leaves us:
/// before a connection is asked for, before it is used, and when the connection asks for the body.
#[derive(Clone)]
pub struct Permit {
    until: Instant,
    holds: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Permit {
    /// Holds until `until`.
    #[must_use]
    pub fn until(until: Instant) -> Self {
        Self::while_holds(until, || true)
    }

    /// Holds until `until` at most, and only while `holds` says so.
    #[must_use]
    pub fn while_holds(until: Instant, holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { until, holds: Arc::new(holds) }
    }

    pub(super) fn end(&self) -> Instant {
        self.until
    }

    pub(super) fn holds(&self) -> bool {
        clock::now() < self.until && (self.holds)()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("until", &self.until).finish_non_exhaustive()
    }
}
