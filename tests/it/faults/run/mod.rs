//! The fault run: three gateways on PostgreSQL, Redis and RabbitMQ, clients that retry and hang up, a consumer that
//! crashes, and somebody who breaks one thing after the other. In the end everything that anybody was told or did is
//! compared, and what must not be is counted.
//!
//! `scripts/faults` runs it for as long as one likes; here it is short. The same run with an engine that is broken from
//! outside is found out.

mod checker;
mod clients;
mod document;
mod nemesis;
mod service;
mod stage;

use std::str::FromStr;
use std::time::Duration;

use oncegate::clock;
use rand::rngs::SmallRng;

use self::checker::Verdict;
use self::clients::Clients;
use self::nemesis::{Fault, Sabotage};
use self::stage::Stage;
use super::{load_time, seeded};
use crate::servers::process::given;

/// How much longer than other tests' the load of a run is.
const LONGER: u32 = 4;

/// A list that the environment names.
fn list<T: FromStr<Err = String>>(variable: &str) -> Option<Vec<T>> {
    let parse = |word: &str| word.parse().unwrap_or_else(|error| panic!("{variable}: {error}"));
    given(variable).map(|words| words.split(',').map(parse).collect())
}

async fn run(rng: SmallRng, period: Duration, faults: &[Fault], sabotage: &[Sabotage]) -> Verdict {
    let mut stage = Stage::build(sabotage).await;
    let clients = Clients::start(stage.addresses());
    let done = nemesis::rage(&mut stage, rng, period, faults, sabotage).await;
    let (history, caller) = clients.stop().await;
    let mended = clock::now();
    let evidence = checker::gather(&stage, history, &caller).await;
    let verdict = Verdict::of(&evidence).with(&caller, &done, mended.elapsed());
    println!("{verdict}");
    verdict
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_doubled_whatever_breaks() {
    let faults = list("ONCEGATE_TEST_FAULTS").unwrap_or_else(|| Fault::ALL.map(|(fault, _)| fault).into());
    let sabotage = list("ONCEGATE_TEST_SABOTAGE").unwrap_or_default();
    let period = given("ONCEGATE_TEST_SECONDS").map_or_else(|| load_time() * LONGER, |_| load_time());
    let verdict = run(seeded("a run with faults"), period, &faults, &sabotage).await;
    assert!(verdict.is_clean(), "see above");
}

/// The checks are worth what they find.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_broken_is_found_out() {
    let faults = [Fault::GatewayKill, Fault::RedisFlush, Fault::WireHalfOpen];
    let sabotage = Sabotage::ALL.map(|(sabotage, _)| sabotage);
    let verdict = run(seeded("a broken engine"), load_time() * LONGER, &faults, &sabotage).await;
    let found = [checker::EXECUTED, checker::DIFFERS, checker::UNANNOUNCED, checker::LOST, checker::DOUBLED];
    let missed: Vec<_> = found.into_iter().filter(|name| verdict.count(name) == 0).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
