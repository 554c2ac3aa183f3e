//! Fingerprints: keyed digests of what a request means, compared when a key comes again.

mod meaning;
mod multipart;
mod percent;
mod secrets;

pub use meaning::{Meaning, Parts, Rules};
pub use secrets::{MIN_SECRET_BYTES, Secrets, SecretsError};

/// The rules by which meanings are taken and spelled today. Any change of a spelling is a new version, or
/// requests of before the change would look like other requests.
pub const RULES_VERSION: u8 = 1;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_survives_its_stored_form() {
        let fingerprint = Fingerprint { version: 1, secret: SecretId([1, 2, 3, 4]), digest: [5; 32] };
        assert_eq!(Fingerprint::decode(&fingerprint.encode()), Some(fingerprint));
        assert_eq!(Fingerprint::decode(&fingerprint.encode()[1..]), None);
    }
}
