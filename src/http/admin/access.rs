//! Who may use the operators' endpoints.

use std::fmt;
use std::net::IpAddr;

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::uri::Authority as HostAndPort;
use sha2::Sha256;

use crate::auth::{AuthError, Authenticator};

/// Who may use the operators' endpoints.
#[derive(Debug, Clone)]
pub enum Access {
    /// Whoever shows the operators' token, or an access token that grants [`ADMIN_SCOPE`].
    Credentials {
        /// The operators' token, for when nothing else works.
        token: Option<Token>,
        /// Who verifies access tokens.
        issued: Option<Box<Authenticator>>,
    },
    /// Whoever reaches the listener, which is on this machine only.
    Machine,
    /// Whoever may read the configuration, and so the database: a command on it.
    Database,
}

/// What an access token must grant.
pub const ADMIN_SCOPE: &str = "oncegate:admin";

/// What let an operator in; kept on record with what they do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// The operators' token.
    Token,
    /// An access token of this subject.
    Granted(Box<str>),
    /// Being on the same machine.
    Machine,
    /// Access to the database.
    Database,
}

impl Authority {
    /// As it is put on record.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Granted(_) => "access token",
            Self::Machine => "machine",
            Self::Database => "database",
        }
    }

    /// Whose it is, where that is known: then nobody else acts under it.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        match self {
            Self::Granted(subject) => Some(subject),
            Self::Token | Self::Machine | Self::Database => None,
        }
    }
}

/// Why somebody may not. The text is for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Nothing was shown, or not what opens.
    #[error("Send the operators' token: Authorization: Bearer ….")]
    NoToken,
    /// The access token is not good.
    #[error(transparent)]
    Token(AuthError),
    /// The access token is good for something else.
    #[error("The access token does not grant {ADMIN_SCOPE}.")]
    NotGranted,
    /// The request is for a name that is not this machine's: a page whose name was made to lead here.
    #[error("Without server.admin_token, operators are answered under localhost, 127.0.0.1 and [::1] only.")]
    OtherName,
}

/// A token that can be recognised, in a time that tells nothing of it.
#[derive(Clone)]
pub struct Token {
    /// Fresh in each process.
    key: [u8; 32],
    tag: Vec<u8>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Recognises `token`.
    #[must_use]
    pub fn new(token: &str) -> Self {
        let key: [u8; 32] = rand::random();
        let tag = mac(&key, token.as_bytes()).map(|mac| mac.finalize().into_bytes().to_vec());
        Self { key, tag: tag.unwrap_or_default() }
    }

    /// Whether `shown` is it.
    #[must_use]
    pub fn is(&self, shown: &[u8]) -> bool {
        mac(&self.key, shown).is_some_and(|mac| mac.verify_slice(&self.tag).is_ok())
    }
}

/// `None` never happens: a key may have any length.
fn mac(key: &[u8], text: &[u8]) -> Option<Hmac<Sha256>> {
    Some(Hmac::<Sha256>::new_from_slice(key).ok()?.chain_update(text))
}

impl Access {
    /// Who it is that asks, by a connection from `peer`.
    ///
    /// # Errors
    /// If they may not.
    pub async fn admit(&self, peer: IpAddr, parts: &Parts) -> Result<Authority, Denied> {
        match self {
            Self::Credentials { token: Some(token), .. } if bearer(parts).is_some_and(|shown| token.is(shown)) => {
                Ok(Authority::Token)
            }
            Self::Credentials { issued: Some(issued), .. } => granted(issued, peer, parts).await,
            Self::Credentials { issued: None, .. } => Err(Denied::NoToken),
            Self::Machine if is_for_this_machine(parts) => Ok(Authority::Machine),
            Self::Machine => Err(Denied::OtherName),
            Self::Database => Ok(Authority::Database),
        }
    }
}

async fn granted(issued: &Authenticator, peer: IpAddr, parts: &Parts) -> Result<Authority, Denied> {
    let sender = issued.authenticate(peer, &parts.headers).await.map_err(Denied::Token)?;
    match sender.subject() {
        Some(subject) if sender.may(ADMIN_SCOPE) => Ok(Authority::Granted(subject.into())),
        Some(_) | None => Err(Denied::NotGranted),
    }
}

/// The token of the only `Authorization` field.
fn bearer(parts: &Parts) -> Option<&[u8]> {
    let mut fields = parts.headers.get_all(AUTHORIZATION).iter();
    let field = fields.next().filter(|_| fields.next().is_none())?.as_bytes();
    let (scheme, token) = field.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// The host that a request is for.
pub(super) fn host(parts: &Parts) -> Option<HostAndPort> {
    if let Some(authority) = parts.uri.authority() {
        return Some(authority.clone());
    }
    let mut fields = parts.headers.get_all(HOST).iter();
    let field = fields.next().filter(|_| fields.next().is_none())?;
    field.to_str().ok()?.parse().ok()
}

fn is_for_this_machine(parts: &Parts) -> bool {
    let Some(host) = host(parts) else { return false };
    let name = host.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(fields: &[(&str, &str)]) -> Parts {
        let request =
            fields.iter().fold(Request::get("/entries"), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn only_the_whole_token_in_the_only_field_opens() {
        let access = Access::Credentials { token: Some(Token::new("s3cret")), issued: None };
        for opens in ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret"] {
            assert_eq!(access.admit(PEER, &parts(&[("authorization", opens)])).await, Ok(Authority::Token), "{opens}");
        }
        for closed in ["Bearer s3cre", "Bearer s3cret2", "Bearer S3CRET", "s3cret", "Basic s3cret", "Bearer", "Bearer "]
        {
            let told = access.admit(PEER, &parts(&[("authorization", closed)])).await;
            assert_eq!(told, Err(Denied::NoToken), "{closed}");
        }
        assert_eq!(access.admit(PEER, &parts(&[])).await, Err(Denied::NoToken));
        let twice = [("authorization", "Bearer s3cret"), ("authorization", "Bearer s3cret")];
        assert_eq!(access.admit(PEER, &parts(&twice)).await, Err(Denied::NoToken));
        let nobody = Access::Credentials { token: None, issued: None };
        assert_eq!(nobody.admit(PEER, &parts(&[("authorization", "Bearer ")])).await, Err(Denied::NoToken));
        // What vouches for callers by address says nothing of operators.
        let anybody = Access::Credentials { token: None, issued: Some(Box::new(Authenticator::Nobody)) };
        assert_eq!(anybody.admit(PEER, &parts(&[])).await, Err(Denied::NotGranted));
    }

    #[tokio::test]
    async fn without_a_token_only_names_of_this_machine_are_answered() {
        for own in ["localhost", "LOCALHOST:8081", "127.0.0.1:8081", "127.1.2.3", "[::1]:8081"] {
            assert_eq!(Access::Machine.admit(PEER, &parts(&[("host", own)])).await, Ok(Authority::Machine), "{own}");
        }
        for other in ["pay.example.com", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1:8081", ""] {
            let told = Access::Machine.admit(PEER, &parts(&[("host", other)])).await;
            assert_eq!(told, Err(Denied::OtherName), "{other}");
        }
        assert_eq!(Access::Machine.admit(PEER, &parts(&[])).await, Err(Denied::OtherName));
    }
}
