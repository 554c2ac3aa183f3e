//! Events of a configured route, from the client's request to the row.

use super::client::Call;
use super::gateway::{Gateway, Settings};
use super::upstream::{Step, Upstream, answer};
use super::{eventually, in_time};
use crate::servers::database::{Database, Kind, on_each_database};
use crate::servers::outbox::{Written, written};
use oncegate::broker::embedded::Messages as _;
use oncegate::outbox::desk::{Action, Desk as _, Mode, Order, Which};
use oncegate::outbox::event::EventId;

on_each_database!(
    a_completed_request_is_announced_as_the_route_says,
    a_request_that_a_lookup_settles_is_announced_in_its_own_trace,
    a_gateway_on_a_store_of_before_goes_on,
    what_is_announced_arrives_in_the_queue_once,
);

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

const ORDER: &str = r#"
    [[queues]]
    name = "audit"
    max_event_bytes = "1KiB"

    [[routes]]
    name = "order"
    match = "POST /order/{shop}"
    upstream = "up"
    idempotency = { key = ["header"], response_limit = "4KiB" }

    [[routes.events]]
    name = "placed"
    type = "com.example.order.placed"
    topic = "orders"
    key = [["path:shop", "body:/order_no"]]
    data = { id = "response:/id", amount = "request:/amount", kind = "order" }
    when = { status = 201, equals = { "/state" = "open" } }

    [[routes.events]]
    name = "audited"
    type = "com.example.order.audited"
    source = "/audit"
    queue = "audit"
    topic = "all"
    data = "both"
    on_failure = "skip"
"#;

async fn start(kind: Kind, upstream: &Upstream, settings: Settings<'_>) -> Gateway {
    Gateway::again(Database::create(kind).await, &upstream.url(), ORDER, settings).await
}

fn order(gateway: &Gateway, key: &str) -> Call {
    let call = gateway.post("/order/berlin").field("idempotency-key", key).field("traceparent", TRACE);
    call.body(r#"{"order_no":"A-1","amount":1.10e2}"#)
}

fn opened() -> Vec<Step> {
    answer("201 Created", &[("content-type", "application/json")], r#"{"id":9007199254740993,"state":"open"}"#)
}

fn told(event: &Written) -> [&str; 5] {
    // Its state and attempts change as the relay goes on.
    let holds = event.state.rsplit('.').next().unwrap();
    [&event.kind, &event.queue, &event.source, holds, &event.data]
}

async fn a_completed_request_is_announced_as_the_route_says(kind: Kind) {
    let upstream = Upstream::start(|_, _| opened()).await;
    let gateway = start(kind, &upstream, &[]).await;
    for _ in 0..2 {
        assert_eq!(order(&gateway, "k").field("accept-encoding", "gzip").send().await.status, 201);
    }
    let events = written(&gateway.database).await;
    let both = r#"{"request":{"order_no":"A-1","amount":1.10e2},"response":{"id":9007199254740993,"state":"open"}}"#;
    let placed = r#"{"amount":1.10e2,"id":9007199254740993,"kind":"order"}"#;
    let expected = [
        ["com.example.order.placed", "default", "/order", "1", placed],
        ["com.example.order.audited", "audit", "/audit", "0", both],
    ];
    assert_eq!(events.iter().map(told).collect::<Vec<_>>(), expected);
    assert!(events.iter().all(|event| event.traceparent == TRACE && event.content_type == "application/json"));
    assert!(events[0].key.starts_with("c-"), "a composite: {}", events[0].key);
    assert_eq!((&*events[1].key, &*events[1].topic, &*events[1].route), ("k", "all", "order"));
    // The upstream is not to compress what has to be read.
    assert_eq!(upstream.all()[0].field("accept-encoding"), Some("identity"));
}

async fn a_request_that_a_lookup_settles_is_announced_in_its_own_trace(kind: Kind) {
    let upstream = Upstream::start(|_, request| match &*request.method {
        "GET" => opened(),
        _ => vec![Step::Close],
    })
    .await;
    let lookup: Settings<'_> = &[
        ("routes.order.idempotency.on_unknown", "lookup"),
        ("routes.order.idempotency.lookup.request", "GET /by/{key}"),
        ("routes.order.idempotency.lookup.first", "50ms"),
    ];
    let gateway = start(kind, &upstream, lookup).await;
    order(&gateway, "k").send().await.is_problem(502, "upstream-failed");
    let events = eventually(|| written(&gateway.database), |events| !events.is_empty()).await;
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event.traceparent == TRACE && !event.is_unfit()), "{events:#?}");
    assert!(events[0].data.contains("\"amount\":1.10e2"), "{events:#?}");
}

async fn what_is_announced_arrives_in_the_queue_once(kind: Kind) {
    let upstream = Upstream::start(|_, _| opened()).await;
    let gateway = start(kind, &upstream, &[]).await;
    for key in ["a", "b", "a"] {
        assert_eq!(order(&gateway, key).send().await.status, 201);
    }
    let queue = gateway.database.open();
    let arrived =
        eventually(|| async { queue.tail("default", None, 0, 10).await.unwrap() }, |all| all.len() >= 2).await;
    assert_eq!(arrived.len(), 2);
    let ids: Vec<_> = written(&gateway.database).await.into_iter().filter(|event| event.queue == "default").collect();
    for (stored, event) in arrived.iter().zip(&ids) {
        let message = &stored.message;
        assert_eq!((&*message.id, &*message.topic, &*message.key), (&*event.id, "orders", &*event.key));
        assert_eq!((&message.data[..], &*message.content_type), (event.data.as_bytes(), "application/json"));
        let attributes: serde_json::Value = serde_json::from_str(&message.attributes).unwrap();
        assert_eq!(attributes["type"], "com.example.order.placed");
        assert_eq!(attributes["traceparent"], TRACE);
    }
    let sent =
        || async { gateway.database.stranger().await.number("SELECT COUNT(*) FROM events WHERE state = 5").await };
    eventually(sent, |count| *count == 4).await;
    // Nothing is left to be announced by the next one.
    let gateway = Gateway::again(in_time(gateway.stop()).await, &upstream.url(), ORDER, &[]).await;
    assert_eq!(order(&gateway, "a").send().await.field("idempotent-replayed"), Some("true"));
    assert_eq!(queue.tail("default", None, 0, 10).await.unwrap().len(), 2);
}

/// Old and new gateways run side by side during a rollout.
async fn a_gateway_on_a_store_of_before_goes_on(kind: Kind) {
    let upstream = Upstream::start(|_, _| opened()).await;
    let before = Gateway::on(kind, &upstream, &[]).await;
    assert_eq!(before.pay("k").send().await.status, 201);
    let database = in_time(before.stop()).await;
    let gateway = Gateway::again(database, &upstream.url(), ORDER, &[]).await;
    assert_eq!(gateway.pay("k").send().await.field("idempotent-replayed"), Some("true"));
    assert_eq!(order(&gateway, "k").send().await.status, 201);
    assert_eq!(written(&gateway.database).await.len(), 2);
}

#[tokio::test]
async fn a_condition_that_does_not_hold_announces_nothing_and_one_that_nobody_can_decide_waits() {
    let upstream = Upstream::start(|number, _| match number {
        1 => answer("201 Created", &[], r#"{"id":1,"state":"closed"}"#),
        2 => answer("200 OK", &[], r#"{"id":1,"state":"open"}"#),
        3 => answer("402 Payment Required", &[], r#"{"state":"open"}"#),
        4 => answer("201 Created", &[], "no JSON"),
        _ => answer("201 Created", &[("content-encoding", "br")], "..."),
    })
    .await;
    let gateway = start(Kind::Sqlite, &upstream, &[]).await;
    for key in ["1", "2", "3", "4", "5"] {
        order(&gateway, key).send().await;
    }
    let events = written(&gateway.database).await;
    let seen: Vec<_> = events.iter().map(|event| (&*event.topic, &*event.reason)).collect();
    let expected = [
        ("all", "-"),
        ("all", "-"),
        ("orders", "its condition reads in the response, which is not JSON"),
        ("all", "-"),
        ("orders", "it depends on the response, which is encoded"),
        ("all", "it depends on the response, which is encoded"),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn what_is_too_large_for_its_queue_or_was_not_kept_waits_for_a_person() {
    let upstream = Upstream::start(|number, _| {
        let len = if number == 1 { 2_000 } else { 5_000 };
        answer("201 Created", &[], format!("{{\"id\":1,\"state\":\"open\",\"text\":\"{}\"}}", "x".repeat(len)))
    })
    .await;
    let gateway = start(Kind::Sqlite, &upstream, &[]).await;
    for key in ["large", "larger than what is kept"] {
        let answer = order(&gateway, &key.replace(' ', "-")).send().await;
        assert_eq!(answer.status, 201, "the response is never lost");
    }
    let events = written(&gateway.database).await;
    let seen: Vec<_> = events.iter().map(|event| (&*event.topic, &*event.reason, event.data.len() > 2_000)).collect();
    let not_kept = "it depends on the response, which was not kept";
    let expected = [
        ("orders", "-", false),
        ("all", "it is larger than its queue takes", true),
        ("orders", not_kept, false),
        ("all", not_kept, false),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn what_nobody_can_publish_keeps_its_place_among_those_of_its_key() {
    let upstream = Upstream::start(|number, _| match number {
        1 => answer("201 Created", &[], "no JSON"),
        _ => opened(),
    })
    .await;
    let gateway = start(Kind::Sqlite, &upstream, &[]).await;
    for key in ["1", "2"] {
        assert_eq!(order(&gateway, key).send().await.status, 201);
    }
    let store = gateway.database.open();
    let states = async || {
        let placed = written(&gateway.database).await.into_iter().filter(|event| event.topic == "orders");
        placed.map(|event| (event.state, event.id)).collect::<Vec<_>>()
    };
    let stands = |states: &Vec<(String, String)>| states[0].0 == "4.1.1" && states[1].0.starts_with("3.");
    let states_then = eventually(&states, stands).await;
    assert_eq!(store.tail("default", None, 0, 10).await.unwrap(), [], "the second one waits for the first");
    // Whether it is to be sent is for a person to say.
    let first = EventId(u128::from_str_radix(&states_then[0].1, 16).unwrap().to_be_bytes());
    let retry =
        Order { action: Action::Retry, to: Which::Ids(vec![first]), reason: "it was paid".into(), mode: Mode::Carry };
    assert_eq!(store.act(&retry).await.unwrap().changed.len(), 1);
    let arrived =
        eventually(|| async { store.tail("default", None, 0, 10).await.unwrap() }, |all| all.len() == 2).await;
    // The first one is another copy to a queue that passes over what it has.
    let ids: Vec<_> = arrived.iter().map(|stored| stored.message.id.to_string()).collect();
    assert_eq!(ids, [format!("{}.1", states_then[0].1), states_then[1].1.clone()]);
}

#[tokio::test]
async fn a_wrong_trace_is_replaced_and_refuses_nothing() {
    let upstream = Upstream::start(|_, _| opened()).await;
    let gateway = start(Kind::Sqlite, &upstream, &[]).await;
    for (key, trace) in [("a", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"), ("b", "nonsense")] {
        let call = gateway.post("/order/berlin").field("idempotency-key", key).field("traceparent", trace);
        assert_eq!(call.send().await.status, 201);
    }
    let events = written(&gateway.database).await;
    let traces: Vec<_> = events.iter().map(|event| &*event.traceparent).collect();
    assert!(traces.iter().all(|trace| trace.len() == 55 && trace.ends_with("-00")), "{traces:?}");
    assert!(traces[0] == traces[1] && traces[1] != traces[2], "one for each request: {traces:?}");
    // Not there: said as null, and ordered by the entry.
    assert_eq!((events[0].key.len(), events[0].is_unfit()), (64, false));
    assert!(events[0].data.contains("\"amount\":1"), "{}", events[0].data);
}

#[tokio::test]
async fn a_route_that_only_observes_announces_nothing() {
    let upstream = Upstream::start(|_, _| opened()).await;
    let gateway = start(Kind::Sqlite, &upstream, &[("routes.order.idempotency.mode", "observe")]).await;
    order(&gateway, "k").send().await;
    let count =
        || async { gateway.database.stranger().await.number("SELECT COUNT(*) FROM entries WHERE state = 3").await };
    eventually(count, |count| *count == 1).await;
    assert_eq!(written(&gateway.database).await, []);
}
