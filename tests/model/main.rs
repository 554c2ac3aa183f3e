//! The engine, its committer and housekeeping, people's decisions and the relay, as they are, over a store, marks, a
//! service and a broker in memory, in random schedules: each process has a runtime and a clock of its own, every call to
//! an adapter may be held up, lost, or left without an answer, and at each of them a process may be killed, stand still
//! until its lease is gone, or drain. What must be true all the same:
//!
//! - **Sent once.** Nothing of a key is sent while what was sent before may have happened, unless the route forwards
//!   again (as a further attempt of the same request), or its service or a person said that it did not happen. Nor does
//!   it take effect twice.
//! - **Told truly.** Whoever is answered with what happened gets what happened, to their own request, in their own scope.
//! - **Kept.** What took effect is never forgotten. An answer that a living process has heard completes the entry, or is
//!   kept as evidence where somebody else has settled it.
//! - **Announced.** A completed entry has its events, saying what they are to say; nothing else has any.
//! - **Delivered.** Every event is confirmed by the broker at least once before it counts as sent, as it was committed,
//!   and in order per key.
//! - **Over.** In the end nobody waits, nothing is in progress, and what a lookup can settle is settled.
//!
//! What is in memory keeps the rules of the contracts and nothing else (`ledger`, `marks`, `desk`, and the outbox of the
//! relay's own model). What is not covered: retention, the outbox's desk, doors (HTTP, subscriptions), and what the real
//! adapters do, which have contract suites of their own in `tests/it/`.
//!
//! Everything is drawn from a seed, also what the engine draws (`oncegate::chance`): `ONCEGATE_MODEL_SEED` repeats one
//! schedule and tells its story, `ONCEGATE_MODEL_SCHEDULES` says how many are tried.

#![cfg(debug_assertions)]
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod desk;
mod events;
mod ledger;
mod marks;
#[path = "../it/outbox/relay/model/outbox.rs"]
#[expect(dead_code, reason = "the relay's own model decides about events as people do")]
mod outbox;
mod process;
mod requests;
mod schedule;
mod upstream;
mod world;

use std::cell::Cell;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use schedule::{Schedule, Told};

/// How many schedules are tried, unless `ONCEGATE_MODEL_SCHEDULES` says it.
const SCHEDULES: u64 = 2_000;

thread_local! {
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// The schedule of `seed`. A panic of whoever is tested is wrong as well; those of the schedule make no sound.
fn run(seed: u64, with_story: bool) -> Told {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICKED.set(true);
            before(info);
        }));
    });
    PANICKED.set(false);
    let mut told = Schedule::run(seed, with_story);
    if PANICKED.get() {
        told.wrongs.push("something panicked".to_owned());
    }
    told
}

fn number(variable: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "a test's own settings")]
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}

#[test]
fn whatever_happens_to_whom_the_promises_hold() {
    if let Some(seed) = number("ONCEGATE_MODEL_SEED") {
        let told = run(seed, true);
        println!("{}", told.story.unwrap_or_default());
        assert!(told.wrongs.is_empty(), "{:#?}", told.wrongs);
        return;
    }
    let count = number("ONCEGATE_MODEL_SCHEDULES").unwrap_or(SCHEDULES);
    let first = number("ONCEGATE_MODEL_FIRST").unwrap_or(0);
    let (next, failed) = (AtomicU64::new(first), AtomicBool::new(false));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let told = run(seed, false);
                    if !told.wrongs.is_empty() {
                        failed.store(true, Ordering::Relaxed);
                        println!("schedule {} of {count} fails:\n{:#?}", seed - first + 1, told.wrongs);
                        println!("ONCEGATE_MODEL_SEED={seed} cargo test --test model whatever -- --nocapture");
                    }
                }
            });
        }
    });
    assert!(!failed.load(Ordering::Relaxed), "a schedule fails");
    println!("{count} schedules");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..200 {
        let [first, second] = [(); 2].map(|()| run(seed, false).fingerprint);
        assert_eq!(first, second, "ONCEGATE_MODEL_SEED={seed}");
    }
}
