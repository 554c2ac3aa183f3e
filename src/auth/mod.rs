//! Credentials: who sends a request, and so whose its key is.

mod bearer;
mod fields;
mod header;
pub mod jwt;
pub mod token;

use std::net::IpAddr;

use http::HeaderMap;
use serde::Deserialize;

pub use header::HeaderAuthenticator;
pub use jwt::{JwtAuthenticator, TokenError};

use crate::entry::{Scope, ScopeError};

/// How senders are told apart.
#[derive(Debug, Clone)]
pub enum Authenticator {
    /// They are not: every key is everybody's.
    Nobody,
    /// By fields that an authenticating edge in front of us sets.
    Header(HeaderAuthenticator),
    /// By a token that an issuer has signed.
    Jwt(Box<JwtAuthenticator>),
}

/// Whoever sends a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Principal {
    subject: Option<Box<str>>,
    tenant: Option<Box<str>>,
    scopes: Box<[Box<str>]>,
}

/// Whose a route's keys are, before it is known who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeKind {
    /// The caller's tenant's.
    Tenant,
    /// The caller's own, within its tenant where there is one.
    Subject,
    /// Everybody's.
    Global,
}

/// Why a sender is turned away. The text is for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The peer is not one of those whose word is taken.
    #[error("The request did not come through the authenticating proxy.")]
    UntrustedPeer,
    /// The proxy did not say who it is, or said it twice.
    #[error("The authenticating proxy named no subject, or more than one.")]
    NoSubject,
    /// The same of the tenant.
    #[error("The credentials name no tenant, or more than one.")]
    NoTenant,
    /// The name can't be a scope.
    #[error("{0}.")]
    Scope(#[from] ScopeError),
    /// No `Authorization: Bearer`.
    #[error("An access token is required.")]
    NoToken,
    /// Which of two would count is anybody's guess.
    #[error("The request has more than one Authorization field.")]
    TwoTokens,
    /// The token is not good.
    #[error("{0}")]
    Token(#[from] TokenError),
    /// There is nothing to verify a token with, yet.
    #[error("The keys that access tokens are verified with could not be fetched yet.")]
    NoKeys,
}

impl Authenticator {
    /// Who sends a request from `peer` with these fields.
    ///
    /// # Errors
    /// If the sender is not to be believed, or can't be judged now.
    pub async fn authenticate(&self, peer: IpAddr, headers: &HeaderMap) -> Result<Principal, AuthError> {
        match self {
            Self::Nobody => Ok(Principal::default()),
            Self::Header(header) => header.authenticate(peer, headers),
            Self::Jwt(jwt) => jwt.authenticate(headers).await,
        }
    }

    /// Whether senders can be judged at all.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match self {
            Self::Nobody | Self::Header(_) => true,
            Self::Jwt(jwt) => jwt.has_keys(),
        }
    }

    /// Whether upstreams are told in fields of ours who sends a request.
    #[must_use]
    pub fn identifies(&self) -> bool {
        match self {
            Self::Nobody | Self::Header(_) => false,
            Self::Jwt(jwt) => jwt.told.is_any(),
        }
    }

    /// Whether the peer is a proxy of ours, whose word on who sends a request is taken.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        match self {
            Self::Nobody | Self::Jwt(_) => false,
            Self::Header(header) => header.trusts(peer),
        }
    }

    /// Removes identity fields that a peer had no right to set, so that no upstream believes them; whoever sends
    /// them, also those that only look like one.
    pub fn cleanse(&self, peer: IpAddr, headers: &mut HeaderMap) {
        match self {
            Self::Nobody => {}
            Self::Header(header) => header.cleanse(peer, headers),
            Self::Jwt(jwt) => jwt.told.cleanse(headers),
        }
    }

    /// Tells the upstream who sends a request. The last word on these fields.
    pub fn identify(&self, sender: Option<&Principal>, headers: &mut HeaderMap) {
        match self {
            Self::Nobody | Self::Header(_) => {}
            Self::Jwt(jwt) => jwt.told.write(sender, headers),
        }
    }
}

impl Principal {
    /// Whether anybody was named.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.subject.is_some()
    }

    /// The name, where there is one.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// The tenant, where there is one.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// Whether the credentials grant `scope`.
    #[must_use]
    pub fn may(&self, scope: &str) -> bool {
        self.scopes.iter().any(|granted| **granted == *scope)
    }

    /// The scope of this sender's keys on a route of this kind.
    ///
    /// # Errors
    /// If the credentials lack what the scope needs. Never falls back to a wider scope.
    pub fn scope(&self, kind: ScopeKind) -> Result<Scope, AuthError> {
        match kind {
            ScopeKind::Global => Ok(Scope::Global),
            ScopeKind::Tenant => Ok(Scope::tenant(self.tenant.as_deref().ok_or(AuthError::NoTenant)?)?),
            ScopeKind::Subject => {
                let subject = self.subject.as_deref().ok_or(AuthError::NoSubject)?;
                // Subjects are unique within a tenant, and nobody promises more.
                Ok(match &self.tenant {
                    Some(tenant) => Scope::member(tenant, subject)?,
                    None => Scope::subject(subject)?,
                })
            }
        }
    }
}
