//! The configuration in the words of the parts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ServeError;
use crate::committer::Limits;
use crate::config::{Config, Upstream};
use crate::engine::{LeaseTiming, Options};
use crate::http::cors::CorsOptions;
use crate::http::listener::ListenerOptions;
use crate::http::tls::{TlsFiles, server_config};
use crate::marks::MarksOptions;
use crate::sealer::Sealer;
use crate::storage::StoreOptions;
use crate::upstream::{Trust, UpstreamOptions};

pub(super) fn store(config: &Config, sealer: Arc<Sealer>) -> StoreOptions {
    let store = &config.store;
    StoreOptions {
        url: store.url.as_str().to_owned(),
        password: store.password.as_ref().map(|secret| secret.expose().to_owned()),
        writers: writers(config),
        readers: count(store.readers.get()),
        acquire_timeout: store.acquire_timeout.get(),
        statement_timeout: store.statement_timeout.get(),
        lock_timeout: store.lock_timeout.get(),
        sealer,
    }
}

pub(super) fn writers(config: &Config) -> usize {
    count(config.store.writers.get())
}

pub(super) fn workers(config: &Config) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    config.server.workers.map_or_else(cores, |workers| count(workers.get()))
}

pub(super) fn limits(config: &Config) -> Limits {
    Limits {
        batch_jobs: count(config.store.batch_limit.get()),
        batch_bytes: config.store.batch_bytes.get(),
        waiting_claims: count(config.store.queue_limit.get()),
    }
}

pub(super) fn cors(config: &Config) -> Option<CorsOptions> {
    let cors = config.server.cors.as_ref()?;
    let names = |names: &[crate::config::FieldName]| names.iter().map(|name| name.get().clone()).collect();
    Some(CorsOptions {
        origins: cors.origins.iter().map(|origin| origin.uri().clone()).collect(),
        credentials: cors.credentials,
        sent: names(&cors.headers),
        read: names(&cors.expose_headers),
        max_age: cors.max_age.get(),
    })
}

pub(super) fn marks(config: &Config, sealer: Arc<Sealer>) -> Result<MarksOptions, ServeError> {
    let marks = &config.marks;
    let secret = |secret: &Option<crate::config::Secret>| secret.as_ref().map(|secret| secret.expose().to_owned());
    Ok(MarksOptions {
        url: marks.url.as_str().to_owned(),
        password: secret(&marks.password),
        sentinel_password: secret(&marks.sentinel_password),
        authorities: marks.ca.as_deref().map(read).transpose()?,
        prefix: marks.prefix.clone(),
        time_limit: marks.timeout.get(),
        memory_bytes: bytes(marks.memory.get()),
        sealer,
        ..MarksOptions::default()
    })
}

pub(super) fn engine(config: &Config) -> Options {
    let engine = &config.engine;
    Options {
        lease: LeaseTiming { lease: engine.lease.get(), renew: engine.renew.get() },
        mark_ttl: config.marks.ttl.get(),
        mark_response_limit: config.marks.small_response_limit.get(),
        cache_bytes: bytes(config.cache.bytes.get()),
        waiters: count(engine.max_waiters.get()),
        late_window: engine.late_answer.get(),
        late_answers: count(engine.max_late_answers.get()),
        record_patience: engine.record_wait.get(),
        sweep_limit: engine.sweep_limit.get(),
        lookups: count(engine.max_lookups.get()),
    }
}

pub(super) fn listener(config: &Config) -> Result<ListenerOptions, ServeError> {
    let server = &config.server;
    let tls = server.tls.as_ref();
    let files = tls.map(|tls| TlsFiles { cert: tls.cert.clone(), key: tls.key.clone() });
    Ok(ListenerOptions {
        head_timeout: server.header_timeout.get(),
        handshake_timeout: tls.map_or(ListenerOptions::default().handshake_timeout, |tls| tls.handshake_timeout.get()),
        max_head_bytes: server.header_limit.get(),
        max_headers: count(server.header_count.get()),
        max_connections: count(server.max_connections.get()),
        max_streams: server.max_streams.get(),
        drain_timeout: server.drain_timeout.get().saturating_sub(server.drain_delay.get()),
        tls: files.as_ref().map(server_config).transpose()?,
    })
}

pub(super) fn upstream(upstream: &Upstream) -> UpstreamOptions {
    UpstreamOptions {
        name: upstream.name.as_str().into(),
        urls: upstream.urls.iter().map(|url| url.uri().to_string()).collect(),
        connect_timeout: upstream.connect_timeout.get(),
        timeout: upstream.timeout.get(),
        idle_timeout: upstream.idle_timeout.get(),
        http2_prior_knowledge: upstream.http2,
        trust: trust(upstream.tls.ca.as_ref()),
        certificate: None,
        max_idle_per_host: count(upstream.max_idle.get()),
    }
}

/// Of a service behind us: its own authority, or a public one.
pub(super) fn trust(ca: Option<&PathBuf>) -> Trust {
    ca.map_or(Trust::Public, |path| Trust::PublicAnd(path.clone()))
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, ServeError> {
    std::fs::read(path).map_err(|error| ServeError::File { file: path.display().to_string(), error })
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn bytes(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
