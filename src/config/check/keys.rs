//! Key sources: what makes a retry the same request.

use std::collections::BTreeMap;

use super::{Finding, error, guarded, policy_key, warning};
use crate::config::identity::describe;
use crate::config::{Config, Policy, Route, Tombstone};
use crate::entry::{KeySource, source::Alternative};

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    shared_namespaces(config, findings);
    for (route, policy) in guarded(config) {
        parameters(route, policy, findings);
        order(route, policy, findings);
        let short = matches!(policy.tombstone, Some(Tombstone::For(_)));
        if short && policy.key.is_business() {
            let text =
                "after retention and tombstone a business number counts as new and is executed again; use \"forever\"";
            findings.push(warning(policy_key(route, "tombstone"), text));
        }
    }
}

/// Routes that share a namespace must take the same thing for the same key.
fn shared_namespaces(config: &Config, findings: &mut Vec<Finding>) {
    let mut first: BTreeMap<_, (&Route, String)> = BTreeMap::new();
    for (route, policy) in guarded(config) {
        let identity = describe(route, policy, &config.auth);
        let (earlier, expected) = first.entry(route.namespace(policy)).or_insert_with(|| (route, identity.clone()));
        if *expected != identity {
            let text = format!(
                "{identity} differs from {expected} of the route {} in the same namespace; make them equal, or use another namespace",
                earlier.name
            );
            findings.push(error(policy_key(route, "namespace"), text));
        }
    }
}

fn parameters(route: &Route, policy: &Policy, findings: &mut Vec<Finding>) {
    for source in policy.key.alternatives().iter().flat_map(Alternative::sources) {
        let KeySource::Path(name) = source else {
            continue;
        };
        if !route.pattern.parameters().any(|parameter| *parameter == **name) {
            let text =
                format!("\"{source}\" names no parameter of \"{}\"; write {{{name}}} into the match", route.pattern);
            findings.push(error(policy_key(route, "key"), text));
        }
    }
}

/// A retry keeps its identity only if it names the same alternative again.
fn order(route: &Route, policy: &Policy, findings: &mut Vec<Finding>) {
    let alternatives = policy.key.alternatives();
    let always =
        |alternative: &Alternative| alternative.sources().iter().all(|source| matches!(source, KeySource::Path(_)));
    let [first, rest @ ..] = alternatives else {
        return;
    };
    if rest.is_empty() {
        return;
    }
    let key = policy_key(route, "key");
    if alternatives[..alternatives.len() - 1].iter().any(always) {
        findings.push(warning(key, format!("{}: what comes after a path source is never used; remove it", policy.key)));
    } else if !first.is_business() && rest.iter().any(Alternative::is_business) {
        let text =
            format!("{}: a new random key per click is a new payment; list the business number first", policy.key);
        findings.push(warning(key, text));
    } else {
        let text = format!(
            "{}: a retry that omits the first source is another request; clients must send it every time",
            policy.key
        );
        findings.push(warning(key, text));
    }
}

#[cfg(test)]
mod tests {
    use crate::config::check::testing::{Base, assert_error, assert_sound, assert_warning};

    const KEY: &str = "routes.pay.idempotency.key";

    fn key(key: &str) -> Base {
        Base::default().policy(&format!("key = {key}"))
    }

    #[test]
    fn a_path_source_names_a_parameter_of_the_match() {
        assert_error(&key("'path:order'"), KEY, "\"path:order\" names no parameter of \"POST /pay/{id}\"");
        assert_error(&key("[['body:/a', 'path:order']]"), KEY, "path:order");
        assert_sound(&key("'path:id'"));
    }

    #[test]
    fn alternatives_that_could_change_a_retrys_identity_are_told() {
        assert_warning(&key("['body:/order_no', 'header']"), KEY, "omits the first source");
        assert_warning(&key("['body:/order_no', 'query:no']"), KEY, "omits the first source");
        assert_warning(&key("['header', 'body:/order_no']"), KEY, "business number first");
        assert_warning(&key("['path:id', 'header']"), KEY, "never used");
        assert_sound(&key("[['path:id', 'body:/no']]"));
    }

    #[test]
    fn routes_of_one_namespace_agree() {
        let other = |policy: &str| {
            Base::default().and(&format!(
                "[[routes]]\nname = 'b'\nmatch = 'POST /b'\nupstream = 'u'\nidempotency = {{ namespace = 'pay', {policy} }}"
            ))
        };
        assert_sound(&other("key = 'header'"));
        assert_error(&other("key = 'query:no'"), "routes.b.idempotency.namespace", "of the route pay");
    }

    #[test]
    fn a_business_number_that_is_forgotten_is_told() {
        let base = Base::default().policy("key = 'body:/order_no', tombstone = '30d'");
        assert_warning(&base, "routes.pay.idempotency.tombstone", "forever");
        assert_sound(&Base::default().policy("key = 'header', tombstone = '0s'"));
    }
}
