//! Tokens: what makes one believed, and what must not.

use std::time::Duration;

use super::{Finding, error, warning};
use crate::auth::jwt::{Algorithm, KeySet};
use crate::config::{AuthMode, Config, FieldName, JwksLocation, JwtAuth};

/// More than two clocks that anybody looks after differ.
const MOST_LEEWAY: Duration = Duration::from_secs(300);

/// Below it, an issuer is flooded rather than asked.
const LEAST_COOLDOWN: Duration = Duration::from_secs(1);

/// Fields that mean something else on their way to an upstream.
const TAKEN: [&str; 14] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "idempotency-key",
    "te",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-request-id",
];

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    match (config.auth.mode, &config.auth.jwt) {
        (AuthMode::None | AuthMode::Header, None) => {}
        (AuthMode::None | AuthMode::Header, Some(_)) => {
            findings.push(error("auth.jwt", "without effect under another mode; set mode = \"jwt\", or remove it"));
        }
        (AuthMode::Jwt, None) => {
            findings
                .push(error("auth.jwt", "missing under mode = \"jwt\"; name issuer, audience, algorithms and keys"));
        }
        (AuthMode::Jwt, Some(jwt)) => {
            let mut found = Found(findings);
            claims(jwt, &mut found);
            algorithms(jwt, &mut found);
            keys(jwt, &mut found);
            key_set(jwt, &mut found);
            headers(jwt, &mut found);
        }
    }
}

/// Findings below `auth.jwt`.
struct Found<'a>(&'a mut Vec<Finding>);

impl Found<'_> {
    fn error(&mut self, key: &str, text: impl Into<String>) {
        self.0.push(error(format!("auth.jwt.{key}"), text));
    }

    fn warning(&mut self, key: &str, text: impl Into<String>) {
        self.0.push(warning(format!("auth.jwt.{key}"), text));
    }
}

fn claims(jwt: &JwtAuth, found: &mut Found<'_>) {
    if jwt.issuer.is_empty() {
        found.error("issuer", "it is empty; write the `iss` of the tokens");
    }
    let audiences = jwt.audience.all();
    if audiences.is_empty() || audiences.iter().any(String::is_empty) {
        found.error("audience", "it is empty; write the `aud` of the tokens that are meant for this gateway");
    }
    for (key, claim) in [("subject_claim", Some(&jwt.subject_claim)), ("tenant_claim", jwt.tenant_claim.as_ref())] {
        if claim.is_some_and(String::is_empty) {
            found.error(key, "it is empty; write the name of a claim");
        }
    }
    if jwt.tenant_claim.as_ref() == Some(&jwt.subject_claim) {
        found.warning("tenant_claim", "the same claim as subject_claim");
    }
    if jwt.leeway.get() > MOST_LEEWAY {
        found.error("leeway", format!("{} lets tokens count long after their end; 5m is the most", jwt.leeway));
    }
}

fn algorithms(jwt: &JwtAuth, found: &mut Found<'_>) {
    let symmetric = |algorithm: Algorithm| algorithm.is_symmetric();
    let configured: Vec<Algorithm> = jwt.algorithms.iter().map(|algorithm| algorithm.get()).collect();
    if configured.is_empty() {
        found.error("algorithms", "the list is empty, so no token counts; name the issuer's, such as [\"RS256\"]");
    } else if configured.iter().copied().any(symmetric) && !configured.iter().copied().all(symmetric) {
        let text = "HS algorithms sign with a secret and the others with a private key; both at once lets a public \
                    key serve as a secret: name one kind";
        found.error("algorithms", text);
    }
}

fn keys(jwt: &JwtAuth, found: &mut Found<'_>) {
    let sources = [!jwt.secret.is_empty(), !jwt.public_key.is_empty(), jwt.jwks.is_some()];
    if sources.iter().filter(|is_set| **is_set).count() != 1 {
        found.0.push(error("auth.jwt", "keys come from one of secret, public_key and jwks; set one of them"));
        return;
    }
    let symmetric = jwt.algorithms.iter().any(|algorithm| algorithm.get().is_symmetric());
    if jwt.secret.is_empty() == symmetric && !jwt.algorithms.is_empty() {
        let text = "HS algorithms need `secret`, the others need `public_key` or `jwks`";
        found.error("algorithms", text);
        return;
    }
    let least = jwt.algorithms.iter().filter_map(|algorithm| algorithm.get().digest_bytes()).max().unwrap_or_default();
    for secret in jwt.secret.iter().filter(|secret| secret.expose().len() < least) {
        let text = format!(
            "{} is shorter than {least} bytes, which its algorithm needs; make one with `openssl rand -base64 64`",
            secret.reference()
        );
        found.error("secret", text);
    }
    for key in &jwt.public_key {
        let text = match KeySet::of_pems([key.expose().as_bytes()]) {
            Err(wrong) => format!("{}: {wrong}", key.reference()),
            Ok(set) if !jwt.algorithms.iter().any(|algorithm| set.fits(algorithm.get())) => {
                format!("{} fits none of the algorithms", key.reference())
            }
            Ok(_) => continue,
        };
        found.error("public_key", text);
    }
}

fn key_set(jwt: &JwtAuth, found: &mut Found<'_>) {
    let is_tls = matches!(&jwt.jwks, Some(JwksLocation::Url(url)) if url.is_tls());
    if jwt.ca.is_some() && !is_tls {
        found.error("ca", "without effect: no key set comes over https; remove it, or write an https URL into jwks");
    }
    let Some(place) = &jwt.jwks else { return };
    if jwt.cooldown.get() < LEAST_COOLDOWN {
        found.error(
            "cooldown",
            format!("{} lets strangers make the gateway flood the issuer; at least 1s", jwt.cooldown),
        );
    }
    if jwt.refresh.get() < jwt.cooldown.get() {
        found.error("refresh", format!("{} is shorter than the cooldown, {}", jwt.refresh, jwt.cooldown));
    }
    if jwt.timeout.get().is_zero() {
        found.error("timeout", "0s lets no fetch end; 5s is the default");
    }
    match place {
        JwksLocation::Url(url) if !url.is_tls() && !url.is_loopback() => {
            found.warning("jwks", "over http, whoever answers in the issuer's place decides who is let in; use https");
        }
        JwksLocation::Url(_) => {}
        JwksLocation::File(path) => {
            let algorithms: Vec<Algorithm> = jwt.algorithms.iter().map(|algorithm| algorithm.get()).collect();
            let read = std::fs::read(path).map_err(|error| error.to_string());
            let set = read.and_then(|json| KeySet::of_jwks(&json, &algorithms).map_err(|wrong| wrong.to_string()));
            if let Err(wrong) = set {
                found.error("jwks", format!("file:{}: {wrong}", path.display()));
            }
        }
    }
}

fn headers(jwt: &JwtAuth, found: &mut Found<'_>) {
    let all = [
        ("subject_header", &jwt.subject_header),
        ("tenant_header", &jwt.tenant_header),
        ("scope_header", &jwt.scope_header),
    ];
    let mut seen: Vec<&FieldName> = Vec::new();
    for (key, name) in all.into_iter().filter_map(|(key, name)| Some((key, name.as_ref()?))) {
        let text = name.get().as_str();
        if TAKEN.contains(&text) || text.starts_with("x-forwarded-") || text.starts_with("oncegate-") {
            found.error(
                key,
                format!("{text} means something else; use a name such as x-{}", key.replace("_header", "")),
            );
        }
        if seen.contains(&name) {
            found.error(key, format!("{text} is told twice; use another name"));
        }
        seen.push(name);
    }
    if jwt.tenant_header.is_some() && jwt.tenant_claim.is_none() {
        found.error("tenant_header", "without effect: no claim names a tenant; set tenant_claim, or remove it");
    }
}

#[cfg(test)]
mod tests {
    use crate::config::check::testing::{Base, assert_error, assert_sound, assert_warning};

    fn url(url: &str, more: &str) -> Base {
        Base::jwt_by(&format!("algorithms = ['RS256', 'ES256']\njwks = '{url}'"), more)
    }

    #[test]
    fn a_mode_has_its_settings_and_no_others() {
        assert_error(&Base::default().head("auth.mode = 'jwt'"), "auth.jwt", "missing");
        let other = "auth.jwt = { issuer = 'i', audience = 'a', algorithms = ['HS256'] }";
        assert_error(&Base::default().head(other), "auth.jwt", "without effect");
        assert_sound(&Base::jwt(""));
        assert_sound(&url("https://issuer.test/keys", ""));
    }

    #[test]
    fn who_signs_and_for_whom_is_said() {
        let with = |from: &str, to: &str| {
            let head = "auth.mode = 'jwt'\n[auth.jwt]\nissuer = 'i'\naudience = 'a'\nalgorithms = ['HS256']\nsecret = ['env:S']";
            Base::default().head(&head.replace(from, to))
        };
        assert_error(&with("issuer = 'i'", "issuer = ''"), "auth.jwt.issuer", "empty");
        for none in ["''", "[]", "['a', '']"] {
            assert_error(&with("audience = 'a'", &format!("audience = {none}")), "auth.jwt.audience", "empty");
        }
        assert_sound(&with("audience = 'a'", "audience = ['a', 'b']"));
        assert_error(&Base::jwt("leeway = '6m'"), "auth.jwt.leeway", "5m");
        assert_error(&Base::jwt("subject_claim = ''"), "auth.jwt.subject_claim", "empty");
        assert_warning(&Base::jwt("tenant_claim = 'sub'"), "auth.jwt.tenant_claim", "same claim");
    }

    #[test]
    fn a_public_key_never_becomes_a_secret() {
        let key = "auth.jwt.algorithms";
        assert_error(&Base::jwt_by("algorithms = ['HS256', 'RS256']\nsecret = ['env:S']", ""), key, "one kind");
        assert_error(&Base::jwt_by("algorithms = ['RS256']\nsecret = ['env:S']", ""), key, "need `secret`");
        assert_error(&Base::jwt_by("algorithms = ['HS256']\njwks = 'https://i.test/k'", ""), key, "need `secret`");
        assert_error(&Base::jwt_by("algorithms = []\nsecret = ['env:S']", ""), key, "empty");
    }

    #[test]
    fn keys_come_from_one_place_and_can_be_used() {
        let both = "algorithms = ['HS256']\nsecret = ['env:S']\njwks = 'https://i.test/k'";
        for keys in ["algorithms = ['HS256']", both] {
            assert_error(&Base::jwt_by(keys, ""), "auth.jwt", "one of");
        }
        assert_error(&Base::jwt_by("algorithms = ['HS512']\nsecret = ['env:S']", ""), "auth.jwt.secret", "64 bytes");
        let pem = |algorithm: &str, key: &rcgen::KeyPair| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), key.public_key_pem()).unwrap();
            let path = file.path().display();
            (Base::jwt_by(&format!("algorithms = ['{algorithm}']\npublic_key = ['file:{path}']"), ""), file)
        };
        let key = rcgen::KeyPair::generate().unwrap();
        let (fitting, _kept) = pem("ES256", &key);
        assert_sound(&fitting);
        let (other, _kept) = pem("RS256", &key);
        assert_error(&other, "auth.jwt.public_key", "fits none");
        let garbage = "algorithms = ['RS256']\npublic_key = ['env:S']";
        assert_error(&Base::jwt_by(garbage, ""), "auth.jwt.public_key", "env:S: it is no public key");
    }

    #[test]
    fn a_key_set_is_fetched_safely_and_not_too_often() {
        let place = "https://issuer.test/keys";
        assert_error(&url(place, "cooldown = '999ms'"), "auth.jwt.cooldown", "at least 1s");
        assert_error(&url(place, "refresh = '5s'"), "auth.jwt.refresh", "cooldown");
        assert_error(&url(place, "timeout = '0s'"), "auth.jwt.timeout", "0s");
        assert_warning(&url("http://issuer.test/keys", ""), "auth.jwt.jwks", "use https");
        assert_sound(&url("http://127.0.0.1:9000/keys", ""));
        assert_error(&url("http://127.0.0.1/keys", "ca = '/ca.pem'"), "auth.jwt.ca", "without effect");
        assert_error(&url("file:/no/such/keys", ""), "auth.jwt.jwks", "file:/no/such/keys: ");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"keys\":[]}").unwrap();
        assert_error(&url(&format!("file:{}", file.path().display()), ""), "auth.jwt.jwks", "no public key");
    }

    #[test]
    fn what_upstreams_are_told_takes_no_others_place() {
        for taken in ["Authorization", "x-forwarded-for", "idempotency-key", "Oncegate-Attempt"] {
            let base = Base::jwt(&format!("subject_header = '{taken}'"));
            assert_error(&base, "auth.jwt.subject_header", "something else");
        }
        let twice = Base::jwt("subject_header = 'x-a'\nscope_header = 'X-A'");
        assert_error(&twice, "auth.jwt.scope_header", "twice");
        assert_error(&Base::jwt("tenant_header = 'x-t'"), "auth.jwt.tenant_header", "tenant_claim");
        assert_sound(&Base::jwt("tenant_claim = 'org'\ntenant_header = 'x-t'\nsubject_header = 'x-s'"));
    }
}
