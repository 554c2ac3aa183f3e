//! How the tests start servers privately, and see to it that none is left behind.

#[path = "../../tests/it/servers/authority.rs"]
pub(crate) mod authority;
#[path = "../../tests/it/servers/postgres.rs"]
pub(crate) mod postgres;
#[path = "../../tests/it/servers/process.rs"]
pub(crate) mod process;
#[path = "../../tests/it/servers/redis.rs"]
pub(crate) mod redis;
