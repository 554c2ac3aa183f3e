//! What a token must say, and what is made of it.

use std::time::Duration;

use jsonwebtoken::dangerous::insecure_decode_claims;
use serde_json::{Map, Value};

use super::TokenError;
use crate::auth::{AuthError, Principal};
use crate::clock::{Timestamp, millis};

/// What a token must say.
#[derive(Debug, Clone)]
pub struct ClaimRules {
    /// Who signs. One only: what makes a subject unique is its issuer.
    pub issuer: Box<str>,
    /// Whom tokens are meant for; one of these.
    pub audiences: Box<[Box<str>]>,
    /// How far the issuer's clock may differ from ours.
    pub leeway: Duration,
    /// The claim with the subject.
    pub subject: Box<str>,
    /// The claim with its tenant.
    pub tenant: Option<Box<str>>,
    /// The claim with what the token grants.
    pub scopes: Box<str>,
}

/// The claims of a token whose signature fits.
pub(super) type Claims = Map<String, Value>;

impl ClaimRules {
    /// Who a token with these claims stands for.
    pub(super) fn read(&self, claims: &Claims, now: Timestamp) -> Result<Principal, AuthError> {
        if !self.is_issuer(claims) {
            return Err(TokenError::Issuer.into());
        }
        if !self.is_audience(claims) {
            return Err(TokenError::Audience.into());
        }
        self.check_times(claims, now)?;
        let subject = name(claims, &self.subject).ok_or(TokenError::NoSubject)?;
        let tenant = match &self.tenant {
            Some(claim) => Some(name(claims, claim).ok_or(AuthError::NoTenant)?),
            None => None,
        };
        Ok(Principal { subject: Some(subject), tenant, scopes: self.scopes(claims)? })
    }

    /// Whether a token that nobody has verified says to be our issuer's.
    pub(super) fn may_be_ours(&self, token: &str) -> bool {
        insecure_decode_claims::<Claims>(token).is_ok_and(|claims| self.is_issuer(&claims))
    }

    fn is_issuer(&self, claims: &Claims) -> bool {
        claims.get("iss").and_then(Value::as_str) == Some(&*self.issuer)
    }

    fn is_audience(&self, claims: &Claims) -> bool {
        let is_ours =
            |value: &Value| value.as_str().is_some_and(|text| self.audiences.iter().any(|ours| **ours == *text));
        match claims.get("aud") {
            Some(Value::Array(all)) => all.iter().any(is_ours),
            Some(one) => is_ours(one),
            None => false,
        }
    }

    fn check_times(&self, claims: &Claims, now: Timestamp) -> Result<(), TokenError> {
        let leeway = millis(self.leeway);
        let expires = time(claims, "exp")?.ok_or(TokenError::NoExpiry)?;
        if now.0 >= expires.saturating_add(leeway) {
            return Err(TokenError::Expired);
        }
        for begins in [time(claims, "nbf")?, time(claims, "iat")?].into_iter().flatten() {
            if begins.saturating_sub(leeway) > now.0 {
                return Err(TokenError::NotYet);
            }
        }
        Ok(())
    }

    /// A text with spaces in between (RFC 8693), or a list, as some issuers have it.
    fn scopes(&self, claims: &Claims) -> Result<Box<[Box<str>]>, TokenError> {
        match claims.get(&*self.scopes) {
            None | Some(Value::Null) => Ok(Box::default()),
            Some(Value::String(text)) => Ok(text.split_ascii_whitespace().map(Into::into).collect()),
            Some(Value::Array(all)) => {
                all.iter().map(|one| one.as_str().map(Into::into).ok_or(TokenError::Malformed)).collect()
            }
            Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Err(TokenError::Malformed),
        }
    }
}

/// A point in time, in milliseconds: the standard's seconds may have a fraction.
fn time(claims: &Claims, name: &str) -> Result<Option<i64>, TokenError> {
    match claims.get(name) {
        None => Ok(None),
        #[expect(clippy::cast_possible_truncation, reason = "far beyond the range it saturates")]
        Some(value) => value.as_f64().map(|seconds| Some((seconds * 1000.0) as i64)).ok_or(TokenError::Malformed),
    }
}

/// The name of somebody: a text that is the same wherever it is written, in a field's value as well.
fn name(claims: &Claims, claim: &str) -> Option<Box<str>> {
    let text = claims.get(claim)?.as_str()?;
    let is_plain = !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control);
    is_plain.then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::ScopeKind;
    use crate::entry::Scope;
    use serde_json::json;

    const NOW: i64 = 1_800_000_000;

    fn rules() -> ClaimRules {
        ClaimRules {
            issuer: "https://issuer.test".into(),
            audiences: ["pay".into(), "shop".into()].into(),
            leeway: Duration::from_secs(30),
            subject: "sub".into(),
            tenant: None,
            scopes: "scope".into(),
        }
    }

    fn claims(changes: Value) -> Claims {
        let mut claims =
            json!({ "iss": "https://issuer.test", "aud": "pay", "sub": "ann", "exp": NOW + 60, "scope": "a b" });
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims.as_object().unwrap().clone()
    }

    fn read(rules: &ClaimRules, changes: Value) -> Result<Principal, AuthError> {
        rules.read(&claims(changes), Timestamp(NOW * 1000))
    }

    #[test]
    fn a_token_says_who_for_whom_and_until_when() {
        let table = [
            (json!({}), None),
            (json!({ "aud": ["other", "shop"] }), None),
            (json!({ "iss": "https://issuer.test/" }), Some(TokenError::Issuer)),
            (json!({ "iss": ["https://issuer.test"] }), Some(TokenError::Issuer)),
            (json!({ "iss": null }), Some(TokenError::Issuer)),
            (json!({ "aud": "payments" }), Some(TokenError::Audience)),
            (json!({ "aud": [] }), Some(TokenError::Audience)),
            (json!({ "aud": null }), Some(TokenError::Audience)),
            (json!({ "exp": null }), Some(TokenError::NoExpiry)),
            (json!({ "exp": "1800000060" }), Some(TokenError::Malformed)),
            (json!({ "exp": NOW - 29 }), None),
            (json!({ "exp": NOW - 30 }), Some(TokenError::Expired)),
            (json!({ "exp": -1e300 }), Some(TokenError::Expired)),
            (json!({ "exp": 1e300 }), None),
            (json!({ "nbf": NOW + 30 }), None),
            (json!({ "nbf": NOW as f64 + 30.5 }), Some(TokenError::NotYet)),
            (json!({ "nbf": "soon" }), Some(TokenError::Malformed)),
            (json!({ "iat": NOW + 31 }), Some(TokenError::NotYet)),
            (json!({ "sub": null }), Some(TokenError::NoSubject)),
            (json!({ "sub": "" }), Some(TokenError::NoSubject)),
            (json!({ "sub": 7 }), Some(TokenError::NoSubject)),
            (json!({ "sub": " ann" }), Some(TokenError::NoSubject)),
            (json!({ "sub": "ann\r\nx-admin: 1" }), Some(TokenError::NoSubject)),
            (json!({ "scope": 7 }), Some(TokenError::Malformed)),
        ];
        for (changes, error) in table {
            let shown = changes.to_string();
            assert_eq!(read(&rules(), changes).err(), error.map(AuthError::Token), "{shown}");
        }
    }

    #[test]
    fn scopes_are_a_text_or_a_list() {
        for scope in [json!("a b"), json!(["a", "b"])] {
            let ann = read(&rules(), json!({ "scope": scope })).unwrap();
            assert!(ann.may("a") && ann.may("b") && !ann.may("a b") && !ann.may("c"));
        }
        assert!(!read(&rules(), json!({ "scope": null })).unwrap().may("a"));
    }

    #[test]
    fn claims_make_the_scope_and_none_is_ever_wider() {
        let rules = ClaimRules { subject: "uid".into(), tenant: Some("org".into()), ..rules() };
        let ann = read(&rules, json!({ "uid": "u1", "org": "acme" })).unwrap();
        assert_eq!(ann.scope(ScopeKind::Tenant), Ok(Scope::tenant("acme").unwrap()));
        assert_eq!(ann.scope(ScopeKind::Subject), Ok(Scope::member("acme", "u1").unwrap()));
        assert_eq!(read(&rules, json!({ "uid": "u1" })), Err(AuthError::NoTenant));
        assert_eq!(read(&rules, json!({ "uid": "u1", "org": " " })), Err(AuthError::NoTenant));
    }
}
