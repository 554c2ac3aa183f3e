//! Idempotency tokens, from the page that fetches one to the payment that is made once with it.

use oncegate::auth::Principal;
use oncegate::auth::token::{Owner, Permission, Tokens, Wanted};
use oncegate::clock::{self, Timestamp};
use oncegate::entry::Scope;
use serde_json::{Value, json};

use super::client::{Answer, Call};
use super::eventually;
use super::gateway::{Gateway, Settings};
use super::issuer::{RULES, Signer, bearer};
use super::upstream::{Gate, Step, Upstream, after, created};

const SECRET: &str = "a secret of at least thirty-two bytes";
const ACCEPTED: Settings<'_> = &[("secrets.token", "[\"env:TOKEN_ONE\"]"), (".token", "accepted")];
const BY_ORDER: (&str, &str) = (".key", "[\"body:/order_no\", \"header\"]");
const REFUND: &str = r#"
    [[routes]]
    name = "refund"
    match = "POST /refund"
    upstream = "up"
    idempotency = { key = ["header"], token = "accepted" }
    [[routes]]
    name = "plain"
    match = "POST /plain"
    upstream = "up"
    idempotency = { key = ["header"] }
    [[routes]]
    name = "rest"
    match = "* /rest/*"
    upstream = "up"
"#;

async fn gateway(upstream: &Upstream, more: Settings<'_>) -> Gateway {
    Gateway::with_routes(upstream, REFUND, &[ACCEPTED, more].concat()).await
}

fn wants(gateway: &Gateway, wanted: &Value) -> Call {
    gateway.call("POST", "/idempotency/tokens").body(wanted.to_string())
}

async fn token(call: Call) -> String {
    let issued = call.send().await;
    assert_eq!((issued.status, issued.field("cache-control")), (201, Some("no-store")), "{issued:?}");
    assert!(issued.json()["expires_at"].as_str().unwrap().ends_with('Z'));
    issued.json()["token"].as_str().unwrap().to_owned()
}

async fn token_for(gateway: &Gateway, wanted: Value) -> String {
    token(wants(gateway, &wanted)).await
}

#[track_caller]
fn is_invalid(answer: &Answer, because: &str) {
    answer.is_problem(403, "token-invalid");
    let detail = answer.json()["detail"].to_string();
    assert!(detail.contains(because), "{detail}");
}

#[tokio::test]
async fn a_page_fetches_a_token_pays_and_may_send_it_again() {
    let upstream = Upstream::counting().await;
    let gateway = gateway(&upstream, &[]).await;
    let one = token_for(&gateway, json!({ "route": "pay", "amount": 1 })).await;
    assert!(one.starts_with("ogt_") && one.len() < 512);
    let first = gateway.pay(&one).send().await;
    assert_eq!(first.told(), (201, "{\"payment\":1}", Some("false")));
    for spelled in [one.clone(), format!("\"{one}\"")] {
        gateway.pay(&spelled).send().await.is_replay_of(&first);
    }
    // Another click is another token, and another payment.
    let two = token_for(&gateway, json!({ "route": "pay", "amount": 1 })).await;
    assert_eq!(gateway.pay(&two).send().await.told().1, "{\"payment\":2}");
    let key = first.field("idempotency-key").unwrap();
    assert!(key.starts_with("\"t-") && key.len() == 36, "{key}");
    let state = gateway.call("GET", &format!("/idempotency/requests/{one}?namespace=pay")).send().await;
    assert_eq!(state.status, 401, "nobody is told apart");
    assert_eq!(upstream.count(), 2);
}

/// While the first is on its way, and after it was lost.
#[tokio::test]
async fn the_same_token_is_safe_to_send_again_whatever_came_back() {
    let gate = Gate::new();
    let waited_for = gate.clone();
    let upstream = Upstream::start(move |number, _| match number {
        1 => after(&waited_for, created(1)),
        _ => vec![Step::Close],
    })
    .await;
    let gateway = gateway(&upstream, &[]).await;
    let [slow, lost] = [(); 2].map(|()| token_for(&gateway, json!({ "route": "pay", "amount": 1 })));
    let (slow, lost) = (slow.await, lost.await);
    let first = tokio::spawn(gateway.pay(&slow).send());
    upstream.reached(1).await;
    gateway.pay(&slow).send().await.is_problem(409, "processing");
    gate.cancel();
    let first = first.await.unwrap();
    gateway.pay(&slow).send().await.is_replay_of(&first);
    gateway.pay(&lost).send().await.is_problem(502, "upstream-failed");
    gateway.pay(&lost).send().await.is_problem(409, "outcome-unknown");
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn two_tabs_with_two_tokens_pay_one_order_once() {
    let upstream = Upstream::counting().await;
    for sources in [BY_ORDER, (".key", "[\"header\", \"body:/order_no\"]")] {
        let before = upstream.count();
        let gateway = gateway(&upstream, &[sources]).await;
        let order = json!({ "route": "pay", "order_no": "A-1", "amount": 100 });
        let (one, two) = (token_for(&gateway, order.clone()).await, token_for(&gateway, order).await);
        let body = r#"{"order_no":"A-1","amount":1e2}"#;
        let first = gateway.pay(&one).body(body).send().await;
        assert_eq!((first.status, first.field("idempotency-key")), (201, Some("\"A-1\"")));
        gateway.pay(&two).body(body).send().await.is_replay_of(&first);
        assert_eq!(upstream.count(), before + 1);
        for other in [
            r#"{"order_no":"A-1","amount":100.0000000000000001}"#,
            r#"{"order_no":"A-1","amount":"100"}"#,
            r#"{"order_no":"A-2","amount":100}"#,
            r#"{"order_no":"A-1"}"#,
            "",
        ] {
            is_invalid(&gateway.pay(&one).body(other).send().await, "does not say what the token was made for");
        }
        let twice = gateway.pay(&one).body(r#"{"order_no":"A-1","amount":100,"amount":1}"#).send().await;
        twice.is_problem(400, "bad-request");
        assert_eq!(upstream.count(), before + 1);
    }
}

/// A token is no key that an upstream could be shown, however keys are forwarded.
#[tokio::test]
async fn an_upstream_never_sees_a_token() {
    for (forward, format) in [("raw", "bare"), ("raw", "quoted"), ("derived", "bare")] {
        let upstream = Upstream::counting().await;
        let settings = [(".forward_key", forward), (".forward_key_format", format), BY_ORDER];
        let gateway = gateway(&upstream, &settings).await;
        let made = token_for(&gateway, json!({ "route": "pay" })).await;
        let paid = gateway.pay(&made).send().await;
        let seen = upstream.last().field("idempotency-key").unwrap().to_owned();
        match (forward, format) {
            ("raw", "bare") => assert!(seen.starts_with("t-") && seen.len() == 34, "{seen}"),
            ("raw", _) => assert_eq!(Some(&*seen), paid.field("idempotency-key")),
            _ => assert_eq!(seen.len(), 64),
        }
        gateway.pay(&made).body(r#"{"order_no":"B 1"}"#).send().await;
        for request in upstream.all() {
            let all = format!("{:?}", request.fields);
            assert!(!all.contains("ogt_") && !all.contains(&made[4..]), "{all}");
        }
    }
}

#[tokio::test]
async fn what_begins_like_a_token_verifies_or_counts_for_nothing() {
    let upstream = Upstream::counting().await;
    let gateway = gateway(&upstream, &[]).await;
    let made = token_for(&gateway, json!({ "route": "pay", "amount": 1 })).await;
    let (head, signature) = made.rsplit_once('.').unwrap();
    let (header, payload) = head.split_once('.').unwrap();
    let flipped = format!("{}{}", if payload.starts_with('e') { 'f' } else { 'e' }, &payload[1..]);
    for forged in [
        "ogt_".to_owned(),
        "ogt_order-1".to_owned(),
        "\"ogt_order 1\"".to_owned(),
        format!("ogt_{}", "a".repeat(4000)),
        format!("{header}.{flipped}.{signature}"),
        format!("{head}.{}", signature.chars().rev().collect::<String>()),
        format!("{head}."),
    ] {
        is_invalid(&gateway.pay(&forged).send().await, "can't be verified");
        // Also where no route takes any: tomorrow it may.
        is_invalid(&gateway.call("POST", "/plain").field("idempotency-key", &forged).send().await, "takes no tokens");
    }
    gateway.pay(&made).field("idempotency-key", &made).send().await.is_problem(400, "key-invalid");
    is_invalid(&gateway.call("POST", "/plain").field("idempotency-key", &made).send().await, "takes no tokens");
    let refund = || gateway.call("POST", "/refund").body("{\"amount\":1}");
    is_invalid(&refund().field("idempotency-key", &made).send().await, "another route");
    assert_eq!(upstream.count(), 0);
    // What only passes through is not ours to judge: another gateway may be behind this one.
    let passed = gateway.call("POST", "/rest/a").field("idempotency-key", &made).send().await;
    assert_eq!((passed.status, upstream.last().field("idempotency-key")), (201, Some(&*made)));
    // Plain keys still count where tokens are accepted.
    assert_eq!(gateway.pay("og_plain").send().await.status, 201);
}

#[tokio::test]
async fn a_route_that_requires_tokens_takes_nothing_else() {
    let upstream = Upstream::counting().await;
    let gateway = gateway(&upstream, &[(".token", "required"), BY_ORDER]).await;
    let order = r#"{"order_no":"A-1","amount":1}"#;
    for call in [gateway.pay("k"), gateway.pay("k").body(order), gateway.post("/pay").body(order)] {
        is_invalid(&call.send().await, "wants a token");
    }
    let made = token_for(&gateway, json!({ "route": "pay", "order_no": "A-1" })).await;
    assert_eq!(gateway.pay(&made).body(order).send().await.status, 201);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn nobody_uses_anothers_token_and_a_tenants_users_are_others() {
    let upstream = Upstream::counting().await;
    let keys = [
        ("auth.jwt.algorithms", "[\"HS256\"]"),
        ("auth.jwt.secret", "[\"env:SECRET\"]"),
        ("auth.jwt.tenant_claim", "org"),
        ("routes.pay.required_scopes", "[\"pay\"]"),
        ("server.status_endpoint", "authenticated"),
    ];
    for scope in ["tenant", "subject", "global"] {
        let before = upstream.count();
        let gateway = gateway(&upstream, &[RULES, &keys, &[(".scope", scope)]].concat()).await;
        let issuer = Signer::hs256(SECRET);
        let by = |call: Call, subject: &str, org: &str, scope: &str| {
            bearer(call, &issuer.token(subject, json!({ "org": org, "scope": scope })))
        };
        let wanted = json!({ "route": "pay", "amount": 1 });
        let made = token(by(wants(&gateway, &wanted), "ann", "A", "pay")).await;
        for (subject, org) in [("bob", "A"), ("ann", "B"), ("A", "ann")] {
            is_invalid(&by(gateway.pay(&made), subject, org, "pay").send().await, "somebody else");
        }
        let paid = by(gateway.pay(&made), "ann", "A", "pay").send().await;
        assert_eq!((paid.status, upstream.count()), (201, before + 1), "{scope}");
        is_invalid(&by(gateway.pay(&made), "bob", "A", "pay").send().await, "somebody else");
        by(gateway.pay(&made), "ann", "A", "pay").send().await.is_replay_of(&paid);
        // A token is no right: that is asked for anew.
        by(gateway.pay(&made), "ann", "A", "").send().await.is_problem(403, "forbidden");
        by(wants(&gateway, &wanted), "ann", "A", "").send().await.is_problem(403, "forbidden");
        gateway.pay(&made).send().await.is_problem(401, "unauthenticated");
        wants(&gateway, &wanted).send().await.is_problem(401, "unauthenticated");
        let state = |key: &str| {
            by(gateway.call("GET", &format!("/idempotency/requests/{key}?namespace=pay")), "ann", "A", "pay")
        };
        // "Nothing was executed under it" would be a guess: it may stand for an order number.
        state(&made).send().await.is_problem(400, "key-invalid");
        let key = paid.field("idempotency-key").unwrap().trim_matches('"');
        assert_eq!(state(key).send().await.json()["state"], "completed");
    }
}

#[tokio::test]
async fn secrets_rotate_and_old_tokens_count_until_theirs_is_gone() {
    let upstream = Upstream::counting().await;
    let old = gateway(&upstream, &[]).await;
    let made = token_for(&old, json!({ "route": "pay", "amount": 1 })).await;
    let first = old.pay(&made).send().await;
    let database = old.stop().await;
    let with = |secrets: &'static str| [ACCEPTED, &[("secrets.token", secrets)]].concat();
    let both = Gateway::again(database, &upstream.url(), REFUND, &with("[\"env:TOKEN_TWO\", \"env:TOKEN_ONE\"]")).await;
    both.pay(&made).send().await.is_replay_of(&first);
    let newer = token_for(&both, json!({ "route": "pay", "amount": 1 })).await;
    let database = both.stop().await;
    let new = Gateway::again(database, &upstream.url(), REFUND, &with("[\"env:TOKEN_TWO\"]")).await;
    is_invalid(&new.pay(&made).send().await, "can't be verified");
    assert_eq!(new.pay(&newer).send().await.told().1, "{\"payment\":2}");
}

/// A token as the gateway makes it for anybody, which expires in `seconds`.
pub(super) fn expiring(seconds: i64) -> String {
    let wanted = Wanted::parse(br#"{"route":"pay","amount":1}"#).unwrap();
    let expires = Timestamp(clock::wall().0 + seconds * 1000);
    let owner = Owner::new(&Principal::default(), &Scope::Global);
    let permission = Permission::new(wanted, owner, rand::random(), expires);
    Tokens::new(&[b"one that signs tokens, of 32 bytes"]).unwrap().sign(&permission).unwrap()
}

/// The time of a token bounds when it may begin something, not how long its answer is known.
#[tokio::test]
async fn an_expired_token_begins_nothing_and_tells_what_it_began() {
    let gate = Gate::new();
    let waited_for = gate.clone();
    let upstream = Upstream::start(move |number, _| match number {
        2 => after(&waited_for, created(2)),
        3 => vec![Step::Close],
        _ => created(number),
    })
    .await;
    let gateway = gateway(&upstream, &[]).await;
    for _ in 0..2 {
        gateway.pay(&expiring(-1)).send().await.is_problem(403, "token-expired");
    }
    assert_eq!(upstream.count(), 0);
    let [used, running, lost] = [expiring(6), expiring(6), expiring(6)];
    let over = clock::wall().0 + 6000;
    let first = gateway.pay(&used).send().await;
    let begun = tokio::spawn(gateway.pay(&running).send());
    upstream.reached(2).await;
    gateway.pay(&lost).send().await.is_problem(502, "upstream-failed");

    eventually(|| std::future::ready(clock::wall().0), |now| *now >= over).await;
    gateway.pay(&used).send().await.is_replay_of(&first);
    gateway.pay(&used).body("{\"amount\":1.0}").send().await.is_replay_of(&first);
    gateway.pay(&used).body("{\"amount\":1,\"x\":1}").send().await.is_problem(422, "key-reused");
    gateway.pay(&running).send().await.is_problem(409, "processing");
    gateway.pay(&lost).send().await.is_problem(409, "outcome-unknown");
    gate.cancel();
    let begun = begun.await.unwrap();
    gateway.pay(&running).send().await.is_replay_of(&begun);
    assert_eq!(upstream.count(), 3);
}

#[tokio::test]
async fn a_token_lives_as_long_as_its_route_says() {
    let upstream = Upstream::counting().await;
    let gateway = gateway(&upstream, &[(".token_lifetime", "2d")]).await;
    let issued = wants(&gateway, &json!({ "route": "pay" })).send().await.json();
    let day = |days: i64| Timestamp(clock::wall().0 + days * 86_400_000 - 60_000).rfc3339();
    let expires = issued["expires_at"].as_str().unwrap();
    assert!(*day(2) < *expires && *expires < *day(3), "{expires}");
}

#[tokio::test]
async fn what_can_not_be_a_token_is_told_why() {
    let upstream = Upstream::counting().await;
    let gateway = gateway(&upstream, &[]).await;
    let post = |body: &str| gateway.call("POST", "/idempotency/tokens").body(body.to_owned()).send();
    for (body, because) in [
        ("", "no JSON object"),
        (r#"{"route":"pay","amount":1,"amount":2}"#, "more than one way"),
        ("{}", "names no route"),
        (r#"{"route":"none"}"#, "takes tokens"),
        (r#"{"route":"plain"}"#, "takes tokens"),
        (r#"{"route":"rest"}"#, "takes tokens"),
        (r#"{"route":"pay","/a":1,"a":1}"#, "same place"),
        (&*format!(r#"{{"route":"pay","note":"{}"}}"#, "x".repeat(3000)), "longer than"),
    ] {
        let refused = post(body).await;
        refused.is_problem(400, "bad-request");
        assert!(refused.json()["detail"].to_string().contains(because), "{body}: {}", refused.json());
    }
    post(&"x".repeat(17 * 1024)).await.is_problem(413, "body-too-large");
    // Without secrets there is no such endpoint.
    let without = Gateway::start(&upstream, &[]).await;
    wants(&without, &json!({ "route": "pay" })).send().await.is_problem(404, "no-route");
    is_invalid(&without.pay("ogt_a").send().await, "takes no tokens");
}

#[tokio::test]
async fn a_route_that_observes_or_only_replays_knows_tokens_too() {
    let upstream = Upstream::counting().await;
    let first = gateway(&upstream, &[]).await;
    let made = token_for(&first, json!({ "route": "pay", "amount": 1 })).await;
    let fresh = token_for(&first, json!({ "route": "pay", "amount": 1 })).await;
    let paid = first.pay(&made).send().await;
    let paused = [ACCEPTED, &[(".mode", "replay_only")]].concat();
    let paused = Gateway::again(first.database.shared(), &upstream.url(), REFUND, &paused).await;
    paused.pay(&made).send().await.is_replay_of(&paid);
    paused.pay(&fresh).send().await.is_problem(503, "route-paused");
    let observes = [ACCEPTED, &[(".mode", "observe")]].concat();
    let observes = Gateway::again(first.database.shared(), &upstream.url(), REFUND, &observes).await;
    for sent in [&*made, "ogt_garbage"] {
        let seen = observes.pay(sent).send().await;
        assert_eq!((seen.status, upstream.last().field("idempotency-key")), (201, Some(sent)), "nothing is altered");
    }
}
