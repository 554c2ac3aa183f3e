//! What a relay does beside publishing: measuring what lies in the outbox, and removing what was sent long ago.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::ledger::StoreError;
use crate::outbox::store::Outbox;

/// How often the backlog is measured: as often as metrics are usually scraped.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// Where counting stops: above it, a number says no more than "many", and counting would cost.
const MEASURE_CAP: u32 = 10_000;

/// How often sent events whose time is over are looked for; a full batch is followed by the next.
const REAP_EVERY: Duration = Duration::from_secs(10);

/// Events in one batch of the reaper: a transaction of a few milliseconds.
const REAP_LIMIT: u32 = 500;

/// Between two batches the relay has the database to itself.
const REAP_PAUSE: Duration = Duration::from_millis(20);

/// The duties around one queue. Every process does them; each is cheap when another one has just done it.
#[derive(Clone)]
pub struct Duties {
    queue: Box<str>,
    /// How many lanes the queue has.
    lanes: u32,
    outbox: Arc<dyn Outbox>,
}

impl std::fmt::Debug for Duties {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Duties").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Duties {
    /// The duties around `queue`, which has so many lanes.
    #[must_use]
    pub fn new(queue: &str, lanes: u32, outbox: Arc<dyn Outbox>) -> Self {
        Self { queue: queue.into(), lanes, outbox }
    }

    /// Does both in their own rhythm until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let measuring = async {
            let (mut ticks, mut trouble) = (every(MEASURE_EVERY), Trouble::new("the outbox was not measured"));
            loop {
                ticks.tick().await;
                trouble.note(self.measure().await.err());
            }
        };
        let reaping = async {
            let (mut ticks, mut trouble) = (every(REAP_EVERY), Trouble::new("sent events were not removed"));
            loop {
                ticks.tick().await;
                trouble.note(self.reap().await.err());
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = measuring => {}
            () = reaping => {}
        }
    }

    /// Sets the gauges.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn measure(&self) -> Result<(), StoreError> {
        let backlog = self.outbox.backlog(&self.queue, MEASURE_CAP).await?;
        let gauge =
            |name: &'static str, value: f64| metrics::gauge!(name, "queue" => String::from(&*self.queue)).set(value);
        let count = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        gauge("oncegate_outbox_unsent", count(backlog.unsent));
        gauge("oncegate_outbox_waiting", count(backlog.waiting));
        gauge("oncegate_outbox_parked", count(backlog.parked));
        gauge("oncegate_outbox_blocked_keys", count(backlog.blocking));
        gauge("oncegate_outbox_oldest_unsent_seconds", backlog.oldest.unwrap_or_default().as_secs_f64());
        Ok(())
    }

    /// Removes sent and discarded events whose time is over, in bounded batches. Says how many.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn reap(&self) -> Result<u64, StoreError> {
        let lanes: Vec<u32> = (0..self.lanes).collect();
        let mut removed = 0;
        loop {
            let batch = self.outbox.reap(&self.queue, &lanes, REAP_LIMIT).await?;
            metrics::counter!("oncegate_events_reaped_total", "queue" => String::from(&*self.queue)).increment(batch);
            removed += batch;
            if batch < u64::from(REAP_LIMIT) {
                return Ok(removed);
            }
            tokio::time::sleep(REAP_PAUSE).await;
        }
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks
}

/// A failing duty, logged once until it works again.
struct Trouble {
    text: &'static str,
    is_known: bool,
}

impl Trouble {
    fn new(text: &'static str) -> Self {
        Self { text, is_known: false }
    }

    fn note(&mut self, error: Option<StoreError>) {
        if let Some(error) = &error
            && !self.is_known
        {
            tracing::warn!(%error, "{}", self.text);
        }
        self.is_known = error.is_some();
    }
}
