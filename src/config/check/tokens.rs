//! Idempotency tokens: what signs them, and how long they may begin something.

use super::{Finding, error, guarded, policy_key, warning};
use crate::config::{Config, Policy, Route, Secret};
use crate::http::route::TokenUse;

/// A key of SHA-256's own length (RFC 7518, section 3.2).
const SECRET_BYTES: usize = 32;

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    secrets(config, findings);
    for (route, policy) in guarded(config).filter(|(_, policy)| policy.token != TokenUse::Off) {
        lifetime(route, policy, findings);
        if config.secrets.token.is_empty() {
            let text = "nothing signs tokens; set secrets.token = [\"env:ONCEGATE_TOKEN_SECRET\"], or \"off\"";
            findings.push(error(policy_key(route, "token"), text));
        }
    }
}

fn secrets(config: &Config, findings: &mut Vec<Finding>) {
    let (key, secrets) = ("secrets.token", &config.secrets);
    let is_used = guarded(config).any(|(_, policy)| policy.token != TokenUse::Off);
    if !secrets.token.is_empty() && !is_used {
        findings.push(warning(key, "no route takes tokens; set routes.*.idempotency.token, or remove it"));
    }
    let of_issuer = config.auth.jwt.iter().flat_map(|jwt| &jwt.secret);
    let others: Vec<&Secret> = secrets.fingerprint.iter().chain(&secrets.encryption).chain(of_issuer).collect();
    for secret in &secrets.token {
        if secret.expose().len() < SECRET_BYTES {
            let text = format!(
                "{} is shorter than {SECRET_BYTES} bytes; make one with `openssl rand -base64 32`",
                secret.reference()
            );
            findings.push(error(key, text));
        }
        if others.iter().any(|other| other.expose() == secret.expose()) {
            let text = format!("{} is the secret of something else too; make one of its own", secret.reference());
            findings.push(error(key, text));
        }
    }
}

/// A token that outlives the memory of its key could pay again.
fn lifetime(route: &Route, policy: &Policy, findings: &mut Vec<Finding>) {
    let (key, lifetime) = (policy_key(route, "token_lifetime"), policy.token_lifetime);
    if lifetime.get().is_zero() {
        findings.push(error(&*key, "0s lets no token begin anything; 1h is the default"));
    }
    let tombstones = [false, true].into_iter().filter_map(|business| policy.tombstone_of(business));
    let remembered = tombstones.map(|tombstone| policy.retention.get() + tombstone).min();
    if remembered.is_some_and(|remembered| lifetime.get() > remembered) {
        let text = format!(
            "{lifetime} is longer than a key is remembered (retention and tombstone): the token could pay a second time"
        );
        findings.push(error(key, text));
    }
}

#[cfg(test)]
mod tests {
    use crate::config::check::testing::{Base, assert_error, assert_sound, assert_warning};

    fn file(secret: &str) -> (tempfile::NamedTempFile, String) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), secret).unwrap();
        let head = format!("secrets.token = ['file:{}']", file.path().display());
        (file, head)
    }

    #[test]
    fn what_takes_tokens_has_a_secret_of_its_own() {
        let takes = || Base::default().policy("key = 'header', token = 'required'");
        assert_error(&takes(), "routes.pay.idempotency.token", "nothing signs");
        let (_kept, head) = file(&"t".repeat(32));
        assert_sound(&takes().head(&head));
        assert_warning(&Base::default().head(&head), "secrets.token", "no route takes tokens");
        let (_kept, short) = file(&"t".repeat(31));
        assert_error(&takes().head(&short), "secrets.token", "shorter than 32");
        let (_kept, same) = file(&"s".repeat(32));
        assert_error(&takes().head(&same), "secrets.token", "something else too");
    }

    #[test]
    fn a_token_does_not_outlive_its_key() {
        let (_kept, head) = file(&"t".repeat(32));
        let with =
            |rest: &str| Base::default().head(&head).policy(&format!("key = 'header', token = 'accepted', {rest}"));
        let key = "routes.pay.idempotency.token_lifetime";
        assert_error(&with("token_lifetime = '0s'"), key, "0s");
        assert_error(&with("token_lifetime = '32d'"), key, "second time");
        assert_error(&with("token_lifetime = '25h', tombstone = '0s'"), key, "second time");
        assert_sound(&with("token_lifetime = '31d'"));
        assert_sound(&with("token_lifetime = '999d', tombstone = 'forever'"));
    }
}
