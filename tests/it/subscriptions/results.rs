//! What deliveries come to, with an embedded queue on each database.

use oncegate::broker::embedded::Messages as _;
use serde_json::json;

use super::eventually;
use super::handler::Behaviour::{Answers, Crashes, Waits, Works};
use super::queue::TRACE;
use super::world::{World, paid};
use crate::http::upstream::Gate;
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    a_message_is_delivered_once_as_it_was_sent,
    a_message_that_means_the_same_is_a_duplicate,
    another_message_of_the_same_key_is_a_conflict_and_a_dead_letter,
    what_the_handler_never_takes_is_rejected_at_once,
    what_it_refuses_too_often_is_rejected,
    what_it_refuses_for_now_is_tried_again,
    a_message_without_a_key_is_kept_with_the_reason,
    messages_of_before_the_subscription_are_delivered_too,
    what_comes_again_while_the_first_is_handled_waits_and_is_a_duplicate,
);

async fn a_message_is_delivered_once_as_it_was_sent(kind: Kind) {
    let world = World::on(kind, "headers = { authorization = 'Bearer x' }").await;
    world.queue.send_as([7; 16], &paid("A-1")).await;
    world.come_to("A-1", &["applied"]).await;
    let requests = world.handler.requests("A-1");
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!((&*request.method, &*request.target), ("POST", "/points"));
    assert_eq!(request.body, paid("A-1").to_string().as_bytes());
    let expected = [
        ("content-type", "application/json"),
        ("oncegate-attempt", "1"),
        ("authorization", "Bearer x"),
        ("traceparent", TRACE),
        ("ce-specversion", "1.0"),
        ("ce-id", "07070707070707070707070707070707"),
        ("ce-source", "/payments"),
        ("ce-type", "com.example.payment.paid"),
    ];
    for (name, value) in expected {
        assert_eq!(request.field(name), Some(value), "{name}");
    }
    assert_eq!(request.field("idempotency-key").map(str::len), Some(64), "derived");
    let delivery = &world.deliveries().await[0];
    assert_eq!((delivery.state, delivery.attempts, &*delivery.key), (5, 1, "A-1"));
    for said in ["\"oncegate-message\":\"0707", "\"oncegate-key\":\"A-1\"", "\"oncegate-place\":"] {
        assert!(delivery.attributes.contains(said), "{}", delivery.attributes);
    }
    assert_eq!(world.entries(3).await, 1);
}

async fn a_message_that_means_the_same_is_a_duplicate(kind: Kind) {
    let mut world = World::on(kind, "fingerprint.ignore = ['/sent_at']").await;
    world.queue.send(&json!({ "order_no": "A-1", "amount": 250, "sent_at": 1 })).await;
    world.come_to("A-1", &["applied"]).await;
    // A process that remembers nothing itself.
    world.stop().await;
    world.start().await;
    world.queue.send_text(r#"{ "sent_at": 2, "amount": 2.50e2, "order_no": "A-1" }"#).await;
    world.come_to("A-1", &["applied", "duplicate"]).await;
    assert_eq!(world.handler.calls("A-1"), 1);
}

async fn another_message_of_the_same_key_is_a_conflict_and_a_dead_letter(kind: Kind) {
    let world = World::on(kind, "dead_letter = 'dead'").await;
    world.pay("A-1").await;
    world.come_to("A-1", &["applied"]).await;
    world.queue.send(&json!({ "order_no": "A-1", "amount": 999 })).await;
    world.come_to("A-1", &["applied", "conflict"]).await;
    let delivery = &world.deliveries().await[1];
    assert_eq!((delivery.state, &*delivery.reason), (4, "its key stands for another message"));
    assert_eq!(world.handler.calls("A-1"), 1);
    let queue = world.database.open();
    let dead = async || queue.tail("default", Some("dead"), 0, 10).await.unwrap();
    let dead = eventually("the dead letter is in the queue", dead, |dead| !dead.is_empty()).await;
    let attributes: serde_json::Value = serde_json::from_str(&dead[0].message.attributes).unwrap();
    assert_eq!(attributes["oncegatereason"], "its key stands for another message");
    assert_eq!(attributes["oncegateresult"], "conflict");
    assert_eq!(attributes["oncegatesubscription"], "points");
    assert_eq!(attributes["type"], "com.example.payment.paid");
    assert!(dead.len() == 1 && dead[0].message.data.windows(3).any(|part| part == b"999"));
}

async fn what_the_handler_never_takes_is_rejected_at_once(kind: Kind) {
    let world = World::on(kind, "").await;
    world.handler.behave("A-1", [Answers("422 Unprocessable Content"), Works]);
    world.pay("A-1").await;
    world.come_to("A-1", &["rejected"]).await;
    let delivery = &world.deliveries().await[0];
    assert_eq!((delivery.state, delivery.attempts), (4, 1));
    assert!(delivery.reason.starts_with("the handler answered 422"), "{}", delivery.reason);
    assert_eq!((world.handler.calls("A-1"), world.entries(3).await), (1, 0), "its key is free");
    // Later ones of its key go on.
    world.queue.send(&json!({ "order_no": "A-1", "amount": 1 })).await;
    world.come_to("A-1", &["rejected", "applied"]).await;
}

async fn what_it_refuses_too_often_is_rejected(kind: Kind) {
    let world = World::on(kind, "attempts = 3").await;
    world.handler.behave("A-1", [Answers("503 Service Unavailable")]);
    world.pay("A-1").await;
    world.come_to("A-1", &["rejected"]).await;
    let delivery = &world.deliveries().await[0];
    assert_eq!((delivery.state, delivery.attempts, world.handler.calls("A-1")), (4, 3, 3));
    assert_eq!(delivery.reason, "the handler answered 503 Service Unavailable, 3 times");
}

async fn what_it_refuses_for_now_is_tried_again(kind: Kind) {
    let world = World::on(kind, "on_unknown = 'forward'").await;
    let refusals = ["408 Request Timeout", "409 Conflict", "425 Too Early", "429 Too Many Requests", "500 Oops"];
    let behaviours: Vec<_> = refusals.into_iter().map(Answers).chain([Crashes, Works]).collect();
    world.handler.behave("A-1", behaviours);
    world.pay("A-1").await;
    world.come_to("A-1", &["applied"]).await;
    assert_eq!((world.handler.calls("A-1"), world.handler.applied("A-1")), (7, 1));
    let keys: Vec<_> = world
        .handler
        .requests("A-1")
        .iter()
        .map(|request| request.field("idempotency-key").unwrap().to_owned())
        .collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "one key for all tries: {keys:?}");
    // What is refused leaves nothing behind; only an unknown outcome makes the next one a second attempt.
    let attempts: Vec<_> = world
        .handler
        .requests("A-1")
        .iter()
        .map(|request| request.field("oncegate-attempt").unwrap().to_owned())
        .collect();
    assert_eq!(attempts, ["1", "1", "1", "1", "1", "1", "2"]);
}

async fn a_message_without_a_key_is_kept_with_the_reason(kind: Kind) {
    let world = World::on(kind, "dead_letter = 'dead'").await;
    let long = format!(r#"{{"order_no":"{}"}}"#, "x".repeat(300));
    for text in ["{}", "not JSON", r#"{"order_no":""}"#, r#"{"order_no":1,"order_no":2}"#, &long] {
        world.queue.send_text(text).await;
    }
    world.pay("A-1").await;
    let deliveries = world.over(6).await;
    for delivery in &deliveries[..5] {
        assert_eq!((delivery.state, &*delivery.result), (4, "rejected"), "{delivery:?}");
    }
    assert!(deliveries[0].reason.starts_with("it has no key"), "{}", deliveries[0].reason);
    assert!(deliveries[4].reason.contains("longer than 255 bytes"), "{}", deliveries[4].reason);
    assert_eq!((&*deliveries[5].result, world.handler.upstream.count()), ("applied", 1));
    let queue = world.database.open();
    let dead = async || queue.tail("default", Some("dead"), 0, 10).await.unwrap().len();
    eventually("all are dead letters", dead, |count| *count == 5).await;
}

async fn messages_of_before_the_subscription_are_delivered_too(kind: Kind) {
    let mut world = World::on(kind, "prefetch = 3").await;
    world.stop().await;
    for number in 0..10 {
        world.pay(&format!("A-{number}")).await;
    }
    world.start().await;
    let deliveries = world.over(10).await;
    assert!(deliveries.iter().all(|delivery| delivery.result == "applied"), "{deliveries:?}");
    // The cursor is behind all of them: nothing is received again.
    world.stop().await;
    world.start().await;
    world.pay("B").await;
    world.over(11).await;
    assert_eq!(world.handler.upstream.count(), 11);
}

/// It is ordered by something else, so that nothing but its key keeps it back.
async fn what_comes_again_while_the_first_is_handled_waits_and_is_a_duplicate(kind: Kind) {
    let world = World::on(kind, "entity = 'body:/n'\nfingerprint.ignore = ['/n']\nattempts = 1").await;
    let gate = Gate::new();
    world.handler.behave("A-1", [Waits(gate.clone())]);
    for n in 0..3 {
        world.queue.send(&json!({ "order_no": "A-1", "n": n })).await;
        world.handler.called("A-1", 1).await;
    }
    let again = async || world.deliveries().await.into_iter().skip(1).map(|one| one.deferrals).collect::<Vec<_>>();
    eventually("both are put off", again, |seen| seen.len() == 2 && seen.iter().all(|count| *count >= 2)).await;
    assert_eq!(world.results("A-1").await, ["-"; 3], "none is acknowledged as done before it is");
    gate.cancel();
    let over = world.over(3).await;
    assert!(over.iter().all(|one| ["applied", "duplicate"].contains(&&*one.result)), "{over:?}");
    assert_eq!((world.handler.calls("A-1"), world.handler.applied("A-1")), (1, 1));
    assert!(world.deliveries().await.iter().all(|one| one.attempts == 1), "waiting costs no attempt");
}
