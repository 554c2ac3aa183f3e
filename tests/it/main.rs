//! The integration tests: one binary, against real servers that it starts privately on free loopback ports
//! (or that `ONCEGATE_TEST_*_URL` names).

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod broker;
mod deliveries;
mod deliveries_cli;
mod demo;
mod engine;
mod entries_cli;
mod events_cli;
mod faults;
mod http;
mod identities;
mod inbox;
mod instances;
mod layer;
mod ledger;
mod listener;
mod marks;
mod outbox;
mod queues;
mod servers;
mod subscriptions;
mod switches;
mod switches_cli;
mod upstream;
