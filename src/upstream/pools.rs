//! An upstream's connection pools: one pair for each runtime that asks.
//!
//! A connection is driven by the runtime in which it was opened. A request of another one would wake it across
//! threads, and be woken across threads by its answer, which costs more than the request.

use std::sync::OnceLock;

use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::runtime::{Handle, Id};

use super::buffered::Buffered;
use super::connector::Connector;
use super::options::UpstreamOptions;
use super::streaming::Streamed;

/// Runtimes with pools of their own: as many as machines have cores. Those beyond share the last ones.
const MOST_RUNTIMES: usize = 128;

/// How long an HTTP/2 connection in use may be silent before it is asked for a sign of life.
const HTTP2_PING_AFTER: std::time::Duration = std::time::Duration::from_secs(10);

/// The pools of one runtime.
#[derive(Debug)]
pub(super) struct Pools {
    /// Guarded requests. The library's own retries are off, so that only this module decides.
    pub(super) guarded: Client<Connector, Buffered>,
    /// Pass-through requests, with connections of their own so that neither kind starves the other. Here
    /// the library's retry is on, since nothing here can copy a streamed body: it sends again only what it
    /// got back unsent from a reused connection (rule 2 of [`super::failure`]).
    pub(super) streamed: Client<Connector, Streamed>,
}

/// All pools of an upstream.
#[derive(Debug)]
pub(super) struct AllPools {
    connector: Connector,
    builder: Builder,
    /// Filled from the front.
    of_runtimes: Box<[OnceLock<(Id, Pools)>]>,
}

impl AllPools {
    /// Opens no connection yet.
    pub(super) fn new(connector: Connector, options: &UpstreamOptions) -> Self {
        let of_runtimes = (0..MOST_RUNTIMES).map(|_| OnceLock::new()).collect();
        Self { connector, builder: builder(options), of_runtimes }
    }

    /// The pools of the runtime that this is called in.
    pub(super) fn here(&self) -> &Pools {
        let id = Handle::current().id();
        let mut slots = self.of_runtimes.iter().map(|slot| slot.get_or_init(|| (id, self.make())));
        let mine = slots.find(|(owner, _)| *owner == id);
        &mine.unwrap_or_else(|| self.of_runtimes[MOST_RUNTIMES - 1].get_or_init(|| (id, self.make()))).1
    }

    fn make(&self) -> Pools {
        Pools {
            guarded: self.builder.clone().retry_canceled_requests(false).build(self.connector.clone()),
            streamed: self.builder.clone().retry_canceled_requests(true).build(self.connector.clone()),
        }
    }
}

fn builder(options: &UpstreamOptions) -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        // Without its timer the pool would notice idle connections only when it hands them out.
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(options.idle_timeout)
        .pool_max_idle_per_host(options.max_idle_per_host)
        .http2_only(options.http2_prior_knowledge)
        .http2_keep_alive_interval(HTTP2_PING_AFTER)
        .set_host(false);
    builder
}
