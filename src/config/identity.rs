//! What gives requests their identity, in words that can be compared: a gateway configured otherwise would
//! take every old key for a new one.

use std::collections::BTreeMap;

use super::{Auth, AuthMode, Config, Policy, Route};
use crate::auth::ScopeKind;

impl Config {
    /// For each namespace, what gives its requests their identity: key sources, scope, and where the scope's
    /// owner comes from. Routes that share a namespace agree, else `check` has refused them.
    ///
    /// Subscriptions have namespaces of their own.
    #[must_use]
    pub fn identities(&self) -> BTreeMap<String, String> {
        let policies = self.routes.iter().filter_map(|route| Some((route, route.idempotency.as_ref()?)));
        let of_routes = policies.map(|(route, policy)| (route.namespace(policy), describe(route, policy, &self.auth)));
        let subscriptions = self.subscriptions.iter();
        let of_subscriptions = subscriptions.map(|subscription| (subscription.namespace(), subscription.identity()));
        let all = of_routes.chain(of_subscriptions);
        all.map(|(namespace, identity)| (namespace.as_str().to_owned(), identity)).collect()
    }
}

/// What gives the requests of `route` their identity: key sources, scope, and where the scope's owner comes
/// from. Equal texts mean that old keys keep their meaning; what does not matter for that is left out. The
/// texts are stored: their form never changes.
pub(super) fn describe(route: &Route, policy: &Policy, auth: &Auth) -> String {
    let keys = &policy.key;
    let Owner { subject, tenant, issuer } = Owner::of(auth);
    match (route.scope(policy, auth), tenant) {
        (ScopeKind::Global, _) => format!("keys={keys} scope=global"),
        (ScopeKind::Tenant, tenant) => {
            let by = tenant.unwrap_or_else(|| Owner::none(auth));
            format!("keys={keys} scope=tenant by={by}{issuer}")
        }
        (ScopeKind::Subject, Some(tenant)) => format!("keys={keys} scope=subject by={subject} of={tenant}{issuer}"),
        (ScopeKind::Subject, None) => format!("keys={keys} scope=subject by={subject}{issuer}"),
    }
}

/// Where the names of a scope come from.
struct Owner {
    subject: String,
    tenant: Option<String>,
    /// Names are unique per issuer: another one's are other people.
    issuer: String,
}

impl Owner {
    fn of(auth: &Auth) -> Self {
        let header = |name: &super::FieldName| format!("header {}", name.get());
        let claim = |name: &str| format!("jwt {name:?}");
        match (auth.mode, &auth.header, &auth.jwt) {
            (AuthMode::Header, Some(settings), _) => Self {
                subject: header(&settings.subject_header),
                tenant: settings.tenant_header.as_ref().map(header),
                issuer: String::new(),
            },
            (AuthMode::Jwt, _, Some(settings)) => Self {
                subject: claim(&settings.subject_claim),
                tenant: settings.tenant_claim.as_deref().map(claim),
                issuer: format!(" from={:?}", settings.issuer),
            },
            // Refused by `check`, but for global scopes.
            (AuthMode::None, _, _) | (AuthMode::Header, None, _) | (AuthMode::Jwt, _, None) => {
                Self { subject: Self::none(auth), tenant: None, issuer: String::new() }
            }
        }
    }

    fn none(auth: &Auth) -> String {
        match auth.mode {
            AuthMode::None => "none",
            AuthMode::Header => "header none",
            AuthMode::Jwt => "jwt none",
        }
        .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    const HEADER: &str = "[auth]\nmode = 'header'\nheader = { trusted = ['10.0.0.0/8'], tenant_header = 'X-Tenant' }\n";

    const JWT: &str = "[auth]\nmode = 'jwt'\n[auth.jwt]\nissuer = 'https://i.test'\naudience = 'pay'\n\
                       algorithms = ['ES256']\nsubject_claim = 'uid'\n";

    fn identity(auth: &str, policy: &str) -> (String, String) {
        let text = format!(
            "store.url = 'sqlite://a.db'\n{auth}\n[[routes]]\nname = 'pay'\nmatch = 'POST /pay'\nupstream = 'u'\n\
             idempotency = {{ {policy} }}"
        );
        let identities = Config::parse("test.toml", &text, [], []).unwrap().identities();
        assert_eq!(identities.len(), 1);
        identities.into_iter().next().unwrap()
    }

    #[test]
    fn an_identity_is_its_keys_its_scope_and_the_scopes_owner() {
        let table = [
            ("", "key = 'header'", "pay", r#"keys=["header"] scope=global"#),
            (
                "",
                "key = [['body:/shop', 'body:/no'], 'header'], namespace = 'n'",
                "n",
                r#"keys=[["body:/shop", "body:/no"], "header"] scope=global"#,
            ),
            (HEADER, "key = 'header'", "pay", r#"keys=["header"] scope=tenant by=header x-tenant"#),
            (
                HEADER,
                "key = 'header', scope = 'subject'",
                "pay",
                r#"keys=["header"] scope=subject by=header x-subject of=header x-tenant"#,
            ),
            (HEADER, "key = 'header', scope = 'global'", "pay", r#"keys=["header"] scope=global"#),
            (JWT, "key = 'header'", "pay", r#"keys=["header"] scope=subject by=jwt "uid" from="https://i.test""#),
            (JWT, "key = 'header', scope = 'global'", "pay", r#"keys=["header"] scope=global"#),
        ];
        for (auth, policy, namespace, identity_text) in table {
            assert_eq!(identity(auth, policy), (namespace.to_owned(), identity_text.to_owned()));
        }
    }

    #[test]
    fn a_tenants_identity_has_its_claim_and_issuer() {
        let with_tenant = format!("{JWT}tenant_claim = 'https://i.test/org'\n");
        let table = [
            ("tenant", r#"by=jwt "https://i.test/org" from="https://i.test""#),
            ("subject", r#"by=jwt "uid" of=jwt "https://i.test/org" from="https://i.test""#),
        ];
        for (scope, by) in table {
            let described = identity(&with_tenant, &format!("key = 'header', scope = '{scope}'")).1;
            assert_eq!(described, format!(r#"keys=["header"] scope={scope} {by}"#));
        }
        let unnamed = identity(&with_tenant, "key = 'header'");
        assert_eq!(unnamed, identity(&with_tenant, "key = 'header', scope = 'tenant'"));
    }

    #[test]
    fn what_does_not_make_old_keys_new_does_not_change_it() {
        let before = identity(HEADER, "key = ['header']");
        assert_eq!(identity(HEADER, "key = [['header']], retention = '1h', mode = 'observe'"), before);
        assert_eq!(identity(&HEADER.replace("10.0", "10.1"), "key = 'header'"), before);
    }
}
