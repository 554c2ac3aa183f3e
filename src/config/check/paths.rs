//! Paths: ties, the gateway's own paths, and methods that no policy guards.

use http::Method;

use super::{Finding, error, guarded, warning};
use crate::config::{Config, Docs};
use crate::routing::{Methods, Pattern};

/// The gateway's own public paths, under `server.prefix`.
const OWN: &[&str] = &["/healthz", "/readyz", "/problems/{slug}", "/idempotency/tokens", "/idempotency/requests/{key}"];

/// Those that are there only where documentation is public.
const DOCS: &[&str] = &["/openapi.json", "/openapi/{upstream}", "/docs", "/docs/*"];

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    ties(config, findings);
    shadows(config, findings);
    for (route, _) in guarded(config) {
        if let Methods::Named(named) = route.pattern.methods() {
            let unguarded =
                [Method::GET, Method::HEAD, Method::OPTIONS].into_iter().filter(|safe| named.contains(safe));
            for method in unguarded {
                let text =
                    format!("{method} passes through, the policy never applies to it; give it a route without one");
                findings.push(warning(format!("routes.{}.match", route.name), text));
            }
        }
    }
}

fn ties(config: &Config, findings: &mut Vec<Finding>) {
    for (index, route) in config.routes.iter().enumerate() {
        for earlier in config.routes[..index].iter().filter(|earlier| earlier.pattern.ties_with(&route.pattern)) {
            let (mine, theirs) = (&route.pattern, &earlier.pattern);
            let text = format!("\"{mine}\" matches the same requests as \"{theirs}\" of the route {}", earlier.name);
            findings.push(error(format!("routes.{}.match", route.name), text));
        }
    }
}

fn shadows(config: &Config, findings: &mut Vec<Finding>) {
    let prefix = &config.server.prefix;
    let docs = if config.server.docs == Docs::Public { DOCS } else { &[] };
    let own: Result<Vec<Pattern>, _> = OWN.iter().chain(docs).map(|path| format!("* {prefix}{path}").parse()).collect();
    let plain = prefix.is_empty() || (prefix.starts_with('/') && !prefix.contains('{'));
    let Some(own) = own.ok().filter(|_| plain) else {
        let text = format!("\"{prefix}\" is no prefix; write a path without a last slash, such as \"/-\"");
        findings.push(error("server.prefix", text));
        return;
    };
    for route in &config.routes {
        let shadow = own.iter().find(|own| own.overlaps(&route.pattern));
        if let Some(own) = shadow {
            let path = own.to_string().replacen("* ", "", 1);
            let text = format!(
                "requests for {path} are answered by the gateway, not by \"{}\"; move it by server.prefix",
                route.pattern
            );
            findings.push(warning(format!("routes.{}.match", route.name), text));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::check::testing::{Base, assert_error, assert_sound, assert_warning};

    fn route(pattern: &str) -> Base {
        Base::default().and(&format!("[[routes]]\nname = 'b'\nmatch = '{pattern}'\nupstream = 'u'"))
    }

    #[test]
    fn a_tie_names_both_routes() {
        assert_error(
            &route("PUT|POST /pay/{no}"),
            "routes.b.match",
            "the same requests as \"POST /pay/{id}\" of the route pay",
        );
        assert_sound(&route("POST /pay/new"));
    }

    #[test]
    fn a_route_in_the_shadow_of_the_gateways_own_paths_is_told() {
        assert_warning(&route("GET /healthz"), "routes.b.match", "/healthz");
        assert_warning(&route("* /*"), "routes.b.match", "server.prefix");
        assert_sound(&route("GET /healthz").head("server.prefix = '/-'"));
        assert_warning(&route("GET /-/{x}").head("server.prefix = '/-'"), "routes.b.match", "/-/healthz");
    }

    #[test]
    fn a_prefix_is_a_plain_path() {
        for prefix in ["x", "/", "/a/", "/{a}", "/a b", "//a"] {
            assert_error(
                &Base::default().head(&format!("server.prefix = '{prefix}'")),
                "server.prefix",
                "is no prefix",
            );
        }
    }

    #[test]
    fn a_policy_on_a_method_that_passes_through_is_told() {
        let base = Base::default()
            .and("[[routes]]\nname = 'b'\nmatch = 'GET|PUT /b'\nupstream = 'u'\nidempotency = { key = 'header' }");
        assert_warning(&base, "routes.b.match", "GET passes through");
    }
}
