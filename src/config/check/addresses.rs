//! Addresses: stores that are built in, connections that suffice, and TLS settings that apply.

use super::{Finding, error};
use crate::config::{Config, ServiceUrl};

/// What the stores' drivers are built for.
const STORES: &[&str] = &["sqlite", "postgres", "postgresql", "mysql", "mariadb"];

/// What the marks' drivers are built for.
const MARKS: &[&str] = &["memory", "redis", "rediss", "redis+sentinel", "redis+cluster"];

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    scheme("store.url", &config.store.url, STORES, findings);
    scheme("marks.url", &config.marks.url, MARKS, findings);
    let store = &config.store;
    if store.writers > store.max_connections {
        let text = format!("{} is more than max_connections, {}", store.writers, store.max_connections);
        findings.push(error("store.writers", text));
    }
    for upstream in &config.upstreams {
        if upstream.tls.ca.is_some() && !upstream.urls.iter().any(|url| url.is_tls()) {
            let key = format!("upstreams.{}.tls.ca", upstream.name);
            findings.push(error(key, "no URL of this upstream is https; remove the authority, or use https"));
        }
    }
}

fn scheme(key: &str, url: &ServiceUrl, known: &[&str], findings: &mut Vec<Finding>) {
    if !known.contains(&url.scheme()) {
        let text = format!("\"{}\" is not supported; supported are: {}", url.scheme(), known.join(", "));
        findings.push(error(key, text));
    }
}

#[cfg(test)]
mod tests {
    use crate::config::check::testing::{Base, assert_error, assert_sound};

    #[test]
    fn a_store_that_is_not_built_in_is_refused() {
        assert_error(&Base::default().head("marks.url = 'memcached://a'"), "marks.url", "supported are: memory, redis");
        assert_sound(&Base::default().head("marks.url = 'redis+sentinel://a:1,b:1/main'"));
    }

    #[test]
    fn writers_are_connections() {
        assert_error(&Base::default().head("store.writers = 11"), "store.writers", "more than max_connections, 10");
        assert_sound(&Base::default().head("store.writers = 10"));
    }

    #[test]
    fn an_authority_without_tls_is_refused() {
        let upstream = |url: &str| {
            let route = "[[routes]]\nname = 'b'\nmatch = 'POST /b'\nupstream = 'b'";
            Base::default().and(&format!("[[upstreams]]\nname = 'b'\nurls = ['{url}']\ntls.ca = 'ca.pem'\n{route}"))
        };
        assert_error(&upstream("http://b:1"), "upstreams.b.tls.ca", "https");
        assert_sound(&upstream("https://b:1"));
    }
}
