//! How `oncegate entries` prints.

use serde_json::Value;

use super::desk_text::{at, line, list_of as list, word};

pub(super) fn table(page: &Value) -> String {
    let mut text = String::new();
    let entries = list(&page["entries"]);
    if entries.is_empty() {
        line!(text, "no entries");
        return text;
    }
    line!(text, "{:64}  {:11}  {:>9}  {:20}  {:20}  key", "id", "state", "since", "route", "scope");
    for entry in entries {
        let late = if entry["late_answer"] == true { "  (a late answer came)" } else { "" };
        let (state, age) = (word(&entry["state"]), since(&entry["age_ms"]));
        let (route, scope, key) = (word(&entry["route"]), word(&entry["scope"]), word(&entry["key"]));
        line!(text, "{:64}  {state:11}  {age:>9}  {route:20}  {scope:20}  {key}{late}", word(&entry["id"]));
    }
    if let Some(next) = page["next"].as_str() {
        line!(text, "more: --after {next}");
    }
    text
}

pub(super) fn story(story: &Value) -> String {
    let mut text = String::new();
    for (name, member) in [
        ("id", "id"),
        ("state", "state"),
        ("version", "version"),
        ("namespace", "namespace"),
        ("scope", "scope"),
        ("key", "key"),
        ("route", "route"),
        ("attempt", "attempt"),
        ("lookups", "lookups"),
    ] {
        fact(&mut text, name, word(&story[member]));
    }
    for (name, member) in [
        ("first claimed", "created_at_ms"),
        ("last claimed", "started_at_ms"),
        ("changed", "changed_at_ms"),
        ("next lookup", "next_lookup_at_ms"),
        ("answer until", "expires_at_ms"),
        ("forgotten at", "forgotten_at_ms"),
    ] {
        fact(&mut text, name, at(&story[member]));
    }
    if let Some(alive) = story["instance"]["alive"].as_bool() {
        let alive = if alive { "alive" } else { "gone" };
        fact(&mut text, "executed by", format!("{} ({alive})", word(&story["instance"]["name"])));
    }
    answer(&mut text, "answer", &story["answer"]);
    answer(&mut text, "late answer", &story["late_answer_was"]);
    for event in list(&story["events"]) {
        fact(&mut text, "event", format!("{} {} {}", word(&event["name"]), word(&event["id"]), word(&event["state"])));
    }
    for delivery in list(&story["deliveries"]) {
        fact(&mut text, "delivery", format!("{} {}", word(&delivery["id"]), word(&delivery["state"])));
    }
    for decision in list(&story["decisions"]) {
        fact(&mut text, "decision", decided(decision));
        answer(&mut text, "late answer", &decision["late_answer_was"]);
    }
    text
}

pub(super) fn decisions(page: &Value) -> String {
    let mut text = String::new();
    let decisions = list(&page["decisions"]);
    if decisions.is_empty() {
        line!(text, "no decisions");
    }
    for decision in decisions {
        let (number, route, key) = (word(&decision["number"]), word(&decision["route"]), word(&decision["key"]));
        let late = if decision["late_answer_was"].is_null() { "" } else { " (a late answer came)" };
        line!(text, "{number:>8}  {}  {route} {key}: {}{late}", word(&decision["entry"]), decided(decision));
    }
    if let Some(next) = page["next"].as_i64() {
        line!(text, "more: --before {next}");
    }
    text
}

pub(super) fn settled(settled: &Value) -> String {
    let mut text = String::new();
    line!(text, "{}: {}", word(&settled["id"]), word(&settled["outcome"]));
    for event in list(&settled["events"]) {
        line!(text, "event {}", word(event));
    }
    text
}

pub(super) fn many_settled(told: &Value) -> String {
    let mut text = String::new();
    let would = if told["dry_run"] == true { "would be " } else { "" };
    let (settled, left) = (list(&told["settled"]), list(&told["left"]));
    for one in settled {
        let (was, outcome) = (&one["was"], word(&told["outcome"]));
        let (route, key, age) = (word(&was["route"]), word(&was["key"]), since(&was["age_ms"]));
        line!(text, "{would}{outcome} {} ({route} {key}, unknown for {age})", word(&one["id"]));
    }
    for one in left {
        line!(text, "left alone {} ({})", word(&one["was"]["id"]), word(&one["why"]));
    }
    line!(text, "{would}{}: {}, left alone: {}", word(&told["outcome"]), settled.len(), left.len());
    if told["dry_run"] == true {
        line!(text, "nothing was done: that takes --yes");
    }
    text
}

fn decided(decision: &Value) -> String {
    let (outcome, status) = (word(&decision["outcome"]), word(&decision["status"]));
    let (actor, authority) = (word(&decision["actor"]), word(&decision["authority"]));
    let (at, reason) = (at(&decision["at_ms"]), word(&decision["reason"]));
    let status = if status.is_empty() { status } else { format!(" with {status}") };
    format!("{outcome}{status}, {at}, by {actor} ({authority}): {reason}")
}

fn answer(text: &mut String, name: &str, answer: &Value) {
    let Some(status) = answer["status"].as_u64() else { return };
    let kept = match answer["bytes"].as_u64() {
        Some(bytes) => format!("{bytes} bytes"),
        None => "not kept".to_owned(),
    };
    fact(text, name, format!("{status}, {kept}"));
    for header in list(&answer["headers"]) {
        fact(text, "", format!("{}: {}", word(&header[0]), word(&header[1])));
    }
    for body in ["body", "body_base64"] {
        fact(text, body, word(&answer[body]));
    }
}

fn fact(text: &mut String, name: &str, value: String) {
    if !value.is_empty() {
        line!(text, "{name:14} {value}");
    }
}

/// An age in its largest unit.
fn since(millis: &Value) -> String {
    let seconds = millis.as_u64().unwrap_or(0) / 1000;
    let units = [("d", 86_400), ("h", 3_600), ("m", 60)];
    let unit = units.into_iter().find(|(_, length)| seconds >= *length);
    unit.map_or_else(|| format!("{seconds}s"), |(unit, length)| format!("{}{unit}", seconds / length))
}
