//! What operators can see and do, over their listener.

mod access;
mod many;
mod races;
mod settling;
mod switches;
mod work;

use serde_json::{Value, json};

use super::client::{Answer, Call};
use super::gateway::{Gateway, Settings};
use super::upstream::{Step, Upstream, created};
use crate::servers::database::{Database, Kind};

/// As the gateway's `SECRET` is.
pub(super) const TOKEN: &str = "Bearer a secret of at least thirty-two bytes";

pub(super) const ADMIN: Settings<'_> = &[("server.admin_listen", "127.0.0.1:0"), ("server.admin_token", "env:SECRET")];

/// What each payment announces.
const ANNOUNCED: &str = r#"
    [[routes.events]]
    name = "paid"
    type = "com.example.paid"
    topic = "payments"
    data = "both"
"#;

/// A gateway with operators, on a database of its own.
pub(super) async fn start(kind: Kind, upstream: &Upstream, settings: Settings<'_>) -> Gateway {
    on(Database::create(kind).await, upstream, settings).await
}

pub(super) async fn on(database: Database, upstream: &Upstream, settings: Settings<'_>) -> Gateway {
    Gateway::again(database, &upstream.url(), ANNOUNCED, &[ADMIN, settings].concat()).await
}

/// Loses the answer to the first request of each key that begins with "lost".
pub(super) async fn forgetful() -> Upstream {
    let seen = std::sync::Mutex::new(std::collections::HashSet::new());
    Upstream::start(move |number, request| {
        let key = request.field("idempotency-key").unwrap_or_default().to_owned();
        let is_lost = key.starts_with("lost") && seen.lock().unwrap().insert(key);
        if is_lost { vec![Step::Close] } else { created(number) }
    })
    .await
}

pub(super) const RAW: (&str, &str) = (".forward_key", "raw");

pub(super) fn admin(gateway: &Gateway, method: &str, target: &str) -> Call {
    Call::new(gateway.admin(), method, target).field("authorization", TOKEN)
}

pub(super) async fn get(gateway: &Gateway, target: &str) -> Value {
    let answer = admin(gateway, "GET", target).send().await;
    assert_eq!((answer.status, answer.field("cache-control")), (200, Some("no-store")), "{answer:?}");
    answer.json()
}

/// The only entry of a list.
pub(super) async fn only(gateway: &Gateway, target: &str) -> Value {
    let page = get(gateway, target).await;
    let entries = page["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{page}");
    entries[0].clone()
}

fn paid() -> Value {
    let response = json!({ "status": 201, "headers": [["content-type", "application/json"], ["x-by", "hand"]], "body": "{\"payment\":7}" });
    json!({ "outcome": "completed", "response": response, "reason": "seen at the bank", "actor": "ann" })
}

fn not_executed() -> Value {
    json!({ "outcome": "not_executed", "reason": "the bank has nothing", "actor": "bob" })
}

/// The order to settle `entry` as it was seen.
pub(super) fn settle(gateway: &Gateway, entry: &Value, word: &Value) -> Call {
    let target = format!("/entries/{}/settle", entry["id"].as_str().unwrap());
    let seen = format!("\"{}\"", entry["version"].as_str().unwrap());
    admin(gateway, "POST", &target).field("if-match", seen).body(word.to_string())
}

/// Loses the answer to a request of `key`, and returns its entry as operators see it.
pub(super) async fn lose(gateway: &Gateway, key: &str) -> Value {
    let lost = gateway.pay(key).send().await;
    assert_eq!(lost.status, 502, "{lost:?}");
    only(gateway, &format!("/entries?key={key}")).await
}

#[track_caller]
fn is_by_hand(answer: &Answer) {
    assert_eq!(answer.told(), (201, "{\"payment\":7}", Some("true")));
    assert_eq!((answer.field("x-by"), answer.field("content-type")), (Some("hand"), Some("application/json")));
}
