//! The integration tests: one binary, against real servers that it starts privately on free loopback ports
//! (or that `ONCEGATE_TEST_*_URL` names).

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod demo;
mod engine;
mod faults;
mod http;
mod identities;
mod instances;
mod layer;
mod ledger;
mod listener;
mod marks;
mod servers;
mod upstream;
