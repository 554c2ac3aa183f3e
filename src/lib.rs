//! Oncegate makes payment-style requests safe to send twice.

pub mod clock;
pub mod committer;
pub mod engine;
pub mod entry;
pub mod problem;
