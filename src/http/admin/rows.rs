//! Events and deliveries as JSON: rows of the work table, as operators are shown them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::shapes::Data;
use super::trouble::Troubles;
use crate::outbox::delivery::{attribute, subscription_of};
use crate::outbox::desk::{Listed, Shown, State, Taken};
use crate::outbox::event::OnFailure;
use crate::outbox::result::DeliveryResult;

/// A row in a list.
pub(super) fn row(event: &Listed, troubles: &Troubles) -> Value {
    let mut row = json!({
        "position": event.position,
        "id": event.id,
        "queue": event.queue,
        "lane": event.lane,
        "key": event.key,
        "state": event.state,
        "in_hand": event.in_hand.is_some(),
        "attempts": event.attempts,
        "deferrals": event.deferrals,
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
        row["business_key"] = json!(event.attributes.get(attribute::KEY).unwrap_or(&event.key));
        row["result"] = json!(result(event));
        row["finished_at_ms"] = json!(event.finished_at().map(|at| at.0));
        row["elapsed_ms"] = json!(event.finished_at().map(|at| at.0.saturating_sub(event.created_at.0)));
    }
    row
}

/// Rows in a list.
pub(super) fn rows(events: &[Listed], troubles: &Troubles) -> Value {
    events.iter().map(|event| row(event, troubles)).collect()
}

/// Everything about one.
pub(super) fn page(shown: &Shown, troubles: &Troubles, data: Data) -> Value {
    let event = &shown.listed;
    let mut page = row(event, troubles);
    page["epoch"] = json!(event.in_hand);
    page["entry"] = json!(shown.entry);
    page["source"] = json!(shown.source);
    page["content_type"] = json!(shown.content_type);
    page["traceparent"] = json!(shown.traceparent);
    page["attributes"] = json!(event.attributes);
    page["bytes"] = json!(shown.data.len());
    page["actions"] = shown.actions.iter().map(action).collect();
    if data == Data::Shown {
        match std::str::from_utf8(&shown.data) {
            Ok(data) => page["data"] = json!(data),
            Err(_) => page["data_base64"] = json!(STANDARD.encode(&shown.data)),
        }
    }
    page
}

fn action(taken: &Taken) -> Value {
    json!({
        "action": taken.action,
        "state": taken.state,
        "reason": taken.reason,
        "actor": taken.by.as_ref().map(|by| &by.name),
        "authority": taken.by.as_ref().map(|by| &by.authority),
        "at_ms": taken.at.0,
    })
}

/// What came of a delivery so far.
fn result(event: &Listed) -> Option<&str> {
    let is_deferred = matches!(event.state, State::Retrying | State::Early);
    event.result.as_deref().or(is_deferred.then_some(DeliveryResult::Deferred.as_str()))
}

fn on_failure(event: &Listed) -> &'static str {
    match event.on_failure {
        OnFailure::Hold => "hold",
        OnFailure::Skip => "skip",
    }
}
