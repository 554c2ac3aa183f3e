//! Idempotency tokens: signed permissions to send one request, which stand for its key.
//!
//! A token is `ogt_` and a JWT (HS256). Nothing is stored when one is made: it says itself for whom, for which route and
//! for what it is, and it counts when it is used, so that a page can fetch it before the payment and nobody can use it
//! for anything else.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::Principal;
use crate::clock::Timestamp;
use crate::entry::json::{self, Unreadable};
use crate::entry::{Key, Pointer, Scope};

/// What every token begins with, and no plain key.
pub const PREFIX: &str = "ogt_";

/// The longest token: many servers and proxies refuse fields of 4 KiB.
pub const MAX_TOKEN_BYTES: usize = 2048;

/// Most members that a token is bound to.
pub const MAX_MEMBERS: usize = 16;

/// Told apart from every other JWT, should somebody sign both with one secret (RFC 8725, section 3.11).
const TYPE: &str = "ogt+jwt";

/// Makes tokens and verifies them.
#[derive(Debug, Clone)]
pub struct Tokens {
    signs: EncodingKey,
    verify: Box<[DecodingKey]>,
}

/// What a token permits.
#[derive(Clone, Serialize, Deserialize)]
pub struct Permission {
    /// A random number, in hex.
    #[serde(rename = "jti")]
    id: String,
    route: String,
    /// A digest of whose it is.
    owner: String,
    /// JSON pointers into the body, and what they must lead to.
    members: BTreeMap<String, Box<RawValue>>,
    /// Seconds since 1970.
    #[serde(rename = "exp")]
    expires: i64,
}

/// Whose a token is: a sender, in its scope on the route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner(String);

/// What a token is asked for.
pub struct Wanted {
    /// The name of the route.
    pub route: String,
    members: BTreeMap<String, Box<RawValue>>,
}

/// Why a token is not made. The texts are for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WantedError {
    /// Not an object, or one that can be read in more than one way.
    #[error("The body is no JSON object, or can be read in more than one way.")]
    Form,
    /// Nothing to be permitted.
    #[error("The body names no route: {{\"route\": \"...\", \"order_no\": \"...\", \"amount\": 100}}.")]
    Route,
    /// A name with a slash in front that is no JSON pointer, or the same one twice.
    #[error("A member's name is no JSON pointer, or leads to the same place as another one.")]
    Pointer,
    /// More than [`MAX_MEMBERS`].
    #[error("A token is bound to at most {MAX_MEMBERS} members.")]
    TooMany,
    /// More than [`MAX_TOKEN_BYTES`].
    #[error("The token would be longer than {MAX_TOKEN_BYTES} bytes; bind it to fewer or shorter members.")]
    TooLong,
}

/// Why a token does not count. The texts are for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Changed, made by somebody else, or under a secret that is gone.
    #[error("The token can't be verified.")]
    Forged,
    /// Somebody else's.
    #[error("The token was made for somebody else.")]
    Owner,
    /// For another route.
    #[error("The token was made for another route.")]
    Route,
    /// For another amount, order and the like.
    #[error("The request does not say what the token was made for.")]
    Payload,
    /// Gateway and upstream could read different amounts.
    #[error("A member that the token is bound to is given more than once, or can be read in more than one way.")]
    Ambiguous,
}

impl Tokens {
    /// The first of `secrets` signs, all verify. `None` without any.
    #[must_use]
    pub fn new(secrets: &[&[u8]]) -> Option<Self> {
        let signs = EncodingKey::from_secret(secrets.first()?).ok()?;
        let verify = secrets.iter().map(|secret| DecodingKey::from_secret(secret).ok()).collect::<Option<_>>()?;
        Some(Self { signs, verify })
    }

    /// The token of `permission`.
    ///
    /// # Errors
    /// If it would be too long.
    pub fn sign(&self, permission: &Permission) -> Result<String, WantedError> {
        let header = Header { typ: Some(TYPE.to_owned()), ..Header::new(Algorithm::HS256) };
        let signed = encode(&header, permission, &self.signs).map_err(|_| WantedError::Form)?;
        let token = format!("{PREFIX}{signed}");
        if token.len() > MAX_TOKEN_BYTES { Err(WantedError::TooLong) } else { Ok(token) }
    }

    /// What `token` permits, if one of the secrets has signed it. Whether it has expired is for the caller to ask.
    ///
    /// # Errors
    /// [`Refusal::Forged`].
    pub fn verify(&self, token: &str) -> Result<Permission, Refusal> {
        let signed = token.strip_prefix(PREFIX).filter(|_| token.len() <= MAX_TOKEN_BYTES).ok_or(Refusal::Forged)?;
        let mut validation = Validation::new(Algorithm::HS256);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        let verified = self.verify.iter().find_map(|key| decode::<Permission>(signed, key, &validation).ok());
        let verified = verified.filter(|token| token.header.typ.as_deref() == Some(TYPE));
        verified.map(|token| token.claims).ok_or(Refusal::Forged)
    }
}

impl Permission {
    /// The permission that was `wanted`, by `owner`, until `expires`. `id` is a fresh random number.
    #[must_use]
    pub fn new(wanted: Wanted, owner: Owner, id: u128, expires: Timestamp) -> Self {
        Self {
            id: format!("{id:032x}"),
            route: wanted.route,
            owner: owner.0,
            members: wanted.members,
            expires: expires.0 / 1000,
        }
    }

    /// Whether it is `owner`'s, and for `route`.
    ///
    /// # Errors
    /// If not.
    pub fn is_for(&self, route: &str, owner: &Owner) -> Result<(), Refusal> {
        if self.owner != owner.0 {
            return Err(Refusal::Owner);
        }
        if self.route == route { Ok(()) } else { Err(Refusal::Route) }
    }

    /// Whether a request with this body is what it was made for. Values compare by their meaning, as fingerprints do:
    /// 100 is 1e2, and not 100.0000000000000001.
    ///
    /// # Errors
    /// If not.
    pub fn covers(&self, body: &[u8]) -> Result<(), Refusal> {
        for (pointer, value) in &self.members {
            let pointer = Pointer::parse(pointer).map_err(|_| Refusal::Payload)?;
            let sent = match json::excerpt(body, &pointer) {
                Ok(Some(sent)) => json::meaning(sent.as_bytes()).ok_or(Refusal::Ambiguous)?,
                Ok(None) | Err(Unreadable::NotJson) => return Err(Refusal::Payload),
                Err(Unreadable::Ambiguous) => return Err(Refusal::Ambiguous),
            };
            if json::meaning(value.get().as_bytes()) != Some(sent) {
                return Err(Refusal::Payload);
            }
        }
        Ok(())
    }

    /// Whether its time is over, which matters only while nothing has been done with it.
    #[must_use]
    pub fn has_expired(&self, now: Timestamp) -> bool {
        now.0 / 1000 >= self.expires
    }

    /// The key that it stands for where the request has no number of its own.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::of_token(&self.id)
    }

    /// When its time is over.
    #[must_use]
    pub fn expires(&self) -> Timestamp {
        Timestamp(self.expires.saturating_mul(1000))
    }
}

impl Owner {
    /// `sender`, whose key is in `scope`. Also within a tenant, or where all keys are everybody's, nobody uses
    /// another's token.
    #[must_use]
    pub fn new(sender: &Principal, scope: &Scope) -> Self {
        let mut digest = Sha256::new();
        for part in [Some(&*scope.to_string()), sender.tenant(), sender.subject()] {
            let part = part.map_or_else(|| "-".to_owned(), |part| format!("{}:{part}", part.len()));
            digest.update(part);
        }
        Self(URL_SAFE_NO_PAD.encode(digest.finalize()))
    }
}

impl Wanted {
    /// Reads what a client wants: `route`, and members of the payload with what they will say. A name is that of a
    /// member at the top, or a JSON pointer.
    ///
    /// # Errors
    /// If it can't be a token.
    pub fn parse(body: &[u8]) -> Result<Self, WantedError> {
        // A member that comes twice would be bound to one value and sent with the other.
        if json::meaning(body).is_none() {
            return Err(WantedError::Form);
        }
        let mut said: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(body).map_err(|_| WantedError::Form)?;
        let route = said.remove("route").ok_or(WantedError::Route)?;
        let route = serde_json::from_str(route.get()).map_err(|_| WantedError::Route)?;
        if said.len() > MAX_MEMBERS {
            return Err(WantedError::TooMany);
        }
        let mut members = BTreeMap::new();
        for (name, value) in said {
            let pointer = match name.strip_prefix('/') {
                Some(_) => Pointer::parse(&name).map_err(|_| WantedError::Pointer)?.to_string(),
                None => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            };
            if members.insert(pointer, value).is_some() {
                return Err(WantedError::Pointer);
            }
        }
        Ok(Self { route, members })
    }
}

/// Shows nothing of the payload.
impl fmt::Debug for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permission").field("route", &self.route).field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// Shows nothing of the payload.
impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted").field("members", &self.members.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[u8] = b"a secret of thirty-two bytes, one";
    const TWO: &[u8] = b"a secret of thirty-two bytes, two";

    fn owner(subject: Option<&str>, tenant: Option<&str>, scope: &Scope) -> Owner {
        let of = |name: Option<&str>| name.map(Into::into);
        Owner::new(&Principal { subject: of(subject), tenant: of(tenant), ..Principal::default() }, scope)
    }

    fn ann() -> Owner {
        owner(Some("ann"), None, &Scope::subject("ann").unwrap())
    }

    fn permission(wanted: &str) -> Permission {
        Permission::new(Wanted::parse(wanted.as_bytes()).unwrap(), ann(), 7, Timestamp(2_000_000))
    }

    #[test]
    fn a_token_is_verified_by_each_secret_and_made_by_the_first() {
        let (one, two) = (Tokens::new(&[ONE]).unwrap(), Tokens::new(&[TWO]).unwrap());
        let rotated = Tokens::new(&[TWO, ONE]).unwrap();
        let made = permission(r#"{"route":"pay","amount":1e2}"#);
        let token = one.sign(&made).unwrap();
        assert!(token.starts_with("ogt_ey"));
        assert_eq!(rotated.verify(&token).unwrap().key(), made.key());
        assert_eq!(two.verify(&token).err(), Some(Refusal::Forged));
        assert!(two.verify(&rotated.sign(&made).unwrap()).is_ok());
        assert!(Tokens::new(&[]).is_none() && Tokens::new(&[ONE, b""]).is_none());
    }

    #[test]
    fn what_was_changed_or_is_another_kind_of_jwt_is_forged() {
        let tokens = Tokens::new(&[ONE]).unwrap();
        let made = permission(r#"{"route":"pay"}"#);
        let token = tokens.sign(&made).unwrap();
        let (head, signature) = token.rsplit_once('.').unwrap();
        let (header, _) = head.split_once('.').unwrap();
        let richer = URL_SAFE_NO_PAD.encode(r#"{"jti":"7","route":"refund","owner":"","members":{},"exp":9999999999}"#);
        let plain = encode(&Header::default(), &made, &EncodingKey::from_secret(ONE).unwrap()).unwrap();
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"ogt+jwt"}"#);
        let long = format!("{PREFIX}{}", "a".repeat(MAX_TOKEN_BYTES));
        let payload = head.split_once('.').unwrap().1;
        for forged in [
            format!("{header}.{richer}.{signature}"),
            format!("{PREFIX}{none}.{payload}."),
            format!("{PREFIX}{plain}"),
            format!("{token}A"),
            head.to_owned(),
            token.trim_start_matches(PREFIX).to_owned(),
            PREFIX.to_owned(),
            long,
        ] {
            assert_eq!(tokens.verify(&forged).err(), Some(Refusal::Forged), "{forged}");
        }
    }

    #[test]
    fn a_token_is_for_one_owner_and_one_route() {
        let made = permission(r#"{"route":"pay"}"#);
        assert_eq!(made.is_for("pay", &ann()), Ok(()));
        assert_eq!(made.is_for("refund", &ann()), Err(Refusal::Route));
        let scope = Scope::tenant("acme").unwrap();
        let owners = [
            ann(),
            owner(Some("bob"), None, &Scope::subject("ann").unwrap()),
            owner(Some("ann"), None, &Scope::Global),
            owner(None, None, &Scope::Global),
            owner(Some("ann"), Some("acme"), &scope),
            owner(Some("acme"), Some("ann"), &scope),
            owner(None, Some("ann"), &scope),
            owner(Some("ann"), None, &scope),
        ];
        for (i, one) in owners.iter().enumerate() {
            for (j, other) in owners.iter().enumerate() {
                assert_eq!(one == other, i == j, "{i} {j}");
            }
            assert_eq!(made.is_for("pay", one).is_ok(), i == 0);
        }
    }

    #[test]
    fn a_request_says_what_its_token_was_made_for_by_its_meaning() {
        let made = permission(r#"{"route":"pay","amount":100,"/card/currency":"EUR","a/b":[1,{"x":1,"y":2}]}"#);
        let body = r#"{"amount":1e2,"card":{"currency":"\u0045UR"},"a/b":[1.0,{"y":2,"x":1}],"more":1}"#;
        let table = [
            (body.to_owned(), Ok(())),
            (body.replace("1e2", "100.0000000000000001"), Err(Refusal::Payload)),
            (body.replace("1e2", "\"100\""), Err(Refusal::Payload)),
            (body.replace("amount", "Amount"), Err(Refusal::Payload)),
            (body.replace("EUR", "USD").replace("\\u0045UR", "USD"), Err(Refusal::Payload)),
            (body.replace("\"more\":1", "\"amount\":1"), Err(Refusal::Ambiguous)),
            (body.replace("\"y\":2", "\"y\":2,\"y\":2"), Err(Refusal::Ambiguous)),
            (body.replace("\"more\":1", "\"card\":{}"), Err(Refusal::Ambiguous)),
            ("amount=100".to_owned(), Err(Refusal::Payload)),
            (String::new(), Err(Refusal::Payload)),
        ];
        for (body, expected) in table {
            assert_eq!(made.covers(body.as_bytes()), expected, "{body}");
        }
        assert_eq!(permission(r#"{"route":"pay"}"#).covers(b"anything"), Ok(()));
        let null = permission(r#"{"route":"pay","note":null}"#);
        assert_eq!((null.covers(b"{\"note\":null}"), null.covers(b"{}")), (Ok(()), Err(Refusal::Payload)));
    }

    /// As written, so that nothing is lost on the way through the token.
    #[test]
    fn an_amount_survives_the_token_exactly() {
        let tokens = Tokens::new(&[ONE]).unwrap();
        let made = permission(r#"{"route":"pay","amount":9007199254740993.10}"#);
        let read = tokens.verify(&tokens.sign(&made).unwrap()).unwrap();
        assert_eq!(read.covers(br#"{"amount":9007199254740993.1}"#), Ok(()));
        assert_eq!(read.covers(br#"{"amount":9007199254740992.1}"#), Err(Refusal::Payload));
    }

    #[test]
    fn what_can_not_be_a_token_is_told_why() {
        let many = (0..=MAX_MEMBERS).map(|i| format!(",\"m{i}\":1")).collect::<String>();
        let table = [
            ("", WantedError::Form),
            ("[]", WantedError::Form),
            (r#"{"route":"a","route":"b"}"#, WantedError::Form),
            (r#"{"route":"a","amount":1,"amount":2}"#, WantedError::Form),
            ("{}", WantedError::Route),
            (r#"{"route":7}"#, WantedError::Route),
            (r#"{"route":"a","/b~":1}"#, WantedError::Pointer),
            (r#"{"route":"a","amount":1,"/amount":1}"#, WantedError::Pointer),
            (&*format!(r#"{{"route":"a"{many}}}"#), WantedError::TooMany),
        ];
        for (body, error) in table {
            assert_eq!(Wanted::parse(body.as_bytes()).err(), Some(error), "{body}");
        }
        let long = permission(&format!(r#"{{"route":"a","note":"{}"}}"#, "x".repeat(MAX_TOKEN_BYTES)));
        assert_eq!(Tokens::new(&[ONE]).unwrap().sign(&long).err(), Some(WantedError::TooLong));
    }

    #[test]
    fn a_token_ends_with_its_last_second() {
        let made = permission(r#"{"route":"a"}"#);
        assert_eq!(made.expires(), Timestamp(2_000_000));
        assert!(!made.has_expired(Timestamp(1_999_999)) && made.has_expired(Timestamp(2_000_000)));
    }
}
