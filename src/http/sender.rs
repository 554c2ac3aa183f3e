//! Who sends a request, and whether that is enough.
//!
//! | | who must say who it is |
//! |---|---|
//! | a guarded request | everybody, unless nobody is told apart (`auth.mode = "none"`) |
//! | one of a route that is configured to observe, and does | nobody; who does is observed under that name |
//! | one of a route that was switched to observe | everybody still: a switch opens no door |
//! | a route with `required_scopes` | everybody, with each method |
//! | any other | nobody; who does is told to the upstream |
//!
//! Authorisation comes first, on every arrival: who lost the right does not get the old answer.

use std::time::Duration;

use http::header::ACCESS_CONTROL_REQUEST_METHOD;
use http::request::Parts;
use http::{HeaderMap, Method};

use super::gateway::Inner;
use super::peer::Peer;
use super::route::{Guard, Mode, Route};
use crate::auth::{AuthError, Principal};
use crate::problem::{Problem, Situation};

/// When keys that could not be fetched are worth another try.
const KEYS_LATER: Duration = Duration::from_secs(5);

impl Inner {
    /// Who sends a request on `route`, if that is known; a problem if it must be, or is not enough.
    pub(super) async fn sender(
        &self,
        route: &Route,
        guard: Option<(&Guard, Mode)>,
        parts: &Parts,
        peer: &Peer,
    ) -> Result<Option<Principal>, Problem> {
        // Browsers ask without credentials (Fetch, "CORS-preflight fetch"), and an OPTIONS has no effect.
        let is_preflight = parts.method == Method::OPTIONS && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let is_restricted = !route.required_scopes.is_empty() && !is_preflight;
        let is_demanded = is_restricted || guard.is_some_and(|(guard, mode)| guard.demands(mode));
        if !is_demanded && guard.is_none() && !self.authenticator.identifies() {
            return Ok(None);
        }
        match self.authenticator.authenticate(peer.addr.ip(), &parts.headers).await {
            Ok(sender) if is_restricted => grants(&sender, &route.required_scopes).map(|()| Some(sender)),
            Ok(sender) => Ok(Some(sender)),
            Err(error) if is_demanded => Err(problem(error)),
            // Somebody whom the upstream would know must not look like nobody.
            Err(AuthError::NoKeys) if self.authenticator.identifies() => Err(problem(AuthError::NoKeys)),
            Err(_) => Ok(None),
        }
    }

    /// Who asks for something of the gateway's own.
    pub(super) async fn asking(&self, peer: &Peer, headers: &HeaderMap) -> Result<Principal, Problem> {
        self.authenticator.authenticate(peer.addr.ip(), headers).await.map_err(problem)
    }
}

/// Whether the credentials grant all of `required`.
pub(super) fn grants(sender: &Principal, required: &[Box<str>]) -> Result<(), Problem> {
    let Some(missing) = required.iter().find(|scope| !sender.may(scope)) else { return Ok(()) };
    let challenge =
        format!("Bearer realm=\"oncegate\", error=\"insufficient_scope\", scope=\"{}\"", required.join(" "));
    let because = format!("The access token does not grant {missing}.");
    Err(Problem::new(Situation::Forbidden).because(because).challenge(challenge))
}

/// What who is turned away is told (RFC 6750, section 3).
pub(crate) fn problem(error: AuthError) -> Problem {
    let because = |situation| Problem::new(situation).because(error.to_string());
    let unauthenticated = |code: &str| {
        let challenge = format!("Bearer realm=\"oncegate\", error=\"{code}\", error_description=\"{error}\"");
        because(Situation::Unauthenticated).challenge(challenge)
    };
    match error {
        AuthError::UntrustedPeer | AuthError::NoSubject => because(Situation::Unauthenticated),
        AuthError::NoTenant | AuthError::Scope(_) => because(Situation::Forbidden),
        // Who sent none is told no more than what would do.
        AuthError::NoToken => because(Situation::Unauthenticated).challenge("Bearer realm=\"oncegate\""),
        AuthError::TwoTokens => unauthenticated("invalid_request"),
        AuthError::Token(_) => unauthenticated("invalid_token"),
        AuthError::NoKeys => because(Situation::Unavailable).retry_after(KEYS_LATER),
    }
}
