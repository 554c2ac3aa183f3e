//! What an upstream's answers mean, and what becomes of an Unknown.

use super::{Finding, error, guarded, policy_key, warning};
use crate::auth::ScopeKind;
use crate::config::{Config, OnUnknown, Policy, Route};
use crate::entry::source::Alternative;
use crate::http::route::ForwardKey;

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    for (route, policy) in guarded(config) {
        statuses(route, policy, findings);
        lookup(route, policy, findings);
        let scope = route.scope(policy, &config.auth);
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

fn lookup(route: &Route, policy: &Policy, findings: &mut Vec<Finding>) {
    let key = policy_key(route, "lookup");
    match (policy.on_unknown, &policy.lookup) {
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
            let composite = |alternative: &Alternative| alternative.sources().len() > 1;
            if policy.key.alternatives().iter().any(composite) {
                let text = "{key} of a composite key is a digest, which the upstream must know by the forwarded key";
                findings.push(warning(format!("{key}.request"), text));
            }
        }
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
        assert_error(&policy("lookup = { request = 'GET /p/{key}' }"), key, "without effect");
        let late = policy("on_unknown = 'lookup', lookup = { request = 'GET /p/{key}', first = '10m' }");
        assert_error(&late, "routes.pay.idempotency.lookup.first", "10m is longer than max, 5m");
        let composite = "key = [['body:/a', 'body:/b']], on_unknown = 'lookup', lookup = { request = 'GET /p/{key}' }";
        assert_warning(&Base::default().policy(composite), "routes.pay.idempotency.lookup.request", "digest");
    }

    #[test]
    fn a_raw_key_of_a_narrow_scope_is_told() {
        let base = policy("forward_key = 'raw'");
        assert_sound(&base);
        let base = base.head("auth.mode = 'header'\nauth.header.trusted = ['10.0.0.0/8']");
        assert_warning(&base, "routes.pay.idempotency.forward_key", "meet at the upstream");
    }
}
