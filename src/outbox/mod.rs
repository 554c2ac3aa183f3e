//! The outbox: events committed together with the outcome, and the relay that publishes them.
//!
//! How an event comes into it: `rule` says what a route announces. When a request is claimed, what its events
//! need of it is rendered (`seed`) and stored with the claim; when the entry is completed, by whomever, the
//! rules make the events of the seed and the answer (`data`, `key`), and the ledger writes them in the same
//! transaction.

mod backlog;
pub mod data;
pub mod delivery;
pub mod desk;
pub mod event;
pub mod key;
pub mod lane;
pub mod late;
mod reach;
pub mod relay;
pub mod result;
pub mod rule;
pub mod seed;
pub mod status;
pub mod store;
pub mod trace;
pub mod unmet;
