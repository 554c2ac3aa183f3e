//! What the gateways of a run are configured with.

use std::net::SocketAddr;

use super::clients::Route;
use super::nemesis::Sabotage;
use super::stage::{AUDIT, Wires};
use crate::faults::LEASE;

/// Absence is believed twice as late as a request may arrive here.
const LOOKUP: &str = r#"
        first = "200ms"
        max = "500ms"
        absent = "not_executed"
        after = "4s"
"#;

/// Whoever forwards again to a service that does not honour the key pays twice.
fn unless(sabotage: &[Sabotage], by: Sabotage, honest: &'static str) -> &'static str {
    if sabotage.contains(&by) { "forward" } else { honest }
}

fn lookup(of: &str, path: &str, state: &str) -> String {
    format!("[{of}.lookup]\nrequest = \"GET /{path}/{{key}}\"{LOOKUP}[{of}.lookup.completed_when]\nequals = {state}\n")
}

/// Each payment is announced to the consumer of points, and to the checker.
fn route(route: Route, on_unknown: &str) -> String {
    let name = route.path();
    let lookup = match on_unknown {
        "lookup" => lookup("routes.idempotency", "paid", r#"{ "/status" = "paid" }"#),
        _ => String::new(),
    };
    let event = |name: &str, topic: &str| {
        format!(
            r#"
        [[routes.events]]
        name = "{name}"
        type = "com.example.paid"
        topic = "{topic}"
        key = "body:/payer"
        data = "request"
        "#
        )
    };
    let events = event("paid", "payments") + &event("audited", AUDIT);
    format!(
        r#"
        [[routes]]
        name = "{name}"
        match = "POST /{name}"
        upstream = "payments"
        [routes.idempotency]
        key = ["header"]
        forward_key = "raw"
        on_unknown = "{on_unknown}"
        {lookup}
        {events}
        "#
    )
}

fn subscription(service: u16, on_unknown: &str) -> String {
    let lookup = match on_unknown {
        "lookup" => lookup("subscriptions", "points", r#"{ "/state" = "granted" }"#),
        _ => String::new(),
    };
    format!(
        r#"
        [[subscriptions]]
        name = "points"
        topic = "payments"
        key = ["body:/for"]
        deliver = "http://127.0.0.1:{service}/points"
        timeout = "1s"
        lease = "2s"
        attempts = 1000
        backoff = {{ first = "50ms", max = "500ms" }}
        on_unknown = "{on_unknown}"
        {lookup}
        "#
    )
}

pub(super) fn document(address: SocketAddr, database: &str, wires: &Wires, sabotage: &[Sabotage]) -> String {
    let [postgres, redis, broker, service] = wires.all().map(|wire| wire.port);
    let lease = LEASE.as_millis();
    let routes = [
        route(Route::Hold, unless(sabotage, Sabotage::Resend, "hold")),
        route(Route::Lookup, "lookup"),
        route(Route::Forward, "forward"),
    ]
    .concat();
    let subscription = subscription(service, unless(sabotage, Sabotage::Redeliver, "lookup"));
    format!(
        r#"
        [server]
        listen = "{address}"
        [store]
        url = "postgres://oncegate@127.0.0.1:{postgres}/{database}"
        acquire_timeout = "500ms"
        statement_timeout = "1s"
        [marks]
        url = "redis://127.0.0.1:{redis}"
        ttl = "2s"
        [queue]
        url = "amqp://127.0.0.1:{broker}"
        lease = "1s"
        # A quorum queue of one node that is killed in the seconds after it was made never works again.
        [queue.rabbitmq]
        queues = "classic"
        [engine]
        lease = "{lease}ms"
        renew = "400ms"
        margin = "200ms"
        record_wait = "500ms"
        late_answer = "1s"
        [secrets]
        fingerprint = ["env:SECRET"]
        [[upstreams]]
        name = "payments"
        urls = ["http://127.0.0.1:{service}"]
        timeout = "1500ms"
        {routes}
        {subscription}
        "#
    )
}
