//! The secrets under which fingerprints are made.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::{Comparison, Fingerprint, Meaning, RULES_VERSION, SecretId};

/// Shortest secret: 128 bits, which nobody guesses. With a guessable one a stolen database would tell card
/// numbers and amounts to whoever tries them all.
pub const MIN_SECRET_BYTES: usize = 16;

/// The fingerprint secrets: the first makes, all compare. Their HMAC states are prepared once.
#[derive(Clone)]
pub struct Secrets {
    current: Prepared,
    older: Vec<Prepared>,
}

#[derive(Clone)]
struct Prepared {
    id: SecretId,
    mac: Hmac<Sha256>,
}

/// Why the secrets can't be used. Positions count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// There is none.
    #[error("there is no fingerprint secret")]
    None,
    /// Shorter than [`MIN_SECRET_BYTES`], or empty.
    #[error("fingerprint secret {position} is shorter than {MIN_SECRET_BYTES} bytes")]
    TooShort {
        /// Which one.
        position: usize,
    },
    /// Listed twice (or, once in four thousand million, two have one id): its fingerprints could not be
    /// told apart.
    #[error("fingerprint secret {position} has the same id as an earlier one")]
    Repeated {
        /// The second one.
        position: usize,
    },
}

impl Secrets {
    /// Prepares `secrets`, the one that makes new fingerprints first.
    ///
    /// # Errors
    /// If there is none, or one is too short or listed twice.
    pub fn new(secrets: Vec<Vec<u8>>) -> Result<Self, SecretsError> {
        let mut prepared: Vec<Prepared> = Vec::with_capacity(secrets.len());
        for (secret, position) in secrets.iter().zip(1..) {
            let secret = Prepared::new(secret, position)?;
            if prepared.iter().any(|earlier| earlier.id == secret.id) {
                return Err(SecretsError::Repeated { position });
            }
            prepared.push(secret);
        }
        let mut prepared = prepared.into_iter();
        let current = prepared.next().ok_or(SecretsError::None)?;
        Ok(Self { current, older: prepared.collect() })
    }

    /// The fingerprint of `meaning` under the first secret.
    #[must_use]
    pub fn fingerprint(&self, meaning: &Meaning) -> Fingerprint {
        let digest = self.current.over(meaning).finalize().into_bytes().into();
        Fingerprint { version: RULES_VERSION, secret: self.current.id, digest }
    }

    /// Compares `meaning` with a stored fingerprint, in a time that does not tell where they differ.
    #[must_use]
    pub fn compare(&self, meaning: &Meaning, stored: &Fingerprint) -> Comparison {
        let secret = self.all().find(|secret| secret.id == stored.secret);
        match secret {
            Some(secret) if stored.version == RULES_VERSION => {
                match secret.over(meaning).verify_slice(&stored.digest) {
                    Ok(()) => Comparison::Same,
                    Err(_) => Comparison::Differs,
                }
            }
            Some(_) | None => Comparison::Incomparable,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Prepared> {
        std::iter::once(&self.current).chain(&self.older)
    }
}

impl Prepared {
    fn new(secret: &[u8], position: usize) -> Result<Self, SecretsError> {
        let too_short = SecretsError::TooShort { position };
        if secret.len() < MIN_SECRET_BYTES {
            return Err(too_short);
        }
        let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(secret));
        let mac = Hmac::new_from_slice(secret).map_err(|_| too_short)?;
        Ok(Self { id: SecretId([a, b, c, d]), mac })
    }

    fn over(&self, meaning: &Meaning) -> Hmac<Sha256> {
        let [head, body] = meaning.spelling();
        self.mac.clone().chain_update(head).chain_update(body)
    }
}

/// Shows the ids only.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().map(|secret| secret.id)).finish()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderName, HeaderValue, Method};

    use super::*;
    use crate::entry::fingerprint::{Parts, Rules};

    fn meaning(body: &'static str) -> Meaning {
        let headers = HeaderMap::new();
        let body = Bytes::from_static(body.as_bytes());
        let parts = Parts { method: &Method::POST, path: "/pay", query: None, headers: &headers, body };
        Meaning::of(parts, &Rules::default())
    }

    fn secrets(secrets: &[&str]) -> Result<Secrets, SecretsError> {
        Secrets::new(secrets.iter().map(|secret| secret.as_bytes().to_vec()).collect())
    }

    const OLD: &str = "the old secret 0";
    const NEW: &str = "the new secret 1";

    #[test]
    fn the_first_secret_makes_and_all_compare() {
        let stored = secrets(&[OLD]).unwrap().fingerprint(&meaning("1"));
        let rotated = secrets(&[NEW, OLD]).unwrap();
        assert_eq!(rotated.compare(&meaning("1"), &stored), Comparison::Same);
        assert_eq!(rotated.compare(&meaning("2"), &stored), Comparison::Differs);
        let made = rotated.fingerprint(&meaning("1"));
        assert_ne!((made.secret, made.digest), (stored.secret, stored.digest));
        assert_eq!(secrets(&[NEW]).unwrap().fingerprint(&meaning("1")), made);
    }

    #[test]
    fn an_unknown_secret_or_version_is_neither_same_nor_different() {
        let stored = secrets(&[OLD]).unwrap().fingerprint(&meaning("1"));
        assert_eq!(secrets(&[NEW]).unwrap().compare(&meaning("1"), &stored), Comparison::Incomparable);
        let newer = Fingerprint { version: RULES_VERSION + 1, ..stored };
        assert_eq!(secrets(&[OLD]).unwrap().compare(&meaning("1"), &newer), Comparison::Incomparable);
    }

    #[test]
    fn missing_short_and_repeated_secrets_are_refused() {
        assert_eq!(secrets(&[]).err(), Some(SecretsError::None));
        assert_eq!(secrets(&[""]).err(), Some(SecretsError::TooShort { position: 1 }));
        assert_eq!(secrets(&[OLD, &OLD[1..]]).err(), Some(SecretsError::TooShort { position: 2 }));
        assert_eq!(secrets(&[OLD, NEW, OLD]).err(), Some(SecretsError::Repeated { position: 3 }));
    }

    /// Stored fingerprints outlive this version: a change here needs a new rule version. The expected value
    /// was computed by another implementation.
    #[test]
    fn the_fingerprint_of_a_request_is_stable_under_one_rule_version() {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("x-currency", HeaderValue::from_static("EUR"));
        let body = Bytes::from_static(br#"{"b":[1.50,null,true],"a":"x"}"#);
        let parts = Parts { method: &Method::POST, path: "/pay", query: Some("b=2&a"), headers: &headers, body };
        let rules = Rules::new(Vec::new(), vec![HeaderName::from_static("x-currency")]);
        let made = secrets(&[OLD]).unwrap().fingerprint(&Meaning::of(parts, &rules));
        assert_eq!(
            crate::entry::id::hex(&made.encode()),
            "011ce2432dce4e10216831b134f2bccd6b2ad2cd90297a4cad27611e19fe9d9e85e9a7c07a"
        );
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", secrets(&[OLD]).unwrap());
        assert!(!shown.contains("secret 0") && shown.contains("SecretId"), "{shown}");
    }
}
