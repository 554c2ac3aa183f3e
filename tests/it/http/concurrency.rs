//! Requests of a key whose first request still runs.

use std::time::Duration;

use futures_util::future::join_all;
use oncegate::clock;

use super::gateway::{Gateway, Settings};
use super::upstream::{Gate, Upstream, after, answer, created};
use crate::servers::database::Kind;

/// An upstream that answers when the gate opens.
async fn gated() -> (Upstream, Gate) {
    let gate = Gate::new();
    let waited_for = gate.clone();
    (Upstream::start(move |number, _| after(&waited_for, created(number))).await, gate)
}

#[tokio::test]
async fn a_retry_is_told_at_once_that_the_first_still_runs() {
    let (upstream, gate) = gated().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let first = tokio::spawn(gateway.pay("k").send());
    upstream.reached(1).await;
    let retry = gateway.pay("k").send().await;
    retry.is_problem(409, "processing");
    assert_eq!((retry.field("retry-after"), retry.field("idempotent-replayed")), (Some("1"), Some("false")));
    assert_eq!((retry.field("idempotency-key"), retry.field("preference-applied")), (Some("\"k\""), None));
    gateway.pay("k").body("{\"amount\":2}").send().await.is_problem(422, "key-reused");
    gate.cancel();
    let first = first.await.unwrap();
    assert_eq!(first.told(), (201, "{\"payment\":1}", Some("false")));
    gateway.pay("k").send().await.is_replay_of(&first);
}

#[tokio::test]
async fn a_retry_waits_where_the_route_or_the_client_says_so() {
    let prefer = [(None, "wait"), (Some("wait=20"), "processing"), (Some("respond-async, WAIT=20"), "processing")];
    for (prefer, concurrent) in prefer {
        let (upstream, gate) = gated().await;
        let gateway = Gateway::start(&upstream, &[(".concurrent", concurrent), (".wait", "10s")]).await;
        let first = tokio::spawn(gateway.pay("k").send());
        upstream.reached(1).await;
        let call = gateway.pay("k");
        let retry = tokio::spawn(match prefer {
            Some(prefer) => call.field("prefer", prefer).send(),
            None => call.send(),
        });
        gateway.pay("k").field("prefer", "wait=0").send().await.is_problem(409, "processing");
        gate.cancel();
        let retry = retry.await.unwrap();
        retry.is_replay_of(&first.await.unwrap());
        assert_eq!(retry.field("preference-applied"), prefer.map(|_| "wait=10"), "capped");
        assert_eq!(upstream.count(), 1);
    }
}

#[tokio::test]
async fn waiting_ends() {
    let (upstream, _gate) = gated().await;
    let gateway = Gateway::start(&upstream, &[(".wait", "1s")]).await;
    let _first = tokio::spawn(gateway.pay("k").send());
    upstream.reached(1).await;
    let began = clock::now();
    let retry = gateway.pay("k").field("prefer", "wait=60").send().await;
    retry.is_problem(409, "processing");
    assert_eq!(retry.field("preference-applied"), Some("wait=1"));
    assert!((Duration::from_secs(1)..Duration::from_secs(5)).contains(&began.elapsed()));
}

#[tokio::test]
async fn who_waited_for_a_request_that_was_not_executed_is_executed() {
    let gate = Gate::new();
    let waited_for = gate.clone();
    let upstream = Upstream::start(move |number, _| match number {
        1 => after(&waited_for, answer("429 Too Many", &[], "")),
        _ => created(number),
    })
    .await;
    let gateway = Gateway::start(&upstream, &[(".concurrent", "wait")]).await;
    let first = tokio::spawn(gateway.pay("k").send());
    upstream.reached(1).await;
    let retry = tokio::spawn(gateway.pay("k").send());
    gate.cancel();
    assert_eq!(first.await.unwrap().status, 429);
    assert_eq!(retry.await.unwrap().told(), (201, "{\"payment\":2}", Some("false")));
}

/// Ten at once, over all `gateways`: how many were executed, replayed, and told to come again.
async fn ten_at_once(upstream: &Upstream, gate: &Gate, gateways: &[Gateway]) -> (usize, usize, usize) {
    let calls = (0..10).map(|number| tokio::spawn(gateways[number % gateways.len()].pay("k").send()));
    let calls: Vec<_> = calls.collect();
    upstream.reached(1).await;
    gate.cancel();
    let answers: Vec<_> = join_all(calls).await.into_iter().map(|answer| answer.unwrap()).collect();
    let count = |status: u16, replayed: &str| {
        answers
            .iter()
            .filter(|answer| (answer.status, answer.field("idempotent-replayed")) == (status, Some(replayed)))
            .count()
    };
    assert_eq!(upstream.count(), 1);
    (count(201, "false"), count(201, "true"), count(409, "false"))
}

#[tokio::test]
async fn of_ten_at_once_one_is_executed() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let (upstream, gate) = gated().await;
        let gateway = Gateway::on(kind, &upstream, &[]).await;
        let (executed, replayed, refused) = ten_at_once(&upstream, &gate, &[gateway]).await;
        assert_eq!((executed, replayed + refused), (1, 9), "{kind:?}");
    }
}

#[tokio::test]
async fn of_ten_at_once_nine_wait_for_the_one() {
    let waiting: Settings<'_> = &[(".concurrent", "wait")];
    let (upstream, gate) = gated().await;
    let gateway = Gateway::start(&upstream, waiting).await;
    assert_eq!(ten_at_once(&upstream, &gate, &[gateway]).await, (1, 9, 0));
}

#[tokio::test]
async fn two_gateways_on_one_database_execute_once() {
    let waiting: Settings<'_> = &[(".concurrent", "wait")];
    let (upstream, gate) = gated().await;
    let one = Gateway::on(Kind::Postgres, &upstream, waiting).await;
    let two = Gateway::again(one.database.shared(), &upstream.url(), "", waiting).await;
    assert_eq!(ten_at_once(&upstream, &gate, &[one, two]).await, (1, 9, 0));
}

#[tokio::test]
async fn equal_bodies_under_two_keys_are_two_requests() {
    let upstream = Upstream::counting().await;
    let gateway = Gateway::start(&upstream, &[]).await;
    let (one, two) = tokio::join!(gateway.pay("a").send(), gateway.pay("b").send());
    assert_eq!((one.status, two.status, upstream.count()), (201, 201, 2));
    assert_ne!(one.body, two.body);
}
