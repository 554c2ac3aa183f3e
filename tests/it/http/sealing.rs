//! Encryption at rest, of a whole gateway: what lies in the tables and in Redis, and what becomes of it when keys come
//! and go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use oncegate::broker::embedded::Messages as _;
use oncegate::engine::ledger::Ledger as _;
use oncegate::entry::{EntryId, Identity, Key, Namespace, Nonce, Scope};
use oncegate::outbox::desk::{Action, Desk as _, Filter, Mode, Order, State, Which};
use oncegate::sealer::Sealer;
use oncegate::storage::{Store, StoreOptions};

use super::client::Call;
use super::gateway::{Gateway, KEY_A, KEY_B};
use super::upstream::{Step, Upstream, answer};
use super::{eventually, in_time};
use crate::servers::database::{Database, Kind, on_each_database};
use crate::servers::outbox::texts;
use crate::servers::redis;

on_each_database!(
    nothing_of_a_body_or_a_header_lies_in_the_clear,
    keys_rotate_and_what_was_stored_before_stays_readable,
    an_answer_whose_key_is_gone_is_told_503_and_is_there_when_it_is_back,
    a_changed_or_moved_answer_counts_as_not_kept,
    an_unknown_one_whose_key_is_gone_waits_for_it_and_others_do_not_wait,
    an_event_whose_key_is_gone_is_parked_and_goes_out_when_it_is_back,
);

/// In every body and header, and in no key.
const MARKER: &str = "marker-4111111111111111";

const ORDER: &str = r#"
    [[routes]]
    name = "order"
    match = "POST /order"
    upstream = "up"
    idempotency = { key = ["header"] }

    [[routes.events]]
    name = "placed"
    type = "com.example.order.placed"
    topic = "orders"
    data = "both"
"#;

/// With what [`ORDER`] announces delivered to a handler, and kept where that refuses it.
fn subscribed(upstream: &Upstream) -> String {
    format!(
        "{ORDER}\n[[subscriptions]]\nname = 'points'\ntopic = 'orders'\nkey = 'body:/request/order_no'\n\
         deliver = '{}/points'\ndead_letter = 'orders.dead'\n",
        upstream.url()
    )
}

async fn start(database: Database, upstream: &Upstream, keys: &str) -> Gateway {
    let settings = [("secrets.encryption", keys), ("server.status_endpoint", "anyone")];
    Gateway::again(database, &upstream.url(), ORDER, &settings).await
}

fn order(gateway: &Gateway, key: &str) -> Call {
    let body = format!(r#"{{"order_no":"{key}","card":"{MARKER}"}}"#);
    gateway.post("/order").field("idempotency-key", key).body(body)
}

fn paid() -> Vec<Step> {
    let fields = [("content-type", "application/json"), ("x-card", MARKER)];
    answer("201 Created", &fields, format!(r#"{{"card":"{MARKER}"}}"#))
}

fn id(key: &str) -> EntryId {
    let namespace = Namespace::new("order").unwrap();
    Identity { namespace, scope: Scope::Global, key: Key::from_business(key).unwrap() }.id()
}

/// A store as a gateway with these secrets has it.
fn store(database: &Database, secrets: &[&str]) -> Store {
    let sealer = Arc::new(Sealer::new(secrets).unwrap());
    Store::open(&StoreOptions { sealer, ..database.options() }).unwrap()
}

async fn count(database: &Database, sql: &str) -> i64 {
    database.stranger().await.number(&format!("SELECT COUNT(*) FROM {sql}")).await
}

/// Everything that stores anything of a body: completed and unknown entries, evidence, events, deliveries, dead letters,
/// the embedded queue, marks.
async fn lives(kind: Kind, keys: &str, secrets: &[&str]) -> (BTreeSet<String>, bool) {
    let upstream = Upstream::start(|number, request| match &*request.target {
        "/points" => answer("422 Unprocessable", &[], MARKER),
        _ if number == 1 => vec![Step::Close],
        _ => paid(),
    })
    .await;
    let (redis, prefix) = (redis::single(), format!("sealing{:032x}", rand::random::<u128>()));
    let settings = [("secrets.encryption", keys), ("marks.url", &redis.url), ("marks.prefix", &prefix)];
    let database = Database::create(kind).await;
    let gateway = Gateway::again(database, &upstream.url(), &subscribed(&upstream), &settings).await;
    order(&gateway, "lost").send().await.is_problem(502, "upstream-failed");
    let first = order(&gateway, "paid").send().await;
    assert_eq!((first.status, first.field("x-card")), (201, Some(MARKER)));
    order(&gateway, "paid").send().await.is_replay_of(&first);
    let dead = "messages WHERE topic = 'orders.dead'";
    eventually(|| count(&gateway.database, dead), |dead| *dead == 1).await;
    let delivered = upstream.all().into_iter().find(|request| request.target == "/points").unwrap();
    assert!(String::from_utf8_lossy(&delivered.body).contains(MARKER), "what is delivered is opened");

    let of_gateway = store(&gateway.database, secrets);
    of_gateway.keep_evidence(id("paid"), Nonce::random(), Bytes::from_static(MARKER.as_bytes())).await.unwrap();
    let letters = of_gateway.tail("default", Some("orders.dead"), 0, 10).await.unwrap();
    assert!(String::from_utf8_lossy(&letters[0].message.data).contains(MARKER));
    assert!(letters[0].message.attributes.contains("oncegatereason"), "{:?}", letters[0].message.attributes);
    let parked = Filter { of: oncegate::outbox::desk::Of::Deliveries, ..Filter::default() };
    let parked = of_gateway.list(&parked, None, 10).await.unwrap();
    assert_eq!(parked[0].attributes["oncegate-key"].as_ref(), "paid", "people see it opened");

    let values = redis.keys().into_iter().filter(|key| key.starts_with(&prefix));
    let values: Vec<_> = values.map(|key| redis.cli(&["--no-raw", "GET", &key])).collect();
    assert!(!values.is_empty());
    (gateway.database.tables_with(MARKER).await, values.iter().any(|value| value.contains(MARKER)))
}

async fn nothing_of_a_body_or_a_header_lies_in_the_clear(kind: Kind) {
    // Without keys it does, so that this looks where it lies.
    let (tables, is_in_redis) = lives(kind, "[]", &[]).await;
    let expected = ["entries", "events", "messages"].map(ToOwned::to_owned);
    assert_eq!((tables, is_in_redis), (BTreeSet::from(expected), true));
    assert_eq!(lives(kind, r#"["env:KEY_A"]"#, &[KEY_A]).await, (BTreeSet::new(), false));
}

async fn keys_rotate_and_what_was_stored_before_stays_readable(kind: Kind) {
    let upstream = Upstream::counting().await;
    let mut database = Database::create(kind).await;
    let mut firsts = Vec::new();
    // In the clear; under A; under B; in the clear again, with both to open.
    for (key, keys) in [("clear", "[]"), ("a", r#"["env:KEY_A"]"#), ("b", r#"["env:KEY_B", "env:KEY_A"]"#)] {
        let gateway = start(database, &upstream, keys).await;
        firsts.push((key, order(&gateway, key).send().await));
        for (key, first) in &firsts {
            order(&gateway, key).send().await.is_replay_of(first);
        }
        database = in_time(gateway.stop()).await;
    }
    assert_eq!(upstream.count(), 3);
    let missing = async |secrets: &[&str]| store(&database, secrets).missing_keys().await.unwrap().len();
    assert_eq!((missing(&[KEY_A, KEY_B]).await, missing(&[KEY_B]).await, missing(&[]).await), (0, 1, 2));
}

async fn an_answer_whose_key_is_gone_is_told_503_and_is_there_when_it_is_back(kind: Kind) {
    let upstream = Upstream::counting().await;
    let gateway = start(Database::create(kind).await, &upstream, r#"["env:KEY_A"]"#).await;
    let first = order(&gateway, "k").send().await;
    let mut database = in_time(gateway.stop()).await;
    for keys in ["[]", r#"["env:KEY_B"]"#] {
        let gateway = start(database, &upstream, keys).await;
        let told = order(&gateway, "k").send().await;
        told.is_problem(503, "unavailable");
        assert!(told.field("retry-after").is_some());
        assert!(told.json()["detail"].as_str().unwrap().contains("the key under which the first answer was sealed"));
        gateway.call("GET", "/idempotency/requests/k?namespace=order").send().await.is_problem(503, "unavailable");
        assert_eq!(order(&gateway, &format!("new-{}", keys.len())).send().await.status, 201, "others go on");
        database = in_time(gateway.stop()).await;
    }
    assert_eq!(upstream.count(), 3);
    let gateway = start(database, &upstream, r#"["env:KEY_B", "env:KEY_A"]"#).await;
    order(&gateway, "k").send().await.is_replay_of(&first);
}

async fn a_changed_or_moved_answer_counts_as_not_kept(kind: Kind) {
    let upstream = Upstream::counting().await;
    let gateway = start(Database::create(kind).await, &upstream, r#"["env:KEY_A"]"#).await;
    for key in ["mine", "moved", "changed"] {
        assert_eq!(order(&gateway, key).send().await.status, 201);
    }
    let database = in_time(gateway.stop()).await;
    let hex = match kind {
        Kind::Postgres => "encode(response, 'hex')",
        Kind::Sqlite | Kind::MySql => "HEX(response)",
    };
    let mut stranger = database.stranger().await;
    let sealed = texts(&mut stranger, &format!("SELECT {hex} FROM entries WHERE idempotency_key = 'mine'")).await;
    let byte = |at| u8::from_str_radix(&sealed[0][at..at + 2], 16).unwrap();
    let mut sealed: Vec<u8> = (0..sealed[0].len()).step_by(2).map(byte).collect();
    for (key, bytes) in [
        ("moved", sealed.clone()),
        ("changed", {
            *sealed.last_mut().unwrap() ^= 1;
            sealed
        }),
    ] {
        let response = database.literal(&bytes);
        let update = format!("UPDATE entries SET response = {response} WHERE idempotency_key = '{key}'");
        assert_eq!(stranger.run(&update).await, 1);
    }
    let gateway = start(database, &upstream, r#"["env:KEY_A"]"#).await;
    for key in ["moved", "changed"] {
        let told = order(&gateway, key).send().await;
        told.is_problem(409, "response-not-kept");
        assert_eq!(told.json()["original_status"], 201);
    }
    assert_eq!(order(&gateway, "mine").send().await.field("idempotent-replayed"), Some("true"));
    assert_eq!(upstream.count(), 3);
}

async fn an_unknown_one_whose_key_is_gone_waits_for_it_and_others_do_not_wait(kind: Kind) {
    let is_back = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&is_back);
    let upstream = Upstream::start(move |_, request| match &*request.method {
        "GET" if answers.load(Ordering::Relaxed) => paid(),
        "GET" => answer("500 Oops", &[], ""),
        _ => vec![Step::Close],
    })
    .await;
    let gateway = async |database, keys| {
        let settings = [
            ("secrets.encryption", keys),
            ("routes.order.idempotency.on_unknown", "lookup"),
            ("routes.order.idempotency.lookup.request", "GET /by/{key}"),
            ("routes.order.idempotency.lookup.first", "50ms"),
            ("routes.order.idempotency.lookup.max", "100ms"),
            // One at a time: who stays at the head of the queue would keep the others from their turn.
            ("engine.sweep_limit", "1"),
        ];
        Gateway::again(database, &upstream.url(), ORDER, &settings).await
    };
    let before = gateway(Database::create(kind).await, r#"["env:KEY_A"]"#).await;
    order(&before, "old").send().await.is_problem(502, "upstream-failed");
    let database = in_time(before.stop()).await;
    is_back.store(true, Ordering::Relaxed);
    let without = gateway(database, r#"["env:KEY_B"]"#).await;
    order(&without, "new").send().await.is_problem(502, "upstream-failed");
    eventually(|| count(&without.database, "entries WHERE state = 3"), |completed| *completed == 1).await;
    assert_eq!(count(&without.database, "entries WHERE state = 2 AND idempotency_key = 'old'").await, 1);
    assert_eq!(count(&without.database, "events").await, 1);
    let database = in_time(without.stop()).await;
    database.stranger().await.run("UPDATE entries SET due_at = 0 WHERE state = 2").await;
    let with = gateway(database, r#"["env:KEY_B", "env:KEY_A"]"#).await;
    eventually(|| count(&with.database, "entries WHERE state = 3"), |completed| *completed == 2).await;
    let announced = store(&with.database, &[KEY_A, KEY_B]);
    let announced =
        eventually(|| async { announced.tail("default", None, 0, 10).await.unwrap() }, |all| all.len() == 2).await;
    let data = String::from_utf8_lossy(&announced[1].message.data).into_owned();
    assert!(data.contains(r#""order_no":"old""#), "it announces what its request said: {data}");
}

async fn an_event_whose_key_is_gone_is_parked_and_goes_out_when_it_is_back(kind: Kind) {
    let upstream = Upstream::start(|_, _| paid()).await;
    let gateway = async |database, keys, queue| {
        let settings = [("secrets.encryption", keys), ("queue.url", queue)];
        Gateway::again(database, &upstream.url(), ORDER, &settings).await
    };
    // Nobody listens there.
    let before = gateway(Database::create(kind).await, r#"["env:KEY_A"]"#, "redis://127.0.0.1:1").await;
    assert_eq!(order(&before, "k").send().await.status, 201);
    let database = in_time(before.stop()).await;
    let without = gateway(database, r#"["env:KEY_B"]"#, "embedded:").await;
    let desk = store(&without.database, &[KEY_B]);
    let parked = Filter { states: vec![State::Parked], ..Filter::default() };
    let parked = eventually(|| async { desk.list(&parked, None, 10).await.unwrap() }, |all| !all.is_empty()).await;
    let reason = parked[0].reason.clone().unwrap();
    assert!(reason.contains("is sealed under key") && reason.contains("secrets.encryption"), "{reason}");
    assert_eq!(order(&without, "other").send().await.status, 201);
    let of_others = || async { desk.tail("default", None, 0, 10).await.unwrap() };
    eventually(of_others, |all| all.len() == 1).await;
    let database = in_time(without.stop()).await;

    let with = gateway(database, r#"["env:KEY_B", "env:KEY_A"]"#, "embedded:").await;
    let desk = store(&with.database, &[KEY_B, KEY_A]);
    let to = Which::All { filter: Filter { states: vec![State::Parked], ..Filter::default() }, limit: 10 };
    let retry = Order { action: Action::Retry, to, reason: "the key is back".into(), mode: Mode::Carry };
    assert_eq!(desk.act(&retry).await.unwrap().changed.len(), 1);
    let all = eventually(|| async { desk.tail("default", None, 0, 10).await.unwrap() }, |all| all.len() == 2).await;
    assert!(String::from_utf8_lossy(&all[1].message.data).contains(MARKER));
}

/// The secret that makes fingerprints rotates as well: no retry becomes another request by it.
#[tokio::test]
async fn a_rotated_fingerprint_secret_makes_no_mismatch() {
    let upstream = Upstream::counting().await;
    let before = start(Database::create(Kind::Sqlite).await, &upstream, "[]").await;
    let first = order(&before, "k").send().await;
    let database = in_time(before.stop()).await;
    let rotated = [("secrets.fingerprint", r#"["env:KEY_B", "env:SECRET"]"#)];
    let gateway = Gateway::again(database, &upstream.url(), ORDER, &rotated).await;
    order(&gateway, "k").send().await.is_replay_of(&first);
    order(&gateway, "k").body("{}").send().await.is_problem(422, "key-reused");
    let newer = order(&gateway, "newer").send().await;
    let database = in_time(gateway.stop()).await;
    let without = [("secrets.fingerprint", r#"["env:KEY_B"]"#)];
    let gateway = Gateway::again(database, &upstream.url(), ORDER, &without).await;
    order(&gateway, "newer").send().await.is_replay_of(&newer);
    order(&gateway, "k").send().await.is_problem(503, "unavailable");
    assert_eq!(upstream.count(), 2);
}
