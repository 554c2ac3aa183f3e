//! Observing: what the engine would have decided, counted, with nothing altered.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Engine;
use super::arrive::{Arrival, Verdict};
use super::flights::Joined;
use super::record::Tenure;
use super::secure::Secured;
use crate::entry::Outcome;

impl Engine {
    /// Follows a request that is forwarded whatever the engine thinks of it: claims its key in the policy's
    /// namespace (which must be an observing one, so that its entries are never lent to a route that
    /// enforces), counts the decision, and records the outcome that is sent to the returned channel. The
    /// policy must hold what is unknown: looking it up, or forwarding again, is not observing.
    ///
    /// Never fails and never waits: what can't be observed is counted as such.
    pub fn observe(self: &Arc<Self>, arrival: Arrival) -> oneshot::Sender<Outcome> {
        let (told, outcome) = oneshot::channel();
        let engine = Arc::clone(self);
        self.tasks.spawn(async move {
            let route = arrival.policy.route.clone();
            let decision = engine.follow(arrival, outcome).await;
            metrics::counter!("oncegate_observed_total", "route" => String::from(route), "admission" => decision)
                .increment(1);
        });
        told
    }

    async fn follow(self: &Arc<Self>, arrival: Arrival, outcome: oneshot::Receiver<Outcome>) -> &'static str {
        if let Some(verdict) = self.known(&arrival) {
            return verdict.name();
        }
        let flight = match self.flights.join(arrival.id, &arrival.fingerprint) {
            Joined::Leading(flight) => flight,
            Joined::Following(flight) => return self.about_flight(&arrival, &flight).name(),
        };
        match self.secure(&arrival, &flight).await {
            Secured::Told(verdict) => verdict.name(),
            Secured::CommitLost(claimed) => {
                Tenure::new(Arc::clone(self), Arc::new(arrival), flight, claimed).conclude_lost(|_| {}).await;
                "held"
            }
            Secured::Won(claimed) => {
                let tenure = Tenure::new(Arc::clone(self), Arc::new(arrival), flight, claimed);
                tenure.conclude(outcome.await.unwrap_or(Outcome::Unknown), |_| {}).await;
                "execute"
            }
        }
    }
}

impl Verdict {
    /// The verdict in one word, for metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Replay { .. } => "replay",
            Self::NotKept { .. } => "not_kept",
            Self::Expired => "expired",
            Self::InProgress { .. } => "in_progress",
            Self::Mismatch => "mismatch",
            Self::Held { .. } => "held",
            Self::Unavailable(_) => "unavailable",
        }
    }
}
