//! The composition root: makes a running gateway of a configuration. The only place that names adapters.

mod auth;
mod brokers;
mod docs;
mod error;
mod forgotten;
mod identity;
mod operators;
mod options;
mod pausing;
mod probe;
mod queues;
mod routes;
mod subscriptions;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::auth::Authenticator;
use crate::auth::token::Tokens;
use crate::clock;
use crate::committer::{Committer, Writers};
use crate::config::{Config, StatusEndpoint};
use crate::console;
use crate::engine::switchboard::Switchboard;
use crate::engine::{Engine, Housekeeping, OnEvents, Parts, Policy};
use crate::entry::fingerprint::{Secrets, SecretsError};
use crate::http::drain::Drained;
use crate::http::endpoints::{Endpoints, StatusAccess};
use crate::http::gateway::{Gateway, Inner};
use crate::http::listener::{Listener, ListenerOptions};
use crate::http::workers::{Dealer, Workers};
use crate::http::{app, body::BodyLimits, cors};
use crate::marks;
use crate::sealer::{Sealer, SealerError};
use crate::storage::{Durability, Store};
use crate::telemetry;
pub use error::ServeError;
use identity::IdentityGuard;
pub use operators::OnDatabase;
use operators::Switched;
use queues::{Publishing, Queues};
use routes::Routes;
use subscriptions::{Subscribed, Subscriptions};
pub use subscriptions::{lookup as subscription_lookup, rules as subscription_rules};

/// Between two starts, when the store went away during one.
const PAUSE: Duration = Duration::from_secs(1);

/// What outcomes that are being recorded get even when the drain time is over.
const LAST_COMMITS: Duration = Duration::from_secs(1);

/// A gateway that answers.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    engine: Arc<Engine>,
    store: Arc<Store>,
    serving: JoinHandle<Drained>,
    stop_serving: CancellationToken,
    housekeeping: Background,
    writers: Writers,
    workers: Workers,
    subscribed: Subscribed,
    relays: Publishing,
    draining: Arc<AtomicBool>,
    drain_delay: Duration,
    drain_timeout: Duration,
}

impl Server {
    /// Opens the store (migrating it), begins an instance, and listens. A store that goes away meanwhile is waited for
    /// as one that is not there yet, for `store.start_timeout`.
    ///
    /// # Errors
    /// If anything that the configuration names can't be used. A mark store that is down is no reason.
    pub async fn start(config: &Config) -> Result<Self, ServeError> {
        let give_up = clock::now() + config.store.start_timeout.get();
        loop {
            match Box::pin(Self::begin(config)).await {
                Err(error) if error.may_pass() && clock::now() < give_up => {
                    tracing::warn!(%error, "the store went away during the start, which begins again");
                    tokio::time::sleep(PAUSE).await;
                }
                done => return done,
            }
        }
    }

    /// Whoever drops it before its end, ends what it has begun.
    async fn begin(config: &Config) -> Result<Self, ServeError> {
        let store = open_store(config).await?;
        let (listener, address) = bind(config.server.listen.get(), options::listener(config)?).await?;
        let admin = match &config.server.admin_listen {
            Some(admin) => Some(bind(admin.get(), ListenerOptions::default()).await?),
            None => None,
        };
        let mut housekeeping = Background::default();
        let authenticator = auth::authenticator(config, &mut housekeeping).await?;
        let queues = Queues::open(config, &store).await?;
        let routes = routes::build(config, &queues.lanes)?;
        let subscriptions = Subscriptions::open(config, &store, &routes).await?;
        forgotten::tell(config, &store, &mut housekeeping).await?;
        store.tell_missing_keys().await?;
        let committer = Committer::new(store.clone(), options::limits(config));
        let writers = Writers::start(&committer, options::writers(config)).map_err(ServeError::Threads)?;
        let policies = routes.policies.clone().into_iter().chain(subscriptions.policies()).collect();
        let parts = parts(config, &store, policies, queues.on_events(), address)?;
        let board = switches(&store, &routes, &subscriptions, &mut housekeeping).await?;
        let switched = Switched { board, guards: &routes.guards };
        let operators = operators::of_gateway(config, &store, &parts, &authenticator, switched)?;
        let engine = Engine::begin(parts, committer, options::engine(config)).await?;
        housekeeping.spawn(|stop| Housekeeping::new(Arc::clone(&engine)).run(stop));
        let guard = IdentityGuard::new(store.clone(), config.identities(), routes.identities.clone());
        guard.step().await?;
        housekeeping.spawn(|stop| guard.run(stop));

        let draining = Arc::new(AtomicBool::new(false));
        let endpoints = Endpoints {
            gateway: gateway(config, routes, authenticator, &engine),
            store_is_writable: probe::store(&store),
            draining: Arc::clone(&draining),
            status: status(config),
            docs: docs::docs(config)?,
        };
        let admin_address = admin.as_ref().map(|(_, address)| *address);
        if let Some((admin, _)) = admin {
            telemetry::keep_metrics();
            let series = operators.series();
            housekeeping.spawn(|stop| async move { series.run(stop).await });
            let app = app::admin(endpoints.clone(), operators.clone()).merge(console::router(operators));
            housekeeping.spawn(|stop| serve_operators(admin, app, stop));
        }
        let stop_serving = CancellationToken::new();
        let app = app::public(endpoints, &config.server.prefix);
        let app = match options::cors(config) {
            Some(cors) => cors::allow(app, cors),
            None => app,
        };
        let workers = Workers::start(options::workers(config)).map_err(ServeError::Threads)?;
        let serving = tokio::spawn(listener.serve(app, workers.dealer(), stop_serving.clone()));
        let subscribed = subscriptions.start(&engine, &queues.wakes);
        let (drain_delay, drain_timeout) = (config.server.drain_delay.get(), config.server.drain_timeout.get());
        Ok(Self {
            address,
            admin_address,
            engine,
            store,
            serving,
            stop_serving,
            housekeeping,
            writers,
            workers,
            subscribed,
            relays: queues.publish(),
            draining,
            drain_delay,
            drain_timeout,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it answers operators.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Stops: accepts nothing more, finishes what is in flight within the drain time-out, ends its instance
    /// where nothing is left in progress, and closes the store.
    ///
    /// What is cut off becomes Unknown once the lease has run out; nothing is lost.
    pub async fn stop(self) {
        // One time-out for both: who set it also set when the process is killed.
        let end = clock::now() + self.drain_timeout;
        self.draining.store(true, Ordering::Release);
        // Whoever asks for readiness is to hear of it before the listener closes.
        tokio::time::sleep(self.drain_delay).await;
        self.stop_serving.cancel();
        // Both doors at once: what they have begun, the engine still has to record.
        let (served, delivered) = tokio::join!(self.serving, tokio::time::timeout_at(end, self.subscribed.end()));
        if delivered.is_err() {
            tracing::warn!("deliveries were cut off at the end of the drain time");
        }
        match served {
            Ok(Drained { cut: 0 }) => {}
            Ok(Drained { cut }) => {
                tracing::warn!(connections = cut, "connections were cut at the end of the drain time");
            }
            Err(error) => tracing::error!(%error, "listener ended badly"),
        }
        self.engine.drain_until(end.max(clock::now() + LAST_COMMITS)).await;
        // Last of all events, those of the requests that have just finished.
        self.relays.end().await;
        self.housekeeping.end().await;
        self.writers.end().await;
        self.workers.end().await;
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

/// The switches, read before anything is served, and again and again from then on.
async fn switches(
    store: &Arc<Store>,
    routes: &Routes,
    subscriptions: &Subscriptions,
    tasks: &mut Background,
) -> Result<Arc<Switchboard>, ServeError> {
    let board = Arc::new(subscriptions.watched(operators::switchboard(store, &routes.guards)));
    board.step().await?;
    let reading = Arc::clone(&board);
    tasks.spawn(|stop| reading.run(stop));
    Ok(board)
}

fn parts(
    config: &Config,
    store: &Arc<Store>,
    policies: HashMap<Box<str>, Arc<Policy>>,
    on_events: OnEvents,
    address: SocketAddr,
) -> Result<Parts, ServeError> {
    Ok(Parts {
        ledger: store.clone(),
        instances: store.clone(),
        marks: marks::connect(&options::marks(config, sealer(config)?)?)?,
        // A gateway that guards nothing makes no fingerprints, and so needs no secret of anybody's.
        secrets: match policies.is_empty() {
            true => Secrets::new(vec![rand::random::<[u8; 32]>().to_vec()])?,
            false => secrets(config)?,
        },
        policies,
        on_events,
        name: format!("{address} pid {}", std::process::id()),
    })
}

/// The fingerprint secrets, as they are configured.
///
/// # Errors
/// If they can't be used.
pub fn secrets(config: &Config) -> Result<Secrets, SecretsError> {
    Secrets::new(config.secrets.fingerprint.iter().map(|secret| secret.expose().as_bytes().to_vec()).collect())
}

/// Seals under the encryption secrets, as they are configured.
fn sealer(config: &Config) -> Result<Arc<Sealer>, SealerError> {
    let secrets: Vec<&str> = config.secrets.encryption.iter().map(|secret| secret.expose()).collect();
    Sealer::new(&secrets).map(Arc::new)
}

fn gateway(config: &Config, routes: Routes, authenticator: Authenticator, engine: &Arc<Engine>) -> Gateway {
    Gateway::new(Inner {
        routes: routes.router,
        guards: routes.guards,
        engine: Arc::clone(engine),
        authenticator,
        tokens: Tokens::new(&config.secrets.token.iter().map(|secret| secret.expose().as_bytes()).collect::<Vec<_>>()),
        body: body_limits(config),
        problems: problems(config).into(),
    })
}

/// Opens the store and brings its schema up to date.
///
/// # Errors
/// If it can't be used, or may lose a confirmed commit without that being allowed.
pub async fn open_store(config: &Config) -> Result<Arc<Store>, ServeError> {
    let durability = match config.store.allow_weak_durability {
        true => Durability::WeakAllowed,
        false => Durability::Demanded,
    };
    Ok(Store::ready(&options::store(config, sealer(config)?), config.store.start_timeout.get(), durability).await?)
}

async fn bind(address: SocketAddr, options: ListenerOptions) -> Result<(Listener, SocketAddr), ServeError> {
    let failed = |error| ServeError::Bind { address, error };
    let listener = Listener::bind(address, options).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Operators are answered until everything else has ended, and nobody waits for them.
async fn serve_operators(listener: Listener, app: axum::Router, stop: CancellationToken) {
    let serving = listener.serve(app, Dealer::here(), CancellationToken::new());
    stop.run_until_cancelled(serving).await;
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
