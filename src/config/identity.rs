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
    let owner = |field: Option<&super::FieldName>| match auth.mode {
        AuthMode::None => "none".to_owned(),
        AuthMode::Header => format!("header {}", field.map_or("none", |field| field.get().as_str())),
    };
    let header = auth.header.as_ref();
    match route.scope(policy, auth) {
        ScopeKind::Global => format!("keys={keys} scope=global"),
        ScopeKind::Tenant => {
            format!("keys={keys} scope=tenant by={}", owner(header.and_then(|header| header.tenant_header.as_ref())))
        }
        ScopeKind::Subject => {
            let by = owner(header.map(|header| &header.subject_header));
            match header.and_then(|header| header.tenant_header.as_ref()) {
                Some(tenant) => format!("keys={keys} scope=subject by={by} of={}", owner(Some(tenant))),
                None => format!("keys={keys} scope=subject by={by}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    const HEADER: &str = "[auth]\nmode = 'header'\nheader = { trusted = ['10.0.0.0/8'], tenant_header = 'X-Tenant' }\n";

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
        ];
        for (auth, policy, namespace, identity_text) in table {
            assert_eq!(identity(auth, policy), (namespace.to_owned(), identity_text.to_owned()));
        }
    }

    #[test]
    fn what_does_not_make_old_keys_new_does_not_change_it() {
        let before = identity(HEADER, "key = ['header']");
        assert_eq!(identity(HEADER, "key = [['header']], retention = '1h', mode = 'observe'"), before);
        assert_eq!(identity(&HEADER.replace("10.0", "10.1"), "key = 'header'"), before);
    }
}
