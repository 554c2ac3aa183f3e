//! Events and deliveries, over the operators' listener.

use serde_json::{Value, json};

use super::{ADMIN, RAW, admin, forgetful, get, start};
use crate::http::client::Call;
use crate::http::gateway::Gateway;
use crate::http::issuer::{RULES, Signer, bearer};
use crate::servers::database::{Database, Kind, on_each_database};

on_each_database!(
    rows_are_found_by_what_they_have_in_common,
    rows_are_retried_and_discarded_on_record,
    what_a_filter_finds_is_only_said_unless_it_is_to_be_done,
);

const READY: i64 = 1;
const PARKED: i64 = 4;
const SENT: i64 = 5;
const DISCARDED: i64 = 6;

/// A row of the work table, in a queue that nobody relays here.
struct Row<'a> {
    id: u8,
    queue: &'a str,
    topic: &'a str,
    route: &'a str,
    key: &'a str,
    state: i64,
    result: Option<&'a str>,
}

const EVENT: Row<'_> =
    Row { id: 0, queue: "far", topic: "payments", route: "pay", key: "order", state: PARKED, result: None };

const DELIVERY: Row<'_> = Row { queue: "sub:points", route: "points", result: Some("rejected"), ..EVENT };

async fn put(database: &Database, row: Row<'_>) {
    let Row { id, queue, topic, route, key, state, result } = row;
    let (id, entry, data) = (database.literal(&[id; 16]), database.literal(&[9; 32]), database.literal(b"{}"));
    let attributes = format!(r#"'{{"oncegate-key":"{key}"}}'"#);
    let result = result.map_or("NULL".to_owned(), |word| format!("'{word}'"));
    let sql = format!(
        "INSERT INTO events (id, queue, lane, event_key, state, holds, attempts, created_at, changed_at, reason, result, \
         entry, route, topic, type, source, content_type, attributes, data) VALUES ({id}, '{queue}', 0, '{key}', {state}, \
         1, 7, 1000, 3500, 'too large', {result}, {entry}, '{route}', '{topic}', 'com.example.paid', '/payments', \
         'application/json', {attributes}, {data})"
    );
    database.stranger().await.run(&sql).await;
}

async fn state(gateway: &Gateway, id: u8) -> i64 {
    let id = gateway.database.literal(&[id; 16]);
    gateway.database.stranger().await.number(&format!("SELECT state FROM events WHERE id = {id}")).await
}

fn hex(id: u8) -> String {
    format!("{id:02x}").repeat(16)
}

/// The numbers of the rows that were told.
fn ids(rows: &Value) -> Vec<u8> {
    let number = |row: &Value| u8::from_str_radix(&row["id"].as_str().unwrap()[..2], 16).unwrap();
    rows.as_array().unwrap().iter().map(number).collect()
}

async fn listed(gateway: &Gateway, target: &str) -> Vec<u8> {
    let name = if target.starts_with("/events") { "events" } else { "deliveries" };
    ids(&get(gateway, target).await[name])
}

fn order(gateway: &Gateway, target: &str, body: &Value) -> Call {
    admin(gateway, "POST", target).body(body.to_string())
}

async fn done(gateway: &Gateway, target: &str, body: Value) -> Value {
    let answer = order(gateway, target, &body).send().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn rows_are_found_by_what_they_have_in_common(kind: Kind) {
    let upstream = forgetful().await;
    let gateway = start(kind, &upstream, &[]).await;
    let database = &gateway.database;
    put(database, Row { id: 1, ..EVENT }).await;
    put(database, Row { id: 2, topic: "refunds", ..EVENT }).await;
    put(database, Row { id: 3, route: "refund", ..EVENT }).await;
    put(database, Row { id: 4, queue: "further", state: SENT, ..EVENT }).await;
    put(database, Row { id: 5, key: "other", state: READY, ..EVENT }).await;
    put(database, Row { id: 6, ..DELIVERY }).await;
    put(database, Row { id: 7, topic: "refunds", state: SENT, result: Some("applied"), ..DELIVERY }).await;
    put(database, Row { id: 8, queue: "sub:stock", key: "other", ..DELIVERY }).await;
    for (target, found) in [
        ("/events", &[5, 3, 2, 1][..]),
        ("/events?state=parked", &[3, 2, 1]),
        ("/events?state=sent,ready", &[5, 4]),
        ("/events?state=sent&state=ready", &[5, 4]),
        ("/events?topic=refunds", &[2]),
        ("/events?route=refund", &[3]),
        ("/events?queue=further&state=sent", &[4]),
        ("/events?key=other", &[5]),
        ("/events?key=other&topic=refunds", &[]),
        ("/deliveries", &[8, 6]),
        ("/deliveries?subscription=points", &[6]),
        ("/deliveries?result=applied", &[7]),
        ("/deliveries?topic=refunds&state=sent", &[7]),
        ("/deliveries?key=other", &[8]),
        ("/deliveries?subscription=points&key=order", &[6]),
    ] {
        assert_eq!(listed(&gateway, target).await, found, "{target}");
    }
    let first = get(&gateway, "/events?limit=3").await;
    assert_eq!(
        (ids(&first["events"]), &first["troubles"]["far"]),
        (vec![5, 3, 2], &json!("no process publishes it now"))
    );
    let rest = get(&gateway, &format!("/events?limit=3&after={}", first["next"].as_str().unwrap())).await;
    assert_eq!((ids(&rest["events"]), &rest["next"]), (vec![1], &Value::Null));

    let shown = get(&gateway, &format!("/events/{}?data=true", hex(1))).await;
    assert_eq!((&shown["data"], &shown["reason"], &shown["attempts"]), (&json!("{}"), &json!("too large"), &json!(7)));
    assert_eq!(get(&gateway, &format!("/events/{}", hex(1))).await["data"], Value::Null);
    let shown = get(&gateway, &format!("/deliveries/{}", hex(6))).await;
    assert_eq!(
        (&shown["subscription"], &shown["business_key"], &shown["result"], &shown["elapsed_ms"]),
        (&json!("points"), &json!("order"), &json!("rejected"), &json!(2500))
    );
    for absent in [format!("/events/{}", hex(99)), "/events/x".to_owned(), format!("/deliveries/{}", hex(99))] {
        admin(&gateway, "GET", &absent).send().await.is_problem(404, "no-entry");
    }
}

async fn rows_are_retried_and_discarded_on_record(kind: Kind) {
    let upstream = forgetful().await;
    let gateway = start(kind, &upstream, &[]).await;
    for (id, state) in [(1, PARKED), (2, PARKED), (3, SENT)] {
        put(&gateway.database, Row { id, state, ..EVENT }).await;
    }
    put(&gateway.database, Row { id: 4, ..DELIVERY }).await;
    let word = |ids: &[u8]| json!({ "ids": ids.iter().map(|id| hex(*id)).collect::<Vec<_>>(), "reason": "it was", "actor": "ann" });
    let mut dry = word(&[1]);
    dry["dry_run"] = json!(true);
    let told = done(&gateway, "/events/retry", dry).await;
    assert_eq!((ids(&told["changed"]), &told["dry_run"], state(&gateway, 1).await), (vec![1], &json!(true), PARKED));

    let told = done(&gateway, "/events/discard", word(&[2, 3, 99])).await;
    assert_eq!((ids(&told["changed"]), ids(&told["left"])), (vec![2], vec![3]));
    assert_eq!((&told["missing"], &told["changed"][0]["state"]), (&json!([hex(99)]), &json!("parked")));
    assert_eq!((state(&gateway, 2).await, state(&gateway, 3).await), (DISCARDED, SENT));
    assert_eq!(ids(&done(&gateway, "/events/retry", word(&[1])).await["changed"]), [1]);
    assert_eq!(ids(&done(&gateway, "/deliveries/retry", word(&[4])).await["changed"]), [4]);
    assert_eq!((state(&gateway, 1).await, state(&gateway, 4).await), (READY, READY));
    assert_eq!(ids(&done(&gateway, "/deliveries/discard", word(&[4])).await["changed"]), [4]);

    let shown = get(&gateway, &format!("/deliveries/{}", hex(4))).await;
    let actions = shown["actions"].as_array().unwrap();
    let told: Vec<_> = actions.iter().map(|taken| [&taken["action"], &taken["state"], &taken["actor"]]).collect();
    assert_eq!(told, [["retry", "parked", "ann"], ["discard", "ready", "ann"]]);
    assert_eq!([&actions[0]["reason"], &actions[0]["authority"]], ["it was", "token"]);
    let shown = get(&gateway, &format!("/events/{}", hex(1))).await;
    assert_eq!(shown["actions"].as_array().unwrap().len(), 1, "who only asked what would be done did nothing");
}

async fn what_a_filter_finds_is_only_said_unless_it_is_to_be_done(kind: Kind) {
    let upstream = forgetful().await;
    let gateway = start(kind, &upstream, &[]).await;
    for id in 1..=4 {
        put(&gateway.database, Row { id, ..EVENT }).await;
    }
    put(&gateway.database, Row { id: 5, state: SENT, ..EVENT }).await;
    put(&gateway.database, Row { id: 6, ..DELIVERY }).await;
    put(&gateway.database, Row { id: 7, state: READY, ..EVENT }).await;
    let word = json!({ "filter": {}, "dry_run": false, "reason": "x", "actor": "y" });
    assert_eq!(ids(&done(&gateway, "/deliveries/discard", word).await["changed"]), [6], "nobody else's");
    put(&gateway.database, Row { id: 8, ..DELIVERY }).await;
    let word = json!({ "filter": { "topic": "payments" }, "reason": "x", "actor": "y" });
    let told = done(&gateway, "/events/discard", word).await;
    assert_eq!((ids(&told["changed"]), &told["dry_run"]), (vec![1, 2, 3, 4], &json!(true)), "parked ones are meant");
    let word = json!({ "filter": { "topic": "payments" }, "limit": 3, "reason": "it was", "actor": "ann" });
    let told = done(&gateway, "/events/retry", word.clone()).await;
    assert_eq!((ids(&told["changed"]), &told["dry_run"]), (vec![1, 2, 3], &json!(true)));
    assert_eq!(listed(&gateway, "/events?state=parked").await.len(), 4);
    let mut carried = word;
    carried["dry_run"] = json!(false);
    let told = done(&gateway, "/events/retry", carried.clone()).await;
    assert_eq!((ids(&told["changed"]), &told["dry_run"]), (vec![1, 2, 3], &json!(false)));
    assert_eq!(listed(&gateway, "/events?state=parked").await, [4]);
    carried["filter"] = json!({ "state": ["sent", "ready"], "key": "order" });
    carried["limit"] = json!(10);
    let told = done(&gateway, "/events/discard", carried).await;
    assert_eq!((ids(&told["changed"]), ids(&told["left"])), (vec![1, 2, 3, 7], vec![5]), "what is sent is sent");
    let word = json!({ "filter": { "subscription": "points", "result": "rejected" }, "dry_run": false, "reason": "x", "actor": "y" });
    assert_eq!(ids(&done(&gateway, "/deliveries/retry", word).await["changed"]), [8]);
    assert_eq!(state(&gateway, 5).await, SENT);
}

#[tokio::test]
async fn orders_that_say_too_little_or_too_much_change_nothing() {
    let upstream = forgetful().await;
    let gateway = start(Kind::Sqlite, &upstream, &[]).await;
    put(&gateway.database, Row { id: 1, ..EVENT }).await;
    let id = hex(1);
    for wrong in [
        json!({ "reason": "x", "actor": "y" }),
        json!({ "ids": [], "reason": "x", "actor": "y" }),
        json!({ "ids": ["x"], "reason": "x", "actor": "y" }),
        json!({ "ids": [id], "reason": " ", "actor": "y" }),
        json!({ "ids": [id], "actor": "y" }),
        json!({ "ids": [id], "reason": "x" }),
        json!({ "ids": [id], "reason": "x", "actor": "y", "limit": 1 }),
        json!({ "ids": [id], "filter": {}, "reason": "x", "actor": "y" }),
        json!({ "filter": { "topi": "payments" }, "dry_run": false, "reason": "x", "actor": "y" }),
        json!({ "filter": { "state": "lost" }, "dry_run": false, "reason": "x", "actor": "y" }),
        json!({ "filter": { "subscription": "points" }, "dry_run": false, "reason": "x", "actor": "y" }),
        json!({ "filter": {}, "limit": 0, "dry_run": false, "reason": "x", "actor": "y" }),
        json!({ "filter": {}, "limit": 1001, "dry_run": false, "reason": "x", "actor": "y" }),
        json!({ "ids": [id], "dry-run": false, "reason": "x", "actor": "y" }),
    ] {
        order(&gateway, "/events/retry", &wrong).send().await.is_problem(400, "order-invalid");
    }
    let many: Vec<_> = (0..1001).map(|number| format!("{number:032x}")).collect();
    let many = json!({ "ids": many, "reason": "x", "actor": "y" });
    order(&gateway, "/events/retry", &many).send().await.is_problem(400, "order-invalid");
    for target in [
        "/events?limit=0",
        "/events?limit=1001",
        "/events?limit=x",
        "/events?after=x",
        "/events?state=lost",
        "/events?topic=a&topic=b",
        "/events?result=applied",
        "/deliveries?result=deferred",
        "/deliveries?queue=sub:points",
    ] {
        admin(&gateway, "GET", target).send().await.is_problem(400, "order-invalid");
    }
    let target = format!("/events/{id}?dat=true");
    admin(&gateway, "GET", &target).send().await.is_problem(400, "order-invalid");
    assert_eq!(state(&gateway, 1).await, PARKED);
}

#[tokio::test]
async fn whose_access_token_it_is_is_on_record_and_nobody_else() {
    let upstream = forgetful().await;
    let by_secret = [("auth.jwt.algorithms", "[\"HS256\"]"), ("auth.jwt.secret", "[\"env:SECRET\"]")];
    let settings = [&ADMIN[..1], RULES, &by_secret[..], &[RAW]].concat();
    let gateway = Gateway::start(&upstream, &settings).await;
    put(&gateway.database, Row { id: 1, ..EVENT }).await;
    let issuer = Signer::hs256("a secret of at least thirty-two bytes");
    let token = issuer.token("ann", json!({ "scope": "oncegate:admin" }));
    let call = |method: &str, target: &str| bearer(Call::new(gateway.admin(), method, target), &token);
    let word = json!({ "ids": [hex(1)], "reason": "x", "actor": "bob" });
    call("POST", "/events/retry").body(word.to_string()).send().await.is_problem(400, "order-invalid");
    let word = json!({ "ids": [hex(1)], "reason": "x" });
    assert_eq!(call("POST", "/events/retry").body(word.to_string()).send().await.status, 200);
    let shown = call("GET", &format!("/events/{}", hex(1))).send().await.json();
    assert_eq!([&shown["actions"][0]["actor"], &shown["actions"][0]["authority"]], ["ann", "access token"]);
}
