//! What people switch at one gateway acts at all, and opens no door.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::{ADMIN, ANNOUNCED, RAW, TOKEN, admin, forgetful, get, on, start};
use crate::http::client::{Answer, Call};
use crate::http::eventually;
use crate::http::gateway::Gateway;
use crate::http::issuer::{RULES, Signer, bearer};
use crate::http::tokens::expiring;
use crate::http::upstream::{Upstream, answer};
use crate::servers::database::{Database, Kind, on_each_database};

on_each_database!(
    a_kill_switch_turned_at_one_gateway_acts_at_the_other,
    a_subscription_that_is_paused_at_one_gateway_delivers_at_none,
);

fn order(gateway: &Gateway, target: &str, body: &Value) -> Call {
    admin(gateway, "POST", target).body(body.to_string())
}

async fn switch(gateway: &Gateway, mode: &str) -> Value {
    let told = order(gateway, "/routes/pay/mode", &json!({ "mode": mode, "reason": "because", "actor": "ann" }));
    let told = told.send().await;
    assert_eq!(told.status, 200, "{told:?}");
    told.json()
}

/// A request with a key that nobody has used before.
async fn pay_anew(gateway: &Gateway) -> Answer {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    gateway.pay(&format!("fresh-{}", NEXT.fetch_add(1, Ordering::Relaxed))).send().await
}

async fn a_kill_switch_turned_at_one_gateway_acts_at_the_other(kind: Kind) {
    let upstream = Upstream::counting().await;
    let one = start(kind, &upstream, &[]).await;
    let other = on(one.database.shared(), &upstream, &[]).await;
    let paid = one.pay("known").send().await;
    assert_eq!(paid.status, 201);
    let told = switch(&one, "replay_only").await;
    assert_eq!(
        (&told["mode"], &told["configured_mode"], &told["was"]),
        (&json!("replay_only"), &json!("enforce"), &json!("configured"))
    );
    pay_anew(&one).await.is_problem(503, "route-paused");
    eventually(|| pay_anew(&other), |answer| answer.status == 503).await.is_problem(503, "route-paused");
    one.pay("known").send().await.is_replay_of(&paid);
    other.pay("known").send().await.is_replay_of(&paid);
    let listed = get(&other, "/routes").await;
    let route = &listed["routes"][0];
    assert_eq!((&route["match"], &route["mode"]), (&json!("* /pay"), &json!("replay_only")));
    let switched = &route["switched"];
    assert_eq!([&switched["actor"], &switched["reason"], &switched["authority"]], ["ann", "because", "token"]);

    // A gateway that starts reads it before it serves.
    let database = other.stop().await;
    let again = on(database, &upstream, &[]).await;
    pay_anew(&again).await.is_problem(503, "route-paused");
    let executed = upstream.count();
    let told = switch(&again, "configured").await;
    assert_eq!(
        [&told["mode"], &told["was"], &told["switched"]],
        [&json!("enforce"), &json!("replay_only"), &Value::Null]
    );
    let turned = get(&again, "/switches?kind=route&limit=1").await;
    let latest = &turned["switches"][0];
    assert_eq!([&latest["name"], &latest["was"], &latest["to"]], ["pay", "replay_only", "configured"]);
    let before = get(&again, &format!("/switches?before={}", turned["next"])).await;
    assert_eq!((before["switches"].as_array().unwrap().len(), &before["next"]), (1, &Value::Null));
    assert_eq!(get(&again, "/switches?kind=subscription").await["switches"], json!([]));
    admin(&again, "GET", "/switches?kind=queue").send().await.is_problem(400, "order-invalid");
    assert_eq!(pay_anew(&again).await.status, 201);
    eventually(|| pay_anew(&one), |answer| answer.status == 201).await;
    assert_eq!(upstream.count(), executed + 2);
}

#[tokio::test]
async fn what_was_known_last_goes_on_while_switches_can_not_be_read() {
    let upstream = Upstream::counting().await;
    let gateway = start(Kind::Sqlite, &upstream, &[]).await;
    switch(&gateway, "replay_only").await;
    let mut stranger = gateway.database.stranger().await;
    stranger.run("ALTER TABLE switches RENAME TO elsewhere").await;
    admin(&gateway, "GET", "/routes").send().await.is_problem(503, "unavailable");
    order(&gateway, "/routes/pay/mode", &json!({ "mode": "enforce", "reason": "x", "actor": "y" }))
        .send()
        .await
        .is_problem(503, "unavailable");
    pay_anew(&gateway).await.is_problem(503, "route-paused");
    let impatient = [ADMIN, &[("store.start_timeout", "1s")]].concat();
    let config = crate::http::gateway::configure(&gateway.database, &upstream.url(), "", &impatient);
    assert!(oncegate::server::Server::start(&config).await.is_err(), "one that can't read them does not serve");
    stranger.run("ALTER TABLE elsewhere RENAME TO switches").await;
    stranger.run("DELETE FROM switches").await;
    eventually(|| pay_anew(&gateway), |answer| answer.status == 201).await;
}

#[tokio::test]
async fn a_switch_to_observe_lets_nobody_in_and_lends_nothing() {
    let upstream = Upstream::counting().await;
    let by_secret = [("auth.jwt.algorithms", "[\"HS256\"]"), ("auth.jwt.secret", "[\"env:SECRET\"]")];
    let settings = [ADMIN, RULES, &by_secret[..], &[RAW]].concat();
    let gateway = Gateway::again(Database::create(Kind::Sqlite).await, &upstream.url(), ANNOUNCED, &settings).await;
    let issuer = Signer::hs256("a secret of at least thirty-two bytes");
    let pay = |key: &str| issuer.by(gateway.pay(key), "shop");
    let events = async || crate::servers::outbox::written(&gateway.database).await.len();
    assert_eq!(switch(&gateway, "observe").await["mode"], "observe");
    gateway.pay("k").send().await.is_problem(401, "unauthenticated");
    bearer(gateway.pay("k"), "garbage").send().await.is_problem(401, "unauthenticated");
    assert_eq!(upstream.count(), 0);
    for payment in 1..=2 {
        let told = pay("k").send().await;
        assert_eq!((told.status, told.field("idempotent-replayed"), upstream.count()), (201, None, payment));
    }
    let observed = |page: &Value| page["entries"].as_array().is_some_and(|entries| !entries.is_empty());
    eventually(|| get(&gateway, "/entries?state=completed"), observed).await;
    assert_eq!(events().await, 0, "observing announces nothing");
    switch(&gateway, "enforce").await;
    let first = pay("k").send().await;
    assert_eq!((first.field("idempotent-replayed"), upstream.count()), (Some("false"), 3), "no entry is lent");
    pay("k").send().await.is_replay_of(&first);
    switch(&gateway, "observe").await;
    assert_eq!((pay("k").send().await.status, upstream.count()), (201, 4));
    switch(&gateway, "configured").await;
    pay("k").send().await.is_replay_of(&first);
    assert_eq!((upstream.count(), events().await), (4, 1));
}

/// Something else may have been executed since, and nobody has noted it.
#[tokio::test]
async fn while_a_route_observes_nobody_is_told_what_was_executed() {
    let upstream = Upstream::counting().await;
    let gateway = start(Kind::Sqlite, &upstream, &[("server.status_endpoint", "anyone")]).await;
    assert_eq!(gateway.pay("k").send().await.status, 201);
    let ask = || gateway.call("GET", "/idempotency/requests/k?namespace=pay").send();
    assert_eq!(ask().await.json()["state"], "completed");
    switch(&gateway, "observe").await;
    ask().await.is_problem(503, "unavailable");
    switch(&gateway, "replay_only").await;
    assert_eq!(ask().await.json()["state"], "completed");
}

/// The other way round: what is configured to observe alters nothing, until somebody has it enforce.
#[tokio::test]
async fn a_route_that_observes_can_be_switched_to_enforce() {
    let upstream = Upstream::counting().await;
    let gateway = start(Kind::Sqlite, &upstream, &[(".mode", "observe")]).await;
    for count in 1..=2 {
        assert_eq!((gateway.pay("k").send().await.status, upstream.count()), (201, count));
    }
    switch(&gateway, "enforce").await;
    let first = gateway.pay("k").send().await;
    assert_eq!((first.field("idempotent-replayed"), upstream.count()), (Some("false"), 3));
    gateway.pay("k").send().await.is_replay_of(&first);
    gateway.pay("k").body("{\"amount\":2}").send().await.is_problem(422, "key-reused");
    assert_eq!(crate::servers::outbox::written(&gateway.database).await.len(), 1, "its events are announced");
}

#[tokio::test]
async fn a_switch_to_observe_lets_nothing_through_without_a_token_where_one_is_required() {
    let upstream = Upstream::counting().await;
    let tokens = [("secrets.token", "[\"env:TOKEN_ONE\"]"), (".token", "required"), RAW];
    let gateway = start(Kind::Sqlite, &upstream, &tokens).await;
    let token = async |amount: u32| {
        let wanted = json!({ "route": "pay", "amount": amount }).to_string();
        let issued = gateway.call("POST", "/idempotency/tokens").body(wanted).send().await;
        issued.json()["token"].as_str().unwrap().to_owned()
    };
    let (good, of_another) = (token(1).await, token(2).await);
    switch(&gateway, "observe").await;
    for key in ["plain", "ogt_garbage", &*of_another] {
        gateway.pay(key).send().await.is_problem(403, "token-invalid");
    }
    gateway.post("/pay").send().await.is_problem(403, "token-invalid");
    gateway.pay(&expiring(-1)).send().await.is_problem(403, "token-expired");
    assert_eq!(upstream.count(), 0);
    assert_eq!((gateway.pay(&good).send().await.status, upstream.count()), (201, 1));
}

#[tokio::test]
async fn orders_that_name_nothing_or_say_too_little_switch_nothing() {
    let upstream = forgetful().await;
    let plain = "[[routes]]\nname = 'plain'\nmatch = 'GET /plain'\nupstream = 'up'\n";
    let gateway = Gateway::again(Database::create(Kind::Sqlite).await, &upstream.url(), plain, ADMIN).await;
    let good = json!({ "mode": "replay_only", "reason": "x", "actor": "y" });
    for wrong in [
        json!({ "mode": "off", "reason": "x", "actor": "y" }),
        json!({ "mode": "replay_only", "actor": "y" }),
        json!({ "mode": "replay_only", "reason": " ", "actor": "y" }),
        json!({ "mode": "replay_only", "reason": "x" }),
        json!({ "mode": "replay_only", "reason": "x", "actor": "y", "for": "1h" }),
        json!({ "reason": "x", "actor": "y" }),
    ] {
        order(&gateway, "/routes/pay/mode", &wrong).send().await.is_problem(400, "order-invalid");
    }
    order(&gateway, "/routes/plain/mode", &good).send().await.is_problem(400, "order-invalid");
    order(&gateway, "/routes/other/mode", &good).send().await.is_problem(404, "not-configured");
    let why = json!({ "reason": "x", "actor": "y" });
    order(&gateway, "/subscriptions/points/pause", &why).send().await.is_problem(404, "not-configured");
    let refused = order(&gateway, "/routes/pay/mode", &good).replace("authorization", "Bearer wrong").send().await;
    refused.is_problem(401, "unauthenticated");
    let listed = get(&gateway, "/routes").await;
    let modes: Vec<_> = listed["routes"].as_array().unwrap().iter().map(|route| &route["mode"]).collect();
    assert_eq!(modes, [&json!("enforce"), &Value::Null]);
    assert_eq!(gateway.database.stranger().await.number("SELECT COUNT(*) FROM switch_actions").await, 0);
}

/// A gateway whose payments are announced to a subscription of its own.
async fn with_subscription(database: Database, upstream: &Upstream, handler: &Upstream) -> Gateway {
    let subscribed = format!(
        "{ANNOUNCED}\n[[subscriptions]]\nname = 'points'\ntopic = 'payments'\nkey = 'id'\ndeliver = '{}/points'\n",
        handler.url()
    );
    Gateway::again(database, &upstream.url(), &subscribed, ADMIN).await
}

async fn subscription(gateway: &Gateway) -> Value {
    get(gateway, "/subscriptions").await["subscriptions"][0].clone()
}

async fn turn(gateway: &Gateway, what: &str) -> Value {
    let target = format!("/subscriptions/points/{what}");
    let told = order(gateway, &target, &json!({ "reason": "because", "actor": "ann" })).send().await;
    assert_eq!(told.status, 200, "{told:?}");
    told.json()
}

async fn a_subscription_that_is_paused_at_one_gateway_delivers_at_none(kind: Kind) {
    let (upstream, handler) = (Upstream::counting().await, Upstream::counting().await);
    let one = with_subscription(Database::create(kind).await, &upstream, &handler).await;
    let other = with_subscription(one.database.shared(), &upstream, &handler).await;
    assert_eq!(one.pay("a").send().await.status, 201);
    handler.reached(1).await;
    assert_eq!(eventually(|| subscription(&one), |one| one["state"] == "delivering").await["switched"], Value::Null);
    let told = turn(&one, "pause").await;
    assert_eq!(
        (&told["state"], &told["was"], &told["switched"]["actor"]),
        (&json!("paused"), &json!("configured"), &json!("ann"))
    );
    // Nobody has a lane any more, here and there.
    let relays = async || {
        let sql = "SELECT COUNT(*) FROM relays WHERE queue = 'sub:points'";
        one.database.stranger().await.number(sql).await
    };
    eventually(&relays, |count| *count == 0).await;
    assert_eq!(subscription(&other).await["state"], "paused");
    assert_eq!(other.pay("b").send().await.status, 201);
    let received = |page: &Value| page["deliveries"].as_array().is_some_and(|rows| rows.len() == 1);
    let kept = eventually(|| get(&one, "/deliveries?subscription=points"), received).await;
    assert_eq!((&kept["deliveries"][0]["attempts"], handler.count()), (&json!(0), 1), "it is kept, and nobody tried");

    // It outlasts a restart.
    let database = other.stop().await;
    let again = with_subscription(database, &upstream, &handler).await;
    assert_eq!(subscription(&again).await["state"], "paused");
    assert_eq!((relays().await, handler.count()), (0, 1));
    assert_eq!(turn(&again, "resume").await["was"], "paused");
    handler.reached(2).await;
    eventually(|| subscription(&one), |one| one["state"] == "delivering").await;
    assert_eq!(one.database.stranger().await.number("SELECT COUNT(*) FROM switch_actions").await, 2);
}

#[tokio::test]
async fn what_is_wrong_with_a_handler_is_told_with_its_subscription() {
    let upstream = Upstream::counting().await;
    let handler = Upstream::always(answer("404 Not Found", &[], "")).await;
    let gateway = with_subscription(Database::create(Kind::Sqlite).await, &upstream, &handler).await;
    assert_eq!(gateway.pay("a").send().await.status, 201);
    let told = eventually(|| subscription(&gateway), |one| one["state"] == "troubled").await;
    assert!(
        told["trouble"]["reason"].as_str().unwrap().contains("404") && told["trouble"]["since_ms"].is_i64(),
        "{told}"
    );
    assert_eq!(turn(&gateway, "pause").await["state"], "paused", "a person's word counts more");
    Call::new(gateway.admin(), "GET", "/subscriptions").send().await.is_problem(401, "unauthenticated");
    let asked = Call::new(gateway.admin(), "GET", "/subscriptions").field("authorization", TOKEN);
    assert_eq!(asked.send().await.status, 200);
}
