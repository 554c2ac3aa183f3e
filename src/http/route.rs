//! A route at run time: where its requests go, and what guards them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderName;
use serde::Deserialize;

use super::kept::Keeping;
use crate::auth::ScopeKind;
use crate::engine::Policy;
use crate::entry::fingerprint::Rules;
use crate::entry::{EntryId, Key, source::KeySources};
use crate::upstream::{OutcomeRules, Upstream};

/// A route at run time.
#[derive(Debug)]
pub struct Route {
    /// What logs and metrics call it.
    pub name: Box<str>,
    /// Where its requests go.
    pub upstream: Upstream,
    /// What its callers must have been granted, all of it.
    pub required_scopes: Arc<[Box<str>]>,
    /// What makes them safe to send twice; without it they pass through.
    pub guard: Option<Arc<Guard>>,
}

/// What makes a route's requests safe to send twice.
#[derive(Debug)]
pub struct Guard {
    /// What it wants of the engine.
    pub policy: Arc<Policy>,
    /// What it wants while it only observes: a namespace of its own, whose entries are never lent to [`Self::policy`].
    pub observing: Arc<Policy>,
    /// Where the key comes from.
    pub sources: KeySources,
    /// What becomes of tokens in place of a key.
    pub token: TokenUse,
    /// How long after it was made a token may begin something.
    pub token_lifetime: Duration,
    /// What a request without a key comes to.
    pub keyless: Keyless,
    /// Whose the keys are.
    pub scope: ScopeKind,
    /// The route's.
    pub required_scopes: Arc<[Box<str>]>,
    /// What a retry is told while the first request runs, unless it prefers otherwise.
    pub concurrent: Concurrent,
    /// The longest that a retry may wait.
    pub longest_wait: Duration,
    /// Whether the guard decides.
    pub mode: Arc<RunMode>,
    /// What counts as the same request.
    pub rules: Rules,
    /// How its requests go out.
    pub forwarding: Arc<Forwarding>,
    /// Whether what gives its requests their identity is what the store has on record.
    pub identity: IdentityCheck,
}

impl Guard {
    /// Whether, in `mode`, callers must still show what the route wants of them. One that is configured to observe alters
    /// nothing; one that was switched to it while it runs is no way around what its configuration wants.
    #[must_use]
    pub fn demands(&self, mode: Mode) -> bool {
        mode != Mode::Observe || self.mode.configured() != Mode::Observe
    }
}

/// How a guarded request, or a delivery, goes out, and what is made of the answer.
#[derive(Debug)]
pub struct Forwarding {
    /// Where it goes.
    pub upstream: Upstream,
    /// How long the upstream may take.
    pub timeout: Duration,
    /// How long a timed-out answer's body may still take.
    pub late_window: Duration,
    /// The key that the upstream sees.
    pub key: ForwardKey,
    /// How it is spelled.
    pub key_format: ForwardFormat,
    /// What the upstream's statuses mean.
    pub outcomes: OutcomeRules,
    /// The largest answer kept, in bytes of its body.
    pub response_limit: usize,
    /// Fields that a replay leaves out.
    pub excluded: Vec<HeaderName>,
}

/// What becomes of idempotency tokens in place of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenUse {
    /// They are refused.
    #[default]
    Off,
    /// They count, as plain keys do.
    Accepted,
    /// Nothing else counts.
    Required,
}

/// What a request without a key comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyless {
    /// It is refused.
    Refused,
    /// It passes through unguarded.
    Passed,
}

/// What a retry is told while the first request runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Concurrent {
    /// That it does, at once.
    #[default]
    Processing,
    /// The answer, if it comes in time.
    Wait,
}

/// The key that the upstream sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardKey {
    /// The digest of namespace, scope and key.
    #[default]
    Derived,
    /// The client's own.
    Raw,
}

/// How the forwarded key is spelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardFormat {
    /// Unquoted.
    #[default]
    Bare,
    /// As an RFC 9651 string.
    Quoted,
}

/// Whether a guard decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It decides and counts, and alters nothing.
    Observe,
    /// It only replays.
    ReplayOnly,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Enforce, Self::Observe, Self::ReplayOnly];

    /// As people write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
            Self::ReplayOnly => "replay_only",
        }
    }

    /// Reads what people write.
    #[must_use]
    pub fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

/// A route's mode at run time: as configured, unless somebody has switched it.
#[derive(Debug)]
pub struct RunMode {
    configured: Mode,
    /// The place in [`Mode::ALL`].
    now: AtomicUsize,
}

impl RunMode {
    /// As configured.
    #[must_use]
    pub fn new(configured: Mode) -> Self {
        let mode = Self { configured, now: AtomicUsize::new(0) };
        mode.switch(None);
        mode
    }

    /// What the configuration says.
    #[must_use]
    pub const fn configured(&self) -> Mode {
        self.configured
    }

    /// What counts now. A request asks once.
    #[must_use]
    pub fn now(&self) -> Mode {
        Mode::ALL.get(self.now.load(Ordering::Acquire)).copied().unwrap_or(self.configured)
    }

    /// Switches it; with `None` as configured.
    pub fn switch(&self, to: Option<Mode>) {
        let to = to.unwrap_or(self.configured);
        let place = Mode::ALL.iter().position(|mode| *mode == to).unwrap_or(0);
        self.now.store(place, Ordering::Release);
    }
}

/// Whether the store's record of a namespace's identity is this process's. Shared by the namespace's
/// routes, and set right by an operator while the process runs.
#[derive(Debug, Clone, Default)]
pub struct IdentityCheck(Arc<AtomicBool>);

impl IdentityCheck {
    /// Whether requests may be given an identity.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Notes what the store says.
    pub fn set(&self, holds: bool) {
        self.0.store(holds, Ordering::Release);
    }
}

impl Concurrent {
    /// How long a retry waits that prefers `preferred`, where `longest` is allowed.
    #[must_use]
    pub fn wait(self, preferred: Option<Duration>, longest: Duration) -> Duration {
        match (preferred, self) {
            (Some(preferred), _) => preferred,
            (None, Self::Wait) => longest,
            (None, Self::Processing) => Duration::ZERO,
        }
    }
}

impl Forwarding {
    /// What is kept of its answers.
    pub(super) fn keeping(&self) -> Keeping<'_> {
        Keeping { outcomes: &self.outcomes, response_limit: self.response_limit, excluded: &self.excluded }
    }

    /// What the upstream knows the request by: the key that it gets, however that is spelled.
    #[must_use]
    pub fn plain_key(&self, key: &Key, id: EntryId) -> String {
        match self.key {
            ForwardKey::Derived => id.to_hex(),
            ForwardKey::Raw => key.as_str().to_owned(),
        }
    }

    /// The `Idempotency-Key` that the upstream gets.
    #[must_use]
    pub fn forwarded_key(&self, key: &Key, id: EntryId) -> String {
        match (self.key, self.key_format) {
            (ForwardKey::Derived, ForwardFormat::Bare) => id.to_hex(),
            (ForwardKey::Derived, ForwardFormat::Quoted) => format!("\"{}\"", id.to_hex()),
            (ForwardKey::Raw, ForwardFormat::Bare) => key.to_bare(),
            (ForwardKey::Raw, ForwardFormat::Quoted) => key.to_structured(),
        }
    }
}
