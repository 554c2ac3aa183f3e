//! Answers that the gateway makes itself when it can't give the upstream's: problem details (RFC 9457), one
//! row per situation, in words about the client's money.

mod facts;
mod operator;

use std::time::Duration;

use axum::body::Body;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;

/// The situations that the gateway answers itself. The name in kebab case is the problem's slug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is documented, for clients, by its row in `src/problem/facts.rs`")]
pub enum Situation {
    KeyMissing,
    KeyInvalid,
    KeyReused,
    Processing,
    OutcomeUnknown,
    ResponseNotKept,
    KeyExpired,
    KeyUnknown,
    TokenInvalid,
    TokenExpired,
    Unauthenticated,
    Forbidden,
    NoRoute,
    MethodNotAllowed,
    BadRequest,
    BodyTimeout,
    BodyTooLarge,
    HeadTooLarge,
    UriTooLong,
    RoutePaused,
    Unavailable,
    UpstreamUnreachable,
    UpstreamFailed,
    UpstreamTimeout,
    NoEntry,
    NotConfigured,
    EntryChanged,
    StateNotNamed,
    NotSettled,
    OrderInvalid,
}

/// What a client may do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// The same request with the same key is safe, and right.
    SameKey,
    /// A corrected request needs a key (or another one).
    NewKey,
    /// Do not repeat the request.
    No,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// Last segment of the problem's type, and the name of its page.
    pub slug: &'static str,
    /// Status of the answer.
    pub status: StatusCode,
    /// One line for people.
    pub title: &'static str,
    /// What it means for the client's money, and what to do next.
    pub detail: &'static str,
    /// The same for programs.
    pub retry: Retry,
    /// The proxy error type registered by RFC 9209 that tells the answer from an upstream's own.
    pub proxy_error: &'static str,
}

impl Situation {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 30] = [
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::KeyReused,
        Self::Processing,
        Self::OutcomeUnknown,
        Self::ResponseNotKept,
        Self::KeyExpired,
        Self::KeyUnknown,
        Self::TokenInvalid,
        Self::TokenExpired,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NoRoute,
        Self::MethodNotAllowed,
        Self::BadRequest,
        Self::BodyTimeout,
        Self::BodyTooLarge,
        Self::HeadTooLarge,
        Self::UriTooLong,
        Self::RoutePaused,
        Self::Unavailable,
        Self::UpstreamUnreachable,
        Self::UpstreamFailed,
        Self::UpstreamTimeout,
        Self::NoEntry,
        Self::NotConfigured,
        Self::EntryChanged,
        Self::StateNotNamed,
        Self::NotSettled,
        Self::OrderInvalid,
    ];
}

/// `Proxy-Status` (RFC 9209).
static PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// An answer that the gateway makes itself.
#[derive(Debug)]
pub struct Problem {
    situation: Situation,
    more: Option<String>,
    retry_after: Option<Duration>,
    original_status: Option<u16>,
    proxy_error: Option<&'static str>,
    challenge: Option<String>,
}

/// Problem details (RFC 9457): the body of an answer that the gateway makes by itself.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Details<'a> {
    /// Leads to a page that says what it means.
    #[schema(format = "uri-reference")]
    r#type: &'a str,
    /// What it is, in a line.
    title: &'a str,
    /// The answer's status.
    status: u16,
    /// What it means for the money, and what to do next.
    detail: &'a str,
    #[schema(inline)]
    retry: Retry,
    /// With which status the first request was completed, where its answer was not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    original_status: Option<u16>,
    /// Names the request in the gateway's log.
    request_id: &'a str,
}

impl Problem {
    /// The answer to `situation`.
    #[must_use]
    pub fn new(situation: Situation) -> Self {
        Self { situation, more: None, retry_after: None, original_status: None, proxy_error: None, challenge: None }
    }

    /// Adds what is particular to this case, a sentence in front of the general detail. It must not quote a
    /// body, a token or a whole key.
    #[must_use]
    pub fn because(mut self, more: impl Into<String>) -> Self {
        self.more = Some(more.into());
        self
    }

    /// Adds `Retry-After`, rounded up to whole seconds.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Adds the status with which the first request was completed.
    #[must_use]
    pub fn original_status(mut self, status: u16) -> Self {
        self.original_status = Some(status);
        self
    }

    /// Names the proxy error (RFC 9209) more exactly than the situation does.
    #[must_use]
    pub fn proxy_error(mut self, error: &'static str) -> Self {
        self.proxy_error = Some(error);
        self
    }

    /// Adds how to prove who one is (`WWW-Authenticate`).
    #[must_use]
    pub fn challenge(mut self, challenge: impl Into<String>) -> Self {
        self.challenge = Some(challenge.into());
        self
    }

    /// What is particular to this case.
    #[must_use]
    pub fn more(&self) -> Option<&str> {
        self.more.as_deref()
    }

    /// The situation.
    #[must_use]
    pub fn situation(&self) -> Situation {
        self.situation
    }

    /// The response. `problems` is where the problem pages are, with a slash at its end.
    #[must_use]
    pub fn respond(self, problems: &str, request_id: &str) -> Response<Body> {
        let facts = self.situation.facts();
        let detail = match &self.more {
            Some(more) => format!("{more} {}", facts.detail),
            None => facts.detail.to_owned(),
        };
        let details = Details {
            r#type: &format!("{problems}{}", facts.slug),
            title: facts.title,
            status: facts.status.as_u16(),
            detail: &detail,
            retry: facts.retry,
            original_status: self.original_status,
            request_id,
        };
        let body = serde_json::to_vec(&details).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = facts.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(value) =
            HeaderValue::try_from(format!("oncegate; error={}", self.proxy_error.unwrap_or(facts.proxy_error)))
        {
            headers.insert(PROXY_STATUS.clone(), value);
        }
        if let Some(value) = self.challenge.and_then(|challenge| HeaderValue::try_from(challenge).ok()) {
            headers.insert(WWW_AUTHENTICATE, value);
        }
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        response
    }
}

/// At least one second: "at once" would bring everybody back at once.
fn whole_seconds(after: Duration) -> u64 {
    after.as_millis().div_ceil(1000).max(1).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_situation_has_a_slug_of_its_own_and_says_what_happened_to_the_money() {
        let mut slugs: Vec<_> = Situation::ALL.iter().map(|situation| situation.facts().slug).collect();
        slugs.sort_unstable();
        slugs.dedup();
        assert_eq!(slugs.len(), Situation::ALL.len());
        for situation in Situation::ALL {
            let facts = situation.facts();
            let says = ["executed", "money", "sent"].iter().any(|word| facts.detail.contains(word));
            assert!(says && facts.status.as_u16() >= 400, "{situation:?}");
        }
    }

    #[test]
    fn retry_after_is_whole_seconds_rounded_up() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
    }
}
