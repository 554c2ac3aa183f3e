//! Times that must fit into each other.

use std::time::Duration;

use super::{Finding, error, guarded, policy_key, warning};
use crate::config::{Absent, Config, Lookup, Period, Policy, Route, Subscription, Upstream};

/// The longest `Retry-After` of a held entry: 60 s and half as much jitter.
const HELD_RETRY: Duration = Duration::from_secs(90);

pub(super) fn check(config: &Config, findings: &mut Vec<Finding>) {
    not_zero(config, findings);
    for upstream in &config.upstreams {
        if guarded(config).any(|(route, _)| route.upstream == upstream.name) {
            execution(config, &format!("upstream {}", upstream.name), upstream.timeout, findings);
        }
        let key = format!("upstreams.{}", upstream.name);
        connection(&key, upstream.connect_timeout, upstream.timeout, findings);
    }
    for (route, policy) in guarded(config) {
        if let Some(upstream) = config.upstream(&route.upstream) {
            retention(route, policy, upstream, findings);
            absence(&policy_key(route, "lookup"), policy.lookup.as_ref(), upstream.timeout, findings);
        }
    }
    for one in &config.subscriptions {
        execution(config, &format!("subscription {}", one.name), one.timeout, findings);
        let key = format!("subscriptions.{}", one.name);
        connection(&key, one.connect_timeout, one.timeout, findings);
        absence(&format!("{key}.lookup"), one.lookup.as_ref(), one.timeout, findings);
        shelf(&key, one, findings);
    }
}

/// An execution must end while its process's lease holds, or a rescuer declares it Unknown while it runs. One that is
/// cut off when the gateway stops is Unknown.
fn execution(config: &Config, whose: &str, timeout: Period, findings: &mut Vec<Finding>) {
    let engine = &config.engine;
    let needed = timeout.get() + engine.margin.get();
    if engine.lease.get().saturating_sub(engine.renew.get()) <= needed {
        let text = format!(
            "lease {} - renew {} must be more than the timeout {timeout} of the {whose} + margin {}; lengthen the lease",
            engine.lease, engine.renew, engine.margin
        );
        findings.push(error("engine.lease", text));
    }
    let (drain, delay) = (config.server.drain_timeout, config.server.drain_delay);
    if drain.get().saturating_sub(delay.get()) < timeout.get() {
        let text = format!(
            "{drain} with a drain_delay of {delay} leaves less than the timeout {timeout} of the {whose}: each restart leaves Unknown entries"
        );
        findings.push(warning("server.drain_timeout", text));
    }
}

fn connection(key: &str, connect: Period, timeout: Period, findings: &mut Vec<Finding>) {
    if connect > timeout {
        let text = format!("{connect} is longer than timeout, {timeout}");
        findings.push(error(format!("{key}.connect_timeout"), text));
    }
}

/// A record that is gone while its message may still be tried, or sent again, would let it be handled twice.
fn shelf(key: &str, one: &Subscription, findings: &mut Vec<Finding>) {
    let horizon = one.horizon();
    if one.retention.get() <= horizon {
        let text = format!(
            "{} is not longer than a message may be tried for, {} s by attempts, backoff, timeout and gap; lengthen it",
            one.retention,
            horizon.as_secs()
        );
        findings.push(error(format!("{key}.retention"), text));
    }
}

/// The retry horizon: the latest that a client which obeys `Retry-After` asks again about a request that it
/// has already been answered, which is one upstream timeout and one longest pause between lookups. A
/// response that is gone by then was kept for nobody.
fn retention(route: &Route, policy: &Policy, upstream: &Upstream, findings: &mut Vec<Finding>) {
    let lookup = policy.lookup.as_ref().map_or(Duration::ZERO, |lookup| lookup.max.get());
    let horizon = upstream.timeout.get() + HELD_RETRY.max(lookup);
    if policy.retention.get() <= horizon {
        let text = format!(
            "{} is not longer than clients are told to retry, {} s; lengthen it",
            policy.retention,
            horizon.as_secs()
        );
        findings.push(error(policy_key(route, "retention"), text));
    }
}

fn absence(key: &str, lookup: Option<&Lookup>, timeout: Period, findings: &mut Vec<Finding>) {
    let Some(lookup) = lookup.filter(|lookup| lookup.absent == Absent::NotExecuted) else {
        return;
    };
    let needed = format!(
        "absent = \"not_executed\" is believed only once the first call can no longer arrive: set `after` to the \
         upstream's own longest time, at least its timeout, {timeout}"
    );
    match lookup.after {
        None => findings.push(error(format!("{key}.after"), format!("missing; {needed}"))),
        Some(after) if after < timeout => {
            findings.push(error(format!("{key}.after"), format!("{after} is too short; {needed}")));
        }
        Some(_) => {}
    }
}

fn not_zero(config: &Config, findings: &mut Vec<Finding>) {
    let (server, engine) = (&config.server, &config.engine);
    let mut periods: Vec<(String, Period)> = [
        ("server.body_timeout", server.body_timeout),
        ("server.body_idle_timeout", server.body_idle_timeout),
        ("server.header_timeout", server.header_timeout),
        ("store.acquire_timeout", config.store.acquire_timeout),
        ("store.statement_timeout", config.store.statement_timeout),
        ("store.lock_timeout", config.store.lock_timeout),
        ("marks.timeout", config.marks.timeout),
        ("marks.ttl", config.marks.ttl),
        ("engine.lease", engine.lease),
        ("engine.renew", engine.renew),
    ]
    .map(|(key, period)| (key.to_owned(), period))
    .into();
    for upstream in &config.upstreams {
        let key = |key: &str| format!("upstreams.{}.{key}", upstream.name);
        periods.push((key("connect_timeout"), upstream.connect_timeout));
        periods.push((key("timeout"), upstream.timeout));
        periods.push((key("idle_timeout"), upstream.idle_timeout));
    }
    for (route, policy) in guarded(config) {
        periods.push((policy_key(route, "retention"), policy.retention));
        periods.extend(of_lookup(&policy_key(route, "lookup"), policy.lookup.as_ref()));
    }
    for one in &config.subscriptions {
        let key = |key: &str| format!("subscriptions.{}.{key}", one.name);
        periods.push((key("connect_timeout"), one.connect_timeout));
        periods.push((key("timeout"), one.timeout));
        periods.push((key("backoff.first"), one.backoff.first));
        periods.extend(of_lookup(&key("lookup"), one.lookup.as_ref()));
    }
    let zero = periods.into_iter().filter(|(_, period)| period.get().is_zero());
    findings.extend(zero.map(|(key, _)| error(key, "it must be longer than zero")));
}

fn of_lookup(key: &str, lookup: Option<&Lookup>) -> impl Iterator<Item = (String, Period)> {
    let periods = |lookup: &Lookup| {
        [("first", lookup.first), ("max", lookup.max), ("timeout", lookup.timeout)]
            .map(|(name, period)| (format!("{key}.{name}"), period))
    };
    lookup.map(periods).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use crate::config::check::testing::{Base, assert_error, assert_sound, assert_warning};

    #[test]
    fn a_lease_outlasts_every_guarded_call() {
        assert_sound(&Base::default().head("engine.lease = '20001ms'"));
        assert_error(&Base::default().head("engine.lease = '20s'"), "engine.lease", "timeout 10s of the upstream u");
        let slow = "[[upstreams]]\nname = 'slow'\nurls = ['http://b:1']\ntimeout = '5m'\n\
                    [[routes]]\nname = 'b'\nmatch = 'POST /b'\nupstream = 'slow'";
        assert_sound(&Base::default().and(slow));
        let guarded = format!("{slow}\nidempotency = {{ key = 'header' }}");
        assert_error(&Base::default().and(&guarded), "engine.lease", "upstream slow");
    }

    #[test]
    fn a_stopping_gateway_waits_for_its_calls() {
        assert_warning(&Base::default().head("server.drain_timeout = '9s'"), "server.drain_timeout", "Unknown");
        assert_sound(&Base::default().head("server.drain_timeout = '10s'"));
        let delayed = Base::default().head("server.drain_timeout = '10s'\nserver.drain_delay = '1ms'");
        assert_warning(&delayed, "server.drain_timeout", "drain_delay of 1ms");
    }

    #[test]
    fn a_response_is_kept_for_longer_than_clients_retry() {
        let key = "routes.pay.idempotency.retention";
        assert_error(&Base::default().policy("key = 'header', retention = '100s'"), key, "100 s");
        assert_sound(&Base::default().policy("key = 'header', retention = '101s'"));
        let lookup = "on_unknown = 'lookup', lookup = { request = 'GET /p/{key}', max = '1h' }";
        assert_error(&Base::default().policy(&format!("key = 'header', retention = '1h', {lookup}")), key, "3610 s");
    }

    #[test]
    fn an_absence_is_believed_only_after_the_upstreams_longest_time() {
        let base = |after: &str| {
            let lookup =
                format!("lookup = {{ request = 'GET /p/{{forwarded_key}}', absent = 'not_executed' {after} }}");
            Base::default().policy(&format!("key = 'header', on_unknown = 'lookup', {lookup}"))
        };
        let key = "routes.pay.idempotency.lookup.after";
        assert_error(&base(""), key, "missing");
        assert_error(&base(", after = '9999ms'"), key, "too short");
        assert_sound(&base(", after = '10s'"));
    }

    #[test]
    fn a_time_that_can_not_be_zero_is_told() {
        assert_error(&Base::default().head("engine.renew = '0s'"), "engine.renew", "longer than zero");
        assert_error(&Base::default().head("marks.timeout = '0ms'"), "marks.timeout", "longer than zero");
    }
}
