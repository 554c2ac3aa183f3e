//! Oncegate makes payment-style requests safe to send twice.

pub mod clock;
pub mod engine;
pub mod entry;
