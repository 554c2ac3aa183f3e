//! Access tokens (RFC 7519, as RFC 8725 and RFC 9068 want them verified).
//!
//! 1. The algorithm is one of those that are configured, whatever the token says; and a key verifies only what its own
//!    kind signs, so that no public key ever serves as a secret.
//! 2. Signature first, then issuer, audience and times. A token without an expiry is none.
//! 3. Keys come from the configuration or from the issuer's key set ([`Keyring`]), never from the token.

mod algorithm;
mod claims;
mod keyring;
mod keys;
mod verified;

use std::sync::Arc;

use http::HeaderMap;
use jsonwebtoken::{Header, decode_header};

pub use super::fields::Told;
pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use claims::ClaimRules;
pub use keyring::{Fetch, Keyring, Refresh};
pub use keys::{KeyError, KeySet, LEAST_RSA_BITS};

use super::{AuthError, Principal, bearer};
use crate::clock;
use keys::Unverified;
use verified::Verified;

/// The largest token. Larger ones than an issuer that lists 200 groups makes (some 12 kB) are not read.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Believes what an issuer has signed.
#[derive(Debug, Clone)]
pub struct JwtAuthenticator {
    /// What a token must say.
    rules: Arc<ClaimRules>,
    /// The algorithms that count.
    algorithms: Arc<[Algorithm]>,
    /// What signatures are verified with.
    keys: Arc<Keyring>,
    /// The fields in which upstreams are told who it is.
    pub(super) told: Told,
    verified: Verified,
}

/// Why a token is not believed. The texts are for the client, and go into a field's quoted string: no `"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// More than [`MAX_TOKEN_BYTES`].
    #[error("The access token is too large.")]
    TooLarge,
    /// It is no JWT, or a claim has another form than the standard's.
    #[error("The access token can't be read.")]
    Malformed,
    /// Another algorithm than those that are configured, or none.
    #[error("The access token is signed by an algorithm that does not count here.")]
    Algorithm,
    /// Nobody here has its key.
    #[error("The access token is signed by a key that is not known.")]
    UnknownKey,
    /// It was changed, or somebody else made it.
    #[error("The signature of the access token does not fit.")]
    Signature,
    /// Another issuer's.
    #[error("The access token comes from another issuer.")]
    Issuer,
    /// Meant for somebody else.
    #[error("The access token is meant for somebody else.")]
    Audience,
    /// Over.
    #[error("The access token has expired.")]
    Expired,
    /// It never ends.
    #[error("The access token has no expiry.")]
    NoExpiry,
    /// Not yet begun.
    #[error("The access token is not valid yet.")]
    NotYet,
    /// It does not say whose it is.
    #[error("The access token names no subject.")]
    NoSubject,
}

impl JwtAuthenticator {
    /// Believes tokens that one of `keys` has signed by one of `algorithms`, and that say what `rules` want. Upstreams
    /// are told who it is in `told`.
    #[must_use]
    pub fn new(rules: ClaimRules, algorithms: Arc<[Algorithm]>, keys: Arc<Keyring>, told: Told) -> Self {
        Self { rules: Arc::new(rules), algorithms, keys, told, verified: Verified::new() }
    }

    /// Who sends a request with these fields.
    pub(super) async fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, AuthError> {
        let token = bearer::token(headers)?;
        let header = self.head(token)?;
        let token = Unverified { token, header: &header };
        let keys = self.keys.current();
        let set = keys.set.as_ref().ok_or(AuthError::NoKeys)?;
        if let Some(claims) = self.verified.get(token.token, set) {
            return self.rules.read(&claims, clock::wall());
        }
        let claims = match set.verify(&token) {
            // A stranger's tokens must not make us ask the issuer.
            Err(TokenError::UnknownKey) if self.rules.may_be_ours(token.token) && self.keys.renewed(&keys).await => {
                let keys = self.keys.current();
                keys.set.as_ref().ok_or(AuthError::NoKeys)?.verify(&token)?
            }
            verified => {
                let claims = Arc::new(verified?);
                self.verified.put(token.token, set, &claims);
                return self.rules.read(&claims, clock::wall());
            }
        };
        self.rules.read(&claims, clock::wall())
    }

    /// Whether there is anything to verify a token with.
    pub(super) fn has_keys(&self) -> bool {
        self.keys.current().set.is_some()
    }

    fn head(&self, token: &str) -> Result<Header, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLarge);
        }
        let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
        match self.algorithms.iter().any(|algorithm| algorithm.is(header.alg)) {
            true => Ok(header),
            false => Err(TokenError::Algorithm),
        }
    }
}
