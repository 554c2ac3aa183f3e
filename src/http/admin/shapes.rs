//! What operators are shown, as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::engine::desk::{Decision, Listed, Shown, Stage};
use crate::entry::{Answer, StoredResponse};
use crate::outbox::desk::Listed as Event;

/// Whether what only the parties of a payment need to know is shown as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Headers and bodies too.
    Shown,
    /// Statuses and sizes only.
    Hidden,
}

/// An entry in a list, at `now`.
#[must_use]
pub fn entry(entry: &Listed, now: Timestamp) -> Value {
    let due_at = entry.due_at.map(|due| due.0);
    let mut row = json!({
        "id": entry.id.to_hex(),
        "version": entry.version().to_string(),
        "state": entry.stage,
        "namespace": entry.namespace,
        "scope": entry.scope,
        "key": entry.key,
        "route": entry.route,
        "attempt": entry.attempt,
        "created_at_ms": entry.created_at.0,
        "started_at_ms": entry.started_at.0,
        "changed_at_ms": entry.changed_at.0,
        "age_ms": millis(now, entry.changed_at),
        "status": entry.status,
        "late_answer": entry.contradicted,
    });
    match entry.stage {
        Stage::InProgress => {}
        Stage::Unknown => {
            row["lookups"] = json!(entry.lookups);
            row["next_lookup_at_ms"] = json!(due_at);
        }
        Stage::Completed => row["expires_at_ms"] = json!(due_at),
        Stage::Tombstone => row["forgotten_at_ms"] = json!(due_at),
    }
    row
}

fn millis(now: Timestamp, earlier: Timestamp) -> u128 {
    now.since(earlier).as_millis()
}

/// Everything about an entry, but what others have on record of it.
#[must_use]
pub fn story(shown: &Shown, now: Timestamp, data: Data) -> Value {
    let mut page = entry(&shown.listed, now);
    if let Some(instance) = &shown.instance {
        page["instance"] = json!({ "name": instance.name, "alive": instance.alive });
    }
    page["answer"] = match &shown.answer {
        Some(Answer::Response(kept)) => response(kept, data),
        Some(Answer::StatusOnly(status)) => json!({ "status": status, "kept": false }),
        None => Value::Null,
    };
    if let Some(evidence) = &shown.evidence {
        page["late_answer_was"] = response(evidence, data);
    }
    page
}

/// A stored response.
#[must_use]
pub fn response(response: &StoredResponse, data: Data) -> Value {
    let mut shown = json!({ "status": response.status.as_u16(), "kept": true, "bytes": response.body.len() });
    if data == Data::Shown {
        let headers = response.headers.iter();
        let headers = headers.map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]));
        shown["headers"] = headers.collect();
        match std::str::from_utf8(&response.body) {
            Ok(text) => shown["body"] = json!(text),
            Err(_) => shown["body_base64"] = json!(STANDARD.encode(&response.body)),
        }
    }
    shown
}

/// An event, or a delivery, in an entry's story.
#[must_use]
pub fn event(event: &Event) -> Value {
    json!({
        "id": event.id,
        "state": event.state,
        "queue": event.queue,
        "topic": event.topic,
        "type": event.kind,
        "attempts": event.attempts,
        "reason": event.reason,
        "result": event.result,
        "created_at_ms": event.created_at.0,
        "changed_at_ms": event.changed_at.0,
    })
}

/// A decision.
#[must_use]
pub fn decision(decision: &Decision, data: Data) -> Value {
    json!({
        "number": decision.number,
        "entry": decision.entry.to_hex(),
        "namespace": decision.namespace,
        "scope": decision.scope,
        "key": decision.key,
        "route": decision.route,
        "attempt": decision.attempt,
        "unknown_since_ms": decision.unknown_since.0,
        "outcome": decision.outcome,
        "status": decision.status,
        "actor": decision.actor.name,
        "authority": decision.actor.authority,
        "reason": decision.reason,
        "at_ms": decision.at.0,
        "late_answer_was": decision.evidence.as_ref().map(|evidence| response(evidence, data)),
    })
}
