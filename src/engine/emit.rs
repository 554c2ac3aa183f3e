//! The events of an entry that is being completed, and the call that wakes whoever publishes them.

use std::fmt;
use std::sync::Arc;

use super::policy::Policy;
use crate::entry::Answer;
use crate::outbox::event::NewEvent;
use crate::outbox::rule::{Emission, Subject};

/// Called after each commit that may have carried events, so that a relay in this process need not wait for its
/// next look. Must return at once.
#[derive(Clone)]
pub struct OnEvents(Arc<dyn Fn() + Send + Sync>);

impl OnEvents {
    /// Calls `wake`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Calls `wake` as well.
    #[must_use]
    pub fn and(self, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self::new(move || {
            self.committed();
            wake();
        })
    }

    pub(super) fn committed(&self) {
        (self.0)();
    }
}

/// Nobody to be called.
impl Default for OnEvents {
    fn default() -> Self {
        Self::new(|| {})
    }
}

impl fmt::Debug for OnEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnEvents")
    }
}

/// What `policy` announces of an entry that is completed with `answer`. What could not be had is counted.
pub(super) fn events(policy: &Policy, subject: &Subject<'_>, answer: &Answer) -> Arc<[NewEvent]> {
    let Emission { events, unmet } = policy.events.emit(subject, answer);
    for (event, unmet) in unmet {
        let (route, reason) = (&policy.route, unmet.as_str());
        tracing::warn!(entry = ?subject.entry, %route, %event, reason, "event can't say all that it should");
        let labels = [("route", route.to_string()), ("event", event.to_string()), ("reason", reason.to_owned())];
        metrics::counter!("oncegate_events_unmet_total", &labels).increment(1);
    }
    events.into()
}
