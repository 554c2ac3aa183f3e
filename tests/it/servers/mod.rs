//! Private servers for the tests, started once per run on free loopback ports.
