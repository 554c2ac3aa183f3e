//! How `oncegate events` and `oncegate deliveries` print.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oncegate::clock::Timestamp;
use oncegate::inbox::result::DeliveryResult;
use oncegate::inbox::store::{attribute, subscription_of};
use oncegate::outbox::desk::{Acted, Listed, Mode, Of, Order, Shown, State};
use oncegate::outbox::event::OnFailure;
use serde_json::{Value, json};

use super::trouble::Troubles;

macro_rules! line {
    ($text:ident, $($format:tt)*) => {{
        $text.push_str(&format!($($format)*));
        $text.push('\n');
    }};
}

pub(super) fn table(of: Of, events: &[Listed]) -> String {
    let mut text = String::new();
    let (none, header) = match of {
        Of::Events => ("no events", format!("{:>8}  {:12}  {:24}  type, reason", "attempts", "queue", "key")),
        Of::Deliveries => (
            "no deliveries",
            format!(
                "{:>8}  {:10}  {:16}  {:24}  {:>9}  reason",
                "attempts", "result", "subscription", "key", "elapsed"
            ),
        ),
    };
    if events.is_empty() {
        line!(text, "{none}");
        return text;
    }
    line!(text, "{:>10}  {:32}  {:9}  {header}", "position", "id", "state");
    for event in events {
        let (position, id, state) = (event.position, &event.id, where_it_is(event));
        line!(text, "{position:>10}  {id:32}  {state:9}  {}", rest(of, event));
    }
    text
}

/// What a row says after what all rows say.
fn rest(of: Of, event: &Listed) -> String {
    let (attempts, reason) = (event.attempts, event.reason.as_deref().map(one_line));
    match of {
        Of::Events => {
            let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
            let (queue, key, kind) = (one_line(&event.queue), one_line(&event.key), one_line(&event.kind));
            format!("{attempts:>8}  {queue:12}  {key:24}  {kind}{reason}")
        }
        Of::Deliveries => {
            let result = result(event).map(one_line).unwrap_or_default();
            let subscription = one_line(subscription_of(&event.queue).unwrap_or_default());
            let key = one_line(business_key(event));
            let elapsed = elapsed_ms(event).map_or(String::new(), |millis| format!("{millis} ms"));
            let reason = reason.unwrap_or_default();
            format!("{attempts:>8}  {result:10}  {subscription:16}  {key:24}  {elapsed:>9}  {reason}")
        }
    }
}

pub(super) fn page(shown: &Shown, troubles: &Troubles, with_data: bool) -> String {
    let event = &shown.listed;
    let mut text = String::new();
    let mut fact = |name: &str, value: &str| line!(text, "{name:14} {}", one_line(value));
    fact("id", &event.id);
    fact("state", where_it_is(event));
    if let Some(trouble) = troubles.of(event) {
        fact("waits", trouble);
    }
    for (name, value) in facts(shown) {
        if let Some(value) = value {
            fact(name, &value);
        }
    }
    for (name, value) in &event.attributes {
        fact(&one_line(name), value);
    }
    for taken in &shown.actions {
        fact(&taken.action, &format!("{} (was {}): {}", date(taken.at), taken.state.as_str(), taken.reason));
    }
    if with_data {
        line!(text, "\n{}", String::from_utf8_lossy(&shown.data));
    }
    text
}

fn facts(shown: &Shown) -> Vec<(&'static str, Option<String>)> {
    let event = &shown.listed;
    let some = |value: &str| Some(value.to_owned());
    let times = |times: u32| (times > 0).then(|| times.to_string());
    let subscription = subscription_of(&event.queue);
    let (created, route) = match subscription {
        None => ("created", "route"),
        Some(_) => ("first seen", "subscription"),
    };
    vec![
        ("result", result(event).and_then(some)),
        ("reason", event.reason.as_deref().and_then(some)),
        ("position", Some(event.position.to_string())),
        ("queue", some(&event.queue)),
        ("topic", some(&event.topic)),
        ("key", some(&event.key)),
        ("on failure", some(on_failure(event))),
        ("attempts", Some(event.attempts.to_string())),
        ("deferrals", times(event.deferrals)),
        ("deaths", times(event.deaths)),
        ("in hand", event.in_hand.map(|epoch| format!("under epoch {epoch}"))),
        (created, Some(date(event.created_at))),
        ("changed", Some(date(event.changed_at))),
        ("elapsed", elapsed_ms(event).filter(|_| subscription.is_some()).map(|millis| format!("{millis} ms"))),
        ("due", event.due_at.map(date)),
        (route, some(&event.route)),
        ("entry", some(&shown.entry)),
        ("type", some(&event.kind)),
        ("source", some(&shown.source)),
        ("content type", some(&shown.content_type)),
        ("traceparent", shown.traceparent.as_deref().and_then(some)),
        ("bytes", Some(shown.data.len().to_string())),
    ]
}

pub(super) fn acted(order: &Order, acted: &Acted) -> String {
    let mut text = String::new();
    let would = if order.mode == Mode::DryRun { "would " } else { "" };
    for event in &acted.changed {
        line!(
            text,
            "{would}{} {} (was {}, key {})",
            order.action.as_str(),
            event.id,
            event.state.as_str(),
            one_line(&event.key)
        );
    }
    for event in &acted.left {
        line!(text, "left alone {} ({})", event.id, where_it_is(event));
    }
    line!(text, "{would}{}: {}, left alone: {}", order.action.as_str(), acted.changed.len(), acted.left.len());
    text
}

pub(super) fn json_list(events: &[Listed], troubles: &Troubles) -> Value {
    events.iter().map(|event| json_event(event, troubles)).collect()
}

pub(super) fn json_page(shown: &Shown, troubles: &Troubles, with_data: bool) -> Value {
    let mut page = json_event(&shown.listed, troubles);
    let actions: Vec<Value> = shown.actions.iter().map(|taken| {
        json!({ "action": taken.action, "state": taken.state, "reason": taken.reason, "at_ms": taken.at.0 })
    }).collect();
    page["entry"] = json!(shown.entry);
    page["source"] = json!(shown.source);
    page["content_type"] = json!(shown.content_type);
    page["traceparent"] = json!(shown.traceparent);
    page["attributes"] = json!(shown.listed.attributes);
    page["bytes"] = json!(shown.data.len());
    page["actions"] = Value::Array(actions);
    if with_data {
        match std::str::from_utf8(&shown.data) {
            Ok(data) => page["data"] = json!(data),
            Err(_) => page["data_base64"] = json!(STANDARD.encode(&shown.data)),
        }
    }
    page
}

pub(super) fn json_acted(order: &Order, acted: &Acted) -> Value {
    json!({
        "action": order.action.as_str(),
        "dry_run": order.mode == Mode::DryRun,
        "changed": json_list(&acted.changed, &Troubles::default()),
        "left": json_list(&acted.left, &Troubles::default()),
    })
}

fn json_event(event: &Listed, troubles: &Troubles) -> Value {
    let mut row = json!({
        "position": event.position,
        "id": event.id,
        "queue": event.queue,
        "lane": event.lane,
        "key": event.key,
        "state": event.state,
        "in_hand": event.in_hand.is_some(),
        "attempts": event.attempts,
        "deaths": event.deaths,
        "on_failure": on_failure(event),
        "reason": event.reason,
        "waits": troubles.of(event),
        "created_at_ms": event.created_at.0,
        "changed_at_ms": event.changed_at.0,
        "due_at_ms": event.due_at.map(|at| at.0),
        "route": event.route,
        "topic": event.topic,
        "type": event.kind,
    });
    if let Some(subscription) = subscription_of(&event.queue) {
        row["subscription"] = json!(subscription);
        row["message"] = json!(event.attributes.get(attribute::MESSAGE));
        row["business_key"] = json!(business_key(event));
        row["result"] = json!(result(event));
        row["deferrals"] = json!(event.deferrals);
        row["finished_at_ms"] = json!(event.finished_at().map(|at| at.0));
        row["elapsed_ms"] = json!(elapsed_ms(event));
    }
    row
}

/// What came of a delivery so far.
fn result(event: &Listed) -> Option<&str> {
    let is_deferred = matches!(event.state, State::Retrying | State::Early) && subscription_of(&event.queue).is_some();
    event.result.as_deref().or(is_deferred.then_some(DeliveryResult::Deferred.as_str()))
}

/// What the engine knows a delivery by.
fn business_key(event: &Listed) -> &str {
    event.attributes.get(attribute::KEY).unwrap_or(&event.key)
}

fn elapsed_ms(event: &Listed) -> Option<i64> {
    event.finished_at().map(|at| at.0.saturating_sub(event.created_at.0))
}

fn on_failure(event: &Listed) -> &'static str {
    match event.on_failure {
        OnFailure::Hold => "hold",
        OnFailure::Skip => "skip",
    }
}

fn where_it_is(event: &Listed) -> &'static str {
    if event.in_hand.is_some() { "in flight" } else { event.state.as_str() }
}

/// What others wrote must not paint on a person's screen.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

pub(super) fn date(at: Timestamp) -> String {
    httpdate::fmt_http_date(at.to_system())
}
