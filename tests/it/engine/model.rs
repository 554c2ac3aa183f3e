//! Random schedules: processes that come, lose their lease and are killed at any await, requests of few keys
//! whose executions end in every way, and what must be true all the same.
//!
//! - What may have happened is not executed again, unless the route says so: it forwards again, or its
//!   upstream said that it did not happen.
//! - A replay is the answer of what happened.
//! - What happened is never forgotten, and nothing is in progress for ever.
//!
//! Seeded: `ONCEGATE_TEST_SEED` repeats a schedule (threads still run as they like), and
//! `ONCEGATE_TEST_MODEL_SECONDS` says for how long to try new ones.

mod request;
mod story;
mod world;

use std::sync::Arc;
use std::time::Duration;

use oncegate::clock;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::servers::process::given;
use request::Request;
use world::World;

/// Steps of one schedule: enough for several lives of each key and process.
const STEPS: usize = 120;

#[test]
fn whatever_happens_to_whom_the_promises_hold() {
    let number = |variable: &str| given(variable).map(|value| value.parse::<u64>().expect("a number"));
    let seconds = number("ONCEGATE_TEST_MODEL_SECONDS").unwrap_or(4);
    let seed = number("ONCEGATE_TEST_SEED");
    let deadline = clock::now() + Duration::from_secs(seconds);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    loop {
        let seed = seed.unwrap_or_else(rand::random);
        eprintln!("ONCEGATE_TEST_SEED={seed}");
        runtime.block_on(schedule(StdRng::seed_from_u64(seed)));
        if clock::now() >= deadline {
            return;
        }
    }
}

async fn schedule(mut rng: StdRng) {
    let mut world = World::new().await;
    for _ in 0..STEPS {
        let process = rng.random_range(0..world::PROCESSES);
        match rng.random_range(0..100) {
            0..50 => {
                let caller = world.arrive(process, Request::random(&mut rng));
                if rng.random_bool(0.2) {
                    caller.abort();
                }
            }
            50..75 => world.let_one_end(&mut rng),
            75..80 => world.lose_lease(process).await,
            80..84 => world.kill(process).await,
            _ => world.keep_house(process).await,
        }
        if rng.random_bool(0.5) {
            world.settle_down(process).await;
        }
    }
    world.end().await;
}

/// What all parts of a schedule share.
type Shared<T> = Arc<std::sync::Mutex<T>>;
