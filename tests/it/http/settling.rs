//! How a request whose outcome nobody knows gets one.

use std::sync::atomic::{AtomicUsize, Ordering};

use oncegate::clock;

use super::eventually;
use super::gateway::{Gateway, Settings};
use super::upstream::{Received, Step, Upstream, answer, created};

const LOOKUP: Settings<'_> = &[
    (".on_unknown", "lookup"),
    (".lookup.request", "GET /by/{key}"),
    (".lookup.first", "50ms"),
    (".lookup.max", "200ms"),
    (".lookup.headers", "{ authorization = \"env:SECRET\" }"),
    (".lookup.completed_when", "{ equals = { \"/status\" = \"paid\" } }"),
    ("server.status_endpoint", "anyone"),
];

fn lookups(upstream: &Upstream) -> Vec<Received> {
    upstream.all().into_iter().filter(|request| request.method == "GET").collect()
}

fn payments(upstream: &Upstream) -> Vec<Received> {
    upstream.all().into_iter().filter(|request| request.method == "POST").collect()
}

#[tokio::test]
async fn a_lookup_settles_in_the_background_and_its_answer_is_replayed() {
    let upstream = Upstream::start(|number, request| match (&*request.method, number) {
        ("POST", _) => vec![Step::Close],
        (_, 2) => answer("200 OK", &[], "{\"status\":\"open\"}"),
        (_, 3) => answer("500 Oops", &[], "{\"status\":\"paid\"}"),
        (_, 4) => answer("200 OK", &[], "no JSON"),
        (_, 5) => vec![Step::Close],
        _ => answer("200 OK", &[("x-from", "lookup")], "{\"status\":\"paid\"}"),
    })
    .await;
    let gateway = Gateway::start(&upstream, LOOKUP).await;
    gateway.pay("b?c").send().await.is_problem(502, "upstream-failed");
    let ask = || gateway.call("GET", "/idempotency/requests/b%3Fc?namespace=pay").send();
    let state = eventually(ask, |state| state.json()["state"] == "completed").await;
    assert_eq!(state.json()["response"]["body"], "{\"status\":\"paid\"}");
    let retry = gateway.pay("b?c").send().await;
    assert_eq!(retry.told(), (200, "{\"status\":\"paid\"}", Some("true")));
    assert_eq!(retry.field("x-from"), Some("lookup"));
    assert_eq!(payments(&upstream).len(), 1);
}

#[tokio::test]
async fn a_lookup_asks_for_the_clients_key() {
    let paid = || answer("200 OK", &[], "{\"status\":\"paid\"}");
    let upstream = Upstream::start(move |number, _| if number == 1 { vec![Step::Close] } else { paid() }).await;
    let gateway = Gateway::start(&upstream, LOOKUP).await;
    gateway.pay("a?&").send().await.is_problem(502, "upstream-failed");
    let retry = eventually(|| gateway.pay("a?&").send(), |answer| answer.status != 409).await;
    assert_eq!(retry.status, 200);
    let lookup = lookups(&upstream).remove(0);
    assert_eq!(lookup.target, "/by/a%3F%26");
    assert_eq!(lookup.field("authorization"), Some("a secret of at least thirty-two bytes"));
}

/// Two tenants have an order 7 each, and one of them is paid.
#[tokio::test]
async fn a_lookup_says_whose_key_it_is() {
    let upstream = Upstream::start(|number, request| match &*request.method {
        "POST" if number == 1 => vec![Step::Close],
        "GET" if request.target == "/of/B/7" => answer("200 OK", &[], "{\"status\":\"paid\"}"),
        "GET" => answer("404 Not Found", &[], ""),
        _ => created(number),
    })
    .await;
    let tenants = [
        ("auth.mode", "header"),
        ("auth.header.trusted", "[\"127.0.0.0/8\"]"),
        ("auth.header.subject_header", "x-subject"),
        ("auth.header.tenant_header", "x-tenant"),
        (".lookup.request", "GET /of/{tenant}/{key}"),
    ];
    let gateway = Gateway::start(&upstream, &[LOOKUP, &tenants].concat()).await;
    let pay = || gateway.pay("7").field("x-tenant", "A").field("x-subject", "ann").send();
    pay().await.is_problem(502, "upstream-failed");
    upstream.reached(3).await;
    pay().await.is_problem(409, "outcome-unknown");
    assert!(lookups(&upstream).iter().all(|lookup| lookup.target == "/of/A/7"));
}

/// The upstream has orders; about a client's own key it would say "not here", whatever became of the request.
#[tokio::test]
async fn a_key_that_the_upstream_can_not_know_is_not_looked_up() {
    let paid = AtomicUsize::new(0);
    let upstream = Upstream::start(move |number, request| match &*request.method {
        "GET" => answer("404 Not Found", &[], ""),
        _ if paid.fetch_add(1, Ordering::Relaxed) < 2 => vec![Step::Close],
        _ => created(number),
    })
    .await;
    let mixed =
        [(".key", "[\"body:/order_no\", \"header\"]"), (".lookup.absent", "not_executed"), (".lookup.after", "1ms")];
    let gateway = Gateway::start(&upstream, &[LOOKUP, &mixed].concat()).await;
    let by_order = || gateway.post("/pay").body("{\"order_no\":\"7\"}").send();
    by_order().await.is_problem(502, "upstream-failed");
    gateway.pay("k").send().await.is_problem(502, "upstream-failed");
    assert_eq!(eventually(by_order, |answer| answer.status != 409).await.status, 201);
    gateway.pay("k").send().await.is_problem(409, "outcome-unknown");
    assert!(lookups(&upstream).iter().all(|lookup| lookup.target == "/by/7"));
    // By the key that it was sent, it knows both.
    let sent = [&mixed[..], &[(".lookup.request", "GET /by/{forwarded_key}")]].concat();
    let gateway = Gateway::again(gateway.stop().await, &upstream.url(), "", &[LOOKUP, &sent].concat()).await;
    assert_eq!(eventually(|| gateway.pay("k").send(), |answer| answer.status != 409).await.status, 201);
    let of_k = payments(&upstream).iter().find(|sent| !sent.body.starts_with(b"{\"order_no")).cloned().unwrap();
    assert_eq!(lookups(&upstream).last().unwrap().target, format!("/by/{}", of_k.field("idempotency-key").unwrap()));
}

#[tokio::test]
async fn an_absence_means_nothing_unless_it_was_declared_to() {
    let script = |number: usize, request: &Received| match &*request.method {
        "GET" => answer("404 Not Found", &[], ""),
        _ if number == 1 => vec![Step::Close],
        _ => created(number),
    };
    let upstream = Upstream::start(script).await;
    let gateway = Gateway::start(&upstream, LOOKUP).await;
    gateway.pay("k").send().await.is_problem(502, "upstream-failed");
    upstream.reached(4).await;
    gateway.pay("k").send().await.is_problem(409, "outcome-unknown");
    assert_eq!(payments(&upstream).len(), 1);

    let upstream = Upstream::start(script).await;
    let declared = [LOOKUP, &[(".lookup.absent", "not_executed"), (".lookup.after", "500ms")]].concat();
    let gateway = Gateway::start(&upstream, &declared).await;
    let began = clock::now();
    gateway.pay("k").send().await.is_problem(502, "upstream-failed");
    let again = eventually(|| gateway.pay("k").send(), |answer| answer.status != 409).await;
    assert_eq!((again.status, again.field("idempotent-replayed")), (201, Some("false")));
    assert!(began.elapsed() >= std::time::Duration::from_millis(500), "an early absence is not believed");
    assert_eq!(payments(&upstream).len(), 2);
}

#[tokio::test]
async fn forwarding_again_sends_the_same_key_and_settles_by_a_real_answer() {
    let upstream = Upstream::start(|number, _| match number {
        1 => vec![Step::Close],
        2 => answer("409 Conflict", &[], "key in use"),
        3 => answer("429 Too Many", &[], "slow down"),
        4 => answer("500 Oops", &[], ""),
        _ => created(number),
    })
    .await;
    let gateway = Gateway::start(&upstream, &[(".on_unknown", "forward")]).await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let answer = gateway.pay("k").send().await;
        statuses.push((answer.status, answer.field("idempotent-replayed").unwrap().to_owned()));
    }
    let not = |status: u16| (status, "false".to_owned());
    assert_eq!(statuses, [not(502), not(409), not(429), not(500), not(201), (201, "true".to_owned())]);
    let sent = payments(&upstream);
    let attempts: Vec<_> = sent.iter().map(|request| request.field("oncegate-attempt").unwrap()).collect();
    assert_eq!(attempts, ["1", "2", "3", "4", "5"]);
    assert!(sent.iter().all(|request| request.field("idempotency-key") == sent[0].field("idempotency-key")));
    assert!(sent.iter().all(|request| request.body == sent[0].body));
}

#[tokio::test]
async fn a_listed_client_error_settles_a_forwarded_request() {
    let upstream = Upstream::start(|number, _| match number {
        1 => vec![Step::Close],
        _ => answer("402 Payment Required", &[], "declined"),
    })
    .await;
    let gateway = Gateway::start(&upstream, &[(".on_unknown", "forward"), (".outcomes.settles", "[402]")]).await;
    gateway.pay("k").send().await.is_problem(502, "upstream-failed");
    gateway.pay("k").body("{\"amount\":2}").send().await.is_problem(422, "key-reused");
    let second = gateway.pay("k").send().await;
    assert_eq!(second.told(), (402, "declined", Some("false")));
    gateway.pay("k").send().await.is_replay_of(&second);
    assert_eq!(upstream.count(), 2);
}
