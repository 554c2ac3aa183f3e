//! Addresses: stores that are built in, a head's least size, and TLS settings that apply.

use super::{Finding, error};
use crate::config::{Config, ServiceUrl};

/// What the stores' drivers are built for.
const STORES: &[&str] = &["sqlite", "postgres", "postgresql", "mysql", "mariadb"];

/// hyper's least buffer for a head.
const LEAST_HEAD: usize = 8192;

/// What the marks' drivers are built for.
const MARKS: &[&str] =
    &["memory", "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"];

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    scheme("store.url", &config.store.url, STORES, findings);
    scheme("marks.url", &config.marks.url, MARKS, findings);
    marks(config, findings);
    let head = config.server.header_limit;
    if head.get() < LEAST_HEAD {
        findings.push(error("server.header_limit", format!("{head} is too small; it must be 8KiB or more")));
    }
    for upstream in &config.upstreams {
        if upstream.tls.ca.is_some() && !upstream.urls.iter().any(|url| url.is_tls()) {
            let key = format!("upstreams.{}.tls.ca", upstream.name);
            findings.push(error(key, "no URL of this upstream is https; remove the authority, or use https"));
        }
    }
}

/// What is set and would have no effect: somebody would rely on it.
fn marks(config: &Config, findings: &mut Vec<Finding>) {
    let (marks, scheme) = (&config.marks, config.marks.url.scheme());
    let in_memory = scheme == "memory";
    let mut without_effect = |setting: &str, is_set: bool, text: &str| {
        if is_set {
            findings.push(error(format!("marks.{setting}"), text));
        }
    };
    let nothing_asked = "without effect: memory: asks no server; remove it";
    without_effect("password", in_memory && marks.password.is_some(), nothing_asked);
    without_effect("sentinel_password", in_memory && marks.sentinel_password.is_some(), nothing_asked);
    without_effect("ca", in_memory && marks.ca.is_some(), nothing_asked);
    let is_plain = !in_memory && !scheme.starts_with("rediss");
    without_effect("ca", is_plain && marks.ca.is_some(), "the URL has no TLS; remove the authority, or use rediss:");
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
    fn what_marks_would_not_obey_is_refused() {
        for setting in ["ca = 'ca.pem'", "password = 'env:S'", "sentinel_password = 'env:S'"] {
            let key = format!("marks.{}", setting.split(' ').next().unwrap());
            assert_error(
                &Base::default().head(&format!("[marks]\nurl = 'memory:'\n{setting}")),
                &key,
                "without effect",
            );
        }
        let plain = Base::default().head("[marks]\nurl = 'redis://a'\nca = 'ca.pem'");
        assert_error(&plain, "marks.ca", "no TLS");
        assert_sound(&Base::default().head("[marks]\nurl = 'rediss://a'\nca = 'ca.pem'"));
    }

    #[test]
    fn a_head_has_room() {
        assert_error(&Base::default().head("server.header_limit = '4KiB'"), "server.header_limit", "8KiB");
        assert_sound(&Base::default().head("server.header_limit = '8KiB'"));
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
