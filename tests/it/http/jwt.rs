//! Access tokens: who is let in by one, who is not, and what upstreams hear of it.

use serde_json::{Value, json};

use super::client::{Answer, Call};
use super::gateway::{Gateway, Settings};
use super::issuer::{AUDIENCE, ISSUER, Published, RULES, Signer, bearer, forged, key_set, now};
use super::upstream::{Gate, Upstream, after, created};

const SECRET: &str = "a secret of at least thirty-two bytes";
const BY_SECRET: Settings<'_> = &[("auth.jwt.algorithms", "[\"HS256\"]"), ("auth.jwt.secret", "[\"env:SECRET\"]")];
const ROUTES: &str = r#"
    [[routes]]
    name = "report"
    match = "* /report"
    upstream = "up"
    required_scopes = ["report:read", "report:all"]
    [[routes]]
    name = "rest"
    match = "* /rest/*"
    upstream = "up"
"#;

fn settings<'a>(more: Settings<'a>) -> Vec<(&'a str, &'a str)> {
    [RULES, BY_SECRET, more].concat()
}

async fn gateway(upstream: &Upstream, more: Settings<'_>) -> (Gateway, Signer) {
    (Gateway::with_routes(upstream, ROUTES, &settings(more)).await, Signer::hs256(SECRET))
}

#[track_caller]
fn is_refused(answer: &Answer, error: &str) {
    answer.is_problem(401, "unauthenticated");
    let challenge = answer.field("www-authenticate").unwrap_or_default();
    assert!(challenge.starts_with("Bearer realm=\"oncegate\"") && challenge.contains(error), "{challenge}");
}

#[tokio::test]
async fn a_token_lets_in_and_its_subject_is_whose_the_key_is() {
    let upstream = Upstream::counting().await;
    let (gateway, issuer) = gateway(&upstream, &[]).await;
    let ann = issuer.by(gateway.pay("k"), "ann").send().await;
    let bob = issuer.by(gateway.pay("k"), "bob").send().await;
    assert_eq!((ann.told().1, bob.told().1), ("{\"payment\":1}", "{\"payment\":2}"));
    // Tokens are renewed while a client retries.
    let renewed = bearer(gateway.pay("k"), &issuer.token("ann", json!({ "exp": now() + 999 }))).send().await;
    renewed.is_replay_of(&ann);
    issuer.by(gateway.pay("k"), "bob").send().await.is_replay_of(&bob);
    let keys: Vec<_> = upstream.all().iter().map(|seen| seen.field("idempotency-key").unwrap().to_owned()).collect();
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test]
async fn what_is_no_good_token_is_told_why_before_the_key_is_looked_at() {
    let upstream = Upstream::counting().await;
    let (gateway, issuer) = gateway(&upstream, &[]).await;
    assert_eq!(issuer.by(gateway.pay("k"), "ann").send().await.status, 201);
    let good = issuer.token("ann", json!({}));
    let claims = json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": now() + 300 });
    let signature = good.rsplit('.').next().unwrap();
    let table = [
        (issuer.token("ann", json!({ "exp": now() - 31 })), "expired"),
        (issuer.token("ann", json!({ "exp": null })), "no expiry"),
        (issuer.token("ann", json!({ "nbf": now() + 60 })), "not valid yet"),
        (issuer.token("ann", json!({ "iat": now() + 60 })), "not valid yet"),
        (issuer.token("ann", json!({ "aud": "other" })), "somebody else"),
        (issuer.token("ann", json!({ "aud": null })), "somebody else"),
        (issuer.token("ann", json!({ "iss": "https://issuer.test.evil" })), "another issuer"),
        (issuer.token("ann", json!({ "sub": null })), "no subject"),
        (issuer.token("ann", json!({ "large": "x".repeat(16 * 1024) })), "too large"),
        (Signer::hs256(&SECRET.replace('a', "b")).token("ann", json!({})), "not known"),
        (forged(&json!({ "alg": "none" }), &claims, ""), "can't be read"),
        (forged(&json!({ "alg": "None" }), &claims, ""), "can't be read"),
        (forged(&json!({ "alg": "HS256" }), &claims, ""), "not known"),
        (forged(&json!({ "alg": "HS256" }), &claims, signature), "not known"),
        (forged(&json!({ "alg": "HS384" }), &claims, signature), "does not count"),
        (forged(&json!({ "alg": "RS256" }), &claims, signature), "does not count"),
        (format!("{good}x"), "invalid_token"),
        (format!("{good}.x"), "can't be read"),
        ("garbage".to_owned(), "can't be read"),
        ("..".to_owned(), "can't be read"),
    ];
    for (token, error) in table {
        let refused = bearer(gateway.pay("k"), &token).send().await;
        is_refused(&refused, error);
        is_refused(&bearer(gateway.pay("not, a key"), &token).send().await, "error=\"invalid_token\"");
        assert!(!String::from_utf8_lossy(&refused.body).contains(&good[..20]), "a token is not repeated");
    }
    is_refused(&bearer(bearer(gateway.pay("k"), &good), &good).send().await, "error=\"invalid_request\"");
    for call in [gateway.pay("k"), gateway.pay("k").field("authorization", "Basic YTpi")] {
        let refused = call.send().await;
        is_refused(&refused, "");
        assert_eq!(refused.field("www-authenticate"), Some("Bearer realm=\"oncegate\""));
    }
    assert_eq!(upstream.count(), 1);
}

/// The signature of a token must not be one that its reader could have made.
#[tokio::test]
async fn a_public_key_is_no_secret() {
    let upstream = Upstream::counting().await;
    for real in [Signer::rs256("1"), Signer::es256("1")] {
        let published = Published::start(&[&real]).await;
        let url = published.url();
        let keys = [("auth.jwt.algorithms", "[\"RS256\", \"ES256\"]"), ("auth.jwt.jwks", &*url)];
        let gateway = Gateway::start(&upstream, &[RULES, &keys].concat()).await;
        let before = upstream.count();
        assert_eq!(real.by(gateway.pay("k"), "ann").send().await.status, 201);
        for known in [real.public().to_string(), real.public()["n"].to_string(), key_set(&[&real])] {
            let forged = Signer::hs256(&known).token("ann", json!({}));
            is_refused(&bearer(gateway.pay("k"), &forged).send().await, "does not count");
        }
        assert_eq!(upstream.count(), before + 1);
    }
}

#[tokio::test]
async fn a_public_key_of_the_configuration_verifies_and_two_rotate() {
    let upstream = Upstream::counting().await;
    let pairs = [(); 2].map(|()| rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let files = [0, 1].map(|index| {
        let file = dir.path().join(format!("{index}.pem"));
        std::fs::write(&file, pairs[index].public_key_pem()).unwrap();
        format!("file:{}", file.display())
    });
    let keys = [("auth.jwt.algorithms", "[\"ES256\"]"), ("auth.jwt.public_key", &*format!("{files:?}"))];
    let gateway = Gateway::start(&upstream, &[RULES, &keys].concat()).await;
    for (number, pair) in pairs.iter().enumerate() {
        let signer = Signer::of("any", pair);
        let paid = signer.by(gateway.pay(&number.to_string()), "ann").send().await;
        assert_eq!(paid.status, 201);
    }
    is_refused(&Signer::es256("any").by(gateway.pay("k"), "ann").send().await, "not known");
}

#[tokio::test]
async fn the_upstream_hears_who_it_is_from_nobody_but_the_gateway() {
    let upstream = Upstream::counting().await;
    let told = [
        ("auth.jwt.tenant_claim", "org"),
        ("auth.jwt.subject_header", "x-subject"),
        ("auth.jwt.tenant_header", "x-tenant"),
        ("auth.jwt.scope_header", "x-scopes"),
    ];
    let (gateway, issuer) = gateway(&upstream, &told).await;
    let token = issuer.token("ann", json!({ "org": "acme", "scope": "a b" }));
    let forge = |call: Call| {
        let call = call.field("x-subject", "root").field("x_subject", "root").field("X-Tenant", "evil");
        call.field("x-scopes", "all").field("connection", "x-subject, x-tenant")
    };
    for call in [gateway.pay("k"), gateway.call("GET", "/pay"), gateway.post("/rest/a")] {
        assert_eq!(bearer(forge(call), &token).send().await.status, 201);
        let seen = upstream.last();
        assert_eq!((seen.field("x-subject"), seen.field("x-tenant")), (Some("ann"), Some("acme")));
        assert_eq!((seen.field("x-scopes"), seen.field("x_subject")), (Some("a b"), None));
        assert_eq!(seen.field("authorization"), Some(&*format!("Bearer {token}")));
    }
    // Where nobody has to say who it is, who does not, or lies, is nobody.
    for call in [gateway.post("/rest/a"), bearer(gateway.post("/rest/a"), "garbage")] {
        assert_eq!(forge(call).send().await.status, 201);
        let seen = upstream.last();
        assert!(["x-subject", "x_subject", "x-tenant", "x-scopes"].iter().all(|name| seen.field(name).is_none()));
    }
}

#[tokio::test]
async fn a_route_wants_all_of_its_scopes_with_each_method_and_for_replays_too() {
    let upstream = Upstream::counting().await;
    let (gateway, issuer) = gateway(&upstream, &[("routes.pay.required_scopes", "[\"pay\"]")]).await;
    let with = |call: Call, scope: Value| bearer(call, &issuer.token("ann", json!({ "scope": scope })));
    let first = with(gateway.pay("k"), json!("read pay")).send().await;
    assert_eq!(first.status, 201);
    with(gateway.pay("k"), json!(["pay"])).send().await.is_replay_of(&first);
    for scope in [json!("read"), json!("payments"), json!(""), json!(null), json!("PAY")] {
        let refused = with(gateway.pay("k"), scope).send().await;
        refused.is_problem(403, "forbidden");
        let challenge = refused.field("www-authenticate").unwrap();
        assert!(challenge.contains("error=\"insufficient_scope\", scope=\"pay\""), "{challenge}");
    }
    for method in ["GET", "POST", "DELETE", "OPTIONS"] {
        let report = || gateway.call(method, "/report");
        is_refused(&report().send().await, "");
        with(report(), json!("report:read")).send().await.is_problem(403, "forbidden");
        assert_eq!(with(report(), json!("report:all report:read")).send().await.status, 201, "{method}");
    }
    let preflight = gateway.call("OPTIONS", "/report").field("access-control-request-method", "POST");
    assert_eq!(preflight.field("origin", "https://a.test").send().await.status, 201, "browsers send no token with it");
    assert_eq!(upstream.count(), 6);
}

fn state(gateway: &Gateway, key: &str) -> Call {
    gateway.call("GET", &format!("/idempotency/requests/{key}?namespace=pay"))
}

/// Ann pays; Bob, who knows her key, tries everything.
#[tokio::test]
async fn nobody_sees_replays_or_blocks_anothers_request_by_guessing_its_key() {
    let gate = Gate::new();
    let waited_for = gate.clone();
    let upstream = Upstream::start(move |number, _| match number {
        2 => after(&waited_for, created(number)),
        _ => created(number),
    })
    .await;
    let (gateway, issuer) = gateway(&upstream, &[("routes.pay.required_scopes", "[\"pay\"]")]).await;
    let pays = |key: &str, subject: &str| bearer(gateway.pay(key), &issuer.token(subject, json!({ "scope": "pay" })));
    let asks = |key: &str, subject: &str| {
        bearer(state(&gateway, key), &issuer.token(subject, json!({ "scope": "pay" }))).send()
    };
    let done = pays("done", "ann").send().await;
    let running = tokio::spawn(pays("running", "ann").send());
    upstream.reached(2).await;

    assert_eq!(asks("done", "ann").await.json()["response"]["body"], "{\"payment\":1}");
    assert_eq!(asks("running", "ann").await.json()["state"], "in_progress");
    for key in ["done", "running"] {
        asks(key, "bob").await.is_problem(404, "key-unknown");
        asks(key, "subject:ann").await.is_problem(404, "key-unknown");
        is_refused(&state(&gateway, key).send().await, "");
        issuer.by(state(&gateway, key), "ann").send().await.is_problem(403, "forbidden");
        // Another body: a mismatch would tell that the key is known.
        let bobs = pays(key, "bob").body("{\"amount\":2}").send().await;
        assert_eq!((bobs.status, bobs.told().2), (201, Some("false")), "{key}");
        assert_ne!(bobs.body, done.body);
    }
    gate.cancel();
    assert_eq!(running.await.unwrap().told().1, "{\"payment\":2}");
    pays("done", "ann").send().await.is_replay_of(&done);
    assert_eq!(asks("running", "ann").await.json()["response"]["body"], "{\"payment\":2}");
    assert_eq!(asks("running", "bob").await.json()["response"]["body"], "{\"payment\":4}");
}

#[tokio::test]
async fn a_tenants_subjects_share_keys_and_a_token_without_tenant_gets_no_wider_scope() {
    let upstream = Upstream::counting().await;
    let (gateway, issuer) = gateway(&upstream, &[("auth.jwt.tenant_claim", "org")]).await;
    let by = |subject: &str, org: Value| bearer(gateway.pay("k"), &issuer.token(subject, json!({ "org": org })));
    let first = by("ann", json!("A")).send().await;
    by("bob", json!("A")).send().await.is_replay_of(&first);
    assert_eq!(by("ann", json!("B")).send().await.told().1, "{\"payment\":2}");
    for none in [json!(null), json!(""), json!(["A"])] {
        by("ann", none).send().await.is_problem(403, "forbidden");
    }
    assert_eq!(upstream.count(), 2);
}

/// What would make old keys other people's closes the namespace until somebody has looked at it.
#[tokio::test]
async fn other_claims_another_issuer_or_mode_close_the_namespace() {
    let upstream = Upstream::counting().await;
    let (gateway, issuer) = gateway(&upstream, &[]).await;
    assert_eq!(issuer.by(gateway.pay("k"), "ann").send().await.status, 201);
    let other =
        [("auth.jwt.subject_claim", "uid"), ("auth.jwt.issuer", "https://b.test"), ("auth.jwt.tenant_claim", "org")];
    let token = issuer.token("ann", json!({ "uid": "ann", "org": "a" }));
    for (setting, value) in other {
        let again =
            Gateway::again(gateway.database.shared(), &upstream.url(), "", &settings(&[(setting, value)])).await;
        let token =
            if value == "https://b.test" { issuer.token("ann", json!({ "iss": value })) } else { token.clone() };
        bearer(again.pay("k"), &token).send().await.is_problem(503, "unavailable");
        again.stop().await;
    }
    let same = settings(&[("auth.jwt.leeway", "1s"), ("auth.jwt.audience", "[\"pay\", \"more\"]")]);
    let again = Gateway::again(gateway.database.shared(), &upstream.url(), "", &same).await;
    assert_eq!(issuer.by(again.pay("k"), "ann").send().await.told().2, Some("true"));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_route_that_observes_turns_nobody_away() {
    let upstream = Upstream::counting().await;
    let (gateway, issuer) = gateway(&upstream, &[(".mode", "observe")]).await;
    for call in [gateway.pay("k"), bearer(gateway.pay("k"), "garbage"), issuer.by(gateway.pay("k"), "ann")] {
        assert_eq!(call.send().await.status, 201);
    }
    assert_eq!(upstream.count(), 3);
}
