//! Oncegate inside a Rust service: everything that [`crate::layer`] needs, set up in a few lines.
//!
//! The composition root of a service, as `server` is the gateway's.

mod inbox;

pub use inbox::InboxSetup;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::broker::Publisher;
use crate::clock;
use crate::committer::{Committer, Limits, Writers};
use crate::engine::identities::Identities as _;
use crate::engine::ledger::StoreError;
use crate::engine::{Engine, Housekeeping, OnEvents, Options, Parts};
use crate::entry::fingerprint::{Secrets, SecretsError};
use crate::entry::{Namespace, NamespaceError};
use crate::layer::{IdempotencyLayer, Operation};
use crate::marks::{self, MarksError, MarksOptions};
use crate::outbox::lane::{DEFAULT_LANES, DEFAULT_QUEUE, Lanes, UnknownQueue};
use crate::outbox::relay::{RelayOptions, Relayed, Relays, Wake, Wakes};
use crate::outbox::store::Outbox;
use crate::sealer::{Sealer, SealerError};
use crate::storage::{self, Durability, Store, StoreOptions};

/// A running engine inside a service. Dropped, it goes on; [`Self::close`] ends it.
///
/// ```
/// use axum::{Router, routing::post};
/// use oncegate::{Oncegate, layer::Operation};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", dir.path().join("shop.db").display());
/// let oncegate = Oncegate::setup(url, "a secret of 16 bytes or more").open().await?;
/// let app = Router::new()
///     .route("/orders", post(async || "created"))
///     .layer(oncegate.layer(Operation::new("create-order")?).await?);
/// // axum::serve(listener, app).with_graceful_shutdown(signal).await?;
/// # let _: Router = app;
/// oncegate.close(std::time::Duration::from_secs(30)).await;
/// # Ok(())
/// # }
/// ```
pub struct Oncegate {
    engine: Arc<Engine>,
    store: Arc<Store>,
    problems: Box<str>,
    sealer: Arc<Sealer>,
    lanes: Lanes,
    stop_housekeeping: CancellationToken,
    housekeeping: TaskTracker,
    writers: Writers,
    /// Of the queues that are relayed here, if there are any.
    relays: Option<Relays>,
}

/// What an [`Oncegate`] is made of. Made by [`Oncegate::setup`].
#[derive(Clone)]
#[must_use = "open it"]
pub struct Setup {
    store: StoreOptions,
    marks: MarksOptions,
    secrets: Vec<Vec<u8>>,
    encryption: Vec<Vec<u8>>,
    name: String,
    problems: Box<str>,
    durability: Durability,
    engine: Options,
    queues: Vec<(Box<str>, NonZeroU32)>,
    relayed: Vec<(Box<str>, Arc<dyn Publisher>, RelayOptions)>,
    on_events: OnEvents,
}

/// How long the relays may take at least to hand over what they have in hand, however long executions took.
const LAST_EVENTS: Duration = Duration::from_secs(5);

/// Why it can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The database can't be opened or migrated, or may lose a confirmed commit and
    /// [`Setup::allow_weak_durability`] does not take the risk.
    #[error("the store can't be used: {0}")]
    Store(#[from] storage::Error),
    /// The database can't be asked.
    #[error("the store can't be used: {0}")]
    StoreAsked(#[from] StoreError),
    /// The system gives no threads.
    #[error("no thread for a writer: {0}")]
    Threads(std::io::Error),
    /// The mark store's settings are wrong.
    #[error("marks: {0}")]
    Marks(#[from] MarksError),
    /// The fingerprint secrets are wrong.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    /// The encryption secrets are wrong.
    #[error(transparent)]
    Sealer(#[from] SealerError),
    /// The store has another description of what makes two requests of this namespace the same one. By the
    /// new one every old key would be new, and every retry executed again. Put it back, or
    /// [`accept`](Oncegate::accept_identity) the change.
    #[error("namespace {namespace} is recorded with {recorded:?}, and is now described as {described:?}")]
    Identity {
        /// Whose requests would change their identity.
        namespace: Namespace,
        /// What the store has.
        recorded: String,
        /// What the operation says.
        described: String,
    },
    /// A handler's time-out is too long for the lease.
    #[error("a handler with its margin may take {budget:?}, and the lease vouches for {vouched:?} only")]
    Timeout {
        /// What the operation needs.
        budget: Duration,
        /// What the lease leaves between two renewals.
        vouched: Duration,
    },
    /// A consumer's name is none.
    #[error("a consumer's name: {0}")]
    Consumer(#[from] NamespaceError),
    /// An event of an operation goes to a queue that was not [named](Setup::queue).
    #[error(transparent)]
    Queue(#[from] UnknownQueue),
}

impl Oncegate {
    /// Begins a setup on the database that `store` names (`sqlite://path`, `postgres://…`, `mysql://…`): the
    /// service's own, where handlers are to finish entries in their own transactions. The tables are made at
    /// [`Setup::open`].
    ///
    /// `secret` keys the stored fingerprints, so that they tell nothing of the bodies; at least 16 bytes, and
    /// the same in all processes.
    pub fn setup(store: impl Into<String>, secret: impl Into<Vec<u8>>) -> Setup {
        Setup {
            store: StoreOptions::new(store),
            marks: MarksOptions::default(),
            secrets: vec![secret.into()],
            encryption: Vec::new(),
            name: format!("pid {}", std::process::id()),
            problems: "/problems/".into(),
            durability: Durability::Demanded,
            engine: Options::default(),
            queues: vec![(DEFAULT_QUEUE.into(), DEFAULT_LANES)],
            relayed: Vec::new(),
            on_events: OnEvents::default(),
        }
    }

    /// The layer that guards one kind of operation. Records what gives its requests their identity, the first
    /// time.
    ///
    /// # Errors
    /// If the record says something else, the handler's time is too long for the lease, an event goes to a queue
    /// that there is not, or the store can't be asked.
    pub async fn layer(&self, operation: Operation) -> Result<IdempotencyLayer, SetupError> {
        let timing = self.engine.lease_timing();
        let (budget, vouched) = (operation.budget(), timing.lease.saturating_sub(timing.renew));
        if budget >= vouched {
            return Err(SetupError::Timeout { budget, vouched });
        }
        let described = operation.identity();
        let recorded = self.store.record_new(operation.namespace(), &described).await?.description;
        if recorded != described {
            return Err(SetupError::Identity { namespace: operation.namespace().clone(), recorded, described });
        }
        let (engine, lanes) = (Arc::clone(&self.engine), self.lanes.clone());
        Ok(IdempotencyLayer::new(engine, operation, lanes, self.problems.clone(), Arc::clone(&self.sealer))?)
    }

    /// Takes `operation`'s description of identity in place of the recorded one, and why: from now on, old
    /// keys of other descriptions are new.
    ///
    /// # Errors
    /// If the store can't be asked.
    pub async fn accept_identity(&self, operation: &Operation, reason: &str) -> Result<(), StoreError> {
        self.store.accept(operation.namespace(), &operation.identity(), reason).await
    }

    /// Whether requests can be executed now: the lease is held, and the store takes writes.
    pub async fn is_ready(&self) -> bool {
        self.engine.is_alive() && self.store.ping().await.is_ok()
    }

    /// Waits, at most for `patience`, until every execution has recorded its outcome, then ends this
    /// instance. Call it when no more requests come. What is cut off becomes Unknown once the lease has run
    /// out; nothing is lost.
    ///
    /// The relays come last: they publish what they have in hand, and let others have the rest at once. What they
    /// are cut off from is published again when their lease has run out.
    pub async fn close(self, patience: Duration) {
        let end = clock::now() + patience;
        self.engine.drain_until(end).await;
        if let Some(relays) = self.relays
            && tokio::time::timeout_at(end.max(clock::now() + LAST_EVENTS), relays.end()).await.is_err()
        {
            tracing::warn!("relays were cut off: what they had in hand is published again when their lease is over");
        }
        self.stop_housekeeping.cancel();
        self.housekeeping.close();
        self.housekeeping.wait().await;
        self.writers.end().await;
        self.store.close().await;
    }
}

impl Setup {
    /// How the store is used, in place of the defaults. Keeps the URL that these options have.
    pub fn store(mut self, options: StoreOptions) -> Self {
        self.store = options;
        self
    }

    /// Which marks are used. Default: this process's memory. With several processes, a Redis in front of the
    /// database saves it the questions that retries would ask; it decides nothing.
    pub fn marks(mut self, options: MarksOptions) -> Self {
        self.marks = options;
        self
    }

    /// A fingerprint secret used before: entries made under it still compare.
    pub fn older_secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secrets.push(secret.into());
        self
    }

    /// Seals what is stored of bodies and headers (answers, what events need of requests, events themselves) under a
    /// key that is made of `secret`, of at least 32 bytes; keys, names and ids stay in the clear. Called again, it adds
    /// a secret that was used before, which opens what it has sealed. Default: nothing is sealed.
    pub fn seal_under(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.encryption.push(secret.into());
        self
    }

    /// What people see of this process in the store. Default: its process id.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Where a problem's `type` leads to, with a slash at its end. Default: `/problems/`.
    pub fn problems(mut self, base: impl Into<Box<str>>) -> Self {
        self.problems = base.into();
        self
    }

    /// Runs on a database that may lose a confirmed commit, and logs it: for tests and toys.
    pub fn allow_weak_durability(mut self) -> Self {
        self.durability = Durability::WeakAllowed;
        self
    }

    /// What bounds the engine.
    pub fn engine(mut self, options: Options) -> Self {
        self.engine = options;
        self
    }

    /// A queue that events may go to, besides the default one, or that one with another number of lanes: as many
    /// as wherever it is relayed, whose database has the number. Where a gateway relays it, it has it in its
    /// configuration under the same name.
    pub fn queue(mut self, name: impl Into<Box<str>>, lanes: NonZeroU32) -> Self {
        self.queues.push((name.into(), lanes));
        self
    }

    /// Relays the events of `queue` in this process: they are published by `publisher`, at least once, in order per
    /// key, and called sent after its confirm. Processes that relay the same queue share its work; one of them is
    /// enough, which may be a gateway. Without any, events wait in the database.
    ///
    /// `examples/orders.rs` shows it with a webhook; any [`Publisher`] will do.
    pub fn relay(self, queue: impl Into<Box<str>>, publisher: Arc<dyn Publisher>) -> Self {
        self.relay_with(queue, publisher, RelayOptions::default())
    }

    /// As [`Self::relay`], with other bounds and times than the defaults.
    pub fn relay_with(
        mut self,
        queue: impl Into<Box<str>>,
        publisher: Arc<dyn Publisher>,
        options: RelayOptions,
    ) -> Self {
        self.relayed.push((queue.into(), publisher, options));
        self
    }

    /// What is called after commits that may have carried events, to wake a relay of the service's own. Those of
    /// [`Self::relay`] need none; others find them when they look next.
    pub fn on_events(mut self, wake: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_events = OnEvents::new(wake);
        self
    }

    /// Opens the store, brings its schema up to date, and begins an instance.
    ///
    /// # Errors
    /// If anything can't be used. A mark store that is down is no reason.
    pub async fn open(self) -> Result<Oncegate, SetupError> {
        let secrets = Secrets::new(self.secrets)?;
        let sealer = Arc::new(Sealer::new(&self.encryption)?);
        let marks = marks::connect(&MarksOptions { sealer: Arc::clone(&sealer), ..self.marks })?;
        let options = StoreOptions { sealer: Arc::clone(&sealer), ..self.store };
        let store = Store::ready(&options, Duration::ZERO, self.durability).await?;
        store.tell_missing_keys().await?;
        let outbox: Arc<dyn Outbox> = store.clone();
        let (lanes, relayed) = open_queues(&outbox, self.queues, self.relayed).await?;
        let wakes = Wakes::default();
        let woken: Vec<Wake> = relayed.iter().map(|relayed| wakes.of(&relayed.queue)).collect();
        let committer = Committer::new(store.clone(), Limits::default());
        let writers = Writers::start(&committer, options.writers).map_err(SetupError::Threads)?;
        let parts = Parts {
            ledger: store.clone(),
            instances: store.clone(),
            marks,
            secrets,
            policies: std::collections::HashMap::new(),
            on_events: self.on_events.and(move || woken.iter().for_each(Wake::committed)),
            name: self.name,
        };
        let engine = Engine::begin(parts, committer, self.engine).await?;
        let (stop_housekeeping, housekeeping) = (CancellationToken::new(), TaskTracker::new());
        housekeeping.spawn(Housekeeping::new(Arc::clone(&engine)).run(stop_housekeeping.clone()));
        let problems = self.problems;
        let relays = (!relayed.is_empty()).then(|| Relays::start(&outbox, relayed, wakes));
        Ok(Oncegate { engine, store, problems, sealer, lanes, stop_housekeeping, housekeeping, writers, relays })
    }
}

/// The number of each queue's lanes, and those that are relayed here. Of these the database knows the number.
async fn open_queues(
    outbox: &Arc<dyn Outbox>,
    mut queues: Vec<(Box<str>, NonZeroU32)>,
    relayed: Vec<(Box<str>, Arc<dyn Publisher>, RelayOptions)>,
) -> Result<(Lanes, Vec<Relayed>), StoreError> {
    let mut opened = Vec::new();
    for (queue, publisher, options) in relayed {
        let wanted = queues.iter().rfind(|(name, _)| *name == queue).map_or(DEFAULT_LANES, |(_, lanes)| *lanes);
        let lanes = outbox.open(&queue, wanted.get()).await?;
        queues.push((queue.clone(), NonZeroU32::new(lanes).unwrap_or(wanted)));
        opened.push(Relayed { queue, lanes, publisher, options });
    }
    Ok((queues.into_iter().collect(), opened))
}

impl fmt::Debug for Oncegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oncegate").field("engine", &self.engine).finish_non_exhaustive()
    }
}

/// Shows no secret; the URLs may hold one.
impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("store", &self.store)
            .field("marks", &self.marks)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
