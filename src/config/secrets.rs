//! `[secrets]`.

use serde::Deserialize;

use super::value::Secret;

/// `[secrets]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Secrets {
    /// Keys of the fingerprints' HMAC: the first makes, all compare. To rotate, put the new one first and
    /// drop the old one when the last entry under it is gone. Default none, which `check` refuses: digests
    /// without a secret would tell card data to who reads the database.
    pub fingerprint: Vec<Secret>,
    /// Keys that seal what is stored of bodies and headers: the first seals, all open. To rotate, put the new one
    /// first and drop the old one when the last row under it is gone. Default none: nothing is sealed.
    pub encryption: Vec<Secret>,
    /// Keys of idempotency tokens: the first signs, all verify. To rotate, put the new one first and drop the old one
    /// when what was sent with tokens under it is not sent again. Default none: no tokens.
    pub token: Vec<Secret>,
}
