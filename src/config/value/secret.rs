//! Secrets: written as references, never as text.

use std::fmt;

use serde::Deserialize;
use toml::{Table, Value};

use crate::config::document::{Document, Slot};
use crate::config::env::Env;
use crate::config::error::ConfigError;

/// Keys that hold a secret, or may.
const SECRETS: &[(&str, Literal)] = &[
    ("server.admin_token", Literal::Refused),
    ("store.password", Literal::Refused),
    ("marks.password", Literal::Refused),
    ("marks.sentinel_password", Literal::Refused),
    ("secrets.fingerprint.*", Literal::Refused),
    ("secrets.token.*", Literal::Refused),
    ("auth.jwt.secret.*", Literal::Refused),
    ("auth.jwt.public_key.*", Literal::Refused),
    ("secrets.encryption.*", Literal::Refused),
    ("queue.password", Literal::Refused),
    ("queue.redis.sentinel_password", Literal::Refused),
    ("queue.nats.nkey", Literal::Refused),
    ("queue.signing.*", Literal::Refused),
    ("queues.*.password", Literal::Refused),
    ("queues.*.redis.sentinel_password", Literal::Refused),
    ("queues.*.nats.nkey", Literal::Refused),
    ("queues.*.signing.*", Literal::Refused),
    ("subscriptions.*.alert", Literal::Refused),
    ("subscriptions.*.headers.*", Literal::Allowed),
    ("subscriptions.*.lookup.headers.*", Literal::Allowed),
    ("routes.*.idempotency.lookup.headers.*", Literal::Allowed),
];

/// Whether a key takes a text that is no reference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Literal {
    Refused,
    Allowed,
}

/// A secret, written as `"env:NAME"` or `"file:/path"` and read when the configuration is loaded.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    reference: String,
    value: String,
}

impl Secret {
    /// The secret's text. For use, never for logs.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.value
    }

    /// How the configuration names it; tells nothing.
    #[must_use]
    pub fn reference(&self) -> &str {
        &self.reference
    }
}

/// Shows the reference only.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.reference)
    }
}

/// Puts the secrets in the place of their references. Done on the tree, since derived deserializers can't
/// be handed an environment.
pub(in crate::config) fn resolve(document: &mut Document, env: &Env) -> Result<(), ConfigError> {
    for (key, literal) in SECRETS {
        document.each_holding(key, &mut |slot| resolve_one(slot, *literal, env))?;
    }
    Ok(())
}

fn resolve_one(mut slot: Slot<'_>, literal: Literal, env: &Env) -> Result<(), String> {
    let Some(value) = slot.value() else {
        return Ok(());
    };
    // The value is not shown: it may be the secret itself.
    let reference = value.as_str().ok_or("a secret is written \"env:NAME\" or \"file:/path\"")?;
    let secret = if let Some(name) = reference.strip_prefix("env:") {
        env.get(name).ok_or_else(|| format!("the environment variable {name} is not set"))?.to_owned()
    } else if let Some(path) = reference.strip_prefix("file:") {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        without_newline(&text).to_owned()
    } else if literal == Literal::Allowed {
        return Ok(());
    } else {
        return Err("a secret is never written into the file: write \"env:NAME\" or \"file:/path\"".to_owned());
    };
    if secret.is_empty() {
        return Err(format!("the secret in {reference} is empty"));
    }
    let resolved = [("reference".to_owned(), value.clone()), ("value".to_owned(), Value::String(secret))];
    *value = Value::Table(Table::from_iter(resolved));
    Ok(())
}

/// Editors end a file with a newline; a secret does not have one.
fn without_newline(text: &str) -> &str {
    text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(value: &str, env: &[(&str, &str)]) -> Result<Secret, String> {
        let mut document = Document::parse("test.toml", &format!("store.password = {value}")).unwrap();
        let env = Env::new(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        resolve(&mut document, &env).map_err(|error| error.to_string())?;
        let tree: Table = document.deserialize().unwrap();
        Ok(Secret::deserialize(tree["store"]["password"].clone()).unwrap())
    }

    #[test]
    fn a_variable_is_read_and_never_shown() {
        let secret = password("\"env:PW\"", &[("PW", "hunter2")]).unwrap();
        assert_eq!(secret.expose(), "hunter2");
        assert_eq!(format!("{secret:?}"), "Secret(env:PW)");
    }

    #[test]
    fn a_files_last_newline_is_no_part_of_the_secret() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, expected) in [("a b\n", "a b"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a")] {
            std::fs::write(file.path(), text).unwrap();
            let secret = password(&format!("\"file:{}\"", file.path().display()), &[]).unwrap();
            assert_eq!(secret.expose(), expected);
        }
    }

    #[test]
    fn a_secret_in_the_file_itself_is_refused_without_repeating_it() {
        for literal in ["\"hunter2\"", "{ reference = \"env:X\", value = \"hunter2\" }", "[\"hunter2\"]", "72"] {
            let error = password(literal, &[]).unwrap_err();
            assert!(error.contains("store.password") && error.contains("env:NAME"), "{error}");
            assert!(!error.contains("hunter2") && !error.contains("72"), "{error}");
        }
    }

    #[test]
    fn a_reference_to_nothing_names_what_is_missing() {
        assert!(password("\"env:NONE\"", &[]).unwrap_err().contains("NONE is not set"));
        assert!(password("\"env:PW\"", &[("PW", "")]).unwrap_err().contains("env:PW is empty"));
        assert!(password("\"file:/no/such/file\"", &[]).unwrap_err().contains("/no/such/file: "));
    }
}
