//! Private servers, started once per test run, and a fresh database on them per test.

pub(crate) mod database;
pub(crate) mod mariadb;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod redis;
