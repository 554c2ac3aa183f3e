//! Unknown entries, settled by the dozen.

use serde_json::{Value, json};

use super::{RAW, admin, forgetful, get, is_by_hand, lose, not_executed, paid, start};
use crate::http::gateway::Gateway;
use crate::servers::database::{Kind, on_each_database};
use crate::servers::outbox::written;

on_each_database!(many_are_settled_by_what_they_have_in_common);

fn order(gateway: &Gateway, word: Value, rest: Value) -> crate::http::client::Call {
    let mut body = word;
    for (name, value) in rest.as_object().unwrap() {
        body[name] = value.clone();
    }
    admin(gateway, "POST", "/entries/settle").body(body.to_string())
}

fn ids(told: &Value) -> Vec<&str> {
    told["settled"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect()
}

async fn many_are_settled_by_what_they_have_in_common(kind: Kind) {
    let upstream = forgetful().await;
    let gateway = start(kind, &upstream, &[RAW]).await;
    let mut lost = Vec::new();
    for number in 0..5 {
        lost.push(lose(&gateway, &format!("lost-{number}")).await);
    }
    assert_eq!(gateway.pay("fine").send().await.status, 201);
    let oldest: Vec<_> = lost[..3].iter().map(|entry| entry["id"].as_str().unwrap()).collect();
    let three = json!({ "filter": { "route": "pay" }, "limit": 3 });
    // Only says which, unless it is told otherwise.
    let told = order(&gateway, paid(), three.clone()).send().await.json();
    assert_eq!((ids(&told), &told["dry_run"]), (oldest.clone(), &json!(true)));
    assert_eq!(get(&gateway, "/entries").await["entries"].as_array().unwrap().len(), 5);

    let mut carried = three;
    carried["dry_run"] = json!(false);
    let told = order(&gateway, paid(), carried).send().await.json();
    assert_eq!((ids(&told), &told["left"], &told["dry_run"]), (oldest, &json!([]), &json!(false)));
    for number in 0..3 {
        is_by_hand(&gateway.pay(&format!("lost-{number}")).send().await);
    }
    gateway.pay("lost-3").send().await.is_problem(409, "outcome-unknown");
    assert_eq!(written(&gateway.database).await.len(), 4, "three by hand, and one that was fine");
    let rest = json!({ "filter": { "route": "pay", "older_than_seconds": 0 }, "dry_run": false });
    assert_eq!(ids(&order(&gateway, not_executed(), rest).send().await.json()).len(), 2);
    assert_eq!(get(&gateway, "/decisions").await["decisions"].as_array().unwrap().len(), 5);
    assert_eq!(gateway.pay("lost-4").send().await.field("idempotent-replayed"), Some("false"));
}

#[tokio::test]
async fn an_order_for_many_says_which_and_how_many() {
    let upstream = forgetful().await;
    let gateway = start(Kind::Sqlite, &upstream, &[RAW]).await;
    lose(&gateway, "lost").await;
    for wrong in [
        json!({ "filter": {}, "dry_run": false }),
        json!({ "dry_run": false }),
        json!({ "filter": { "route": "pay" }, "limit": 0 }),
        json!({ "filter": { "route": "pay" }, "limit": 1001 }),
        json!({ "filter": { "rout": "pay" } }),
        json!({ "filter": { "route": "pay" }, "dry-run": false }),
    ] {
        order(&gateway, not_executed(), wrong.clone()).send().await.is_problem(400, "order-invalid");
    }
    let none = json!({ "filter": { "route": "other" }, "dry_run": false });
    assert!(ids(&order(&gateway, not_executed(), none).send().await.json()).is_empty());
    for target in
        ["/entries?limit=0", "/entries?limit=2000", "/entries?stat=unknown", "/entries?after=x", "/entries?state=lost"]
    {
        admin(&gateway, "GET", target).send().await.is_problem(400, "order-invalid");
    }
    gateway.pay("lost").send().await.is_problem(409, "outcome-unknown");
}
