//! Credentials: who sends a request, and so whose its key is.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use serde::Deserialize;

use crate::entry::{Scope, ScopeError};

/// How senders are told apart.
#[derive(Debug, Clone)]
pub enum Authenticator {
    /// They are not: every key is everybody's.
    Nobody,
    /// By fields that an authenticating edge in front of us sets.
    Header(HeaderAuthenticator),
}

/// Believes the fields that a trusted proxy has set.
#[derive(Debug, Clone)]
pub struct HeaderAuthenticator {
    /// Peers that are believed.
    pub trusted: Vec<IpNet>,
    /// The field that names the subject.
    pub subject: HeaderName,
    /// The field that names the subject's tenant.
    pub tenant: Option<HeaderName>,
}

/// Whoever sends a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Principal {
    subject: Option<Box<str>>,
    tenant: Option<Box<str>>,
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
    #[error("The authenticating proxy named no tenant, or more than one.")]
    NoTenant,
    /// The name can't be a scope.
    #[error("{0}.")]
    Scope(#[from] ScopeError),
}

impl Authenticator {
    /// Who sends a request from `peer` with these fields.
    ///
    /// # Errors
    /// If the sender is not to be believed.
    pub fn authenticate(&self, peer: IpAddr, headers: &HeaderMap) -> Result<Principal, AuthError> {
        match self {
            Self::Nobody => Ok(Principal::default()),
            Self::Header(header) => header.authenticate(peer, headers),
        }
    }

    /// Whether the peer is a proxy of ours, whose word on who sends a request is taken.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        match self {
            Self::Nobody => false,
            Self::Header(header) => header.trusts(peer),
        }
    }

    /// Removes identity fields that a peer had no right to set, so that no upstream believes them.
    pub fn cleanse(&self, peer: IpAddr, headers: &mut HeaderMap) {
        let Self::Header(header) = self else { return };
        if !header.trusts(peer) {
            headers.remove(&header.subject);
            if let Some(tenant) = &header.tenant {
                headers.remove(tenant);
            }
        }
    }
}

impl HeaderAuthenticator {
    fn trusts(&self, peer: IpAddr) -> bool {
        // A dual-stack listener sees IPv4 peers as mapped addresses.
        let peer = peer.to_canonical();
        self.trusted.iter().any(|net| net.contains(&peer))
    }

    fn authenticate(&self, peer: IpAddr, headers: &HeaderMap) -> Result<Principal, AuthError> {
        if !self.trusts(peer) {
            return Err(AuthError::UntrustedPeer);
        }
        let subject = only(headers, &self.subject).ok_or(AuthError::NoSubject)?;
        let tenant = match &self.tenant {
            Some(name) => Some(only(headers, name).ok_or(AuthError::NoTenant)?),
            None => None,
        };
        Ok(Principal { subject: Some(subject), tenant })
    }
}

/// The field's value if there is just one, and not an empty one.
fn only(headers: &HeaderMap, name: &HeaderName) -> Option<Box<str>> {
    let mut values = headers.get_all(name).iter();
    let value = std::str::from_utf8(values.next()?.as_bytes()).ok()?.trim();
    (values.next().is_none() && !value.is_empty()).then(|| value.into())
}

impl Principal {
    /// Whether anybody was named.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.subject.is_some()
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

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const SUBJECT: HeaderName = HeaderName::from_static("x-subject");
    const TENANT: HeaderName = HeaderName::from_static("x-tenant");

    fn authenticator() -> Authenticator {
        Authenticator::Header(HeaderAuthenticator {
            trusted: vec!["10.0.0.0/8".parse().unwrap()],
            subject: SUBJECT,
            tenant: Some(TENANT),
        })
    }

    fn headers(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    fn edge() -> IpAddr {
        "10.1.2.3".parse().unwrap()
    }

    #[test]
    fn the_trusted_edge_names_subject_and_tenant() {
        let sent = headers(&[(SUBJECT, "joe"), (TENANT, "acme")]);
        let principal = authenticator().authenticate(edge(), &sent).unwrap();
        assert_eq!(principal.scope(ScopeKind::Subject), Ok(Scope::member("acme", "joe").unwrap()));
        assert_eq!(principal.scope(ScopeKind::Tenant), Ok(Scope::tenant("acme").unwrap()));
        let mapped = "::ffff:10.1.2.3".parse().unwrap();
        assert!(authenticator().authenticate(mapped, &sent).is_ok());
    }

    #[test]
    fn nobody_else_is_believed_and_their_fields_go() {
        let outsider = "192.0.2.1".parse().unwrap();
        let mut sent = headers(&[(SUBJECT, "joe"), (TENANT, "acme")]);
        assert_eq!(authenticator().authenticate(outsider, &sent), Err(AuthError::UntrustedPeer));
        authenticator().cleanse(outsider, &mut sent);
        assert!(sent.is_empty());
    }

    #[test]
    fn a_missing_empty_or_double_name_is_refused_never_shared() {
        let table = [
            (headers(&[(TENANT, "acme")]), AuthError::NoSubject),
            (headers(&[(SUBJECT, " "), (TENANT, "acme")]), AuthError::NoSubject),
            (headers(&[(SUBJECT, "a"), (SUBJECT, "b"), (TENANT, "acme")]), AuthError::NoSubject),
            (headers(&[(SUBJECT, "a")]), AuthError::NoTenant),
        ];
        for (sent, error) in table {
            assert_eq!(authenticator().authenticate(edge(), &sent), Err(error));
        }
        assert_eq!(Principal::default().scope(ScopeKind::Subject), Err(AuthError::NoSubject));
    }
}
