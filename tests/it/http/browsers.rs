//! Scripts of other origins.

use super::client::{Answer, Call};
use super::gateway::{Gateway, Settings};
use super::upstream::{Upstream, answer};

const SHOP: &str = "https://shop.example";
const ALLOWED: Settings<'_> = &[("server.cors.origins", "[\"https://shop.example\", \"http://localhost:3000\"]")];

/// An upstream that answers scripts of one origin only, as it believes.
async fn upstream() -> Upstream {
    let fields = [("access-control-allow-origin", "https://elsewhere.example"), ("access-control-expose-headers", "x")];
    Upstream::always(answer("201 Created", &fields, "ok")).await
}

fn allowed(answer: &Answer) -> Option<&str> {
    answer.field("access-control-allow-origin")
}

fn reads(answer: &Answer, name: &str) -> bool {
    let listed = answer.field("access-control-expose-headers").unwrap_or_default();
    listed.split(',').any(|listed| listed.trim() == name)
}

fn from(call: Call, origin: &str) -> Call {
    call.field("origin", origin)
}

#[tokio::test]
async fn a_replay_may_be_read_by_the_origin_that_asks_and_not_by_the_one_that_asked_first() {
    let upstream = upstream().await;
    let gateway = Gateway::start(&upstream, ALLOWED).await;
    let first = from(gateway.pay("k"), SHOP).send().await;
    let again = from(gateway.pay("k"), "http://localhost:3000").send().await;
    again.is_replay_of(&first);
    assert_eq!((allowed(&first), allowed(&again)), (Some(SHOP), Some("http://localhost:3000")));
    for answer in [&first, &again] {
        assert!(answer.fields.get_all("vary").iter().any(|line| line.to_str().unwrap().contains("origin")));
        for name in ["idempotent-replayed", "idempotency-key", "idempotency-key-expires", "retry-after", "location"] {
            assert!(reads(answer, name), "{name}: {answer:?}");
        }
    }
    // Nobody else, whatever the upstream says.
    let stranger = from(gateway.pay("k"), "https://elsewhere.example").send().await;
    assert_eq!((stranger.status, allowed(&stranger)), (201, None));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_script_can_read_what_a_problem_says() {
    let upstream = upstream().await;
    let gateway = Gateway::start(&upstream, ALLOWED).await;
    let refused = from(gateway.post("/pay"), SHOP).send().await;
    refused.is_problem(400, "key-missing");
    assert_eq!(allowed(&refused), Some(SHOP));
    assert!(reads(&refused, "x-request-id"));
}

#[tokio::test]
async fn a_preflight_is_answered_here_and_reaches_no_upstream() {
    let upstream = upstream().await;
    let gateway = Gateway::start(&upstream, ALLOWED).await;
    let preflight = |origin: &str| {
        let asked = gateway.call("OPTIONS", "/pay").field("access-control-request-method", "POST");
        from(asked.field("access-control-request-headers", "idempotency-key,content-type"), origin).send()
    };
    let told = preflight(SHOP).await;
    assert_eq!((told.status, allowed(&told)), (200, Some(SHOP)));
    assert_eq!(told.field("access-control-allow-methods"), Some("POST"));
    assert!(told.field("access-control-allow-headers").unwrap().contains("idempotency-key"));
    assert_eq!(told.field("access-control-max-age"), Some("600"));
    assert_eq!(allowed(&preflight("https://elsewhere.example").await), None);
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn without_a_word_in_the_configuration_the_upstreams_own_passes() {
    let upstream = upstream().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let first = from(gateway.pay("k"), "https://elsewhere.example").send().await;
    assert_eq!(allowed(&first), Some("https://elsewhere.example"));
    let preflight = gateway.call("OPTIONS", "/pay").field("access-control-request-method", "POST");
    from(preflight, SHOP).send().await;
    assert_eq!(upstream.count(), 2);
}
