//! The word of an authenticating edge.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use super::fields::remove_lookalikes;
use super::{AuthError, Principal};

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

impl HeaderAuthenticator {
    pub(super) fn trusts(&self, peer: IpAddr) -> bool {
        // A dual-stack listener sees IPv4 peers as mapped addresses.
        let peer = peer.to_canonical();
        self.trusted.iter().any(|net| net.contains(&peer))
    }

    pub(super) fn cleanse(&self, peer: IpAddr, headers: &mut HeaderMap) {
        for name in std::iter::once(&self.subject).chain(&self.tenant) {
            if !self.trusts(peer) {
                headers.remove(name);
            }
            remove_lookalikes(name, headers);
        }
    }

    pub(super) fn authenticate(&self, peer: IpAddr, headers: &HeaderMap) -> Result<Principal, AuthError> {
        if !self.trusts(peer) {
            return Err(AuthError::UntrustedPeer);
        }
        let subject = only(headers, &self.subject).ok_or(AuthError::NoSubject)?;
        let tenant = match &self.tenant {
            Some(name) => Some(only(headers, name).ok_or(AuthError::NoTenant)?),
            None => None,
        };
        Ok(Principal { subject: Some(subject), tenant, scopes: Box::default() })
    }
}

/// The field's value if there is just one, and not an empty one.
fn only(headers: &HeaderMap, name: &HeaderName) -> Option<Box<str>> {
    let mut values = headers.get_all(name).iter();
    let value = std::str::from_utf8(values.next()?.as_bytes()).ok()?.trim();
    (values.next().is_none() && !value.is_empty()).then(|| value.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Authenticator, ScopeKind};
    use crate::entry::Scope;
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

    fn believed(peer: IpAddr, headers: &HeaderMap) -> Result<Principal, AuthError> {
        let Authenticator::Header(header) = authenticator() else { unreachable!() };
        header.authenticate(peer, headers)
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
        let principal = believed(edge(), &sent).unwrap();
        assert_eq!(principal.scope(ScopeKind::Subject), Ok(Scope::member("acme", "joe").unwrap()));
        assert_eq!(principal.scope(ScopeKind::Tenant), Ok(Scope::tenant("acme").unwrap()));
        let mapped = "::ffff:10.1.2.3".parse().unwrap();
        assert!(believed(mapped, &sent).is_ok());
    }

    #[test]
    fn nobody_else_is_believed_and_their_fields_go() {
        let outsider = "192.0.2.1".parse().unwrap();
        let mut sent = headers(&[(SUBJECT, "joe"), (TENANT, "acme")]);
        assert_eq!(believed(outsider, &sent), Err(AuthError::UntrustedPeer));
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
            assert_eq!(believed(edge(), &sent), Err(error));
        }
        assert_eq!(Principal::default().scope(ScopeKind::Subject), Err(AuthError::NoSubject));
    }
}
