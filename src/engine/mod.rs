//! The engine: admission acted upon. Both doors, HTTP and queue, lead into it.
//!
//! A request's way: [`Engine::arrive`] looks in the cache, then takes the lead for its key in this process
//! or follows whoever has it (`flights`); the leader `secure`s the entry (mark, then durable claim),
//! `execute`s, records the outcome in one commit, and only then answers. What goes wrong is
//! `settle`d later: by the late answer, by a lookup, by forwarding again, by a person.

mod arrive;
pub mod by_hand;
mod cache;
mod context;
pub mod desk;
mod emit;
mod execute;
mod flights;
mod housekeeping;
pub mod identities;
pub mod instances;
pub mod ledger;
mod left_behind;
mod marking;
pub mod marks;
mod observe;
mod ownership;
pub mod policy;
mod record;
mod secure;
mod settle;
pub mod switchboard;
pub mod switches;
mod waiters;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use arrive::{Arrival, Arrived, Reason, Recorded, Verdict};
pub use emit::OnEvents;
pub use execute::{Attempt, Executed, Late, LeaseLost};
pub use housekeeping::Housekeeping;
pub use ownership::LeaseTiming;
pub use policy::Policy;

use crate::clock::{Instant, Timestamp};
use crate::committer::Committer;
use crate::entry::fingerprint::Secrets;
use cache::Cache;
use flights::Flights;
use instances::Instances;
use ledger::{Ledger, StoreError};
use marks::Marks;
use ownership::Ownership;
use record::Abandoned;
use waiters::Waiters;

/// What the engine is built from.
#[derive(Clone)]
pub struct Parts {
    /// The truth.
    pub ledger: Arc<dyn Ledger>,
    /// Who is alive.
    pub instances: Arc<dyn Instances>,
    /// The hints.
    pub marks: Arc<dyn Marks>,
    /// Makes and compares fingerprints.
    pub secrets: Secrets,
    /// All policies by their route's name.
    pub policies: HashMap<Box<str>, Arc<Policy>>,
    /// Called after commits that carried events.
    pub on_events: OnEvents,
    /// This process's name for people.
    pub name: String,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What bounds the engine.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How leases are timed.
    pub lease: LeaseTiming,
    /// How long a mark of a running execution lasts without the watchdog. Longer: a key whose gateway died
    /// answers "processing" longer. Shorter: a slow Redis loses marks and more requests ask the database.
    pub mark_ttl: Duration,
    /// Largest answer, in encoded bytes, that a mark carries: what fits one network packet costs nothing.
    pub mark_response_limit: usize,
    /// Bytes of completed entries kept in this process.
    pub cache_bytes: u64,
    /// Requests that may wait for another's answer at once, in all.
    pub waiters: usize,
    /// How long an exchange that timed out is still listened to.
    pub late_window: Duration,
    /// Exchanges that timed out and are still listened to at once: each holds its request, and a connection to its
    /// upstream.
    pub late_answers: usize,
    /// How long an answer waits for its completion to be recorded before the caller gets it with
    /// `Oncegate-Recorded: false`.
    pub record_patience: Duration,
    /// Entries touched by one housekeeping statement.
    pub sweep_limit: u32,
    /// Lookups under way at once in the background.
    pub lookups: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease: LeaseTiming::default(),
            mark_ttl: Duration::from_secs(15),
            mark_response_limit: 4096,
            cache_bytes: 64 << 20,
            waiters: 10_000,
            late_answers: 1_000,
            late_window: Duration::from_secs(60),
            record_patience: Duration::from_secs(5),
            sweep_limit: 500,
            lookups: 16,
        }
    }
}

/// Admission acted upon: one for a process.
pub struct Engine {
    committer: Committer,
    ledger: Arc<dyn Ledger>,
    marks: Arc<dyn Marks>,
    secrets: Secrets,
    policies: HashMap<Box<str>, Arc<Policy>>,
    on_events: OnEvents,
    options: Options,
    ownership: Ownership,
    cache: Cache,
    flights: Flights,
    waiters: Waiters,
    late: Arc<Semaphore>,
    /// Claims whose task ended without an outcome; their flights stay until the sweep has recorded it.
    abandoned: Mutex<Vec<Abandoned>>,
    tasks: TaskTracker,
    /// Set when the process shuts down: from then on nothing is listened to that is already on record.
    draining: CancellationToken,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("ownership", &self.ownership).finish_non_exhaustive()
    }
}

impl Engine {
    /// Registers this process as an instance. [`Housekeeping`] must run for it to stay alive, and
    /// `committer` must run for anything to be written.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn begin(parts: Parts, committer: Committer, options: Options) -> Result<Arc<Self>, StoreError> {
        let ownership = Ownership::begin(parts.instances, parts.name, options.lease).await?;
        Ok(Arc::new(Self {
            committer,
            ledger: parts.ledger,
            marks: parts.marks,
            secrets: parts.secrets,
            policies: parts.policies,
            on_events: parts.on_events,
            options,
            ownership,
            cache: Cache::new(options.cache_bytes),
            flights: Flights::new(),
            waiters: Waiters::new(options.waiters),
            late: Arc::new(Semaphore::new(options.late_answers.min(Semaphore::MAX_PERMITS))),
            abandoned: Mutex::default(),
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
        }))
    }

    /// Whether the lease is held: part of readiness.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.ownership.lasts(Duration::ZERO)
    }

    /// Makes and compares fingerprints.
    #[must_use]
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// How leases are timed.
    #[must_use]
    pub fn lease_timing(&self) -> LeaseTiming {
        self.options.lease
    }

    /// The database's time, as far as this process can tell without asking.
    #[must_use]
    pub fn database_now(&self) -> Timestamp {
        self.ownership.database_now()
    }

    /// As [`Self::drain`], until `deadline` at most, and says in the log how it ended. Whatever is cut off becomes
    /// Unknown once the lease has run out; nothing is lost.
    pub async fn drain_until(self: &Arc<Self>, deadline: Instant) {
        match tokio::time::timeout_at(deadline, self.drain()).await {
            Ok(Ok(())) => tracing::info!("all requests have finished"),
            Ok(Err(error)) => tracing::warn!(%error, "instance could not be ended"),
            Err(_) => tracing::warn!("executions were cut off: they become unknown when the lease has run out"),
        }
    }

    /// Waits until every execution has recorded its outcome, then ends the instance: nothing can be claimed
    /// any more. Whatever is cut off by a caller that waits no longer becomes Unknown once the lease has run
    /// out.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn drain(self: &Arc<Self>) -> Result<(), StoreError> {
        self.draining.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.resume_abandoned().await;
        self.ownership.end().await?;
        // Not before: now that nothing can be claimed, what is in progress without a flight never ran.
        self.sweep_own(Duration::ZERO).await
    }
}
