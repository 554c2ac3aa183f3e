//! Keys that tokens are verified with.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{DecodingKey, Header, Validation, decode};
use serde::Deserialize;
use serde_json::Value;

use super::claims::Claims;
use super::{Algorithm, TokenError};

/// The weakest RSA key that counts (RFC 7518, section 3.3).
pub const LEAST_RSA_BITS: usize = 2048;

/// Most keys of a set. A token that names none is tried with each that fits, so this bounds what it costs.
const MAX_KEYS: usize = 64;

/// The keys of an issuer.
#[derive(Debug)]
pub struct KeySet(Box<[VerifyingKey]>);

#[derive(Debug)]
struct VerifyingKey {
    /// What tokens call it.
    id: Option<Box<str>>,
    kind: Kind,
    /// The only algorithm that its owner allows.
    only: Option<jsonwebtoken::Algorithm>,
    key: DecodingKey,
}

/// What a key can verify. Each has algorithms of its own: a public key is never taken for a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Secret,
    Rsa,
    P256,
    P384,
    Ed25519,
}

/// Why keys can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not a public key, or of a kind that no algorithm here uses.
    #[error("it is no public key of RSA, P-256, P-384 or Ed25519 in PEM (-----BEGIN PUBLIC KEY-----)")]
    Pem,
    /// Too short.
    #[error("an RSA key has at least {LEAST_RSA_BITS} bits")]
    Weak,
    /// An empty secret.
    #[error("the secret is empty")]
    Empty,
    /// Not a key set.
    #[error("it is no JSON Web Key Set")]
    NoSet,
    /// A key set that verifies nothing.
    #[error("it has no public key that fits the algorithms")]
    NoneFits,
    /// More than 64 keys.
    #[error("it has more than {MAX_KEYS} keys")]
    TooMany,
}

/// A token that nobody has verified.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unverified<'a> {
    pub(super) token: &'a str,
    pub(super) header: &'a Header,
}

impl KeySet {
    /// Secrets that the issuer signs with as well.
    ///
    /// # Errors
    /// If one is empty.
    pub fn of_secrets<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, KeyError> {
        let key = |secret| DecodingKey::from_secret(secret).map_err(|_| KeyError::Empty);
        let keys = secrets.into_iter().map(|secret| Ok(VerifyingKey::plain(Kind::Secret, key(secret)?)));
        keys.collect::<Result<_, _>>().map(Self)
    }

    /// Public keys in PEM.
    ///
    /// # Errors
    /// If one can't be read, or is too weak.
    pub fn of_pems<'a>(pems: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, KeyError> {
        pems.into_iter().map(VerifyingKey::of_pem).collect::<Result<_, _>>().map(Self)
    }

    /// The keys of a JSON Web Key Set (RFC 7517) that fit `algorithms`. Others are passed over: sets also hold keys
    /// that others use, or that are for something else. Secrets in it are no secrets.
    ///
    /// # Errors
    /// If it is none, or has none that fits.
    pub fn of_jwks(json: &[u8], algorithms: &[Algorithm]) -> Result<Self, KeyError> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(json).map_err(|_| KeyError::NoSet)?;
        if set.keys.len() > MAX_KEYS {
            return Err(KeyError::TooMany);
        }
        let keys = set.keys.into_iter().filter_map(|key| VerifyingKey::of_jwk(&serde_json::from_value(key).ok()?));
        let fits = |key: &VerifyingKey| algorithms.iter().any(|algorithm| key.fits(algorithm.library()));
        let keys: Box<[VerifyingKey]> = keys.filter(fits).collect();
        if keys.is_empty() { Err(KeyError::NoneFits) } else { Ok(Self(keys)) }
    }

    /// Whether some key verifies what `algorithm` signs.
    #[must_use]
    pub fn fits(&self, algorithm: Algorithm) -> bool {
        self.0.iter().any(|key| key.fits(algorithm.library()))
    }

    /// The claims of `token`, if one of the keys has signed it. [`TokenError::UnknownKey`] if it may be signed by one
    /// that is not among them.
    pub(super) fn verify(&self, token: &Unverified<'_>) -> Result<Claims, TokenError> {
        let named = token.header.kid.as_deref();
        let is_candidate = |key: &&VerifyingKey| {
            key.fits(token.header.alg) && (named.is_none() || key.id.is_none() || key.id.as_deref() == named)
        };
        let mut known = false;
        for key in self.0.iter().filter(is_candidate) {
            known |= named.is_some() && key.id.as_deref() == named;
            match key.verify(token) {
                Err(TokenError::Signature) => {}
                verified => return verified,
            }
        }
        Err(if known { TokenError::Signature } else { TokenError::UnknownKey })
    }
}

impl VerifyingKey {
    fn plain(kind: Kind, key: DecodingKey) -> Self {
        Self { id: None, kind, only: None, key }
    }

    fn of_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let tried = [DecodingKey::from_rsa_pem(pem), DecodingKey::from_ec_pem(pem), DecodingKey::from_ed_pem(pem)];
        let key = tried.into_iter().find_map(Result::ok).ok_or(KeyError::Pem)?;
        let jwk = Jwk::from_decoding_key(&key, None).map_err(|_| KeyError::Pem)?;
        match Kind::of(&jwk.algorithm).ok_or(KeyError::Pem)? {
            Kind::Rsa if rsa_bits(&jwk.algorithm) < LEAST_RSA_BITS => Err(KeyError::Weak),
            kind => Ok(Self::plain(kind, key)),
        }
    }

    /// `None` of a key for anything but verifying.
    fn of_jwk(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        let kind = Kind::of(&jwk.algorithm).filter(|kind| *kind != Kind::Secret)?;
        let is_for_signatures = common.public_key_use.as_ref().is_none_or(|is| *is == PublicKeyUse::Signature);
        let verifies = common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
        let is_strong = kind != Kind::Rsa || rsa_bits(&jwk.algorithm) >= LEAST_RSA_BITS;
        if !is_for_signatures || !verifies || !is_strong {
            return None;
        }
        let only = match common.key_algorithm {
            Some(algorithm) => Some(algorithm.try_into().ok()?),
            None => None,
        };
        let id = common.key_id.as_deref().map(Into::into);
        Some(Self { id, kind, only, key: DecodingKey::from_jwk(jwk).ok()? })
    }

    fn fits(&self, algorithm: jsonwebtoken::Algorithm) -> bool {
        self.only.is_none_or(|only| only == algorithm) && self.kind.signs(algorithm)
    }

    /// Signature and form only: what the claims say is judged elsewhere, by a clock that is an argument.
    fn verify(&self, token: &Unverified<'_>) -> Result<Claims, TokenError> {
        let mut validation = Validation::new(token.header.alg);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        let verified = decode::<Claims>(token.token, &self.key, &validation);
        verified.map(|token| token.claims).map_err(|error| match error.kind() {
            jsonwebtoken::errors::ErrorKind::InvalidToken
            | jsonwebtoken::errors::ErrorKind::Base64(_)
            | jsonwebtoken::errors::ErrorKind::Json(_) => TokenError::Malformed,
            // A key that can't be used has signed nothing.
            _ => TokenError::Signature,
        })
    }
}

impl Kind {
    fn of(parameters: &AlgorithmParameters) -> Option<Self> {
        match parameters {
            AlgorithmParameters::RSA(_) => Some(Self::Rsa),
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Some(Self::P256),
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => Some(Self::P384),
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Some(Self::Ed25519),
            AlgorithmParameters::OctetKey(_) => Some(Self::Secret),
            // Other curves, and kinds that the library may learn.
            _ => None,
        }
    }

    fn signs(self, algorithm: jsonwebtoken::Algorithm) -> bool {
        use jsonwebtoken::{Algorithm, AlgorithmFamily};
        match self {
            Self::Secret => algorithm_family(algorithm) == Some(AlgorithmFamily::Hmac),
            Self::Rsa => algorithm_family(algorithm) == Some(AlgorithmFamily::Rsa),
            Self::P256 => algorithm == Algorithm::ES256,
            Self::P384 => algorithm == Algorithm::ES384,
            Self::Ed25519 => algorithm == Algorithm::EdDSA,
        }
    }
}

fn algorithm_family(algorithm: jsonwebtoken::Algorithm) -> Option<jsonwebtoken::AlgorithmFamily> {
    use jsonwebtoken::AlgorithmFamily;
    let families = [AlgorithmFamily::Hmac, AlgorithmFamily::Rsa, AlgorithmFamily::Ec, AlgorithmFamily::Ed];
    families.into_iter().find(|family| family.algorithms().contains(&algorithm))
}

/// The length of an RSA key; 0 of what is none.
fn rsa_bits(parameters: &AlgorithmParameters) -> usize {
    use base64::Engine as _;
    let AlgorithmParameters::RSA(key) = parameters else { return 0 };
    let modulus = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(&key.n).unwrap_or_default();
    let digits = modulus.iter().skip_while(|byte| **byte == 0);
    let leading = digits.clone().next().map_or(0, |byte| byte.leading_zeros() as usize);
    (digits.count() * 8).saturating_sub(leading)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonwebtoken::{EncodingKey, decode_header, encode};
    use serde_json::json;

    use Algorithm::{EdDsa, Es256, Es384, Hs256, Rs256};

    /// A key pair of the elliptic curves: what signs, and its public half in PEM and as a JWK.
    struct Pair {
        signs: EncodingKey,
        pem: String,
        jwk: Value,
        algorithm: Algorithm,
    }

    fn pair(algorithm: Algorithm) -> Pair {
        let kind = match algorithm {
            Es384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            EdDsa => &rcgen::PKCS_ED25519,
            _ => &rcgen::PKCS_ECDSA_P256_SHA256,
        };
        let key = rcgen::KeyPair::generate_for(kind).unwrap();
        let signs = match algorithm {
            EdDsa => EncodingKey::from_ed_der(&key.serialize_der()),
            _ => EncodingKey::from_ec_der(&key.serialize_der()),
        };
        let pem = key.public_key_pem();
        let public = match algorithm {
            EdDsa => DecodingKey::from_ed_pem(pem.as_bytes()),
            _ => DecodingKey::from_ec_pem(pem.as_bytes()),
        };
        let jwk = serde_json::to_value(Jwk::from_decoding_key(&public.unwrap(), None).unwrap()).unwrap();
        Pair { signs, pem, jwk, algorithm }
    }

    impl Pair {
        fn token(&self, id: Option<&str>) -> String {
            let header = Header { kid: id.map(str::to_owned), ..Header::new(self.algorithm.library()) };
            encode(&header, &json!({ "sub": "ann" }), &self.signs).unwrap()
        }
    }

    fn set(keys: &[Value], algorithms: &[Algorithm]) -> Result<KeySet, KeyError> {
        KeySet::of_jwks(json!({ "keys": keys }).to_string().as_bytes(), algorithms)
    }

    fn with(mut jwk: Value, more: Value) -> Value {
        jwk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        jwk
    }

    fn verify(set: &KeySet, token: &str) -> Result<Claims, TokenError> {
        set.verify(&Unverified { token, header: &decode_header(token).unwrap() })
    }

    #[test]
    fn each_kind_of_key_verifies_what_it_has_signed() {
        for algorithm in [Es256, Es384, EdDsa] {
            let (one, other) = (pair(algorithm), pair(algorithm));
            for keys in [
                KeySet::of_pems([one.pem.as_bytes()]).unwrap(),
                set(std::slice::from_ref(&one.jwk), &[algorithm]).unwrap(),
            ] {
                assert_eq!(verify(&keys, &one.token(None)).unwrap()["sub"], "ann", "{algorithm}");
                assert_eq!(verify(&keys, &other.token(None)), Err(TokenError::UnknownKey), "{algorithm}");
            }
        }
    }

    /// The classic: the public key, which anybody may know, as the secret of an HMAC.
    #[test]
    fn a_public_key_is_no_secret() {
        let real = pair(Es256);
        let forged = encode(
            &Header::new(jsonwebtoken::Algorithm::HS256),
            &json!({ "sub": "admin" }),
            &EncodingKey::from_secret(real.pem.as_bytes()).unwrap(),
        )
        .unwrap();
        let keys = KeySet::of_pems([real.pem.as_bytes()]).unwrap();
        assert_eq!(verify(&keys, &forged), Err(TokenError::UnknownKey));
        assert!(!keys.fits(Hs256) && !keys.fits(Rs256) && keys.fits(Es256));
        let secret = json!({ "kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldC0" });
        assert_eq!(set(&[secret], &[Hs256]).err(), Some(KeyError::NoneFits));
    }

    #[test]
    fn a_token_is_verified_with_the_key_that_it_names() {
        let (one, two) = (pair(Es256), pair(Es256));
        let keys = [with(one.jwk.clone(), json!({ "kid": "1" })), with(two.jwk.clone(), json!({ "kid": "2" }))];
        let keys = set(&keys, &[Es256]).unwrap();
        assert!(verify(&keys, &one.token(Some("1"))).is_ok());
        assert!(verify(&keys, &two.token(None)).is_ok(), "a token need not name it");
        assert_eq!(verify(&keys, &one.token(Some("2"))), Err(TokenError::Signature));
        assert_eq!(verify(&keys, &one.token(Some("3"))), Err(TokenError::UnknownKey));
    }

    #[test]
    fn keys_for_anything_else_are_passed_over() {
        let real = pair(Es256);
        for other in [
            json!({ "use": "enc" }),
            json!({ "key_ops": ["sign"] }),
            json!({ "alg": "RSA-OAEP" }),
            json!({ "alg": "ES384" }),
            json!({ "crv": "P-521" }),
        ] {
            assert_eq!(
                set(&[with(real.jwk.clone(), other.clone())], &[Es256]).err(),
                Some(KeyError::NoneFits),
                "{other}"
            );
        }
        let weak = json!({ "kty": "RSA", "n": "AQAB".repeat(40), "e": "AQAB" });
        assert_eq!(set(std::slice::from_ref(&weak), &[Rs256]).err(), Some(KeyError::NoneFits));
        assert!(set(&[weak, json!({ "kty": "new" }), json!(7), real.jwk.clone()], &[Es256]).is_ok());
        for none in ["", "{}", "[]", "{\"keys\":{}}"] {
            assert_eq!(KeySet::of_jwks(none.as_bytes(), &[Es256]).err(), Some(KeyError::NoSet), "{none}");
        }
        assert_eq!(set(&vec![real.jwk; MAX_KEYS + 1], &[Es256]).err(), Some(KeyError::TooMany));
    }

    #[test]
    fn a_private_key_or_a_certificate_of_nothing_is_no_public_key() {
        let private = rcgen::KeyPair::generate().unwrap().serialize_pem();
        for pem in [&*private, "", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
            assert_eq!(KeySet::of_pems([pem.as_bytes()]).err(), Some(KeyError::Pem));
        }
    }
}
