//! Whose a key is, who may use it, and what others may know.

use super::client::{Answer, Call};
use super::gateway::{Gateway, Settings};
use super::upstream::{Gate, Step, Upstream, after, answer, created};
use crate::servers::database::Kind;

const BY_HEADER: Settings<'_> = &[
    ("auth.mode", "header"),
    ("auth.header.trusted", "[\"127.0.0.0/8\"]"),
    ("auth.header.subject_header", "x-subject"),
];

fn with_tenant() -> Vec<(&'static str, &'static str)> {
    [BY_HEADER, &[("auth.header.tenant_header", "x-tenant")]].concat()
}

fn by(call: Call, tenant: &str, subject: &str) -> Call {
    call.field("x-tenant", tenant).field("x-subject", subject)
}

#[tokio::test]
async fn two_subjects_keys_never_meet() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, BY_HEADER).await;
    let ann = gateway.pay("k").field("x-subject", "ann").send().await;
    let bob = gateway.pay("k").field("x-subject", "bob").send().await;
    assert_eq!((ann.told().1, bob.told().1), ("{\"payment\":1}", "{\"payment\":2}"));
    gateway.pay("k").field("x-subject", "ann").send().await.is_replay_of(&ann);
    gateway.pay("k").field("x-subject", "bob").send().await.is_replay_of(&bob);
    let keys: Vec<_> =
        upstream.all().iter().map(|request| request.field("idempotency-key").unwrap().to_owned()).collect();
    assert_ne!(keys[0], keys[1]);
    assert_eq!(upstream.last().field("x-subject"), Some("bob"));
}

#[tokio::test]
async fn a_scope_is_the_tenants_the_subjects_or_everybodys() {
    // Ann of A, Bob of A, Cid of B.
    for (scope, payments) in [("tenant", [1, 1, 2]), ("subject", [1, 2, 3]), ("global", [1, 1, 1])] {
        let upstream = Upstream::counting().await;
        let settings = [&with_tenant()[..], &[(".scope", scope)]].concat();
        let gateway = Gateway::start(&upstream, &settings).await;
        for ((tenant, subject), payment) in [("A", "ann"), ("A", "bob"), ("B", "cid")].into_iter().zip(payments) {
            let answer = by(gateway.pay("k"), tenant, subject).send().await;
            assert_eq!(answer.told().1, format!("{{\"payment\":{payment}}}"), "{scope} {tenant} {subject}");
        }
    }
}

/// Each as long as it may be.
#[tokio::test]
async fn the_longest_scope_fits_into_every_database() {
    let (tenant, subject, key) = ("t".repeat(255), "s".repeat(255), "k".repeat(255));
    for kind in [Kind::Sqlite, Kind::Postgres, Kind::MySql] {
        let upstream = Upstream::counting().await;
        let settings = [&with_tenant()[..], &[(".scope", "subject")]].concat();
        let gateway = Gateway::on(kind, &upstream, &settings).await;
        let first = by(gateway.pay(&key), &tenant, &subject).send().await;
        assert_eq!(first.status, 201, "{kind:?}");
        by(gateway.pay(&key), &tenant, &subject).send().await.is_replay_of(&first);
    }
}

/// Where nobody can tell, "safe to send" would be a guess.
#[tokio::test]
async fn a_state_is_not_told_where_the_key_says_nothing_about_it() {
    let upstream = Upstream::counting().await;
    let anyone = ("server.status_endpoint", "anyone");
    let gateway = Gateway::start(&upstream, &[anyone]).await;
    assert_eq!(gateway.pay("k").send().await.status, 201);
    for changed in [(".key", "[\"body:/amount\"]"), (".mode", "observe")] {
        let again = Gateway::again(gateway.database.shared(), &upstream.url(), "", &[anyone, changed]).await;
        state(&again, "k", None).await.is_problem(503, "unavailable");
        state(&again, "new", None).await.is_problem(503, "unavailable");
        again.stop().await;
    }
    assert_eq!(state(&gateway, "k", None).await.json()["state"], "completed");
}

#[tokio::test]
async fn who_is_not_known_is_turned_away_even_from_an_answer_that_exists() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &with_tenant()).await;
    assert_eq!(by(gateway.pay("k"), "A", "ann").send().await.status, 201);
    let table = [
        (gateway.pay("k"), 401, "unauthenticated"),
        (gateway.pay("k").field("x-tenant", "A"), 401, "unauthenticated"),
        (by(gateway.pay("k"), "A", "").replace("x-subject", ""), 401, "unauthenticated"),
        (by(gateway.pay("k"), "A", "ann").field("x-subject", "bob"), 401, "unauthenticated"),
        (gateway.pay("k").field("x-subject", "ann"), 403, "forbidden"),
        (by(gateway.pay("k"), "A", "ann").field("x-tenant", "B"), 403, "forbidden"),
        (gateway.pay("not, a key"), 401, "unauthenticated"),
    ];
    for (call, status, slug) in table {
        call.send().await.is_problem(status, slug);
    }
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_peer_that_is_no_proxy_of_ours_is_nobody() {
    let upstream = Upstream::counting().await;
    let settings =
        [&with_tenant()[..], &[("auth.header.trusted", "[\"10.0.0.0/8\"]"), (".required", "false")]].concat();
    let gateway = Gateway::start(&upstream, &settings).await;
    by(gateway.pay("k"), "A", "ann").send().await.is_problem(401, "unauthenticated");
    assert_eq!(upstream.count(), 0);
    let passed = by(gateway.call("GET", "/pay"), "A", "ann").field("x-forwarded-proto", "https").send().await;
    assert_eq!(passed.status, 201);
    let seen = upstream.last();
    assert_eq!((seen.field("x-subject"), seen.field("x-tenant")), (None, None), "forged");
    assert_eq!(seen.field("x-forwarded-proto"), Some("http"));
}

async fn state(gateway: &Gateway, key: &str, subject: Option<&str>) -> Answer {
    let call = gateway.call("GET", &format!("/idempotency/requests/{key}?namespace=pay"));
    match subject {
        Some(subject) => call.field("x-subject", subject).send().await,
        None => call.send().await,
    }
}

#[tokio::test]
async fn a_caller_may_ask_for_its_own_requests_state_and_for_no_others() {
    let gate = Gate::new();
    let waited_for = gate.clone();
    let upstream = Upstream::start(move |number, _| match number {
        1 => created(1),
        2 => vec![Step::Close],
        3 => answer("200 OK", &[("x-name", "v")], b"\xff"),
        _ => after(&waited_for, created(number)),
    })
    .await;
    let gateway = Gateway::start(&upstream, BY_HEADER).await;
    let pay = |key: &str| gateway.pay(key).field("x-subject", "ann");
    for key in ["done", "lost", "binary"] {
        pay(key).send().await;
    }
    let running = tokio::spawn(pay("running").send());
    upstream.reached(4).await;
    for (key, expected) in
        [("done", "completed"), ("lost", "unknown"), ("running", "in_progress"), ("binary", "completed")]
    {
        let known = state(&gateway, key, Some("ann")).await;
        assert_eq!((known.status, known.json()["state"].as_str()), (200, Some(expected)), "{key}");
        assert_eq!((known.json()["key"].as_str(), known.json()["attempt"].as_u64()), (Some(key), Some(1)));
        state(&gateway, key, Some("bob")).await.is_problem(404, "key-unknown");
        state(&gateway, key, None).await.is_problem(401, "unauthenticated");
    }
    let done = state(&gateway, "done", Some("ann")).await.json();
    assert_eq!(
        (done["response"]["status"].as_u64(), done["response"]["body"].as_str()),
        (Some(201), Some("{\"payment\":1}"))
    );
    assert_eq!(state(&gateway, "binary", Some("ann")).await.json()["response"]["body_base64"], "/w==");
    state(&gateway, "other", Some("ann")).await.is_problem(404, "key-unknown");
    let call = |target: &str| gateway.call("GET", target).field("x-subject", "ann").send();
    call("/idempotency/requests/done?namespace=other").await.is_problem(404, "key-unknown");
    call("/idempotency/requests/done").await.is_problem(400, "bad-request");
    gate.cancel();
    assert_eq!(running.await.unwrap().status, 201);
}

#[tokio::test]
async fn the_status_endpoint_is_for_known_callers_everybody_or_nobody() {
    for (access, status, slug) in
        [("authenticated", 401, "unauthenticated"), ("anyone", 404, "key-unknown"), ("off", 404, "no-route")]
    {
        let upstream = Upstream::counting().await;
        let gateway = Gateway::start(&upstream, &[("server.status_endpoint", access)]).await;
        state(&gateway, "k", None).await.is_problem(status, slug);
        assert_eq!(gateway.pay("k").send().await.status, 201);
        assert_eq!(state(&gateway, "k", None).await.status == 200, access == "anyone");
    }
}
