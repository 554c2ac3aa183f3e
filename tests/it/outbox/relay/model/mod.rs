//! Random schedules of two relays, a broker and people, without a runtime: relays are killed, stopped and left
//! without time at any point; commits are unclear; the database crashes, and has only what was to be durable; the
//! broker goes away, refuses, and takes events without saying
//! so; some events kill whoever publishes them. What must be true all the same:
//!
//! - **Nothing is lost.** In the end every event is sent, discarded, parked because of what it is, or waits behind
//!   a parked one of its key that holds.
//! - **Sent means confirmed.** An event is concluded sent only by a relay that was told of a confirm, under the
//!   epoch under which it published.
//! - **Order.** Say that `a` comes before `b` when both have one key and `a`'s commit was over before `b`'s began.
//!   When `b` is sent, every such `a` is over: sent, discarded, or parked without holding. And the call whose
//!   confirm made `b` sent reached the broker after the one that made `a` sent, so whoever reads the key's events
//!   and believes the last one ends with the right one. Where `a` was published once and for all, `b` reached the
//!   broker after it from the first time on. (Not for an `a` that was parked without holding and then retried by a
//!   person: that is what skipping means.)
//! - **Early ones.** What waits for another one of its key stops nobody, and is tried only while nobody stops its
//!   key. (As an `a` it is like one that was skipped.)
//! - **Attempts.** They are refusals and deaths, and the one that is being made: an outage costs none, nor does
//!   waiting behind another one, nor what is said to be for later.
//! - **Only who deserves it is parked.** No event that the broker takes is, because of what its neighbours alone did
//!   to its relays.
//! - **Bounded.** Never more in hand than the window.
//!
//! Seeded: `ONCEGATE_TEST_SEED` repeats a schedule, `ONCEGATE_TEST_MODEL_SECONDS` says for how long to try new ones.

mod outbox;
mod process;
mod world;

use std::time::Duration;

use oncegate::broker::Ordering;
use oncegate::clock;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::servers::process::given;
use world::World;

/// Steps of one schedule: enough for several lives of each relay.
const STEPS: usize = 300;

#[test]
fn whatever_happens_to_relays_and_broker_the_promises_hold() {
    let number = |variable: &str| given(variable).map(|value| value.parse::<u64>().expect("a number"));
    let seconds = number("ONCEGATE_TEST_MODEL_SECONDS").unwrap_or(2);
    let seed = number("ONCEGATE_TEST_SEED");
    let deadline = clock::now() + Duration::from_secs(seconds);
    let mut count = 0;
    while count == 0 || (seed.is_none() && clock::now() < deadline) {
        let seed = seed.unwrap_or_else(rand::random);
        let failed = std::panic::catch_unwind(|| schedule(SmallRng::seed_from_u64(seed)));
        if let Err(failure) = failed {
            eprintln!("ONCEGATE_TEST_SEED={seed}");
            std::panic::resume_unwind(failure);
        }
        count += 1;
    }
    println!("{count} schedules");
}

fn schedule(mut rng: SmallRng) {
    let ordering = if rng.random_bool(0.7) { Ordering::ByCall } else { Ordering::OneByOne };
    let mut world = World::new(ordering, &mut rng);
    for _ in 0..STEPS {
        world.step(&mut rng);
    }
    world.end(&mut rng);
}
