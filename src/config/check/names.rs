//! Names: each once, and what is named exists.

use std::collections::HashSet;

use super::{Finding, error, warning};
use crate::config::{Config, Name};

/// As many as an upstream takes.
const MAX_URLS: usize = 64;

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    unique("upstreams", config.upstreams.iter().map(|upstream| &upstream.name), findings);
    unique("routes", config.routes.iter().map(|route| &route.name), findings);
    unique("subscriptions", config.subscriptions.iter().map(|subscription| &subscription.name), findings);
    for route in &config.routes {
        if config.upstream(&route.upstream).is_none() {
            let known: Vec<_> = config.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
            let text = format!("\"{}\" is no upstream; there are: {}", route.upstream, known.join(", "));
            findings.push(error(format!("routes.{}.upstream", route.name), text));
        }
    }
    for upstream in &config.upstreams {
        let key = format!("upstreams.{}", upstream.name);
        if upstream.urls.is_empty() {
            findings.push(error(format!("{key}.urls"), "the list is empty; give at least one URL"));
        }
        if upstream.urls.len() > MAX_URLS {
            let text = format!("{} URLs are more than {MAX_URLS}; put a load balancer in front", upstream.urls.len());
            findings.push(error(format!("{key}.urls"), text));
        }
        if !config.routes.iter().any(|route| route.upstream == upstream.name) {
            findings.push(warning(key, "no route uses this upstream; remove it, or name it in a route"));
        }
    }
}

fn unique<'a>(key: &str, names: impl Iterator<Item = &'a Name>, findings: &mut Vec<Finding>) {
    let mut seen = HashSet::new();
    let repeated = names.filter(|name| !seen.insert(*name));
    findings.extend(repeated.map(|name| error(format!("{key}.{name}.name"), "the name occurs twice; rename one")));
}

#[cfg(test)]
mod tests {
    use super::MAX_URLS;
    use crate::config::check::testing::{Base, assert_error, assert_warning};

    #[test]
    fn a_name_occurs_once() {
        let twice = Base::default().and("[[upstreams]]\nname = 'u'\nurls = ['http://b:1']");
        assert_error(&twice, "upstreams.u.name", "occurs twice");
        let twice = Base::default().and("[[routes]]\nname = 'pay'\nmatch = 'POST /b'\nupstream = 'u'");
        assert_error(&twice, "routes.pay.name", "occurs twice");
    }

    #[test]
    fn what_is_named_exists_and_what_exists_is_used() {
        let base = Base::default().and("[[routes]]\nname = 'b'\nmatch = 'POST /b'\nupstream = 'x'");
        assert_error(&base, "routes.b.upstream", "\"x\" is no upstream; there are: u");
        let base = Base::default().and("[[upstreams]]\nname = 'spare'\nurls = []");
        assert_warning(&base, "upstreams.spare", "no route uses");
        assert_error(&base, "upstreams.spare.urls", "empty");
        let urls = vec!["'http://a:1'"; MAX_URLS + 1].join(",");
        let base = Base::default().and(&format!("[[upstreams]]\nname = 'spare'\nurls = [{urls}]"));
        assert_error(&base, "upstreams.spare.urls", "65 URLs");
    }
}
