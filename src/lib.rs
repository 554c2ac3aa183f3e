//! Oncegate makes payment-style requests safe to send twice.

pub mod auth;
pub mod broker;
pub mod chance;
pub mod clock;
pub mod committer;
pub mod config;
pub mod console;
pub mod demo;
pub mod embed;
pub mod engine;
pub mod entry;
pub mod http;
pub mod inbox;
pub mod layer;
pub mod marks;
pub mod outbox;
pub mod problem;
pub mod redis;
pub mod routing;
pub mod sealer;
pub mod server;
pub mod storage;
pub mod telemetry;
pub mod tls;
pub mod upstream;

pub use embed::{Oncegate, Setup, SetupError};
