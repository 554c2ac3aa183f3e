//! What single keys can't say: settings that do not fit together. One file per topic.

mod access;
mod addresses;
mod events;
mod jwt;
mod keys;
mod names;
mod outcomes;
mod paths;
mod queues;
mod subscriptions;
#[cfg(test)]
mod testing;
mod timing;
mod tokens;

use std::fmt;

use super::{Config, Policy, Route};

/// Something about the configuration that is wrong or dangerous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether it forbids a start.
    pub severity: Severity,
    /// The key's path; elements of arrays by their name.
    pub key: String,
    /// What is wrong with its value, and what would be right.
    pub text: String,
}

/// Whether a finding forbids a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The gateway does not start.
    Error,
    /// It starts and logs it.
    Warning,
}

/// Everything that does not fit together, errors first.
#[must_use]
pub fn check(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let topics: [fn(&Config, &mut Vec<Finding>); 12] = [
        names::check,
        addresses::check,
        access::check,
        jwt::check,
        paths::check,
        keys::check,
        tokens::check,
        timing::check,
        outcomes::check,
        queues::check,
        events::check,
        subscriptions::check,
    ];
    for topic in topics {
        topic(config, &mut findings);
    }
    findings.sort_by_key(|finding| finding.severity);
    findings
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}: {}", self.key, self.text)
    }
}

fn error(key: impl Into<String>, text: impl Into<String>) -> Finding {
    Finding { severity: Severity::Error, key: key.into(), text: text.into() }
}

fn warning(key: impl Into<String>, text: impl Into<String>) -> Finding {
    Finding { severity: Severity::Warning, key: key.into(), text: text.into() }
}

/// The routes with a policy.
fn guarded(config: &Config) -> impl Iterator<Item = (&Route, &Policy)> {
    config.routes.iter().filter_map(|route| Some((route, route.idempotency.as_ref()?)))
}

/// The path of a key of a route's policy.
fn policy_key(route: &Route, key: &str) -> String {
    format!("routes.{}.idempotency.{key}", route.name)
}
