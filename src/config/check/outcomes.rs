//! What an upstream's answers mean, and what becomes of an Unknown.

use super::{Finding, error, guarded, policy_key, warning};
use crate::auth::ScopeKind;
use crate::config::{Absent, Asked, Config, Lookup, OnUnknown, Policy, Route};
use crate::entry::source::Alternative;
use crate::http::route::ForwardKey;

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    for (route, policy) in guarded(config) {
        statuses(route, policy, findings);
        let scope = route.scope(policy, &config.auth);
        let alternatives = policy.key.alternatives();
        let keys = Keys {
            scope,
            tenants: config.auth.header.as_ref().is_some_and(|header| header.tenant_header.is_some()),
            forwarded: policy.forward_key,
            composite: alternatives.iter().any(|alternative| alternative.sources().len() > 1),
            business: alternatives.iter().any(Alternative::is_business),
            header: !alternatives.iter().all(Alternative::is_business),
        };
        let key = policy_key(route, "lookup");
        lookup(&key, policy.on_unknown, policy.lookup.as_ref(), &keys, findings);
        if policy.forward_key == ForwardKey::Raw && scope != ScopeKind::Global {
            let text =
                "\"raw\": equal keys of two callers meet at the upstream; use \"derived\", or scope = \"global\"";
            findings.push(warning(policy_key(route, "forward_key"), text));
        }
    }
}

fn statuses(route: &Route, policy: &Policy, findings: &mut Vec<Finding>) {
    let outcomes = &policy.outcomes;
    let not_executed = policy_key(route, "outcomes.not_executed");
    if let Some(status) = outcomes.not_executed.iter().find(|status| *status < 400) {
        let text =
            format!("{status} says that the request was executed; only refusals (4xx, or a 503 meant so) belong here");
        findings.push(error(&not_executed, text));
    }
    let unclear = |status: &u16| *status == 408 || (*status >= 500 && *status != 503);
    if let Some(status) = outcomes.not_executed.iter().find(unclear) {
        let text = format!("{status} mostly says nothing about what was done; a retry could then execute twice");
        findings.push(warning(&not_executed, text));
    }
    let settles = policy_key(route, "outcomes.settles");
    if let Some(status) = outcomes.settles.iter().find(|status| !(400..500).contains(status)) {
        findings.push(error(&settles, format!("{status} is no 4xx; only those are listed here")));
    }
    if !outcomes.settles.0.is_empty() && policy.on_unknown != OnUnknown::Forward {
        findings.push(error(&settles, "without effect; set on_unknown = \"forward\", or remove it"));
    }
}

/// What keys a lookup is to ask about.
pub(super) struct Keys {
    pub(super) scope: ScopeKind,
    /// Whether callers have tenants.
    pub(super) tenants: bool,
    pub(super) forwarded: ForwardKey,
    /// Whether one may be of several parts.
    pub(super) composite: bool,
    /// Whether one may be an order number or the like.
    pub(super) business: bool,
    /// Whether one may be out of the `Idempotency-Key` field.
    pub(super) header: bool,
}

pub(super) fn lookup(
    key: &str,
    on_unknown: OnUnknown,
    lookup: Option<&Lookup>,
    keys: &Keys,
    findings: &mut Vec<Finding>,
) {
    match (on_unknown, lookup) {
        (OnUnknown::Lookup, None) => {
            findings.push(error(key, "missing under on_unknown = \"lookup\"; say what to ask"))
        }
        (OnUnknown::Hold | OnUnknown::Forward, Some(_)) => {
            findings.push(error(key, "without effect; set on_unknown = \"lookup\", or remove it"));
        }
        (OnUnknown::Hold | OnUnknown::Forward, None) => {}
        (OnUnknown::Lookup, Some(lookup)) => {
            if lookup.first > lookup.max {
                let text = format!("{} is longer than max, {}", lookup.first, lookup.max);
                findings.push(error(format!("{key}.first"), text));
            }
            let request = format!("{key}.request");
            owner(&request, lookup, keys, findings);
            known(&request, lookup, keys, findings);
        }
    }
}

/// What is found must be the caller's own: two tenants may each have an order 7.
fn owner(key: &str, lookup: &Lookup, keys: &Keys, findings: &mut Vec<Finding>) {
    let says = |what| lookup.request.says(what);
    let (has_tenant, has_subject) = match keys.scope {
        ScopeKind::Global => (false, false),
        ScopeKind::Tenant => (true, false),
        ScopeKind::Subject => (keys.tenants, true),
    };
    let is_unique = says(Asked::ForwardedKey) && keys.forwarded == ForwardKey::Derived;
    if !is_unique && ((has_tenant && !says(Asked::Tenant)) || (has_subject && !says(Asked::Subject))) {
        let owner = if has_subject { "{subject}" } else { "{tenant}" };
        let text = format!(
            "keys have owners here, and another's payment of the same key would settle this one: write {{forwarded_key}}, or {owner} beside {{key}}{}",
            if has_subject && has_tenant { " and {tenant}" } else { "" }
        );
        findings.push(error(key, text));
    }
    if (says(Asked::Tenant) && !has_tenant) || (says(Asked::Subject) && !has_subject) {
        findings.push(error(key, "keys have no such owner here, so that nothing could ever be asked"));
    }
}

/// A 404 about a key that the upstream has never seen says nothing.
fn known(key: &str, lookup: &Lookup, keys: &Keys, findings: &mut Vec<Finding>) {
    let is_raw = keys.forwarded == ForwardKey::Raw;
    if lookup.request.says(Asked::ForwardedKey) || is_raw && !keys.business {
        return;
    }
    let severe = |text: &str| match lookup.absent {
        Absent::NotExecuted => error(key, format!("{text}. A 404 would have what was executed executed again")),
        Absent::Unknown => warning(key, text),
    };
    if keys.header && !keys.business {
        findings.push(severe("the upstream is sent a derived key, and has never seen {key}: write {forwarded_key}"));
    } else if keys.header {
        let text = "only entries of business keys are asked about, others stay unknown; {forwarded_key} asks about all";
        findings.push(warning(key, text));
    }
    if keys.composite && !is_raw {
        findings.push(severe(
            "{key} of a composite key is a digest that the upstream has never seen: write {forwarded_key}",
        ));
    }
}

#[cfg(test)]
mod tests {
    use crate::config::check::testing::{Base, assert_error, assert_sound, assert_warning};

    fn policy(rest: &str) -> Base {
        Base::default().policy(&format!("key = 'header', {rest}"))
    }

    #[test]
    fn only_refusals_release_a_key() {
        let key = "routes.pay.idempotency.outcomes.not_executed";
        assert_error(&policy("outcomes.not_executed = [404, '2xx']"), key, "200");
        assert_warning(&policy("outcomes.not_executed = ['5xx']"), key, "500");
        assert_warning(&policy("outcomes.not_executed = [408]"), key, "408");
        assert_sound(&policy("outcomes.not_executed = [404, 503]"));
    }

    #[test]
    fn only_a_4xx_settles_and_only_in_forward() {
        let key = "routes.pay.idempotency.outcomes.settles";
        assert_error(&policy("outcomes.settles = [422]"), key, "without effect");
        assert_error(&policy("on_unknown = 'forward', outcomes.settles = ['5xx']"), key, "500 is no 4xx");
        assert_sound(&policy("on_unknown = 'forward', outcomes.settles = [402, 422]"));
    }

    #[test]
    fn a_lookup_and_its_settings_come_together() {
        let key = "routes.pay.idempotency.lookup";
        assert_error(&policy("on_unknown = 'lookup'"), key, "missing");
        assert_error(&policy("lookup = { request = 'GET /p/{forwarded_key}' }"), key, "without effect");
        let late = policy("on_unknown = 'lookup', lookup = { request = 'GET /p/{forwarded_key}', first = '10m' }");
        assert_error(&late, "routes.pay.idempotency.lookup.first", "10m is longer than max, 5m");
    }

    const REQUEST: &str = "routes.pay.idempotency.lookup.request";

    fn looked_up(key: &str, request: &str, rest: &str) -> Base {
        Base::default()
            .policy(&format!("key = {key}, on_unknown = 'lookup', lookup = {{ request = 'GET {request}'{rest} }}"))
    }

    #[test]
    fn an_upstream_is_asked_about_what_it_has_seen() {
        let absent = ", absent = 'not_executed', after = '1m'";
        assert_warning(&looked_up("'header'", "/p/{key}", ""), REQUEST, "has never seen {key}");
        assert_error(&looked_up("'header'", "/p/{key}", absent), REQUEST, "executed again");
        assert_sound(&looked_up("'header'", "/p/{forwarded_key}", absent));
        let raw = "key = 'header', forward_key = 'raw', on_unknown = 'lookup', lookup = { request = 'GET /p/{key}' }";
        assert_sound(&Base::default().policy(raw));
        assert_sound(&looked_up("'body:/a'", "/p/{key}", absent));
        let composite = "[['body:/a', 'body:/b']]";
        assert_warning(&looked_up(composite, "/p/{key}", ""), REQUEST, "digest");
        assert_error(&looked_up(composite, "/p/{key}", absent), REQUEST, "digest");
        assert_sound(&looked_up(composite, "/p/{forwarded_key}", absent));
        assert_warning(&looked_up("['body:/a', 'header']", "/p/{key}", absent), REQUEST, "others stay unknown");
    }

    #[test]
    fn what_is_found_is_the_callers_own() {
        let of_tenants =
            "auth.mode = 'header'\nauth.header.trusted = ['10.0.0.0/8']\nauth.header.tenant_header = 'x-t'";
        let asked = |request, scope: &str| {
            let policy = format!(
                "key = 'body:/a', scope = '{scope}', on_unknown = 'lookup', lookup = {{ request = 'GET {request}' }}"
            );
            Base::default().policy(&policy).head(of_tenants)
        };
        assert_error(&asked("/p/{key}", "tenant"), REQUEST, "{tenant} beside {key}");
        assert_error(&asked("/p/{key}/{tenant}", "subject"), REQUEST, "{subject} beside {key} and {tenant}");
        assert_error(&asked("/p/{key}/{subject}", "global"), REQUEST, "no such owner");
        for (request, scope) in [
            ("/p/{forwarded_key}", "tenant"),
            ("/p/{tenant}/{key}", "tenant"),
            ("/p/{key}?of={tenant}&who={subject}", "subject"),
            ("/p/{key}", "global"),
        ] {
            assert_sound(&asked(request, scope));
        }
    }

    #[test]
    fn a_raw_key_of_a_narrow_scope_is_told() {
        let base = policy("forward_key = 'raw'");
        assert_sound(&base);
        let base = base.head("auth.mode = 'header'\nauth.header.trusted = ['10.0.0.0/8']");
        assert_warning(&base, "routes.pay.idempotency.forward_key", "meet at the upstream");
    }
}
