//! What a service says of one kind of operation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::request::Parts;

use crate::engine::Policy;
use crate::engine::policy::{OnUnknown, Tombstones};
use crate::entry::fingerprint::Rules;
use crate::entry::{KeySource, KeySources, Namespace, NamespaceError, Scope};
use crate::http::body::BodyLimits;
use crate::http::kept::Keeping;
use crate::http::route::{Concurrent, Keyless};
use crate::outbox::lane::{Lanes, UnknownQueue};
use crate::outbox::rule::{EventRule, EventRules};
use crate::problem::Problem;
use crate::upstream::OutcomeRules;

/// Whose a request's key is, by its head, or why it is turned away.
pub(super) type ScopeHook = Arc<dyn Fn(&Parts) -> Result<Scope, Problem> + Send + Sync>;

/// What the lease has to spare beyond a handler's time: for the commits before and after it, and for pauses.
const MARGIN: Duration = Duration::from_secs(5);

const DAY: Duration = Duration::from_secs(86_400);

/// One kind of operation ("create an order"), and what makes its requests safe to send twice.
///
/// The defaults are the gateway's own: the key is required and comes from the `Idempotency-Key` header,
/// everybody shares one scope, answers up to 1 MiB are kept for a day, a key is remembered for 30 days more
/// (a business number for ever), a handler has ten seconds, and what ended without an answer, or with a 5xx,
/// is Unknown and held.
///
/// ```
/// use std::time::Duration;
/// use oncegate::entry::Scope;
/// use oncegate::layer::Operation;
/// use oncegate::problem::{Problem, Situation};
///
/// let create_order = Operation::new("create-order")?
///     // The shop's own number first: a new header per click still is one order.
///     .keys(serde_json::from_str(r#"[["body:/shop", "body:/order_no"], "header"]"#)?)
///     .scope("x-tenant", |head| {
///         let tenant = head.headers.get("x-tenant").and_then(|value| value.to_str().ok());
///         Scope::tenant(tenant.unwrap_or_default()).map_err(|_| Problem::new(Situation::Unauthenticated))
///     })
///     .retention(Duration::from_secs(7 * 86_400));
/// # let _ = create_order;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Operation {
    pub(super) namespace: Namespace,
    pub(super) keys: KeySources,
    pub(super) keyless: Keyless,
    pub(super) scope: ScopeHook,
    /// What the scope is called in the description of the identity.
    scope_name: Box<str>,
    retention: Duration,
    tombstones: Tombstones,
    on_unknown: OnUnknown,
    events: Vec<EventRule>,
    pub(super) concurrent: Concurrent,
    pub(super) longest_wait: Duration,
    pub(super) timeout: Duration,
    pub(super) body: BodyLimits,
    pub(super) response_limit: usize,
    pub(super) outcomes: OutcomeRules,
    pub(super) rules: Rules,
    pub(super) excluded: Vec<HeaderName>,
}

impl Operation {
    /// An operation with the defaults. Its name is the namespace of its keys: two operations of one name
    /// share their keys, and the name must never change as long as old keys count.
    ///
    /// # Errors
    /// If the name is no namespace.
    pub fn new(name: &str) -> Result<Self, NamespaceError> {
        Ok(Self {
            namespace: Namespace::new(name)?,
            keys: KeySource::Header.into(),
            keyless: Keyless::Refused,
            scope: Arc::new(|_| Ok(Scope::Global)),
            scope_name: "global".into(),
            retention: DAY,
            tombstones: Tombstones { header: Some(DAY * 30), business: None },
            on_unknown: OnUnknown::Hold,
            events: Vec::new(),
            concurrent: Concurrent::Processing,
            longest_wait: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            body: BodyLimits { bytes: 1 << 20, total: Duration::from_secs(30), idle: Duration::from_secs(10) },
            response_limit: 1 << 20,
            outcomes: OutcomeRules::default(),
            rules: Rules::default(),
            excluded: Vec::new(),
        })
    }

    /// Where the key comes from. `path:` sources are axum's path parameters.
    #[must_use]
    pub fn keys(mut self, keys: KeySources) -> Self {
        self.keys = keys;
        self
    }

    /// Lets requests without a key through, unguarded.
    #[must_use]
    pub fn optional_key(mut self) -> Self {
        self.keyless = Keyless::Passed;
        self
    }

    /// Whose the keys are. `of` sees the head of each request, first and retry, before anything else is
    /// done with it: who has lost the right does not get the old answer. Whatever it needs that takes time
    /// (a session from a database), a middleware in front finds out and leaves in the extensions.
    ///
    /// `name` stands in the store's record of what makes two requests the same one: change it whenever a
    /// change of `of` gives old keys to somebody else.
    #[must_use]
    pub fn scope(mut self, name: &str, of: impl Fn(&Parts) -> Result<Scope, Problem> + Send + Sync + 'static) -> Self {
        self.scope = Arc::new(of);
        self.scope_name = name.into();
        self
    }

    /// How long an answer is kept, from completion.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// How much longer a key is remembered without its answer.
    #[must_use]
    pub fn tombstones(mut self, tombstones: Tombstones) -> Self {
        self.tombstones = tombstones;
        self
    }

    /// Lets a retry wait for the first request's answer, and at most so long, instead of being told at once
    /// that it is being processed. Without it, only one that prefers to wait (`Prefer: wait`) does.
    #[must_use]
    pub fn wait(mut self, longest: Duration) -> Self {
        self.concurrent = Concurrent::Wait;
        self.longest_wait = longest;
        self
    }

    /// How long the handler may take. Then its caller is answered and the outcome is Unknown; the handler
    /// goes on for a bounded time, and what it comes to still counts.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What bounds the request's body, which is read whole before the handler runs.
    #[must_use]
    pub fn body(mut self, limits: BodyLimits) -> Self {
        self.body = limits;
        self
    }

    /// The largest answer kept, in bytes of its body. A larger one reaches its caller; a retry is told that
    /// it was not kept.
    #[must_use]
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.response_limit = bytes;
        self
    }

    /// What the statuses of the handler's answers mean where it does not finish the entry itself.
    #[must_use]
    pub fn outcomes(mut self, outcomes: OutcomeRules) -> Self {
        self.outcomes = outcomes;
        self
    }

    /// What counts as the same request.
    #[must_use]
    pub fn fingerprint(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Fields of an answer that a replay leaves out, besides those that every replay does.
    #[must_use]
    pub fn exclude(mut self, fields: Vec<HeaderName>) -> Self {
        self.excluded = fields;
        self
    }

    /// What is announced of each completed request, whoever completes it and however: committed together with its
    /// outcome. A handler that finishes its entry itself can announce
    /// [more](super::Execution::complete_in) besides.
    ///
    /// The events' own names must differ, and never change.
    #[must_use]
    pub fn events(mut self, events: Vec<EventRule>) -> Self {
        self.events = events;
        self
    }

    /// Executes an Unknown request again when it is retried, instead of holding it.
    ///
    /// Right only for a handler whose every effect
    /// 1. is in the transaction in which it calls [`complete_in`](super::Execution::complete_in): if that
    ///    committed, the entry is completed and not Unknown, so an Unknown one has left nothing behind; or
    /// 2. carries the [downstream key](super::Execution::downstream_key) to a service that honours it.
    #[must_use]
    pub fn run_again_if_unknown(mut self) -> Self {
        self.on_unknown = OnUnknown::Forward;
        self
    }

    /// The namespace of its keys.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// How long a lease must last for the handler to be called: its time, and a margin.
    #[must_use]
    pub fn budget(&self) -> Duration {
        self.timeout + MARGIN
    }

    /// What gives its requests their identity, in words that can be compared. Stored, so their form never
    /// changes.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("keys={} scope={}", self.keys, self.scope_name)
    }

    pub(super) fn policy(&self, lanes: &Lanes) -> Result<Policy, UnknownQueue> {
        let events = EventRules::new(self.namespace.as_str(), self.events.clone(), lanes)?;
        Ok(Policy {
            route: self.namespace.as_str().into(),
            namespace: self.namespace.clone(),
            retention: self.retention,
            tombstones: self.tombstones,
            on_unknown: self.on_unknown.clone(),
            events,
            budget: self.budget(),
        })
    }

    pub(super) fn keeping(&self) -> Keeping<'_> {
        Keeping { outcomes: &self.outcomes, response_limit: self.response_limit, excluded: &self.excluded }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("namespace", &self.namespace)
            .field("identity", &self.identity())
            .field("on_unknown", &self.on_unknown)
            .finish_non_exhaustive()
    }
}
