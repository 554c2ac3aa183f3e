//! `oncegate demo`: a gateway with an embedded store in a temporary directory, in front of a payments
//! service that can be told to be slow, to fail and to hang; all in one process, with nothing to install.

mod consumer;
mod page;
mod points;
mod story;
mod upstream;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use consumer::Arrived;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, ConfigError};
use crate::http::drain::Drained;
use crate::http::listener::{Listener, ListenerOptions};
use crate::http::workers::Dealer;
use crate::outbox::lane::DEFAULT_QUEUE;
use crate::server::{ServeError, Server, open_store};

pub use story::{invitation, tell};

/// Where the demo listens.
#[derive(Debug, Clone, Copy)]
pub struct DemoOptions {
    /// The gateway.
    pub gateway: SocketAddr,
    /// The gateway's operators' side.
    pub admin: SocketAddr,
    /// The payments service behind it.
    pub upstream: SocketAddr,
}

/// Why the demo does not start.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The temporary directory can't be made.
    #[error("no temporary directory: {0}")]
    Directory(io::Error),
    /// The demo's own configuration is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The gateway's address is taken.
    #[error("the gateway's address {0} can't be bound: {1}. Choose another one with --listen")]
    Gateway(SocketAddr, io::Error),
    /// The operators' address is taken.
    #[error("the operators' address {0} can't be bound: {1}. Choose another one with --admin-listen")]
    Admin(SocketAddr, io::Error),
    /// The payments service's address is taken.
    #[error("the demo upstream's address {0} can't be bound: {1}. Choose another one with --upstream-listen")]
    Upstream(SocketAddr, io::Error),
    /// The gateway does not start.
    #[error(transparent)]
    Serve(ServeError),
    /// A request of the story was not answered.
    #[error("the story could not be told: {0}")]
    Story(String),
}

/// A demo that runs.
#[derive(Debug)]
pub struct Demo {
    /// Where the gateway listens.
    pub gateway: SocketAddr,
    /// Where it answers operators.
    pub admin: SocketAddr,
    server: Server,
    upstream: JoinHandle<Drained>,
    stop_upstream: CancellationToken,
    consumer: JoinHandle<()>,
    directory: PathBuf,
}

impl Demo {
    /// Starts the payments service and the gateway in front of it.
    ///
    /// # Errors
    /// See [`DemoError`].
    pub async fn start(options: DemoOptions) -> Result<Self, DemoError> {
        // What hangs on purpose is not waited for.
        let unhurried = ListenerOptions { drain_timeout: Duration::ZERO, ..ListenerOptions::default() };
        let listener = Listener::bind(options.upstream, unhurried).await;
        let listener = listener.map_err(|error| DemoError::Upstream(options.upstream, error))?;
        let address = listener.local_addr().map_err(|error| DemoError::Upstream(options.upstream, error))?;
        let (stop_upstream, arrived) = (CancellationToken::new(), Arrived::default());
        let serving = listener.serve(upstream::app(arrived.clone()), Dealer::here(), stop_upstream.clone());
        let upstream = tokio::spawn(serving);
        let directory = std::env::temp_dir().join(format!("oncegate-demo-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&directory).map_err(DemoError::Directory)?;
        let config = config(options, address, &directory)?;
        let server = match Server::start(&config).await {
            Ok(server) => server,
            Err(ServeError::Bind { address, error }) if address == options.admin => {
                return Err(DemoError::Admin(address, error));
            }
            Err(ServeError::Bind { address, error }) => return Err(DemoError::Gateway(address, error)),
            Err(error) => return Err(DemoError::Serve(error)),
        };
        // As any consumer would, on a connection of its own.
        let queue = open_store(&config).await.map_err(DemoError::Serve)?;
        let consumer = tokio::spawn(async move { arrived.follow(queue, DEFAULT_QUEUE).await });
        Ok(Self {
            gateway: server.address(),
            admin: options.admin,
            server,
            upstream,
            stop_upstream,
            consumer,
            directory,
        })
    }

    /// Stops both and removes the temporary directory.
    pub async fn stop(self) {
        self.server.stop().await;
        self.consumer.abort();
        self.stop_upstream.cancel();
        if let Err(error) = self.upstream.await {
            tracing::error!(%error, "demo upstream ended badly");
        }
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            tracing::warn!(%error, "temporary directory could not be removed");
        }
    }
}

/// The demo's configuration: as one would write it, but with time-outs that an onlooker's patience allows.
fn config(options: DemoOptions, upstream: SocketAddr, directory: &std::path::Path) -> Result<Config, ConfigError> {
    let DemoOptions { gateway, admin, .. } = options;
    let text = format!(
        r#"
        [server]
        listen = "{gateway}"
        admin_listen = "{admin}"
        status_endpoint = "anyone"
        [store]
        url = "sqlite://{directory}/oncegate.db"
        [secrets]
        fingerprint = ["env:DEMO_SECRET"]
        token = ["env:DEMO_TOKEN_SECRET"]
        [[upstreams]]
        name = "payments"
        urls = ["http://{upstream}"]
        timeout = "2s"
        [[routes]]
        name = "create-payment"
        match = "POST /v1/payments"
        upstream = "payments"
        [routes.idempotency]
        key = ["body:/order_no"]
        token = "accepted"
        on_unknown = "lookup"
        [routes.idempotency.lookup]
        request = "GET /v1/payments/by-order/{{key}}"
        completed_when = {{ status = "2xx", equals = {{ "/status" = "paid" }} }}
        absent = "not_executed"
        after = "10s"
        [[routes.events]]
        name = "paid"
        type = "com.example.payment.paid"
        when = {{ status = "2xx" }}
        topic = "payments"
        key = "body:/order_no"
        data = "response"
        [[subscriptions]]
        name = "award-points"
        topic = "payments"
        key = ["body:/order_no"]
        deliver = "http://{upstream}/v1/points"
        on_unknown = "forward"
        backoff = {{ first = "200ms", max = "1s" }}
        [[routes]]
        name = "reads"
        match = "GET /v1/*"
        upstream = "payments"
        [[routes]]
        name = "page"
        match = "GET /demo"
        upstream = "payments"
        [[routes]]
        name = "truth"
        match = "GET /demo/state"
        upstream = "payments"
        "#,
        directory = directory.display()
    );
    // Of this run alone, like the store that its digests are in.
    let secret = |name: &str| (name.to_owned(), format!("{:032x}", rand::random::<u128>()));
    Config::parse("the demo's configuration", &text, [secret("DEMO_SECRET"), secret("DEMO_TOKEN_SECRET")], [])
}
