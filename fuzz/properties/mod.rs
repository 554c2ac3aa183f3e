//! What must be true whatever the bytes: one property for each surface that reads what others have written.
//!
//! Each takes any bytes and panics where its promise is broken. The fuzz targets (`fuzz/fuzz_targets/`) look for such
//! bytes by coverage, `tests/properties/` tries the corpus and what is near it in each run of the tests.

mod config;
mod document;
mod fingerprint;
mod input;
mod key;
mod pointer;
mod stored;
mod token;
mod webhook;

/// A property, by the name of its target.
pub(crate) type Property = (&'static str, fn(&[u8]));

/// All of them.
pub(crate) const ALL: &[Property] = &[
    ("config", config::holds),
    ("fingerprint", fingerprint::holds),
    ("key", key::holds),
    ("pointer", pointer::holds),
    ("stored", stored::holds),
    ("token", token::holds),
    ("webhook", webhook::holds),
];

/// Checks the property of a target.
pub(crate) fn check(target: &str, bytes: &[u8]) {
    let (_, holds) = ALL.iter().find(|(name, _)| *name == target).expect("a target");
    holds(bytes);
}
