//! Private servers, started once per test run, and a fresh database on them per test.

pub(crate) mod authority;
pub(crate) mod browser;
pub(crate) mod command;
pub(crate) mod database;
#[cfg(feature = "webhook")]
pub(crate) mod endpoint;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
pub(crate) mod mariadb;
#[cfg(feature = "nats")]
pub(crate) mod nats;
pub(crate) mod outbox;
pub(crate) mod postgres;
pub(crate) mod process;
#[cfg(feature = "rabbitmq")]
pub(crate) mod rabbitmq;
pub(crate) mod redis;
pub(crate) mod wire;
