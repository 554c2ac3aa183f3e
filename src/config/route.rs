//! `[[routes]]`: which requests go where, and which are made safe to send twice.

use serde::{Deserialize, Deserializer};

use super::auth::Auth;
use super::event::Event;
use super::policy::Policy;
use super::value::{Name, from_text};
use crate::auth::ScopeKind;
use crate::entry::Namespace;
use crate::routing::Pattern;

/// One of `[[routes]]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// What logs, metrics and overrides call it; also the default namespace.
    pub name: Name,
    /// The requests it takes: `METHOD[|METHOD]… /seg/{name}/*`.
    #[serde(rename = "match", deserialize_with = "pattern")]
    pub pattern: Pattern,
    /// The upstream's name.
    pub upstream: Name,
    /// What its callers must have been granted, all of it; only with `auth.mode = "jwt"`. Default nothing.
    #[serde(default)]
    pub required_scopes: Vec<String>,
    /// What makes its requests safe to send twice. Default none: they pass through.
    #[serde(default)]
    pub idempotency: Option<Policy>,
    /// What is announced of its completed requests. Default nothing.
    #[serde(default)]
    pub events: Vec<Event>,
}

impl Route {
    /// The namespace of its keys under `policy`.
    #[must_use]
    pub fn namespace(&self, policy: &Policy) -> Namespace {
        policy.namespace.clone().map_or_else(|| self.name.to_namespace(), |name| name.to_namespace())
    }

    /// Whose its keys are under `policy`.
    #[must_use]
    pub fn scope(&self, policy: &Policy, auth: &Auth) -> ScopeKind {
        policy.scope.unwrap_or_else(|| auth.default_scope())
    }
}

fn pattern<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Pattern, D::Error> {
    from_text(deserializer, "a route such as \"POST /v1/payments\"")
}
