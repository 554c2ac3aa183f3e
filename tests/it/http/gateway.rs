//! A gateway in this process, on a free port, with a database of its own.

use std::net::SocketAddr;

use oncegate::config::Config;
use oncegate::server::Server;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::client::Call;
use super::upstream::Upstream;
use crate::servers::database::{Database, Kind};

/// One upstream and one route with a policy.
const DOCUMENT: &str = r#"
    server.listen = "127.0.0.1:0"
    secrets.fingerprint = ["env:SECRET"]

    [[upstreams]]
    name = "up"
    urls = ["http://127.0.0.1:1"]

    [[routes]]
    name = "pay"
    match = "* /pay"
    upstream = "up"
    idempotency = { key = ["header"] }
"#;

/// Secrets of the environment, for what is sealed.
pub(super) const KEY_A: &str = "the encryption secret A, of 32 bytes and more";
pub(super) const KEY_B: &str = "the encryption secret B, of 32 bytes and more";

/// Settings by their path; a path that begins with a dot is one of the route's policy.
pub(super) type Settings<'a> = &'a [(&'a str, &'a str)];

/// A running gateway.
pub(super) struct Gateway {
    server: Server,
    pub(super) addr: SocketAddr,
    /// Where it keeps its entries.
    pub(super) database: Database,
}

impl Gateway {
    /// The gateway with one route, `/pay`, on SQLite.
    pub(super) async fn start(upstream: &Upstream, settings: Settings<'_>) -> Self {
        Self::with_routes(upstream, "", settings).await
    }

    /// The same on another database.
    pub(super) async fn on(kind: Kind, upstream: &Upstream, settings: Settings<'_>) -> Self {
        Self::again(Database::create(kind).await, &upstream.url(), "", settings).await
    }

    /// The same with more routes.
    pub(super) async fn with_routes(upstream: &Upstream, routes: &str, settings: Settings<'_>) -> Self {
        Self::again(Database::create(Kind::Sqlite).await, &upstream.url(), routes, settings).await
    }

    /// One on a database that may have been used before.
    pub(super) async fn again(database: Database, url: &str, routes: &str, settings: Settings<'_>) -> Self {
        let config = configure(&database, url, routes, settings);
        let server = Server::start(&config).await.unwrap();
        Self { addr: server.address(), server, database }
    }

    /// Stops it and returns its database.
    pub(super) async fn stop(self) -> Database {
        self.server.stop().await;
        self.database
    }

    /// Where it answers operators.
    pub(super) fn admin(&self) -> SocketAddr {
        self.server.admin_address().unwrap()
    }

    /// A POST to `/pay`.
    pub(super) fn pay(&self, key: &str) -> Call {
        self.post("/pay").field("idempotency-key", key)
    }

    /// A POST without a key.
    pub(super) fn post(&self, target: &str) -> Call {
        self.call("POST", target).body("{\"amount\":1}")
    }

    /// A POST of another content type.
    pub(super) fn typed(&self, target: &str, content_type: &str) -> Call {
        self.call("POST", target).replace("content-type", content_type)
    }

    pub(super) fn call(&self, method: &str, target: &str) -> Call {
        Call::new(self.addr, method, target)
    }

    /// A connection on which `bytes` have been sent.
    pub(super) async fn raw(&self, bytes: impl AsRef<[u8]>) -> TcpStream {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        stream.write_all(bytes.as_ref()).await.unwrap();
        stream
    }
}

/// The configuration on `database`.
pub(super) fn configure(database: &Database, url: &str, routes: &str, settings: Settings<'_>) -> Config {
    let settings = settings.iter().map(|(path, value)| match path.strip_prefix('.') {
        Some(of_policy) => (format!("routes.pay.idempotency.{of_policy}"), (*value).to_owned()),
        None => ((*path).to_owned(), (*value).to_owned()),
    });
    let own = [("store.url".to_owned(), database.url.clone()), ("upstreams.up.urls".to_owned(), format!("[{url:?}]"))];
    let secrets = [
        ("SECRET", "a secret of at least thirty-two bytes"),
        ("KEY_A", KEY_A),
        ("KEY_B", KEY_B),
        ("TOKEN_ONE", "one that signs tokens, of 32 bytes"),
        ("TOKEN_TWO", "two that signs tokens, of 32 bytes"),
    ];
    let secrets = secrets.map(|(name, secret)| (name.to_owned(), secret.to_owned()));
    Config::parse("test.toml", &format!("{DOCUMENT}{routes}"), secrets, own.into_iter().chain(settings)).unwrap()
}
