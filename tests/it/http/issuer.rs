//! An issuer of access tokens: its keys, what it signs, and where it publishes its key set.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::client::Call;
use super::gateway::Settings;
use super::upstream::{Step, Upstream, answer};

pub(super) const ISSUER: &str = "https://issuer.test";
pub(super) const AUDIENCE: &str = "pay";

/// What the gateway wants of a token in these tests; keys besides.
pub(super) const RULES: Settings<'_> =
    &[("auth.mode", "jwt"), ("auth.jwt.issuer", ISSUER), ("auth.jwt.audience", AUDIENCE)];

/// One key of the issuer.
#[derive(Clone)]
pub(super) struct Signer {
    id: Option<String>,
    algorithm: Algorithm,
    key: EncodingKey,
    jwk: Value,
}

impl Signer {
    /// A fresh key on P-256.
    pub(super) fn es256(id: &str) -> Self {
        Self::of(id, &rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap())
    }

    /// A key on P-256.
    pub(super) fn of(id: &str, pair: &rcgen::KeyPair) -> Self {
        Self::new(id, Algorithm::ES256, EncodingKey::from_ec_der(&pair.serialize_der()))
    }

    /// The RSA key of RFC 7515, appendix A.2, which everybody knows.
    pub(super) fn rs256(id: &str) -> Self {
        Self::new(id, Algorithm::RS256, EncodingKey::from_rsa_der(&rfc7515_key()))
    }

    /// A shared secret.
    pub(super) fn hs256(secret: &str) -> Self {
        let key = EncodingKey::from_secret(secret.as_bytes()).unwrap();
        Self { id: None, ..Self::new("", Algorithm::HS256, key) }
    }

    fn new(id: &str, algorithm: Algorithm, key: EncodingKey) -> Self {
        let mut jwk = serde_json::to_value(Jwk::from_encoding_key(&key, algorithm).unwrap()).unwrap();
        jwk["kid"] = id.into();
        Self { id: Some(id.to_owned()), algorithm, key, jwk }
    }

    /// Its tokens name no key.
    pub(super) fn unnamed(mut self) -> Self {
        self.id = None;
        self
    }

    /// Its public half, as everybody may know it.
    pub(super) fn public(&self) -> Value {
        self.jwk.clone()
    }

    /// A token of `subject` with `changes`; `null` takes a claim away.
    pub(super) fn token(&self, subject: &str, changes: Value) -> String {
        let mut claims = json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": subject, "iat": now(), "exp": now() + 300 });
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        let header = Header { kid: self.id.clone(), ..Header::new(self.algorithm) };
        encode(&header, &claims, &self.key).unwrap()
    }

    /// `call`, sent by `subject`.
    pub(super) fn by(&self, call: Call, subject: &str) -> Call {
        bearer(call, &self.token(subject, json!({})))
    }
}

pub(super) fn bearer(call: Call, token: &str) -> Call {
    call.field("authorization", format!("Bearer {token}"))
}

pub(super) fn now() -> i64 {
    oncegate::clock::wall().0 / 1000
}

/// Three parts of a token, the first two as JSON.
pub(super) fn forged(header: &Value, claims: &Value, signature: &str) -> String {
    let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    format!("{}.{}.{signature}", part(header), part(claims))
}

/// Where the issuer publishes what it says now.
pub(super) struct Published {
    pub(super) server: Upstream,
    says: Arc<Mutex<Vec<Step>>>,
}

impl Published {
    pub(super) async fn start(keys: &[&Signer]) -> Self {
        let says = Arc::new(Mutex::new(set(keys)));
        let now = Arc::clone(&says);
        let server = Upstream::start(move |_, _| now.lock().unwrap().clone()).await;
        Self { server, says }
    }

    /// From now on it has these keys.
    pub(super) fn rotate(&self, keys: &[&Signer]) {
        self.says(set(keys));
    }

    /// From now on it answers so.
    pub(super) fn says(&self, steps: Vec<Step>) {
        *self.says.lock().unwrap() = steps;
    }

    pub(super) fn url(&self) -> String {
        format!("{}/keys", self.server.url())
    }
}

pub(super) fn key_set(keys: &[&Signer]) -> String {
    json!({ "keys": keys.iter().map(|key| key.public()).collect::<Vec<_>>() }).to_string()
}

fn set(keys: &[&Signer]) -> Vec<Step> {
    answer("200 OK", &[("content-type", "application/json")], key_set(keys))
}

/// PKCS #1: a sequence of the version and eight numbers.
fn rfc7515_key() -> Vec<u8> {
    let numbers = [
        "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZ\
         S-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2\
         CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9\
         gb54h4FRWyuXpoQ",
        "AQAB",
        "Eq5xpGnNCivDflJsRQBXHx1hdR1k6Ulwe2JZD50LpXyWPEAeP88vLNO97IjlA7_GQ5sLKMgvfTeXZx9SE-7YwVol2NXOoAJe46sui395IW_GO-\
         pWJ1O0BkTGoVEn2bKVRUCgu-GjBVaYLU6f3l9kJfFNS3E0QbVdxzubSu3Mkqzjkn439X0M_V51gfpRLI9JYanrC4D4qAdGcopV_0ZHHzQlBjud\
         U2QvXt4ehNYTCBr6XCLQUShb1juUO1ZdiYoFaFQT5Tw8bGUl_x_jTj3ccPDVZFD9pIuhLhBOneufuBiB4cS98l2SR_RQyGWSeWjnczT0QU91p1\
         DhOVRuOopznQ",
        "4BzEEOtIpmVdVEZNCqS7baC4crd0pqnRH_5IB3jw3bcxGn6QLvnEtfdUdiYrqBdss1l58BQ3KhooKeQTa9AB0Hw_Py5PJdTJNPY8cQn7ouZ2KK\
         DcmnPGBY5t7yLc1QlQ5xHdwW1VhvKn-nXqhJTBgIPgtldC-KDV5z-y2XDwGUc",
        "uQPEfgmVtjL0Uyyx88GZFF1fOunH3-7cepKmtH4pxhtCoHqpWmT8YAmZxaewHgHAjLYsp1ZSe7zFYHj7C6ul7TjeLQeZD_YwD66t62wDmpe_HlB\
         -TnBA-njbglfIsRLtXlnDzQkv5dTltRJ11BKBBypeeF6689rjcJIDEz9RWdc",
        "BwKfV3Akq5_MFZDFZCnW-wzl-CCo83WoZvnLQwCTeDv8uzluRSnm71I3QCLdhrqE2e9YkxvuxdBfpT_PI7Yz-FOKnu1R6HsJeDCjn12Sk3vmAkt\
         V2zb34MCdy7cpdTh_YVr7tss2u6vneTwrA86rZtu5Mbr1C1XsmvkxHQAdYo0",
        "h_96-mK1R_7glhsum81dZxjTnYynPbZpHziZjeeHcXYsXaaMwkOlODsWa7I9xXDoRwbKgB719rrmI2oKr6N3Do9U0ajaHF-NKJnwgjMd2w9cjz3\
         _-kyNlxAr2v4IKhGNpmM5iIgOS1VZnOZ68m6_pbLBSp3nssTdlqvd0tIiTHU",
        "IYd7DHOhrWvxkwPQsRM2tOgrjbcrfvtQJipd-DlcxyVuuM9sQLdgjVk2oy26F0EmpScGLq2MowX7fhd_QJQ3ydy5cY7YIBi87w93IKLEdfnbJto\
         OPLUW0ITrJReOgo1cq9SbsxYawBgfp_gh6A5603k2-ZQwVK0JKSHuLFkuQ3U",
    ];
    let numbers = numbers.map(|number| URL_SAFE_NO_PAD.decode(number).unwrap());
    let all = std::iter::once(vec![0]).chain(numbers).flat_map(|number| der(0x02, unsigned(number)));
    der(0x30, all.collect())
}

/// A number whose first bit is set would be a negative one.
fn unsigned(number: Vec<u8>) -> Vec<u8> {
    if number[0] < 0x80 { number } else { [vec![0], number].concat() }
}

/// A length has as few bytes as it needs.
fn der(tag: u8, content: Vec<u8>) -> Vec<u8> {
    let length = match content.len() {
        short @ ..0x80 => vec![u8::try_from(short).unwrap()],
        middle @ ..0x100 => vec![0x81, u8::try_from(middle).unwrap()],
        long => [vec![0x82], u16::try_from(long).unwrap().to_be_bytes().to_vec()].concat(),
    };
    [vec![tag], length, content].concat()
}
