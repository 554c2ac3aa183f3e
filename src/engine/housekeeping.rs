//! What keeps a gateway and its ledger in order beside the requests. Each duty has a `step`, called by its
//! own loop in [`Housekeeping::run`] or by a test.
//!
//! | duty | how often | what it does |
//! |---|---|---|
//! | lease | `lease.renew` | renews the lease, expires instances that stood still |
//! | sweep | `lease.renew` | makes orphans Unknown, records the outcome of claims that were left behind |
//! | marks | a third of `mark_ttl` | extends the marks of live executions |
//! | lookups | second | asks upstreams about Unknown entries that are due |
//! | reaper | ten seconds | ends the time of entries past their retention |

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Engine, StoreError};

/// How often due lookups are looked for. Lookups themselves back off per entry.
const LOOKUPS_EVERY: Duration = Duration::from_secs(1);

/// How often expired entries are looked for; a full batch is followed by the next at once.
const REAP_EVERY: Duration = Duration::from_secs(10);

/// How long ended instances are remembered, for people who read the table after an incident.
const ENDED_INSTANCES: Duration = Duration::from_secs(7 * 86_400);

/// The duties of one gateway.
#[derive(Debug, Clone)]
pub struct Housekeeping {
    engine: Arc<Engine>,
}

impl Housekeeping {
    /// The duties around `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Does every duty in its own rhythm until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let options = self.engine.options;
        let lease = every(options.lease.renew, &stop, "lease", || self.lease_step());
        let sweep = every(options.lease.renew, &stop, "sweep", || self.sweep_step());
        let marks = every(options.mark_ttl / 3, &stop, "marks", || async {
            self.marks_step().await;
            Ok(())
        });
        let lookups = every(LOOKUPS_EVERY, &stop, "lookups", || self.lookup_step());
        let reaper = every(REAP_EVERY, &stop, "reaper", || self.reap_step());
        // Boxed: five loops with their statements are too large for one frame.
        tokio::join!(Box::pin(lease), Box::pin(sweep), Box::pin(marks), Box::pin(lookups), Box::pin(reaper));
    }

    /// Renews the lease and expires instances that stood still.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn lease_step(&self) -> Result<(), StoreError> {
        self.engine.ownership.step().await
    }

    /// Makes orphans Unknown and records what was left behind in this process.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn sweep_step(&self) -> Result<(), StoreError> {
        let engine = &self.engine;
        loop {
            let orphans = engine.ledger.orphan(engine.options.sweep_limit).await?;
            if orphans > 0 {
                tracing::warn!(orphans, "requests of a dead gateway are held as unknown");
                metrics::counter!("oncegate_orphans_total").increment(orphans);
            }
            if orphans < u64::from(engine.options.sweep_limit) {
                break;
            }
        }
        engine.resume_abandoned().await;
        engine.sweep_own(engine.options.lease.lease).await?;
        engine.ownership.forget(ENDED_INSTANCES).await
    }

    /// Extends the marks of live executions.
    pub async fn marks_step(&self) {
        self.engine.extend_marks().await;
    }

    /// Asks upstreams about the Unknown entries that are due.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn lookup_step(&self) -> Result<(), StoreError> {
        self.engine.look_up_due().await.map(drop)
    }

    /// Ends the time of entries past their retention, in bounded batches.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn reap_step(&self) -> Result<(), StoreError> {
        let limit = self.engine.options.sweep_limit;
        loop {
            let reaped = self.engine.ledger.reap(limit).await?;
            metrics::counter!("oncegate_reaped_total").increment(reaped.removed);
            if reaped.tombstoned + reaped.removed < u64::from(limit) {
                return Ok(());
            }
            // Between two batches the hot path has the store to itself.
            tokio::task::yield_now().await;
        }
    }
}

/// Calls `step` in this rhythm until `stop`. A failing step is logged once until it works again.
async fn every<F, R>(period: Duration, stop: &CancellationToken, duty: &'static str, step: F)
where
    F: Fn() -> R,
    R: Future<Output = Result<(), StoreError>>,
{
    let mut failing = false;
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        // Each step may be cut off anywhere: what it submitted is written all the same, and the next one begins anew.
        let Some(done) = stop.run_until_cancelled(step()).await else { return };
        match done {
            Ok(()) if failing => {
                tracing::info!(duty, "housekeeping works again");
                failing = false;
            }
            Err(error) if !failing => {
                tracing::error!(duty, %error, "housekeeping fails");
                failing = true;
            }
            Ok(()) | Err(_) => {}
        }
    }
}
