//! The configured routes as the door takes them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use super::{ServeError, options};
use crate::config::{
    Absent, Config, Lookup, Name, OnUnknown as Configured, Policy as Idempotency, Route as ConfiguredRoute,
    Statuses as ConfiguredStatuses,
};
use crate::engine::Policy;
use crate::engine::policy::{LookupPolicy, OnUnknown, Tombstones};
use crate::entry::fingerprint::Rules;
use crate::http::route::{Guard, IdentityCheck, Keyless, Mode, Route};
use crate::routing::Router;
use crate::upstream::lookup::UpstreamLookup;
use crate::upstream::{OutcomeRules, Statuses, Upstream};

/// The routes and what hangs on them.
pub(super) struct Routes {
    pub(super) router: Router<Arc<Route>>,
    pub(super) guards: Vec<Arc<Guard>>,
    pub(super) policies: HashMap<Box<str>, Arc<Policy>>,
    /// Per namespace, whether the store's record of its identity is ours.
    pub(super) identities: BTreeMap<String, IdentityCheck>,
}

pub(super) fn build(config: &Config) -> Result<Routes, ServeError> {
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
            Some(idempotency) => {
                Some(Arc::new(Building { config, configured, upstream: &upstream }.guard(idempotency, &identities)?))
            }
        };
        if let Some(guard) = &guard {
            policies.insert(guard.policy.route.clone(), Arc::clone(&guard.policy));
            guards.push(Arc::clone(guard));
        }
        let name = configured.name.as_str().into();
        routes.push((configured.pattern.clone(), Arc::new(Route { name, upstream, guard })));
    }
    let router = Router::new(routes).map_err(|conflict| ServeError::Routes(conflict.to_string()))?;
    Ok(Routes { router, guards, policies, identities })
}

fn unknown(upstream: &Name) -> ServeError {
    ServeError::Routes(format!("there is no upstream called {}", upstream.as_str()))
}

struct Building<'a> {
    config: &'a Config,
    configured: &'a ConfiguredRoute,
    upstream: &'a Upstream,
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
        Ok(Guard {
            policy: Arc::new(self.policy(idempotency, timeout)?),
            sources: idempotency.key.clone(),
            keyless: if idempotency.required { Keyless::Refused } else { Keyless::Passed },
            scope: self.configured.scope(idempotency, &self.config.auth),
            concurrent: idempotency.concurrent,
            longest_wait: idempotency.wait.get(),
            forward_key: idempotency.forward_key,
            forward_format: idempotency.forward_key_format,
            mode: idempotency.mode,
            response_limit: idempotency.response_limit.get(),
            rules: Rules::new(
                idempotency.fingerprint.ignore.clone(),
                idempotency.fingerprint.headers.iter().map(|name| name.get().clone()).collect(),
            ),
            outcomes: OutcomeRules {
                not_executed: statuses(&idempotency.outcomes.not_executed),
                settles: statuses(&idempotency.outcomes.settles),
            },
            timeout,
            late_window: self.config.engine.late_answer.get(),
            excluded: excluded(idempotency),
            identity: identities.get(namespace.as_str()).cloned().unwrap_or_default(),
        })
    }

    fn policy(&self, idempotency: &Idempotency, timeout: std::time::Duration) -> Result<Policy, ServeError> {
        let namespace = self.configured.namespace(idempotency);
        Ok(Policy {
            route: self.configured.name.as_str().into(),
            // Entries of a route that only observes are never lent to one that enforces.
            namespace: if idempotency.mode == Mode::Observe { namespace.observed() } else { namespace },
            retention: idempotency.retention.get(),
            tombstones: Tombstones {
                header: idempotency.tombstone_of(false),
                business: idempotency.tombstone_of(true),
            },
            on_unknown: match (idempotency.on_unknown, &idempotency.lookup) {
                // Looking it up, or forwarding again, would not be observing.
                _ if idempotency.mode == Mode::Observe => OnUnknown::Hold,
                (Configured::Hold, _) => OnUnknown::Hold,
                (Configured::Forward, _) => OnUnknown::Forward,
                (Configured::Lookup, Some(lookup)) => OnUnknown::Lookup(self.lookup(idempotency, lookup)),
                (Configured::Lookup, None) => {
                    let name = self.configured.name.as_str();
                    return Err(ServeError::Routes(format!("{name}: on_unknown = \"lookup\" needs a lookup")));
                }
            },
            budget: timeout + self.config.engine.margin.get(),
        })
    }

    fn lookup(&self, idempotency: &Idempotency, lookup: &Lookup) -> LookupPolicy {
        let request = lookup.request.clone();
        let headers: HeaderMap =
            lookup.headers.iter().map(|(name, value)| (name.get().clone(), value.get().clone())).collect();
        let equals = &lookup.completed_when.equals;
        let asking = UpstreamLookup {
            upstream: self.upstream.clone(),
            target: Box::new(move |key| request.target(key)),
            headers,
            completed: statuses(&lookup.completed_when.status),
            equals: equals.iter().map(|(pointer, value)| (pointer.to_string(), value.clone())).collect(),
            timeout: lookup.timeout.get(),
            response_limit: idempotency.response_limit.get(),
            excluded: excluded(idempotency),
        };
        let believed = match lookup.absent {
            Absent::Unknown => None,
            Absent::NotExecuted => lookup.after.map(|after| after.get()),
        };
        LookupPolicy {
            lookup: Arc::new(asking),
            absent_means_not_executed_after: believed,
            first: lookup.first.get(),
            max: lookup.max.get(),
        }
    }
}

fn excluded(idempotency: &Idempotency) -> Vec<http::HeaderName> {
    idempotency.replay_exclude_headers.iter().map(|name| name.get().clone()).collect()
}

fn statuses(configured: &ConfiguredStatuses) -> Statuses {
    configured.iter().filter_map(|code| StatusCode::from_u16(code).ok()).collect()
}
