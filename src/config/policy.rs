//! `[routes.idempotency]`: what makes a route's requests safe to send twice.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::lookup::Lookup;
use super::value::{ByteSize, FieldName, Name, Period, Statuses};
use crate::auth::ScopeKind;
use crate::entry::{KeySources, Pointer};
use crate::http::route::{Concurrent, ForwardFormat, ForwardKey, Mode, TokenUse};

/// `[routes.idempotency]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Where the key comes from, the first source present wins. No default: what makes two requests one
    /// payment is the owner's decision.
    pub key: KeySources,
    /// Whether a request without a key is refused. Default true: a payment without one could not be
    /// retried. Where false, it passes through unguarded.
    #[serde(default = "yes")]
    pub required: bool,
    /// Whether a token from `POST /idempotency/tokens` counts in place of a key. Default "off".
    #[serde(default)]
    pub token: TokenUse,
    /// How long after it was made a token may begin something. Default 1 h: a checkout that is left open over lunch.
    /// What was begun with it is told for as long as its key is remembered.
    #[serde(default = "token_lifetime")]
    pub token_lifetime: Period,
    /// What kind of operation the keys belong to. Default the route's name. Routes may share one.
    #[serde(default)]
    pub namespace: Option<Name>,
    /// Whose the keys are. Default: tenant where a tenant header or claim is configured, else subject, and global
    /// without authentication.
    #[serde(default)]
    pub scope: Option<ScopeKind>,
    /// What a retry is told while the first request runs. Default "processing".
    #[serde(default)]
    pub concurrent: Concurrent,
    /// How long it waits at most, by "wait" or by the client's `Prefer: wait`. Default 10 s, the default
    /// timeout of an upstream.
    #[serde(default = "wait")]
    pub wait: Period,
    /// What a retry of a request with an unknown outcome comes to. Default "hold".
    #[serde(default)]
    pub on_unknown: OnUnknown,
    /// How the upstream is asked, with `on_unknown = "lookup"`. Default none.
    #[serde(default)]
    pub lookup: Option<Lookup>,
    /// The key that the upstream sees. Default "derived".
    #[serde(default)]
    pub forward_key: ForwardKey,
    /// How that key is spelled. Default "bare": upstreams that know only `Idempotency-Key: abc` would take
    /// the quotes for a part of the key.
    #[serde(default)]
    pub forward_key_format: ForwardFormat,
    /// Whether the policy decides. Default "enforce".
    #[serde(default)]
    pub mode: Mode,
    /// How long a response is kept, from completion. Default 24 h, as Stripe keeps its own.
    #[serde(default = "retention")]
    pub retention: Period,
    /// How much longer the key is remembered without its response. Default: for ever where the key came
    /// from a business number (an order is paid once), else 30 days (longer than any client retries).
    #[serde(default)]
    pub tombstone: Option<Tombstone>,
    /// The largest response kept; of a larger one only the status is. Default 1 MiB.
    #[serde(default = "response_limit")]
    pub response_limit: ByteSize,
    /// What counts as the same request.
    #[serde(default)]
    pub fingerprint: FingerprintRules,
    /// What the upstream's statuses mean.
    #[serde(default)]
    pub outcomes: Outcomes,
    /// Fields of a response that a replay leaves out, besides those that every replay does. Default none.
    #[serde(default)]
    pub replay_exclude_headers: Vec<FieldName>,
}

impl Policy {
    /// How long a key is remembered after its response; `None` is for ever. `business`: whether it came
    /// from a business number.
    #[must_use]
    pub fn tombstone_of(&self, business: bool) -> Option<Duration> {
        Tombstone::resolve(self.tombstone, business)
    }
}

/// What a retry of a request with an unknown outcome comes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// 409 until somebody settles it.
    #[default]
    Hold,
    /// The upstream is asked.
    Lookup,
    /// It is forwarded again with the same key: the upstream honours it.
    Forward,
}

/// How much longer a key is remembered without its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tombstone {
    /// This long; zero makes the key new again at once.
    For(Period),
    /// Always.
    Forever,
}

impl Tombstone {
    /// How long a key is remembered after its response, by what is configured; `None` is for ever.
    pub(super) fn resolve(configured: Option<Self>, business: bool) -> Option<Duration> {
        match (configured, business) {
            (Some(Self::Forever), _) | (None, true) => None,
            (Some(Self::For(period)), _) => Some(period.get()),
            (None, false) => Some(Period::days(30).get()),
        }
    }
}

impl<'de> Deserialize<'de> for Tombstone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "forever" {
            return Ok(Self::Forever);
        }
        let period = text.parse().map(Self::For);
        period.map_err(|error| D::Error::custom(format_args!("`{text}` is not \"forever\", and {error}")))
    }
}

/// `fingerprint` of a policy: what counts as the same request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FingerprintRules {
    /// JSON pointers to members that do not count, such as a client's timestamp. Default none.
    pub ignore: Vec<Pointer>,
    /// Header fields that count too. Default none: proxies and clients change them between retries.
    pub headers: Vec<FieldName>,
}

/// `outcomes` of a policy: what the upstream's statuses mean.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Outcomes {
    /// Statuses that say that nothing was executed, so that the key may run again. Default 401, 403, 404,
    /// 405, 413, 415, 421, 425, 429, 431: refusals before any work. 503 belongs here only where the
    /// upstream means it so.
    pub not_executed: Statuses,
    /// With `on_unknown = "forward"`: 4xx statuses that settle an Unknown entry. Default none: an
    /// upstream's 409 "key in use" is not an answer.
    pub settles: Statuses,
}

impl Default for Outcomes {
    fn default() -> Self {
        let not_executed = Statuses::codes(&[401, 403, 404, 405, 413, 415, 421, 425, 429, 431]);
        Self { not_executed, settles: Statuses::default() }
    }
}

fn yes() -> bool {
    true
}

fn token_lifetime() -> Period {
    Period::secs(3600)
}

fn wait() -> Period {
    Period::secs(10)
}

fn retention() -> Period {
    Period::days(1)
}

fn response_limit() -> ByteSize {
    ByteSize::mib(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rest: &str) -> Result<Policy, toml::de::Error> {
        toml::from_str(&format!("key = 'header'\n{rest}"))
    }

    #[test]
    fn a_business_number_is_remembered_for_ever_unless_told_otherwise() {
        let of = |rest: &str| [true, false].map(|business| policy(rest).unwrap().tombstone_of(business));
        let month = Some(Period::days(30).get());
        assert_eq!(of(""), [None, month]);
        assert_eq!(of("tombstone = 'forever'"), [None, None]);
        assert_eq!(of("tombstone = '0s'"), [Some(Duration::ZERO); 2]);
        assert_eq!(of("tombstone = '30d'"), [month; 2]);
    }

    #[test]
    fn another_tombstone_is_refused_with_both_forms() {
        let error = policy("tombstone = 'never'").unwrap_err().to_string();
        assert!(error.contains("`never` is not \"forever\", and a duration is an integer"), "{error}");
    }
}
