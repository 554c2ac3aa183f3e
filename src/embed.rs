//! Oncegate inside a Rust service: everything that [`crate::layer`] needs, set up in a few lines.
//!
//! The composition root of a service, as `server` is the gateway's.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::committer::{Committer, Limits};
use crate::engine::identities::Identities as _;
use crate::engine::ledger::StoreError;
use crate::engine::{Engine, Housekeeping, Options, Parts};
use crate::entry::Namespace;
use crate::entry::fingerprint::{Secrets, SecretsError};
use crate::layer::{IdempotencyLayer, Operation};
use crate::marks::{self, MarksError, MarksOptions};
use crate::storage::{self, Store, StoreOptions, Weakness};

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
    stop_housekeeping: CancellationToken,
    housekeeping: TaskTracker,
    stop_writers: CancellationToken,
    writers: TaskTracker,
}

/// What an [`Oncegate`] is made of. Made by [`Oncegate::setup`].
#[derive(Clone)]
#[must_use = "open it"]
pub struct Setup {
    store: StoreOptions,
    marks: MarksOptions,
    secrets: Vec<Vec<u8>>,
    name: String,
    problems: Box<str>,
    durability: Durability,
    engine: Options,
}

/// What a database that may lose a confirmed commit comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durability {
    Demanded,
    WeakAllowed,
}

/// Why it can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The database can't be opened or migrated.
    #[error("the store can't be used: {0}")]
    Store(#[from] storage::Error),
    /// The database can't be asked.
    #[error("the store can't be used: {0}")]
    StoreAsked(#[from] StoreError),
    /// The database may lose a confirmed commit. [`Setup::allow_weak_durability`] takes the risk.
    #[error("the store may lose a confirmed commit, and a lost commit is a payment that may happen twice: {0}")]
    WeakDurability(String),
    /// The mark store's settings are wrong.
    #[error("marks: {0}")]
    Marks(#[from] MarksError),
    /// The fingerprint secrets are wrong.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
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
            name: format!("pid {}", std::process::id()),
            problems: "/problems/".into(),
            durability: Durability::Demanded,
            engine: Options::default(),
        }
    }

    /// The layer that guards one kind of operation. Records what gives its requests their identity, the first
    /// time.
    ///
    /// # Errors
    /// If the record says something else, the handler's time is too long for the lease, or the store can't be
    /// asked.
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
        Ok(IdempotencyLayer::new(Arc::clone(&self.engine), operation, self.problems.clone()))
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
    pub async fn close(self, patience: Duration) {
        match tokio::time::timeout(patience, self.engine.drain()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "instance could not be ended"),
            Err(_) => tracing::warn!("executions were cut off: they become unknown when the lease has run out"),
        }
        end(&self.stop_housekeeping, &self.housekeeping).await;
        end(&self.stop_writers, &self.writers).await;
        self.store.close().await;
    }
}

async fn end(stop: &CancellationToken, tasks: &TaskTracker) {
    stop.cancel();
    tasks.close();
    tasks.wait().await;
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

    /// Opens the store, brings its schema up to date, and begins an instance.
    ///
    /// # Errors
    /// If anything can't be used. A mark store that is down is no reason.
    pub async fn open(self) -> Result<Oncegate, SetupError> {
        let secrets = Secrets::new(self.secrets)?;
        let marks = marks::connect(&self.marks)?;
        let committing = self.store.writers;
        // One more than the committer's: housekeeping and probes write too.
        let store = StoreOptions { writers: committing + 1, ..self.store };
        let store = Arc::new(Store::open(&store)?);
        store.migrate().await?;
        check_durability(&store, self.durability).await?;
        let committer = Committer::new(store.clone(), Limits::default());
        let (stop_writers, writers) = (CancellationToken::new(), TaskTracker::new());
        for _ in 0..committing {
            writers.spawn(committer.clone().run(stop_writers.clone()));
        }
        let parts = Parts {
            ledger: store.clone(),
            instances: store.clone(),
            marks,
            secrets,
            policies: std::collections::HashMap::new(),
            name: self.name,
        };
        let engine = Engine::begin(parts, committer, self.engine).await?;
        let (stop_housekeeping, housekeeping) = (CancellationToken::new(), TaskTracker::new());
        housekeeping.spawn(Housekeeping::new(Arc::clone(&engine)).run(stop_housekeeping.clone()));
        let problems = self.problems;
        Ok(Oncegate { engine, store, problems, stop_housekeeping, housekeeping, stop_writers, writers })
    }
}

async fn check_durability(store: &Store, durability: Durability) -> Result<(), SetupError> {
    let weak = store.check_durability().await?;
    if weak.is_empty() {
        return Ok(());
    }
    let text = weak.iter().map(Weakness::to_string).collect::<Vec<_>>().join("; ");
    match durability {
        Durability::Demanded => Err(SetupError::WeakDurability(text)),
        Durability::WeakAllowed => {
            tracing::error!(weakness = %text, "the store may lose confirmed commits: a lost commit is a payment that may happen twice");
            Ok(())
        }
    }
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
