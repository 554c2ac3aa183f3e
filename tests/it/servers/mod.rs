//! Private servers, started once per test run, and a fresh database on them per test.

pub(crate) mod process;
