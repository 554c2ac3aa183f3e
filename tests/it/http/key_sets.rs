//! Key sets of an issuer: rotated, away, slow, too large, and never there.

use std::time::Duration;

use serde_json::json;

use super::eventually;
use super::gateway::{Gateway, Settings};
use super::issuer::{Published, RULES, Signer, bearer, key_set};
use super::upstream::{Gate, Step, Upstream, answer};

const ES256: (&str, &str) = ("auth.jwt.algorithms", "[\"ES256\"]");
/// The shortest that is allowed, so that a test can wait for it.
const COOLDOWN: (&str, &str) = ("auth.jwt.cooldown", "1s");

async fn gateway(upstream: &Upstream, place: &str, more: Settings<'_>) -> Gateway {
    Gateway::start(upstream, &[RULES, &[ES256, ("auth.jwt.jwks", place)], more].concat()).await
}

/// A key whose owner has just begun to sign with it.
#[tokio::test]
async fn a_new_key_counts_at_once_and_an_old_one_no_longer() {
    let upstream = Upstream::counting().await;
    let (old, new) = (Signer::es256("old"), Signer::es256("new"));
    let published = Published::start(&[&old]).await;
    let gateway = gateway(&upstream, &published.url(), &[COOLDOWN]).await;
    assert_eq!(old.by(gateway.pay("k"), "ann").send().await.status, 201);
    published.rotate(&[&new]);
    assert_eq!(published.server.count(), 1, "kept, and not fetched for each token");
    let pay = || new.by(gateway.pay("k"), "ann").send();
    let paid = eventually(pay, |answer| answer.status == 201).await;
    assert_eq!((paid.told().2, published.server.count()), (Some("true"), 2));
    old.by(gateway.pay("k"), "ann").send().await.is_problem(401, "unauthenticated");
}

#[tokio::test]
async fn all_tokens_that_name_a_new_key_wait_for_one_fetch() {
    let upstream = Upstream::counting().await;
    let (old, new) = (Signer::es256("old"), Signer::es256("new"));
    let published = Published::start(&[&old]).await;
    let gateway = gateway(&upstream, &published.url(), &[COOLDOWN]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let gate = Gate::new();
    published.says(vec![Step::Wait(gate.clone()), answer("200 OK", &[], key_set(&[&new])).remove(0)]);
    let waiting: Vec<_> = (0..8).map(|i| tokio::spawn(new.by(gateway.pay(&i.to_string()), "ann").send())).collect();
    published.server.reached(2).await;
    // Known keys do not wait with them.
    assert_eq!(old.by(gateway.pay("known"), "ann").send().await.status, 201);
    gate.cancel();
    for paid in waiting {
        assert_eq!(paid.await.unwrap().status, 201);
    }
    assert_eq!(published.server.count(), 2);
}

#[tokio::test]
async fn strangers_do_not_make_the_gateway_flood_the_issuer() {
    let upstream = Upstream::counting().await;
    let known = Signer::es256("known");
    let published = Published::start(&[&known]).await;
    let gateway =
        gateway(&upstream, &published.url(), &[("auth.jwt.cooldown", "1h"), ("auth.jwt.refresh", "2h")]).await;
    for number in 0..20 {
        let stranger = Signer::es256(&number.to_string());
        stranger.by(gateway.pay("k"), "ann").send().await.is_problem(401, "unauthenticated");
        stranger.unnamed().by(gateway.pay("k"), "ann").send().await.is_problem(401, "unauthenticated");
    }
    assert_eq!(published.server.count(), 1);
    assert_eq!(known.unnamed().by(gateway.pay("k"), "ann").send().await.status, 201);
}

/// Tokens of another issuer pass by on routes that want none; they are no reason to ask ours.
#[tokio::test]
async fn another_issuers_tokens_are_no_reason_to_ask() {
    let upstream = Upstream::counting().await;
    let known = Signer::es256("known");
    let published = Published::start(&[&known]).await;
    let gateway = gateway(&upstream, &published.url(), &[COOLDOWN]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let other = Signer::es256("other").token("ann", json!({ "iss": "https://other.test" }));
    bearer(gateway.pay("k"), &other).send().await.is_problem(401, "unauthenticated");
    assert_eq!(published.server.count(), 1);
}

#[tokio::test]
async fn whatever_an_issuer_says_the_last_good_set_stays() {
    let upstream = Upstream::counting().await;
    let (known, new) = (Signer::es256("known"), Signer::es256("new"));
    let published = Published::start(&[&known]).await;
    let often = [COOLDOWN, ("auth.jwt.refresh", "1s"), ("auth.jwt.timeout", "200ms")];
    let gateway = gateway(&upstream, &published.url(), &often).await;
    let large = format!("{{\"keys\":[],\"more\":\"{}\"}}", "x".repeat(512 * 1024));
    let mut fetches = published.server.count();
    for wrong in [
        answer("500 Internal Server Error", &[], key_set(&[&new])),
        answer("302 Found", &[("location", "/other")], key_set(&[&new])),
        answer("200 OK", &[], "no set"),
        answer("200 OK", &[], "{\"keys\":[]}"),
        answer("200 OK", &[], large),
        vec![Step::Close],
        vec![Step::Wait(Gate::new())],
        vec![Step::Send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"keys\":".into()), Step::Wait(Gate::new())],
    ] {
        published.says(wrong);
        // One that may have been under way, and one that has heard it.
        fetches = published.server.count().max(fetches) + 2;
        published.server.reached(fetches).await;
        assert_eq!(known.by(gateway.pay("k"), "ann").send().await.status, 201);
        new.by(gateway.pay("k"), "ann").send().await.is_problem(401, "unauthenticated");
    }
    assert_eq!(gateway.call("GET", "/readyz").send().await.status, 200);
    published.rotate(&[&new]);
    eventually(|| new.by(gateway.pay("k"), "ann").send(), |answer| answer.status == 201).await;
}

#[tokio::test]
async fn a_gateway_without_keys_lets_nobody_in_and_says_so_until_it_has_some() {
    let upstream = Upstream::counting().await;
    let known = Signer::es256("known");
    let published = Published::start(&[&known]).await;
    published.says(answer("503 Service Unavailable", &[], ""));
    let told = [COOLDOWN, ("auth.jwt.subject_header", "x-subject"), ("routes.pay.required_scopes", "[\"pay\"]")];
    let gateway = gateway(&upstream, &published.url(), &told).await;
    let token = known.token("ann", json!({ "scope": "pay" }));
    let pay = || bearer(gateway.pay("k"), &token).send();
    let closed = pay().await;
    closed.is_problem(503, "unavailable");
    assert!(closed.field("retry-after").is_some());
    gateway.pay("k").send().await.is_problem(401, "unauthenticated");
    bearer(gateway.call("GET", "/pay"), &token).send().await.is_problem(503, "unavailable");
    assert_eq!(gateway.call("GET", "/readyz").send().await.status, 503);
    assert_eq!((gateway.call("GET", "/healthz").send().await.status, upstream.count()), (200, 0));
    published.rotate(&[&known]);
    assert_eq!(eventually(pay, |answer| answer.status != 503).await.status, 201);
    assert_eq!(gateway.call("GET", "/readyz").send().await.status, 200);
}

#[tokio::test]
async fn a_key_set_may_be_a_file_that_is_replaced() {
    let upstream = Upstream::counting().await;
    let (old, new) = (Signer::es256("old"), Signer::rs256("new"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), key_set(&[&old])).unwrap();
    let place = format!("file:{}", file.path().display());
    let both = ("auth.jwt.algorithms", "[\"ES256\", \"RS256\"]");
    let gateway = gateway(&upstream, &place, &[COOLDOWN, both]).await;
    assert_eq!(old.by(gateway.pay("k"), "ann").send().await.status, 201);
    std::fs::write(file.path(), key_set(&[&old, &new])).unwrap();
    let paid = eventually(|| new.by(gateway.pay("k"), "ann").send(), |answer| answer.status == 201).await;
    assert_eq!(paid.told().2, Some("true"));
    // Replaced by garbage, and gone.
    std::fs::write(file.path(), "{").unwrap();
    Signer::es256("third").by(gateway.pay("k"), "ann").send().await.is_problem(401, "unauthenticated");
    assert_eq!(old.by(gateway.pay("k"), "ann").send().await.status, 201);
}
