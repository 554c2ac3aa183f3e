//! The changes that compare first, as scripts that run in the server in one step.
//!
//! Offsets: `string.sub` counts from 1, `GETRANGE` from 0; see [`crate::marks::encoding`]. Only the head of a
//! value is fetched, since a whole one may carry a response.

use deadpool_redis::redis::{Cmd, Script as Hashed, cmd};

use super::link::{Link, Refusal, Reply};
use crate::engine::marks::Unavailable;
use crate::marks::breaker::Breaker;

const COMPLETE: &str = r"
local head = redis.call('GETRANGE', KEYS[1], 0, 17)
if head == '' or string.sub(head, 3, 18) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return 1
end
return 0";

const RELEASE: &str = r"
if string.sub(redis.call('GETRANGE', KEYS[1], 0, 17), 3, 18) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0";

const EXTEND: &str = r"
if string.sub(redis.call('GETRANGE', KEYS[1], 0, 17), 2, 18) == '\1' .. ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0";

/// A script, called by its hash; by its source where the server does not know it (any more), which also
/// makes it known. Never loaded apart from a call: a restart in between would undo that.
#[derive(Debug)]
pub(super) struct Script {
    source: &'static str,
    hash: String,
}

/// The three of them.
#[derive(Debug)]
pub(super) struct Scripts {
    /// Key, then nonce, value, milliseconds: sets the value if the nonce is there or no value is.
    pub(super) complete: Script,
    /// Key, then nonce: deletes the value if the nonce is there.
    pub(super) release: Script,
    /// Key, then nonce, milliseconds: prolongs the value if it is in progress and the nonce is there.
    pub(super) extend: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self { complete: Script::new(COMPLETE), release: Script::new(RELEASE), extend: Script::new(EXTEND) }
    }
}

impl Script {
    fn new(source: &'static str) -> Self {
        Self { source, hash: Hashed::new(source).get_hash().to_owned() }
    }

    /// Runs it on `key`.
    pub(super) async fn call(
        &self,
        breaker: &Breaker,
        link: &Link,
        key: &str,
        args: &[&[u8]],
    ) -> Result<Reply, Unavailable> {
        match breaker.call(link.exchange(&self.by_hash(key, args))).await? {
            Err(Refusal::NoScript) => breaker.call(link.exchange(&self.by_source(key, args))).await,
            reply => Ok(reply),
        }
    }

    /// Runs it on each of `calls` (key and arguments), in one pipeline.
    pub(super) async fn call_all(
        &self,
        breaker: &Breaker,
        link: &Link,
        calls: &[(String, [&[u8]; 2])],
    ) -> Result<(), Unavailable> {
        let commands: Vec<Cmd> = calls.iter().map(|(key, args)| self.by_hash(key, args)).collect();
        let replies = breaker.call(link.exchange_all(&commands)).await?;
        let unknown = calls.iter().zip(replies).filter(|(_, reply)| *reply == Err(Refusal::NoScript));
        let again: Vec<Cmd> = unknown.map(|((key, args), _)| self.by_source(key, args)).collect();
        if again.is_empty() {
            return Ok(());
        }
        breaker.call(link.exchange_all(&again)).await.map(drop)
    }

    fn by_hash(&self, key: &str, args: &[&[u8]]) -> Cmd {
        invocation("EVALSHA", &self.hash, key, args)
    }

    fn by_source(&self, key: &str, args: &[&[u8]]) -> Cmd {
        invocation("EVAL", self.source, key, args)
    }
}

fn invocation(name: &str, script: &str, key: &str, args: &[&[u8]]) -> Cmd {
    let mut command = cmd(name);
    command.arg(script).arg(1).arg(key);
    for arg in args {
        command.arg(*arg);
    }
    command
}
