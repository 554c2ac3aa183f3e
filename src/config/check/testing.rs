//! A sound configuration, to be changed in one point per test.

use super::{Severity, check};
use crate::config::Config;

/// The parts of a configuration without findings.
#[derive(Clone)]
pub(super) struct Base {
    secrets: String,
    secret: String,
    head: String,
    policy: String,
    route: String,
    tail: String,
}

impl Default for Base {
    fn default() -> Self {
        Self {
            secrets: "secrets.fingerprint = ['env:S']".to_owned(),
            secret: "s".repeat(32),
            head: String::new(),
            policy: "key = 'header'".to_owned(),
            route: String::new(),
            tail: String::new(),
        }
    }
}

impl Base {
    pub(super) fn without_secret() -> Self {
        Self { secrets: String::new(), ..Self::default() }
    }

    pub(super) fn with_secret(secret: &str) -> Self {
        Self { secret: secret.to_owned(), ..Self::default() }
    }

    /// Tokens count, by the rules of `[auth.jwt]` and `toml`.
    pub(super) fn jwt(toml: &str) -> Self {
        Self::jwt_by("algorithms = ['HS256']\nsecret = ['env:S']", toml)
    }

    /// The same with other keys.
    pub(super) fn jwt_by(keys: &str, toml: &str) -> Self {
        let rules = "issuer = 'https://issuer.test'\naudience = 'pay'";
        Self::default().head(&format!("auth.mode = 'jwt'\n[auth.jwt]\n{rules}\n{keys}\n{toml}"))
    }

    /// More keys of the top level.
    pub(super) fn head(mut self, toml: &str) -> Self {
        self.head.push_str(toml);
        self.head.push('\n');
        self
    }

    /// Another policy of the route `pay`, `POST /pay/{id}`.
    pub(super) fn policy(mut self, toml: &str) -> Self {
        toml.clone_into(&mut self.policy);
        self
    }

    /// More keys of that route.
    pub(super) fn route(mut self, toml: &str) -> Self {
        self.route.push_str(toml);
        self.route.push('\n');
        self
    }

    /// More sections.
    pub(super) fn and(mut self, toml: &str) -> Self {
        self.tail.push_str(toml);
        self.tail.push('\n');
        self
    }

    pub(super) fn findings(&self) -> Vec<super::Finding> {
        let Self { secrets, secret, head, policy, route, tail } = self;
        let text = format!(
            "store.url = 'sqlite://a.db'\n{secrets}\n{head}\n\
             [[upstreams]]\nname = 'u'\nurls = ['http://a:1']\n\
             [[routes]]\nname = 'pay'\nmatch = 'POST /pay/{{id}}'\nupstream = 'u'\nidempotency = {{ {policy} }}\n\
             {route}{tail}"
        );
        let env = [("S", &**secret), ("ADMIN", &"t".repeat(32)), ("SHORT", "hunter2")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        check(&Config::parse("test.toml", &text, env, []).unwrap())
    }
}

#[track_caller]
fn assert_finding(base: &Base, severity: Severity, key: &str, text: &str) {
    let findings = base.findings();
    let found =
        |finding: &super::Finding| finding.severity == severity && finding.key == key && finding.text.contains(text);
    assert!(findings.iter().any(found), "no {severity:?} {key} {text:?} in {findings:#?}");
}

#[track_caller]
pub(super) fn assert_error(base: &Base, key: &str, text: &str) {
    assert_finding(base, Severity::Error, key, text);
}

#[track_caller]
pub(super) fn assert_warning(base: &Base, key: &str, text: &str) {
    assert_finding(base, Severity::Warning, key, text);
}

#[track_caller]
pub(super) fn assert_sound(base: &Base) {
    assert_eq!(base.findings(), []);
}

#[test]
fn the_base_is_sound() {
    assert_sound(&Base::default());
}
