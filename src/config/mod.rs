//! The configuration: one TOML file, variables over it, command line flags last.
//!
//! Variables address a key by its path, elements of arrays by their `name`:
//! `ONCEGATE__STORE__URL`, `ONCEGATE__ROUTES__create-payment__IDEMPOTENCY__RETENTION`. Their values are
//! read as TOML, and as a string where they are none.
//!
//! Loading ([`Config::load`]) settles what one key can say by itself; [`check`] then says what does not
//! fit together. `config.example.toml` shows every setting.

mod auth;
mod cache;
mod check;
mod cors;
mod document;
mod engine;
mod env;
mod error;
mod event;
#[cfg(test)]
mod example;
mod identity;
mod lookup;
mod marks;
mod policy;
mod queue;
mod route;
mod secrets;
mod server;
mod store;
mod subscription;
mod upstream;
mod value;

use std::num::NonZeroU32;
use std::path::Path;

use serde::Deserialize;

pub use auth::{Audience, Auth, AuthMode, HeaderAuth, JwksLocation, JwksLocationError, JwtAlgorithm, JwtAuth};
pub use cache::Cache;
pub use check::{Finding, Severity, check};
pub use cors::Cors;
pub use engine::Engine;
pub use env::process_env;
pub use error::ConfigError;
pub use event::{Event, When};
pub use lookup::{Absent, Asked, CompletedWhen, Lookup, LookupRequest, LookupRequestError};
pub use marks::Marks;
pub use policy::{FingerprintRules, OnUnknown, Outcomes, Policy, Tombstone};
pub use queue::{
    Kafka, Nats, Queue, Rabbitmq, RabbitmqBinding, RabbitmqQueues, RabbitmqTopology, Redis, SaslMechanism,
};
pub use route::Route;
pub use secrets::Secrets;
pub use server::{Docs, Server, ServerTls, StatusEndpoint};
pub use store::Store;
pub use subscription::{AfterGap, Backoff, Gap, HandlerTls, MessageFingerprint, OneSource, Subscription};
pub use upstream::{Upstream, UpstreamTls};
pub use value::{
    ApiDocument, ApiDocumentError, ByteSize, ByteSizeError, FieldName, FieldNameError, FieldValue, HttpUrl,
    HttpUrlError, Listen, ListenError, Name, NameError, Origin, OriginError, Period, PeriodError, QueueUrl,
    QueueUrlError, Secret, ServiceUrl, ServiceUrlError, StatusMatch, Statuses,
};

/// The whole configuration, its secrets read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The gateway's own side.
    #[serde(default)]
    pub server: Server,
    /// The database.
    pub store: Store,
    /// The fast hints.
    #[serde(default)]
    pub marks: Marks,
    /// Responses in memory.
    #[serde(default)]
    pub cache: Cache,
    /// Leases, rescue and clearing away.
    #[serde(default)]
    pub engine: Engine,
    /// Where events go that name no other queue.
    #[serde(default)]
    pub queue: Queue,
    /// Other queues. Default none.
    #[serde(default)]
    pub queues: Vec<Queue>,
    /// Who the caller is.
    #[serde(default)]
    pub auth: Auth,
    /// Secrets of the gateway itself.
    #[serde(default)]
    pub secrets: Secrets,
    /// The services behind the gateway. Default none.
    #[serde(default)]
    pub upstreams: Vec<Upstream>,
    /// Which requests go where. Default none.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Which messages are delivered where. Default none.
    #[serde(default)]
    pub subscriptions: Vec<Subscription>,
}

impl Config {
    /// Reads the file at `path`, then overrides from `env` (see [`process_env`]), then `flags`: pairs of a
    /// key's path (`server.listen`) and its value. Where a name holds a `.`, only a variable can address it.
    ///
    /// # Errors
    /// If the file can't be read, a key is unknown, missing or wrong, or a secret can't be read.
    pub fn load(
        path: &Path,
        env: impl IntoIterator<Item = (String, String)>,
        flags: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| ConfigError::Read { file: file.clone(), source })?;
        Self::parse(&file, &text, env, flags)
    }

    /// Like [`Config::load`], of a text that errors call `file`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(
        file: &str,
        text: &str,
        env: impl IntoIterator<Item = (String, String)>,
        flags: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let env = env::Env::new(env);
        let mut document = document::Document::parse(file, text)?;
        for (name, path, value) in env.overrides() {
            document.set(name, &path, value)?;
        }
        for (path, value) in flags {
            document.set("command line", &path.split('.').collect::<Vec<_>>(), &value)?;
        }
        value::resolve(&mut document, &env)?;
        document.deserialize()
    }

    /// All queues, the one called `default` first.
    pub fn all_queues(&self) -> impl Iterator<Item = &Queue> {
        std::iter::once(&self.queue).chain(&self.queues)
    }

    /// The queue called `name`.
    #[must_use]
    pub fn queue(&self, name: &Name) -> Option<&Queue> {
        self.all_queues().find(|queue| queue.name == *name)
    }

    /// The upstream called `name`.
    #[must_use]
    pub fn upstream(&self, name: &Name) -> Option<&Upstream> {
        self.upstreams.iter().find(|upstream| upstream.name == *name)
    }
}

/// A default that is not zero.
const fn at_least_one(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        store.url = "sqlite://a.db"
        [[upstreams]]
        name = "payments"
        urls = ["http://127.0.0.1:9090"]
        [[routes]]
        name = "create-payment"
        match = "POST /v1/payments"
        upstream = "payments"
        idempotency = { key = ["body:/order_no", "header"] }
    "#;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn load(env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, String> {
        Config::parse("test.toml", FILE, pairs(env), pairs(flags)).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_override_the_file_and_flags_override_variables() {
        let env = [
            ("ONCEGATE__STORE__URL", "postgres://me@db/x"),
            ("ONCEGATE__SERVER__LISTEN", "127.0.0.1:1"),
            ("ONCEGATE__UPSTREAMS__payments__URLS", "[\"http://a:1\", \"http://b:2\"]"),
            ("ONCEGATE__ROUTES__create-payment__IDEMPOTENCY__RETENTION", "48h"),
            ("ONCEGATE_FINGERPRINT_SECRET", "not an override"),
        ];
        let config = load(&env, &[("server.listen", "127.0.0.1:2"), ("store.writers", "3")]).unwrap();
        assert_eq!(config.store.url.as_str(), "postgres://me@db/x");
        assert_eq!(config.server.listen.to_string(), "127.0.0.1:2");
        assert_eq!(config.store.writers.get(), 3);
        assert_eq!(config.upstreams[0].urls.len(), 2);
        assert_eq!(config.routes[0].idempotency.as_ref().unwrap().retention.to_string(), "2d");
    }

    #[test]
    fn an_error_names_the_origin_the_key_the_value_and_what_would_be_right() {
        let retention = "ONCEGATE__ROUTES__CREATE_PAYMENT__IDEMPOTENCY__RETENTION";
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        let table: [(Pairs<'_>, Pairs<'_>, &str); 10] = [
            (&[(retention, "10")], &[], "routes.create-payment.idempotency.retention: invalid type: integer `10`"),
            (
                &[(retention, "10w")],
                &[],
                "routes.create-payment.idempotency.retention: `10w`: a duration is an integer",
            ),
            (&[("ONCEGATE__STORE__WRITER", "1")], &[], "store.writer: unknown key `writer`; did you mean `writers`?"),
            (&[("ONCEGATE__STORE__WRITERS", "0")], &[], "store.writers: invalid value: integer `0`"),
            (&[("ONCEGATE__STOR__URL", "x")], &[], "stor: unknown key `stor`; did you mean `store`?"),
            (
                &[],
                &[("routes.create-payment.idempotency.key", "bdy:/no")],
                "routes.create-payment.idempotency.key: \"bdy:/no\" is no key source: it is",
            ),
            (&[], &[("auth.mode", "heder")], "auth.mode: unknown value `heder`; did you mean `header`?"),
            (&[], &[("marks.url", "redis://:pw@a")], "marks.url: a URL never holds a password"),
            (&[], &[("store.password", "env:PW")], "store.password: the environment variable PW is not set"),
            (
                &[],
                &[("routes.create-payment.match", "POST")],
                "routes.create-payment.match: `POST`: a route is written",
            ),
        ];
        for (env, flags, expected) in table {
            let error = load(env, flags).unwrap_err();
            let origin = env.first().map_or("command line", |(name, _)| name);
            assert!(error.starts_with(&format!("{origin}: {expected}")), "{error}");
        }
    }

    #[test]
    fn an_error_of_the_file_names_the_file() {
        let parse = |text: &str| Config::parse("my.toml", text, [], []).unwrap_err().to_string();
        assert_eq!(parse(""), "my.toml: the top level: missing key `store`");
        assert_eq!(parse("store = {}"), "my.toml: store: missing key `url`");
        assert!(parse("store.url = 'memory:'\nserver = [").starts_with("my.toml: TOML parse error at line 2"));
        let text = "store.url = 'memory:'\n[[upstreams]]\nname = 'a'\nurls = ['http://a/b']";
        assert!(
            parse(text).starts_with("my.toml: upstreams.a.urls[0]: `http://a/b`: write http://"),
            "{}",
            parse(text)
        );
        let missing = Config::load(Path::new("/no/such.toml"), [], []).unwrap_err().to_string();
        assert!(missing.starts_with("/no/such.toml: "), "{missing}");
    }
}
