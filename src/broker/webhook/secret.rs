//! Signatures by Standard Webhooks 1.0.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// A secret is this long, by the specification: no shorter one is safe, and a longer one gains nothing.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

const PREFIX: &str = "whsec_";

/// A secret that an endpoint and we share, written `whsec_` and Base64. Never shown.
#[derive(Clone)]
pub struct WebhookSecret(Hmac<Sha256>);

/// Why a text is no secret. It does not repeat the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a webhook's secret is `whsec_` and the Base64 of 24 to 64 bytes")]
pub struct InvalidSecret;

impl WebhookSecret {
    /// Reads a secret.
    ///
    /// # Errors
    /// If it is not written as it must be, or too short to be safe.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        let encoded = text.strip_prefix(PREFIX).ok_or(InvalidSecret)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| InvalidSecret)?;
        if !BYTES.contains(&bytes.len()) {
            return Err(InvalidSecret);
        }
        Hmac::new_from_slice(&bytes).map(Self).map_err(|_| InvalidSecret)
    }

    /// The signature of a message: one of those that `webhook-signature` lists.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// The value of `webhook-signature`: one by each secret, so that an endpoint may have either while they change.
pub(super) fn signatures(secrets: &[WebhookSecret], id: &str, timestamp: i64, body: &[u8]) -> String {
    let signatures: Vec<String> = secrets.iter().map(|secret| secret.sign(id, timestamp, body)).collect();
    signatures.join(" ")
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the reference implementations.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_specifications_example_has_the_specifications_signature() {
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#);
        let secret = WebhookSecret::parse(SECRET).unwrap();
        assert_eq!(signatures(std::slice::from_ref(&secret), id, 1_614_265_330, body), SIGNATURE);
        let other = WebhookSecret::parse(&format!("whsec_{}", STANDARD.encode([7; 32]))).unwrap();
        let both = signatures(&[other, secret], id, 1_614_265_330, body);
        assert_eq!(both.split(' ').count(), 2);
        assert_eq!(both.split(' ').nth(1), Some(SIGNATURE));
    }

    #[test]
    fn what_is_no_secret_or_no_safe_one_is_refused() {
        let of = |length: usize| format!("whsec_{}", STANDARD.encode(vec![1; length]));
        for text in [of(24), of(64)] {
            assert!(WebhookSecret::parse(&text).is_ok(), "{text}");
        }
        for text in [of(0), of(23), of(65), "hunter2".to_owned(), of(32)[6..].to_owned(), "whsec_*".to_owned()] {
            assert!(WebhookSecret::parse(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", WebhookSecret::parse(SECRET).unwrap()), "WebhookSecret");
    }
}
