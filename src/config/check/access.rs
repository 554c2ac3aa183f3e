//! Who may do what, and whose a key is.

use super::{Finding, error, guarded, policy_key, warning};
use crate::auth::ScopeKind;
use crate::config::{AuthMode, Config, Secret};
use crate::sealer::Sealer;

/// A key of SHA-256's own length; RFC 2104 discourages shorter ones.
const SECRET_BYTES: usize = 32;

/// 128 bits in hexadecimal digits.
const TOKEN_BYTES: usize = 32;

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    admin(config, findings);
    header(config, findings);
    scopes(config, findings);
    required_scopes(config, findings);
    fingerprint(config, findings);
    encryption(config, findings);
}

fn admin(config: &Config, findings: &mut Vec<Finding>) {
    let Some(listen) = config.server.admin_listen else {
        if config.server.admin_token.is_some() {
            findings.push(warning("server.admin_token", "without effect: there is no server.admin_listen"));
        }
        return;
    };
    match &config.server.admin_token {
        None if !listen.get().ip().is_loopback() && config.auth.mode != AuthMode::Jwt => {
            let text = format!(
                "{listen} is reachable from outside without authentication; bind to 127.0.0.1 or [::1], or set server.admin_token or auth.mode = \"jwt\""
            );
            findings.push(error("server.admin_listen", text));
        }
        Some(token) if token.expose().len() < TOKEN_BYTES => {
            let text = format!("{} can be guessed; make one with `openssl rand -base64 32`", token.reference());
            findings.push(error("server.admin_token", text));
        }
        Some(token) if token.expose().bytes().any(|byte| !byte.is_ascii_graphic()) => {
            let text = format!("{} holds what no header carries; use visible ASCII", token.reference());
            findings.push(error("server.admin_token", text));
        }
        None | Some(_) => {}
    }
    if listen == config.server.listen && listen.get().port() != 0 {
        findings.push(error("server.admin_listen", format!("{listen} is server.listen too; use another port")));
    }
}

fn header(config: &Config, findings: &mut Vec<Finding>) {
    match (config.auth.mode, &config.auth.header) {
        (AuthMode::None | AuthMode::Jwt, None) => {}
        (AuthMode::None | AuthMode::Jwt, Some(_)) => {
            findings
                .push(error("auth.header", "without effect under another mode; set mode = \"header\", or remove it"));
        }
        (AuthMode::Header, None) => {
            findings.push(error("auth.header", "missing under mode = \"header\"; name the trusted proxies"))
        }
        (AuthMode::Header, Some(header)) => {
            if header.trusted.is_empty() {
                findings.push(error(
                    "auth.header.trusted",
                    "the list is empty, so nobody is believed; name the proxies' networks",
                ));
            }
            for network in header.trusted.iter().filter(|network| network.prefix_len() == 0) {
                let text = format!("{network} lets every client claim to be anybody; name the proxies' networks");
                findings.push(error("auth.header.trusted", text));
            }
            if header.tenant_header.as_ref() == Some(&header.subject_header) {
                findings.push(warning("auth.header.tenant_header", "the same field as subject_header"));
            }
        }
    }
}

fn scopes(config: &Config, findings: &mut Vec<Finding>) {
    let tenants = config.auth.names_tenants();
    for (route, policy) in guarded(config) {
        let text = match (route.scope(policy, &config.auth), config.auth.mode) {
            (ScopeKind::Tenant, AuthMode::None) => "\"tenant\" needs auth.mode; without one it must be \"global\"",
            (ScopeKind::Subject, AuthMode::None) => "\"subject\" needs auth.mode; without one it must be \"global\"",
            (ScopeKind::Tenant, AuthMode::Header) if !tenants => "\"tenant\" needs auth.header.tenant_header",
            (ScopeKind::Tenant, AuthMode::Jwt) if !tenants => "\"tenant\" needs auth.jwt.tenant_claim",
            (ScopeKind::Tenant | ScopeKind::Subject, AuthMode::Header | AuthMode::Jwt) | (ScopeKind::Global, _) => {
                continue;
            }
        };
        findings.push(error(policy_key(route, "scope"), text));
    }
}

/// What nobody checks would be no restriction.
fn required_scopes(config: &Config, findings: &mut Vec<Finding>) {
    for route in config.routes.iter().filter(|route| !route.required_scopes.is_empty()) {
        let key = format!("routes.{}.required_scopes", route.name);
        if config.auth.mode != AuthMode::Jwt {
            findings.push(error(&*key, "only tokens grant scopes; set auth.mode = \"jwt\", or leave it empty"));
        }
        let plain = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        for scope in route.required_scopes.iter().filter(|scope| scope.is_empty() || !scope.bytes().all(plain)) {
            let text = format!("{scope:?} is no scope (RFC 6749): visible ASCII without space, \" and \\");
            findings.push(error(&*key, text));
        }
    }
}

fn fingerprint(config: &Config, findings: &mut Vec<Finding>) {
    let key = "secrets.fingerprint";
    let is_used = guarded(config).next().is_some() || !config.subscriptions.is_empty();
    if config.secrets.fingerprint.is_empty() && is_used {
        let text =
            "no secret is set, so stored digests would tell card data; set [\"env:ONCEGATE_FINGERPRINT_SECRET\"]";
        findings.push(error(key, text));
    }
    for secret in config.secrets.fingerprint.iter().filter(|secret| secret.expose().len() < SECRET_BYTES) {
        let text = format!(
            "{} is shorter than {SECRET_BYTES} bytes; make one with `openssl rand -base64 32`",
            secret.reference()
        );
        findings.push(warning(key, text));
    }
}

fn encryption(config: &Config, findings: &mut Vec<Finding>) {
    let key = "secrets.encryption";
    let secrets = &config.secrets.encryption;
    if let Err(wrong) = Sealer::new(&secrets.iter().map(Secret::expose).collect::<Vec<_>>()) {
        findings.push(error(key, format!("{wrong}; make one with `openssl rand -base64 32`")));
    }
    let is_fingerprint =
        |secret: &&Secret| config.secrets.fingerprint.iter().any(|other| other.expose() == secret.expose());
    for secret in secrets.iter().filter(is_fingerprint) {
        let text = format!(
            "{} is a fingerprint secret too: each is rotated for its own reasons, so make one for each",
            secret.reference()
        );
        findings.push(warning(key, text));
    }
}

#[cfg(test)]
mod tests {
    use crate::config::check::testing::{Base, assert_error, assert_sound, assert_warning};

    const HEADER: &str = "auth.mode = 'header'\nauth.header.trusted = ['10.0.0.0/8']";

    #[test]
    fn an_admin_listener_reachable_from_outside_needs_authentication() {
        for address in ["0.0.0.0:8081", "10.1.2.3:8081", "[::]:8081"] {
            let base = Base::default().head(&format!("server.admin_listen = '{address}'"));
            assert_error(&base, "server.admin_listen", address);
            // Who is believed to name a caller has said nothing of operators.
            assert_error(&base.clone().head(HEADER), "server.admin_listen", address);
            assert_sound(&base.head("server.admin_token = 'env:ADMIN'"));
        }
        let short =
            Base::default().head("server.admin_listen = '127.0.0.1:8081'").head("server.admin_token = 'env:SHORT'");
        assert_error(&short, "server.admin_token", "guessed");
        assert_sound(&Base::default().head("server.admin_listen = '127.0.0.1:8081'"));
        assert_error(
            &Base::default().head("server.admin_listen = '127.0.0.1:8080'"),
            "server.admin_listen",
            "another port",
        );
    }

    #[test]
    fn a_scope_needs_what_tells_it() {
        let key = "routes.pay.idempotency.scope";
        for scope in ["tenant", "subject"] {
            assert_error(&Base::default().policy(&format!("key = 'header', scope = '{scope}'")), key, "auth.mode");
        }
        let tenant = Base::default().head(HEADER).policy("key = 'header', scope = 'tenant'");
        assert_error(&tenant, key, "tenant_header");
        assert_sound(&tenant.head("auth.header.tenant_header = 'x-tenant'"));
        assert_sound(&Base::default().head(HEADER));
    }

    #[test]
    fn header_authentication_trusts_somebody_but_not_everybody() {
        assert_error(&Base::default().head("auth.mode = 'header'"), "auth.header", "missing");
        assert_error(&Base::default().head("auth.header.trusted = []"), "auth.header", "without effect");
        let trusted = |list: &str| Base::default().head(&format!("auth.mode = 'header'\nauth.header.trusted = {list}"));
        assert_error(&trusted("[]"), "auth.header.trusted", "empty");
        assert_error(&trusted("['10.0.0.0/8', '::/0']"), "auth.header.trusted", "::/0");
    }

    #[test]
    fn required_scopes_are_scopes_and_something_grants_them() {
        let key = "routes.pay.required_scopes";
        assert_error(&Base::default().head(HEADER).route("required_scopes = ['pay']"), key, "auth.mode");
        assert_sound(&Base::jwt("").route("required_scopes = ['pay:write']"));
        assert_error(&Base::jwt("").route("required_scopes = ['pay write']"), key, "no scope");
        assert_error(&Base::jwt("").route("required_scopes = ['']"), key, "no scope");
    }

    #[test]
    fn a_tenants_scope_needs_a_tenant_claim() {
        let key = "routes.pay.idempotency.scope";
        let tenant = Base::jwt("").policy("key = 'header', scope = 'tenant'");
        assert_error(&tenant, key, "tenant_claim");
        assert_sound(&Base::jwt("tenant_claim = 'org'").policy("key = 'header', scope = 'tenant'"));
    }

    #[test]
    fn encryption_has_secrets_of_its_own_that_are_long_enough_and_told_apart() {
        let key = "secrets.encryption";
        let base = |secrets: &str| Base::default().head(&format!("secrets.encryption = {secrets}"));
        assert_sound(&base("[]"));
        assert_warning(&base("['env:S']"), key, "env:S is a fingerprint secret");
        assert_error(&base("['env:S', 'env:S']"), key, "encryption secret 2 has the same id");
        let short = Base::with_secret("short").head("secrets.encryption = ['env:S']");
        assert_error(&short, key, "encryption secret 1 is shorter than 32 bytes");
    }

    #[test]
    fn fingerprints_have_a_secret() {
        assert_error(&Base::without_secret(), "secrets.fingerprint", "no secret");
        assert_warning(&Base::with_secret("short"), "secrets.fingerprint", "env:S is shorter");
    }
}
