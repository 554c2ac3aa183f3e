//! The outbox: its contract on each database, and what stands on it.

mod contract;
mod relay;
