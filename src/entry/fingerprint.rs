//! Fingerprints: keyed digests of what a request means, compared when a key comes again.

use bytes::Bytes;

/// The stored fingerprint's length: rule version, secret id, digest.
pub const ENCODED_LEN: usize = 37;

/// A keyed digest of what a request means, with what is needed to compare it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    /// The rules by which the meaning was taken.
    pub version: u8,
    /// The secret under which the digest was made.
    pub secret: SecretId,
    /// HMAC-SHA-256.
    pub digest: [u8; 32],
}

/// Names a fingerprint secret without telling it: the first bytes of its SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretId(pub [u8; 4]);

/// How an arriving request compares with a stored fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// The same request.
    Same,
    /// Another request.
    Differs,
    /// The stored fingerprint's secret or version is not known here. Fail closed.
    Incomparable,
}

impl Fingerprint {
    /// The stored form.
    #[must_use]
    pub fn encode(&self) -> [u8; ENCODED_LEN] {
        let mut out = [0; ENCODED_LEN];
        out[0] = self.version;
        out[1..5].copy_from_slice(&self.secret.0);
        out[5..].copy_from_slice(&self.digest);
        out
    }

    /// Reads the stored form; `None` if it has another length.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ENCODED_LEN] = bytes.try_into().ok()?;
        let (mut secret, mut digest) = ([0; 4], [0; 32]);
        secret.copy_from_slice(&bytes[1..5]);
        digest.copy_from_slice(&bytes[5..]);
        Some(Self { version: bytes[0], secret: SecretId(secret), digest })
    }
}

/// What a request means, spelled canonically: two requests are the same one if their spellings are.
#[derive(Debug, Clone)]
pub struct Meaning {
    /// Method, path, query, selected headers, and the body where it counts by its meaning.
    head: Vec<u8>,
    /// The body where it counts by its bytes.
    body: Bytes,
}

/// The fingerprint secrets: the first makes, all compare.
#[derive(Clone)]
pub struct Secrets(Vec<(SecretId, hmac::Hmac<sha2::Sha256>)>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}
