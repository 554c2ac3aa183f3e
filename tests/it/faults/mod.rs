//! Gateway processes that are killed, paused and cut off from their stores while clients retry.
//!
//! Each test starts real gateways on real servers, loads them with clients that retry as SDKs do, breaks
//! something, and checks in the end ([`world::World::settle`]): the upstream saw each key at most once; every caller
//! of a key got the same answer; what was recorded is replayed; nothing stays in progress.
//!
//! The faults come at moments that a seed decides. It is printed, and `ONCEGATE_TEST_SEED` repeats it;
//! `ONCEGATE_TEST_SECONDS` makes the load longer.

mod client;
mod clocks;
mod commits;
mod database;
#[cfg(feature = "redis-streams")]
mod events;
mod gateway;
mod kills;
mod load;
mod marks;
mod overload;
mod pauses;
mod proxy;
mod rescue;
#[cfg(feature = "rabbitmq")]
mod run;
mod storms;
mod upstream;
mod world;

use std::time::Duration;

use oncegate::clock;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::servers::process::given;

/// The gateways' lease. Short, but an upstream's timeout and a slow machine's pauses fit in.
const LEASE: Duration = Duration::from_millis(2500);

/// Longest wait for anything: many leases, since machines that test are busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// The randomness of one test, printed so that a failure can be repeated.
fn seeded(test: &str) -> SmallRng {
    let seed = given("ONCEGATE_TEST_SEED").map_or_else(rand::random, |seed| seed.parse().unwrap());
    println!("{test}: ONCEGATE_TEST_SEED={seed}");
    SmallRng::seed_from_u64(seed)
}

/// How long a test keeps its load up.
fn load_time() -> Duration {
    Duration::from_secs(given("ONCEGATE_TEST_SECONDS").map_or(3, |seconds| seconds.parse().unwrap()))
}

/// Lets a part of the load pass before a fault, as the seed decides.
async fn a_moment(rng: &mut SmallRng) {
    tokio::time::sleep(load_time().mul_f64(rng.random_range(0.05..0.3))).await;
}

/// Polls until `holds`.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = clock::now() + PATIENCE;
    while !holds().await {
        assert!(clock::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
