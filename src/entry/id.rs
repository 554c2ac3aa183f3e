//! Identities and their digests.

use std::fmt;

use sha2::{Digest, Sha256};

use super::{Key, Namespace, Scope};
use crate::chance;

/// What makes two requests the same one: the kind of operation, whose it is, and the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// What kind of operation the key belongs to.
    pub namespace: Namespace,
    /// Whose key it is.
    pub scope: Scope,
    /// The client's key.
    pub key: Key,
}

impl Identity {
    /// The digest under which the ledger and the marks know this identity.
    #[must_use]
    pub fn id(&self) -> EntryId {
        EntryId::of_parts(&[self.namespace.as_str(), &self.scope.to_string(), self.key.as_str()])
    }
}

/// SHA-256 over the length-prefixed namespace, scope and key.
///
/// A digest, so that the unique index is narrow and compares bytes in every database whatever its
/// collation; length-prefixed, so that no two identities spell the same input. It never changes for a
/// given identity: upstreams see it as the derived key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub [u8; 32]);

impl EntryId {
    pub(crate) fn of_parts(parts: &[&str]) -> Self {
        Self(digest_parts(parts).into())
    }

    /// Reads [`Self::to_hex`]'s form.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(id))
    }

    /// Lower-case hex, 64 characters: the opaque id of the admin API and the derived upstream key.
    #[must_use]
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }
}

impl fmt::Debug for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0[..8]))
    }
}

/// The random value that fences every later write of one execution: who does not know it can't finish,
/// release or take over the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub [u8; 16]);

impl Nonce {
    /// A fresh one from the operating system's seeded generator.
    #[must_use]
    pub fn random() -> Self {
        Self(chance::random())
    }
}

/// One run of a gateway process. Random, so that an id once expired never comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub [u8; 16]);

impl InstanceId {
    /// A fresh one.
    #[must_use]
    pub fn random() -> Self {
        Self(chance::random())
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// SHA-256 over `parts`, each preceded by its length, so that ("ab", "c") and ("a", "bc") differ.
pub(super) fn digest_parts(parts: &[&str]) -> sha2::digest::Output<Sha256> {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    digest.finalize()
}

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_a_byte_between_parts_changes_the_id() {
        assert_ne!(EntryId::of_parts(&["ab", "c", "d"]), EntryId::of_parts(&["a", "bc", "d"]));
        assert_ne!(EntryId::of_parts(&["a", "", "b"]), EntryId::of_parts(&["a", "b", ""]));
    }

    /// Upstreams remember derived keys for ever: this value must never change.
    #[test]
    fn the_id_of_an_identity_is_stable_for_ever() {
        let id = EntryId::of_parts(&["create-payment", "global", "1"]);
        assert_eq!(id.to_hex(), "7358d55d0ff655fddec3429ab862be6ce4a3c940346332131f7f3c0138b768b0");
    }
}
