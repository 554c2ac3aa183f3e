//! What is compared with what.

use std::time::Duration;

use clap::ValueEnum;

use crate::load::{Keys, Load, Measured, Until};
use crate::report::{self, Measure, Needed, Series};
use crate::servers::{self, Program, Running, Settings};
use crate::{Options, database};

/// A group of contenders that take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// First requests on PostgreSQL: batched, one by one, and pgbench's two commits a request.
    Postgres,
    /// First requests on SQLite: batched, and one by one.
    Sqlite,
    /// Replays and requests that pass through, and the proxies that do nothing else.
    Proxy,
    /// One client on PostgreSQL: what batching and the two commits add to a request.
    Latency,
    /// Memory of cached answers and of requests in progress.
    Memory,
}

/// One side of a comparison.
enum Contender {
    Load(Load),
    PgBench { url: String, clients: usize },
}

impl Contender {
    async fn measure(&self, period: Duration) -> Measured {
        match self {
            Self::Load(load) => load.run(Until::Elapsed(period)).await,
            Self::PgBench { url, clients } => database::pgbench(url, *clients, period),
        }
    }
}

/// How long each contender runs before anything counts: connections, plans and caches are then there.
const WARM_UP: Duration = Duration::from_secs(3);

/// Clients of a gateway that is busy. pgbench needs a connection for each.
const CROWD: usize = 256;

/// Answers that are replayed: more than a gateway's threads have in their processor's caches.
const KNOWN: u64 = 10_000;

impl Group {
    pub(crate) async fn run(self, options: &Options) {
        let upstream = servers::peer("upstream", &[]);
        let program = Program(options.more.gateway.clone());
        match self {
            Self::Postgres => postgres(options, &program, upstream.port).await,
            Self::Sqlite => sqlite(options, &program, upstream.port).await,
            Self::Proxy => proxy(options, &program, upstream.port).await,
            Self::Latency => latency(options, &program, upstream.port).await,
            Self::Memory => memory(&program, upstream.port).await,
        }
    }
}

/// Lets the contenders take turns.
async fn take_turns(options: &Options, contenders: Vec<(&'static str, Contender)>) -> Vec<Series> {
    for (_, contender) in &contenders {
        contender.measure(WARM_UP).await;
    }
    let mut all: Vec<_> = contenders.iter().map(|(name, _)| Series { name, rounds: Vec::new() }).collect();
    for _ in 0..options.rounds {
        for ((_, contender), series) in contenders.iter().zip(&mut all) {
            series.rounds.push(contender.measure(Duration::from_secs(options.seconds)).await);
        }
    }
    report::contenders(&all);
    all
}

fn load(server: &Running, path: &'static str, keys: Keys, connections: usize) -> Contender {
    Contender::Load(Load { port: server.port, path, keys, connections })
}

fn settings(url: &str, batch_limit: Option<u32>) -> Settings<'_> {
    Settings { store: Some(url), batch_limit, ..Settings::default() }
}

async fn postgres(options: &Options, program: &Program, upstream: u16) {
    report::title("First requests, PostgreSQL");
    let server = database::start();
    let urls = ["batched", "single", "pgbench"].map(|name| database::create(&server, name));
    let gateway = |url, batch_limit| program.gateway(upstream, settings(url, batch_limit));
    let (batched, single) = (gateway(&urls[0], None), gateway(&urls[1], Some(1)));
    // It makes the table that pgbench writes to.
    drop(gateway(&urls[2], None));
    let fresh = |server, clients| load(server, "/pay", Keys::Fresh, clients);
    let pgbench = |clients| Contender::PgBench { url: urls[2].clone(), clients };
    let few = options.more.connections;
    let contenders = vec![
        ("gateway", fresh(&batched, few)),
        ("gateway, one by one", fresh(&single, few)),
        ("pgbench, two commits", pgbench(few)),
        ("gateway, a crowd", fresh(&batched, CROWD)),
        ("pgbench, a crowd", pgbench(CROWD)),
    ];
    let all = take_turns(options, contenders).await;
    report::ratio(&all[0], &all[1], Measure::Rate, Needed::AtLeast(5.0));
    report::ratio(&all[0], &all[2], Measure::Rate, Needed::Nothing);
    report::ratio(&all[3], &all[4], Measure::Rate, Needed::AtLeast(2.0));
}

async fn sqlite(options: &Options, program: &Program, upstream: u16) {
    report::title("First requests, SQLite");
    let gateway = |batch_limit| program.gateway(upstream, Settings { batch_limit, ..Settings::default() });
    let (batched, single) = (gateway(None), gateway(Some(1)));
    let fresh = |server| load(server, "/pay", Keys::Fresh, options.more.connections);
    let contenders = vec![("gateway", fresh(&batched)), ("gateway, one by one", fresh(&single))];
    let all = take_turns(options, contenders).await;
    report::ratio(&all[0], &all[1], Measure::Rate, Needed::AtLeast(3.0));
}

async fn proxy(options: &Options, program: &Program, upstream: u16) {
    report::title("Replays and pass-through");
    let gateway = program.gateway(upstream, Settings::default());
    let (bare, nginx) = (servers::peer("proxy", &[upstream]), servers::nginx(upstream));
    let known = Load { port: gateway.port, path: "/pay", keys: Keys::Known(KNOWN), connections: 1 };
    known.run(Until::Sent(KNOWN)).await;
    let connections = options.more.connections;
    let mut contenders = vec![
        ("replay", load(&gateway, "/pay", Keys::Known(KNOWN), connections)),
        ("pass-through", load(&gateway, "/pass", Keys::Fresh, connections)),
        ("bare axum proxy", load(&bare, "/pass", Keys::Fresh, connections)),
    ];
    if let Some(nginx) = &nginx {
        contenders.push(("nginx", load(nginx, "/pass", Keys::Fresh, connections)));
    }
    let all = take_turns(options, contenders).await;
    report::ratio(&all[0], &all[2], Measure::Rate, Needed::AtLeast(1.2));
    report::ratio(&all[1], &all[2], Measure::Rate, Needed::AtLeast(0.9));
    if let Some(nginx) = all.get(3) {
        report::ratio(&all[0], nginx, Measure::Rate, Needed::Nothing);
        report::ratio(&all[1], nginx, Measure::Rate, Needed::Nothing);
    }
}

async fn latency(options: &Options, program: &Program, upstream: u16) {
    report::title("One client, PostgreSQL");
    let server = database::start();
    let urls = ["batched", "single"].map(|name| database::create(&server, name));
    let gateway = |url, batch_limit| program.gateway(upstream, settings(url, batch_limit));
    let (batched, single) = (gateway(&urls[0], None), gateway(&urls[1], Some(1)));
    let contenders = vec![
        ("gateway", load(&batched, "/pay", Keys::Fresh, 1)),
        ("gateway, one by one", load(&single, "/pay", Keys::Fresh, 1)),
        ("pass-through", load(&batched, "/pass", Keys::Fresh, 1)),
    ];
    let all = take_turns(options, contenders).await;
    report::ratio(&all[0], &all[1], Measure::Latency, Needed::AtMost(1.05));
    report::ratio(&all[0], &all[2], Measure::Latency, Needed::Nothing);
}

/// Requests whose memory is measured, and how many of them can be in progress: each holds two connections.
const REMEMBERED: u64 = 100_000;
const IN_PROGRESS: usize = 2_000;

async fn memory(program: &Program, upstream: u16) {
    report::title("Memory, SQLite");
    let gateway = program.gateway(upstream, Settings { cache: Some("1GiB"), ..Settings::default() });
    let connections = 64;
    let load = Load { port: gateway.port, path: "/pay", keys: Keys::Fresh, connections };
    load.run(Until::Sent(10)).await;
    let before = gateway.memory();
    load.run(Until::Sent(REMEMBERED / connections as u64)).await;
    report::memory("cached, with their marks", gateway.memory() - before, REMEMBERED as f64);

    let gateway = program.gateway(upstream, Settings::default());
    let load = Load { port: gateway.port, path: "/pay", keys: Keys::Fresh, connections };
    load.run(Until::Sent(10)).await;
    let before = gateway.memory();
    let slow = Load { path: "/slow", connections: IN_PROGRESS, ..load };
    let _held = slow.begin().await;
    // Their claims are committed long before that.
    tokio::time::sleep(Duration::from_secs(3)).await;
    report::memory("in progress, with both connections", gateway.memory() - before, IN_PROGRESS as f64);
}
