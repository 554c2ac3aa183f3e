//! The composition root: makes a running gateway of a configuration. The only place that names adapters.

mod identity;
mod options;
mod routes;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::auth::{Authenticator, HeaderAuthenticator};
use crate::clock;
use crate::committer::Committer;
use crate::config::{Config, StatusEndpoint};
use crate::engine::ledger::StoreError;
use crate::engine::{Engine, Housekeeping, Parts};
use crate::entry::fingerprint::{Secrets, SecretsError};
use crate::http::drain::Drained;
use crate::http::endpoints::{Endpoints, StatusAccess};
use crate::http::gateway::{Gateway, Inner};
use crate::http::listener::{Listener, ListenerOptions};
use crate::http::tls::TlsError;
use crate::http::{app, body::BodyLimits};
use crate::marks::{self, MarksError};
use crate::storage::{self, Store, Weakness};
use crate::telemetry;
use crate::upstream::InvalidUpstream;
use identity::IdentityGuard;
use routes::Routes;

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The database can't be opened or migrated.
    #[error("the store can't be used: {0}")]
    Store(#[from] storage::Error),
    /// The database can't be asked.
    #[error("the store can't be used: {0}")]
    StoreAsked(#[from] StoreError),
    /// The database may lose a confirmed commit.
    #[error(
        "the store may lose a confirmed commit, and a lost commit is a payment that may happen twice: {0}. Set it right, or allow it with store.allow_weak_durability = true"
    )]
    WeakDurability(String),
    /// The mark store's settings are wrong.
    #[error("marks: {0}")]
    Marks(#[from] MarksError),
    /// The fingerprint secrets are wrong.
    #[error("secrets.fingerprint: {0}")]
    Secrets(#[from] SecretsError),
    /// An upstream's settings are wrong.
    #[error("upstreams: {0}")]
    Upstream(#[from] InvalidUpstream),
    /// The routes can't be served as configured.
    #[error("routes: {0}")]
    Routes(String),
    /// The certificate can't be used.
    #[error("server.tls: {0}")]
    Tls(#[from] TlsError),
    /// A file can't be read.
    #[error("{file}: {error}")]
    File {
        /// Which one.
        file: String,
        /// Why not.
        error: io::Error,
    },
    /// The address can't be bound.
    #[error(
        "{address} can't be bound: {error}. Choose another address with --listen (server.listen) or server.admin_listen"
    )]
    Bind {
        /// Which one.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
}

/// What outcomes that are being recorded get even when the drain time is over.
const LAST_COMMITS: Duration = Duration::from_secs(1);

/// A gateway that answers.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    engine: Arc<Engine>,
    store: Arc<Store>,
    serving: JoinHandle<Drained>,
    stop_serving: CancellationToken,
    housekeeping: Background,
    writers: Background,
    draining: Arc<AtomicBool>,
    drain_timeout: Duration,
}

impl Server {
    /// Opens the store (migrating it), begins an instance, and listens.
    ///
    /// # Errors
    /// If anything that the configuration names can't be used. A mark store that is down is no reason.
    pub async fn start(config: &Config) -> Result<Self, ServeError> {
        let store = open_store(config).await?;
        let (listener, address) = bind(config.server.listen.get(), options::listener(config)?).await?;
        let admin = match &config.server.admin_listen {
            Some(admin) => Some(bind(admin.get(), ListenerOptions::default()).await?.0),
            None => None,
        };
        let routes = routes::build(config)?;
        let (mut writers, mut housekeeping) = (Background::default(), Background::default());
        let committer = Committer::new(store.clone(), options::limits(config));
        for _ in 0..config.store.writers.get() {
            writers.spawn(|stop| committer.clone().run(stop));
        }
        let parts = parts(config, &store, &routes, address)?;
        let engine = Engine::begin(parts, committer, options::engine(config)).await?;
        housekeeping.spawn(|stop| Housekeeping::new(Arc::clone(&engine)).run(stop));
        let guard = IdentityGuard::new(store.clone(), config.identities(), routes.identities.clone());
        guard.step().await?;
        housekeeping.spawn(|stop| guard.run(stop));

        let draining = Arc::new(AtomicBool::new(false));
        let endpoints = Endpoints {
            gateway: gateway(config, routes, &engine),
            store_is_writable: probe(&store),
            draining: Arc::clone(&draining),
            status: status(config),
        };
        if let Some(admin) = admin {
            telemetry::keep_metrics();
            housekeeping.spawn(|stop| serve_operators(admin, endpoints.clone(), stop));
        }
        let stop_serving = CancellationToken::new();
        let app = app::public(endpoints, &config.server.prefix);
        let serving = tokio::spawn(listener.serve(app, stop_serving.clone()));
        let drain_timeout = config.server.drain_timeout.get();
        Ok(Self { address, engine, store, serving, stop_serving, housekeeping, writers, draining, drain_timeout })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops: accepts nothing more, finishes what is in flight within the drain time-out, ends its instance
    /// where nothing is left in progress, and closes the store.
    ///
    /// What is cut off becomes Unknown once the lease has run out; nothing is lost.
    pub async fn stop(self) {
        // One time-out for both: who set it also set when the process is killed.
        let end = clock::now() + self.drain_timeout;
        self.draining.store(true, Ordering::Release);
        self.stop_serving.cancel();
        match self.serving.await {
            Ok(Drained { cut: 0 }) => {}
            Ok(Drained { cut }) => {
                tracing::warn!(connections = cut, "connections were cut at the end of the drain time");
            }
            Err(error) => tracing::error!(%error, "listener ended badly"),
        }
        match tokio::time::timeout_at(end.max(clock::now() + LAST_COMMITS), self.engine.drain()).await {
            Ok(Ok(())) => tracing::info!("all requests have finished"),
            Ok(Err(error)) => tracing::warn!(%error, "instance could not be ended"),
            Err(_) => tracing::warn!("executions were cut off: they become unknown when the lease has run out"),
        }
        self.housekeeping.end().await;
        self.writers.end().await;
        self.store.close().await;
    }
}

/// Loops that run until they are told to end.
#[derive(Debug, Default)]
struct Background {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Background {
    fn spawn<R: Future<Output = ()> + Send + 'static>(&mut self, task: impl FnOnce(CancellationToken) -> R) {
        self.tasks.spawn(task(self.stop.clone()));
    }

    async fn end(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

fn parts(config: &Config, store: &Arc<Store>, routes: &Routes, address: SocketAddr) -> Result<Parts, ServeError> {
    Ok(Parts {
        ledger: store.clone(),
        instances: store.clone(),
        marks: marks::connect(&options::marks(config)?)?,
        secrets: secrets(config, routes)?,
        policies: routes.policies.clone(),
        name: format!("{address} pid {}", std::process::id()),
    })
}

/// A gateway that guards nothing makes no fingerprints, and so needs no secret of anybody's.
fn secrets(config: &Config, routes: &Routes) -> Result<Secrets, SecretsError> {
    if routes.guards.is_empty() {
        return Secrets::new(vec![rand::random::<[u8; 32]>().to_vec()]);
    }
    Secrets::new(config.secrets.fingerprint.iter().map(|secret| secret.expose().as_bytes().to_vec()).collect())
}

fn gateway(config: &Config, routes: Routes, engine: &Arc<Engine>) -> Gateway {
    Gateway::new(Inner {
        routes: routes.router,
        guards: routes.guards,
        engine: Arc::clone(engine),
        authenticator: authenticator(config),
        body: body_limits(config),
        problems: problems(config).into(),
    })
}

/// Opens the store and brings its schema up to date.
///
/// # Errors
/// If it can't be used, or may lose a confirmed commit without that being allowed.
pub async fn open_store(config: &Config) -> Result<Arc<Store>, ServeError> {
    let store = Arc::new(Store::open(&options::store(config))?);
    store.migrate().await?;
    let weak = store.check_durability().await?;
    if !weak.is_empty() {
        let text = weak.iter().map(Weakness::to_string).collect::<Vec<_>>().join("; ");
        if !config.store.allow_weak_durability {
            return Err(ServeError::WeakDurability(text));
        }
        tracing::error!(weakness = %text, "the store may lose confirmed commits: a lost commit is a payment that may happen twice");
    }
    Ok(store)
}

async fn bind(address: SocketAddr, options: ListenerOptions) -> Result<(Listener, SocketAddr), ServeError> {
    let failed = |error| ServeError::Bind { address, error };
    let listener = Listener::bind(address, options).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Operators are answered until everything else has ended, and nobody waits for them.
async fn serve_operators(listener: Listener, endpoints: Endpoints, stop: CancellationToken) {
    let serving = listener.serve(app::admin(endpoints), CancellationToken::new());
    stop.run_until_cancelled(serving).await;
}

fn probe(store: &Arc<Store>) -> crate::http::endpoints::Probe {
    let store = Arc::clone(store);
    Arc::new(move || {
        let store = Arc::clone(&store);
        Box::pin(async move { store.ping().await.is_ok() })
    })
}

fn authenticator(config: &Config) -> Authenticator {
    match (&config.auth.mode, &config.auth.header) {
        (crate::config::AuthMode::Header, Some(header)) => Authenticator::Header(HeaderAuthenticator {
            trusted: header.trusted.clone(),
            subject: header.subject_header.get().clone(),
            tenant: header.tenant_header.as_ref().map(|name| name.get().clone()),
        }),
        (crate::config::AuthMode::Header | crate::config::AuthMode::None, _) => Authenticator::Nobody,
    }
}

fn body_limits(config: &Config) -> BodyLimits {
    BodyLimits {
        bytes: config.server.body_limit.get(),
        total: config.server.body_timeout.get(),
        idle: config.server.body_idle_timeout.get(),
    }
}

fn status(config: &Config) -> StatusAccess {
    match config.server.status_endpoint {
        StatusEndpoint::Authenticated => StatusAccess::Authenticated,
        StatusEndpoint::Anyone => StatusAccess::Anyone,
        StatusEndpoint::Off => StatusAccess::Off,
    }
}

fn problems(config: &Config) -> String {
    let base = config.server.public_url.as_ref().map(|url| url.uri().to_string()).unwrap_or_default();
    format!("{}{}/problems/", base.trim_end_matches('/'), config.server.prefix)
}
