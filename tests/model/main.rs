//! A model test.
#![cfg(debug_assertions)]
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

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
const SCHEDULES: u64 = 100_000;

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
