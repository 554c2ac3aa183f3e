//! How `oncegate events` and `oncegate deliveries` print, and what all commands have in common there.

use oncegate::clock::Timestamp;
use serde_json::Value;

macro_rules! line {
    ($text:ident, $($format:tt)*) => {{
        $text.push_str(&format!($($format)*));
        $text.push('\n');
    }};
}
pub(super) use line;

/// A page of a list: of events, or of deliveries.
pub(super) fn list(many: &str, page: &Value) -> String {
    let mut text = String::new();
    let rows = list_of(&page[many]);
    let header = match many {
        "deliveries" => {
            format!("{:>8}  {:10}  {:16}  {:24}  {:>9}  reason", "attempts", "result", "subscription", "key", "elapsed")
        }
        _ => format!("{:>8}  {:12}  {:24}  type, reason", "attempts", "queue", "key"),
    };
    match rows.is_empty() {
        true => line!(text, "no {many}"),
        false => line!(text, "{:>10}  {:32}  {:9}  {header}", "position", "id", "state"),
    }
    for row in rows {
        let (position, id, state) = (word(&row["position"]), word(&row["id"]), where_it_is(row));
        line!(text, "{position:>10}  {id:32}  {state:9}  {}", rest(row));
    }
    for (queue, trouble) in page["troubles"].as_object().into_iter().flatten() {
        line!(text, "{}: {}", one_line(queue), word(trouble));
    }
    text
}

/// What a row says after what all rows say.
fn rest(row: &Value) -> String {
    let (attempts, reason) = (word(&row["attempts"]), word(&row["reason"]));
    if row["subscription"].is_null() {
        let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
        let (queue, key, kind) = (word(&row["queue"]), word(&row["key"]), word(&row["type"]));
        return format!("{attempts:>8}  {queue:12}  {key:24}  {kind}{reason}");
    }
    let (result, subscription, key) = (word(&row["result"]), word(&row["subscription"]), word(&row["business_key"]));
    let elapsed = millis(&row["elapsed_ms"]);
    format!("{attempts:>8}  {result:10}  {subscription:16}  {key:24}  {elapsed:>9}  {reason}")
}

/// Everything about one.
pub(super) fn page(shown: &Value) -> String {
    let mut text = String::new();
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            line!(text, "{name:14} {value}");
        }
    };
    for (name, value) in facts(shown) {
        fact(name, value);
    }
    for (name, value) in shown["attributes"].as_object().into_iter().flatten() {
        fact(&one_line(name), word(value));
    }
    for taken in list_of(&shown["actions"]) {
        let (at, state, reason) = (at(&taken["at_ms"]), word(&taken["state"]), word(&taken["reason"]));
        let by = match taken["actor"].as_str() {
            Some(actor) => format!(", by {} ({})", one_line(actor), word(&taken["authority"])),
            None => String::new(),
        };
        fact(&word(&taken["action"]), format!("{at} (was {state}){by}: {reason}"));
    }
    if let Some(data) = shown["data"].as_str().or(shown["data_base64"].as_str()) {
        line!(text, "\n{data}");
    }
    text
}

fn facts(shown: &Value) -> Vec<(&'static str, String)> {
    let plain = |name: &str| word(&shown[name]);
    let times = |name: &str| if shown[name] == 0 { String::new() } else { word(&shown[name]) };
    let (created, route) = match shown["subscription"].is_null() {
        true => ("created", "route"),
        false => ("first seen", "subscription"),
    };
    vec![
        ("id", plain("id")),
        ("state", where_it_is(shown)),
        ("waits", plain("waits")),
        ("result", plain("result")),
        ("reason", plain("reason")),
        ("position", plain("position")),
        ("queue", plain("queue")),
        ("topic", plain("topic")),
        ("key", plain("key")),
        ("on failure", plain("on_failure")),
        ("attempts", plain("attempts")),
        ("deferrals", times("deferrals")),
        ("deaths", times("deaths")),
        ("in hand", shown["epoch"].as_i64().map_or(String::new(), |epoch| format!("under epoch {epoch}"))),
        (created, at(&shown["created_at_ms"])),
        ("changed", at(&shown["changed_at_ms"])),
        ("elapsed", millis(&shown["elapsed_ms"])),
        ("due", at(&shown["due_at_ms"])),
        (route, plain("route")),
        ("entry", plain("entry")),
        ("type", plain("type")),
        ("source", plain("source")),
        ("content type", plain("content_type")),
        ("traceparent", plain("traceparent")),
        ("bytes", plain("bytes")),
    ]
}

/// What an order did, or would do.
pub(super) fn acted(told: &Value) -> String {
    let mut text = String::new();
    let (would, action) = (if told["dry_run"] == true { "would " } else { "" }, word(&told["action"]));
    let (changed, left) = (list_of(&told["changed"]), list_of(&told["left"]));
    for row in changed {
        line!(text, "{would}{action} {} (was {}, key {})", word(&row["id"]), word(&row["state"]), word(&row["key"]));
    }
    for row in left {
        line!(text, "left alone {} ({})", word(&row["id"]), where_it_is(row));
    }
    line!(text, "{would}{action}: {}, left alone: {}", changed.len(), left.len());
    text
}

fn where_it_is(row: &Value) -> String {
    if row["in_hand"] == true { "in flight".to_owned() } else { word(&row["state"]) }
}

fn millis(value: &Value) -> String {
    value.as_i64().map_or(String::new(), |millis| format!("{millis} ms"))
}

/// The elements of a list; none of what is none.
pub(super) fn list_of(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A value for a person.
pub(super) fn word(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => one_line(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// What others wrote must not paint on a person's screen.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// A time for a person.
pub(super) fn at(millis: &Value) -> String {
    millis.as_i64().map_or(String::new(), |millis| date(Timestamp(millis)))
}

pub(super) fn date(at: Timestamp) -> String {
    httpdate::fmt_http_date(at.to_system())
}
