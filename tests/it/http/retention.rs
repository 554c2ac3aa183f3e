//! How long an answer is kept, and how much longer its key is remembered.

use super::eventually;
use super::gateway::{Gateway, Settings};
use super::upstream::{Step, Upstream};

/// Sends until the first answer's time is over.
async fn until_over(gateway: &Gateway) -> super::client::Answer {
    assert_eq!(gateway.pay("k").send().await.told(), (201, "{\"payment\":1}", Some("false")));
    assert_eq!(gateway.pay("k").send().await.told(), (201, "{\"payment\":1}", Some("true")));
    let kept = |answer: &super::client::Answer| answer.field("idempotent-replayed") == Some("true");
    eventually(|| gateway.pay("k").send(), |answer| !kept(answer)).await
}

#[tokio::test]
async fn a_key_is_remembered_longer_than_its_answer_and_then_is_new() {
    let upstream = Upstream::counting().await;
    let settings = [(".retention", "1s"), (".tombstone", "2s"), ("server.status_endpoint", "anyone")];
    let gateway = Gateway::start(&upstream, &settings).await;
    let expired = until_over(&gateway).await;
    expired.is_problem(410, "key-expired");
    // Whether or not somebody has come by to take it away.
    let known = gateway.call("GET", "/idempotency/requests/k?namespace=pay").send().await.json();
    assert_eq!((known["state"].as_str(), known.get("response")), (Some("expired"), None));
    assert_eq!((expired.json()["retry"].as_str(), expired.field("idempotency-key")), (Some("no"), Some("\"k\"")));
    gateway.pay("k").body("{\"amount\":2}").send().await.is_problem(422, "key-reused");
    let new = eventually(|| gateway.pay("k").send(), |answer| answer.status != 410).await;
    assert_eq!(new.told(), (201, "{\"payment\":2}", Some("false")));
    assert_eq!(upstream.last().field("oncegate-attempt"), Some("1"));
}

#[tokio::test]
async fn without_a_tombstone_the_key_is_new_at_once() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[(".retention", "1s"), (".tombstone", "0s")]).await;
    assert_eq!(until_over(&gateway).await.told(), (201, "{\"payment\":2}", Some("false")));
}

#[tokio::test]
async fn a_business_number_is_remembered_for_ever() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[(".key", "[\"body:/amount\"]"), (".retention", "1s")]).await;
    until_over(&gateway).await.is_problem(410, "key-expired");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn the_unknown_does_not_expire() {
    let upstream = Upstream::always(vec![Step::Close]).await;
    let brief: Settings<'_> = &[(".retention", "1s"), (".tombstone", "0s")];
    let gateway = Gateway::start(&upstream, brief).await;
    gateway.pay("k").send().await.is_problem(502, "upstream-failed");
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    gateway.pay("k").send().await.is_problem(409, "outcome-unknown");
}
