//! The properties of the fuzz targets (`fuzz/properties/`), for a bounded time: on each file of the corpus, and on bytes
//! near them and far from them.
//!
//! `ONCEGATE_PROPERTY_SECONDS` says for how long each is tried, two seconds if it is not set; `ONCEGATE_TEST_SEED` tries
//! the same bytes again. Bytes that break one are written down, to become a file of the corpus.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "../../fuzz/properties/mod.rs"]
mod properties;

use std::panic;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncegate::clock;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

/// The longest bytes that are made up.
const LONGEST: usize = 1024;

/// The same, of those that come from a longer file of the corpus.
const GROWTH: usize = 64;

fn number(variable: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "a test's own settings")]
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}

/// What is known to be worth a try.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn near(seeds: &[(PathBuf, Vec<u8>)], rng: &mut SmallRng) -> Vec<u8> {
    let far = |rng: &mut SmallRng| -> Vec<u8> {
        let length = rng.random_range(0..LONGEST) >> rng.random_range(0..8);
        (0..length).map(|_| rng.random()).collect()
    };
    if rng.random_bool(0.2) {
        return far(rng);
    }
    let mut bytes = seeds[rng.random_range(0..seeds.len())].1.clone();
    for _ in 0..rng.random_range(1..8) {
        let at = rng.random_range(0..=bytes.len());
        match rng.random_range(0..5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.random()),
            2 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            _ => {
                let other = &seeds[rng.random_range(0..seeds.len())].1;
                let (from, most) = (rng.random_range(0..=other.len()), rng.random_range(0..=GROWTH));
                let piece: Vec<u8> = other[from..].iter().copied().take(most).collect();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// Checks the property, and writes down what breaks it.
fn check(target: &str, bytes: &[u8], from: &str) {
    let Err(broken) = panic::catch_unwind(|| properties::check(target, bytes)) else { return };
    let path = std::env::temp_dir().join(format!("oncegate-{target}-{}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    eprintln!("{target} does not hold for {} (from {from})", path.display());
    eprintln!("cp {} fuzz/corpus/{target}/ && cargo test --test properties {target}", path.display());
    panic::resume_unwind(broken);
}

fn try_out(target: &str) {
    let seeds = corpus(target);
    assert!(!seeds.is_empty(), "{target} has no corpus");
    for (path, bytes) in &seeds {
        check(target, bytes, &path.display().to_string());
    }
    let seed = number("ONCEGATE_TEST_SEED").unwrap_or_else(rand::random);
    let mut rng = SmallRng::seed_from_u64(seed);
    let deadline = clock::now() + Duration::from_secs(number("ONCEGATE_PROPERTY_SECONDS").unwrap_or(2));
    let mut tried = 0_u64;
    while clock::now() < deadline {
        check(target, &near(&seeds, &mut rng), &format!("ONCEGATE_TEST_SEED={seed}"));
        tried += 1;
    }
    println!("{target}: {} files, {tried} others", seeds.len());
}

macro_rules! targets {
    ($($target:ident),* $(,)?) => {
        $(#[test]
        fn $target() {
            try_out(stringify!($target));
        })*

        const TARGETS: &[&str] = &[$(stringify!($target)),*];
    };
}

targets!(config, fingerprint, key, pointer, stored, token, webhook);

#[test]
fn each_property_is_tried_and_has_a_fuzz_target() {
    let names: Vec<_> = properties::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, TARGETS);
    for name in names {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/fuzz_targets/{name}.rs"));
        let text = std::fs::read_to_string(&target).unwrap();
        assert!(text.contains(&format!("check(\"{name}\", bytes)")), "{}", target.display());
    }
}
