//! The configured routes as the door takes them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use super::{ServeError, options};
use crate::config::{
    Absent, Asked, Config, Event, FieldName, FieldValue, Lookup, LookupRequest, Name, OnUnknown as Configured,
    Policy as Idempotency, Queue, Route as ConfiguredRoute, Statuses as ConfiguredStatuses,
};
use crate::engine::Policy;
use crate::engine::policy::{LookupPolicy, OnUnknown, Tombstones};
use crate::entry::fingerprint::Rules;
use crate::entry::source::Alternative;
use crate::http::route::{Forwarding, Guard, IdentityCheck, Keyless, Route, RunMode};
use crate::outbox::lane::Lanes;
use crate::outbox::rule::{DEFAULT_EVENT_BYTES, EventRule, EventRules, When};
use crate::routing::Router;
use crate::upstream::lookup::{Target, UpstreamLookup};
use crate::upstream::{OutcomeRules, Statuses, Upstream};

/// The routes and what hangs on them.
pub(super) struct Routes {
    pub(super) router: Router<Arc<Route>>,
    pub(super) guards: Vec<Arc<Guard>>,
    pub(super) policies: HashMap<Box<str>, Arc<Policy>>,
    /// Per namespace, whether the store's record of its identity is ours.
    pub(super) identities: BTreeMap<String, IdentityCheck>,
}

/// The routes of `config`, with events to queues of so many `lanes`.
pub(super) fn build(config: &Config, lanes: &Lanes) -> Result<Routes, ServeError> {
    let mut upstreams = HashMap::new();
    for configured in &config.upstreams {
        upstreams.insert(configured.name.as_str(), Upstream::new(&options::upstream(configured))?);
    }
    let identities: BTreeMap<String, IdentityCheck> =
        config.identities().into_keys().map(|namespace| (namespace, IdentityCheck::default())).collect();
    let (mut routes, mut guards, mut policies) = (Vec::new(), Vec::new(), HashMap::new());
    for configured in &config.routes {
        let upstream =
            upstreams.get(configured.upstream.as_str()).cloned().ok_or_else(|| unknown(&configured.upstream))?;
        let guard = match &configured.idempotency {
            None => None,
            Some(idempotency) => Some(Arc::new(
                Building { config, configured, upstream: &upstream, lanes }.guard(idempotency, &identities)?,
            )),
        };
        if let Some(guard) = &guard {
            policies.insert(guard.policy.route.clone(), Arc::clone(&guard.policy));
            guards.push(Arc::clone(guard));
        }
        let name = configured.name.as_str().into();
        let required_scopes = scopes(configured);
        routes.push((configured.pattern.clone(), Arc::new(Route { name, upstream, required_scopes, guard })));
    }
    let router = Router::new(routes).map_err(|conflict| ServeError::Routes(conflict.to_string()))?;
    Ok(Routes { router, guards, policies, identities })
}

fn unknown(upstream: &Name) -> ServeError {
    ServeError::Routes(format!("there is no upstream called {}", upstream.as_str()))
}

fn scopes(route: &ConfiguredRoute) -> Arc<[Box<str>]> {
    route.required_scopes.iter().map(|scope| scope.as_str().into()).collect()
}

struct Building<'a> {
    config: &'a Config,
    configured: &'a ConfiguredRoute,
    upstream: &'a Upstream,
    lanes: &'a Lanes,
}

impl Building<'_> {
    fn guard(
        &self,
        idempotency: &Idempotency,
        identities: &BTreeMap<String, IdentityCheck>,
    ) -> Result<Guard, ServeError> {
        let timeout = self
            .config
            .upstream(&self.configured.upstream)
            .ok_or_else(|| unknown(&self.configured.upstream))?
            .timeout
            .get();
        let namespace = self.configured.namespace(idempotency);
        let policy = self.policy(idempotency, timeout)?;
        Ok(Guard {
            observing: Arc::new(observing(&policy)),
            policy: Arc::new(policy),
            sources: idempotency.key.clone(),
            token: idempotency.token,
            token_lifetime: idempotency.token_lifetime.get(),
            keyless: if idempotency.required { Keyless::Refused } else { Keyless::Passed },
            scope: self.configured.scope(idempotency, &self.config.auth),
            required_scopes: scopes(self.configured),
            concurrent: idempotency.concurrent,
            longest_wait: idempotency.wait.get(),
            mode: Arc::new(RunMode::new(idempotency.mode)),
            rules: Rules::new(
                idempotency.fingerprint.ignore.clone(),
                idempotency.fingerprint.headers.iter().map(|name| name.get().clone()).collect(),
            ),
            forwarding: Arc::new(self.forwarding(idempotency, timeout)),
            identity: identities.get(namespace.as_str()).cloned().unwrap_or_default(),
        })
    }

    fn forwarding(&self, idempotency: &Idempotency, timeout: std::time::Duration) -> Forwarding {
        Forwarding {
            upstream: self.upstream.clone(),
            timeout,
            late_window: self.config.engine.late_answer.get(),
            key: idempotency.forward_key,
            key_format: idempotency.forward_key_format,
            outcomes: OutcomeRules {
                not_executed: statuses(&idempotency.outcomes.not_executed),
                settles: statuses(&idempotency.outcomes.settles),
            },
            response_limit: idempotency.response_limit.get(),
            excluded: excluded(idempotency),
        }
    }

    fn policy(&self, idempotency: &Idempotency, timeout: std::time::Duration) -> Result<Policy, ServeError> {
        Ok(Policy {
            route: self.configured.name.as_str().into(),
            namespace: self.configured.namespace(idempotency),
            retention: idempotency.retention.get(),
            tombstones: Tombstones {
                header: idempotency.tombstone_of(false),
                business: idempotency.tombstone_of(true),
            },
            on_unknown: match (idempotency.on_unknown, &idempotency.lookup) {
                (Configured::Hold, _) => OnUnknown::Hold,
                (Configured::Forward, _) => OnUnknown::Forward,
                (Configured::Lookup, Some(lookup)) => {
                    let kinds = idempotency.key.alternatives();
                    let mixed =
                        kinds.iter().any(Alternative::is_business) && !kinds.iter().all(Alternative::is_business);
                    let asking = Asking {
                        forwarding: Arc::new(self.forwarding(idempotency, timeout)),
                        business_keys_only: mixed && !lookup.request.says(Asked::ForwardedKey),
                    };
                    OnUnknown::Lookup(asking.policy(lookup))
                }
                (Configured::Lookup, None) => {
                    let name = self.configured.name.as_str();
                    return Err(ServeError::Routes(format!("{name}: on_unknown = \"lookup\" needs a lookup")));
                }
            },
            events: self.events()?,
            budget: timeout + self.config.engine.margin.get(),
        })
    }

    fn events(&self) -> Result<EventRules, ServeError> {
        let rules = self.configured.events.iter().map(|event| rule(event, self.config.queue(&event.queue))).collect();
        let name = self.configured.name.as_str();
        EventRules::new(name, rules, self.lanes).map_err(|error| ServeError::Routes(format!("{name}: {error}")))
    }
}

/// What is wanted of the engine while a route of `policy` only observes. Its entries are never lent to the route when it
/// enforces; and looking up, forwarding again or announcing would not be observing.
fn observing(policy: &Policy) -> Policy {
    Policy {
        route: policy.route.clone(),
        namespace: policy.namespace.observed(),
        retention: policy.retention,
        tombstones: policy.tombstones,
        on_unknown: OnUnknown::Hold,
        events: EventRules::default(),
        budget: policy.budget,
    }
}

/// How an upstream is asked what became of what went out so.
pub(super) struct Asking {
    pub(super) forwarding: Arc<Forwarding>,
    pub(super) business_keys_only: bool,
}

impl Asking {
    pub(super) fn policy(self, lookup: &Lookup) -> LookupPolicy {
        let equals = &lookup.completed_when.equals;
        let asking = UpstreamLookup {
            upstream: self.forwarding.upstream.clone(),
            headers: fields(&lookup.headers),
            completed: statuses(&lookup.completed_when.status),
            equals: equals.iter().map(|(pointer, value)| (pointer.to_string(), value.clone())).collect(),
            timeout: lookup.timeout.get(),
            response_limit: self.forwarding.response_limit,
            excluded: self.forwarding.excluded.clone(),
            target: target(lookup.request.clone(), self.forwarding),
        };
        let believed = match lookup.absent {
            Absent::Unknown => None,
            Absent::NotExecuted => lookup.after.map(|after| after.get()),
        };
        LookupPolicy {
            lookup: Arc::new(asking),
            business_keys_only: self.business_keys_only,
            absent_means_not_executed_after: believed,
            first: lookup.first.get(),
            max: lookup.max.get(),
        }
    }
}

fn target(request: LookupRequest, forwarding: Arc<Forwarding>) -> Target {
    Box::new(move |id, identity| {
        request.target(|what| match what {
            Asked::Key => Some(identity.key.as_str().into()),
            Asked::ForwardedKey => Some(forwarding.plain_key(&identity.key, id).into()),
            Asked::Tenant => identity.scope.tenant_name().map(Into::into),
            Asked::Subject => identity.scope.subject_name().map(Into::into),
        })
    })
}

/// Configured fields as they are sent.
pub(super) fn fields(configured: &BTreeMap<FieldName, FieldValue>) -> HeaderMap {
    configured.iter().map(|(name, value)| (name.get().clone(), value.get().clone())).collect()
}

fn rule(event: &Event, queue: Option<&Queue>) -> EventRule {
    let equals = event.when.equals.iter().map(|(pointer, value)| (pointer.clone(), value.clone()));
    EventRule {
        source: event.source.as_deref().map(Into::into),
        when: When::new(event.when.status.iter().collect(), equals),
        queue: event.queue.as_str().into(),
        key: event.key.clone(),
        data: event.data.clone(),
        on_failure: event.on_failure,
        max_bytes: queue.map_or(DEFAULT_EVENT_BYTES, |queue| queue.max_event_bytes.get()),
        ..EventRule::new(event.name.as_str(), &*event.kind, &*event.topic)
    }
}

fn excluded(idempotency: &Idempotency) -> Vec<http::HeaderName> {
    idempotency.replay_exclude_headers.iter().map(|name| name.get().clone()).collect()
}

fn statuses(configured: &ConfiguredStatuses) -> Statuses {
    configured.iter().filter_map(|code| StatusCode::from_u16(code).ok()).collect()
}
