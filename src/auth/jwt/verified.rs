//! Tokens whose signature has been verified: a client sends the same one with each of its requests, and verifying costs
//! more than all else that the gateway does for a replay.

use std::fmt;
use std::sync::Arc;

use moka::sync::Cache;
use sha2::{Digest as _, Sha256};

use super::KeySet;
use super::claims::Claims;

/// Bytes of claims that are remembered: those of some 10,000 tokens of the usual size.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Remembers claims by the token's digest; never that they are good: whether they still count is asked each time.
#[derive(Clone)]
pub(super) struct Verified(Cache<[u8; 32], Arc<Seen>>);

struct Seen {
    /// What has verified it. Once another set counts, so must the signature.
    by: Arc<KeySet>,
    claims: Arc<Claims>,
    /// About how much memory it takes.
    bytes: u32,
}

impl Verified {
    pub(super) fn new() -> Self {
        let weigh = |_: &[u8; 32], seen: &Arc<Seen>| seen.bytes;
        Self(Cache::builder().weigher(weigh).max_capacity(MAX_BYTES).build())
    }

    /// The claims of `token`, if `set` has verified it.
    pub(super) fn get(&self, token: &str, set: &Arc<KeySet>) -> Option<Arc<Claims>> {
        let seen = self.0.get(&digest(token))?;
        Arc::ptr_eq(&seen.by, set).then(|| Arc::clone(&seen.claims))
    }

    /// Remembers that `set` has verified `token`.
    pub(super) fn put(&self, token: &str, set: &Arc<KeySet>, claims: &Arc<Claims>) {
        // A map takes about three times its text.
        let bytes = u32::try_from(token.len().saturating_mul(3)).unwrap_or(u32::MAX);
        let seen = Seen { by: Arc::clone(set), claims: Arc::clone(claims), bytes };
        self.0.insert(digest(token), Arc::new(seen));
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Tells nothing of what it holds.
impl fmt::Debug for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verified").field("tokens", &self.0.entry_count()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(secret: &[u8]) -> Arc<KeySet> {
        Arc::new(KeySet::of_secrets([secret]).unwrap())
    }

    #[test]
    fn a_token_is_known_to_the_set_that_has_verified_it_and_no_other() {
        let (verified, one, other) = (Verified::new(), set(b"one"), set(b"one"));
        let claims = Arc::new(Claims::from_iter([("sub".to_owned(), "ann".into())]));
        assert!(verified.get("a.b.c", &one).is_none());
        verified.put("a.b.c", &one, &claims);
        assert_eq!(verified.get("a.b.c", &one), Some(claims));
        assert!(verified.get("a.b.c", &other).is_none() && verified.get("a.b.d", &one).is_none());
    }
}
