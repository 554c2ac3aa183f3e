//! Versions of an entity, and the line of a key.

use std::time::Duration;

use oncegate::inbox::store::Deposits as _;
use serde_json::{Value, json};

use super::eventually;
use super::handler::Behaviour::{Answers, Waits, Works};
use super::world::World;
use crate::http::upstream::Gate;
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    an_older_version_never_comes_after_a_newer_one,
    an_older_version_that_is_sent_again_waits_for_the_newer_one_that_is_not_over,
    the_same_version_is_a_duplicate_or_a_conflict,
    a_missing_version_is_waited_for,
    those_that_wait_come_as_soon_as_the_missing_one_is_applied,
    a_version_that_never_comes_ends_the_wait,
);

const VERSIONS: &str = "version = 'body:/version'\nentity = 'body:/order_no'\n";

fn version(order: &str, number: u32, state: &str) -> Value {
    json!({ "order_no": order, "version": number, "state": state })
}

async fn an_older_version_never_comes_after_a_newer_one(kind: Kind) {
    let world = World::on(kind, VERSIONS).await;
    world.queue.send(&version("A-1", 2, "cancelled")).await;
    world.come_to("A-1", &["applied"]).await;
    world.queue.send(&version("A-1", 1, "created")).await;
    world.queue.send(&version("A-1", 3, "archived")).await;
    world.come_to("A-1", &["applied", "stale", "applied"]).await;
    assert_eq!(world.handler.states("A-1"), ["cancelled", "archived"]);
}

async fn an_older_version_that_is_sent_again_waits_for_the_newer_one_that_is_not_over(kind: Kind) {
    let world = World::on(kind, VERSIONS).await;
    world
        .handler
        .behave("A-1", [Answers("422 Unprocessable Content"), Answers("503 Service Unavailable"), Works, Works]);
    world.queue.send(&version("A-1", 1, "created")).await;
    world.come_to("A-1", &["rejected"]).await;
    world.queue.send(&version("A-1", 2, "cancelled")).await;
    world.handler.called("A-1", 2).await;
    assert_eq!(world.redrive().await, 1);
    world.come_to("A-1", &["stale", "applied"]).await;
    assert_eq!(world.handler.states("A-1"), ["cancelled"]);
}

async fn the_same_version_is_a_duplicate_or_a_conflict(kind: Kind) {
    let world = World::on(kind, VERSIONS).await;
    world.queue.send(&version("A-1", 1, "created")).await;
    world.come_to("A-1", &["applied"]).await;
    // Its key is known as done: that it was kept at all is the cache's matter.
    world.queue.send(&version("A-1", 1, "forged")).await;
    world.come_to("A-1", &["applied", "conflict"]).await;
    assert_eq!(world.deliveries().await[1].reason, "version 1 was applied before, with another content");
    world.queue.send_text(r#"{"order_no":"A-1"}"#).await;
    world.come_to("A-1", &["applied", "conflict", "rejected"]).await;
    assert!(world.deliveries().await[2].reason.starts_with("it has no version: body:/version"));
    assert_eq!(world.handler.states("A-1"), ["created"]);
}

async fn a_missing_version_is_waited_for(kind: Kind) {
    let world = World::on(kind, &format!("{VERSIONS}gap = {{ wait = '60s', then = 'dead_letter' }}")).await;
    for (number, state) in [(3, "shipped"), (2, "paid")] {
        world.queue.send(&version("A-1", number, state)).await;
    }
    let waiting = async || world.deliveries().await.iter().filter(|delivery| delivery.state == 7).count();
    eventually("both are early", waiting, |count| *count == 2).await;
    assert_eq!(world.handler.calls("A-1"), 0);
    world.queue.send(&version("A-1", 1, "created")).await;
    world.come_to("A-1", &["applied", "applied", "applied"]).await;
    assert_eq!(world.handler.states("A-1"), ["created", "paid", "shipped"]);
}

/// By time alone, each would come after its pause: by then, many seconds.
async fn those_that_wait_come_as_soon_as_the_missing_one_is_applied(kind: Kind) {
    let world = World::on(kind, &format!("{VERSIONS}gap = {{ wait = '10m', then = 'dead_letter' }}")).await;
    for number in [5, 3, 4, 2] {
        world.queue.send(&version("A-1", number, &number.to_string())).await;
    }
    let waiting =
        async || world.deliveries().await.iter().map(|one| (one.state == 7, one.deferrals)).collect::<Vec<_>>();
    let have_waited = |seen: &Vec<(bool, u32)>| seen.len() == 4 && seen.iter().all(|one| one.0 && one.1 >= 6);
    eventually("all are early, with long pauses", waiting, have_waited).await;
    let begun = oncegate::clock::now();
    world.queue.send(&version("A-1", 1, "1")).await;
    world.come_to("A-1", &["applied"; 5]).await;
    assert_eq!(world.handler.states("A-1"), ["1", "2", "3", "4", "5"]);
    // The last pause was 8 s, halved by jitter at most.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

async fn a_version_that_never_comes_ends_the_wait(kind: Kind) {
    for (then, result) in [("apply", "applied"), ("dead_letter", "rejected")] {
        let world = World::on(kind, &format!("{VERSIONS}gap = {{ wait = '300ms', then = '{then}' }}")).await;
        world.queue.send(&version("A-1", 1, "created")).await;
        world.queue.send(&version("A-1", 3, "shipped")).await;
        world.come_to("A-1", &["applied", result]).await;
        let late: &[&str] = if then == "apply" { &["stale"] } else { &["applied"] };
        world.queue.send(&version("A-1", 2, "paid")).await;
        world.come_to("A-1", &[&["applied", result][..], late].concat()).await;
    }
}

/// Given up, it would let the newer one pass, and could still take effect after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_whose_outcome_is_unknown_is_never_given_up() {
    let rest = format!("{VERSIONS}on_unknown = 'forward'\ntimeout = '300ms'\nattempts = 2");
    let world = World::on(Kind::Sqlite, &rest).await;
    let never = || Waits(Gate::new());
    let unavailable = Answers("503 Service Unavailable");
    let behaviours = [never(), never(), Answers("422 Unprocessable Content"), unavailable, Works, Works];
    world.handler.behave("A-1", behaviours);
    world.queue.send(&version("A-1", 1, "created")).await;
    world.queue.send(&version("A-1", 2, "cancelled")).await;
    world.come_to("A-1", &["applied", "applied"]).await;
    assert_eq!(world.handler.states("A-1"), ["created", "cancelled"]);
    let calls = world.handler.requests("A-1");
    let versions: Vec<Value> = calls.iter().map(|call| serde_json::from_slice::<Value>(&call.body).unwrap()).collect();
    let versions: Vec<&Value> = versions.iter().map(|data| &data["version"]).collect();
    assert_eq!(versions, [1, 1, 1, 1, 1, 2], "the newer one waits until the older one's end is known");
}

/// Whatever has been forgotten meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_dead_letter_that_is_sent_again_is_stale_however_late() {
    let world = World::on(Kind::Sqlite, VERSIONS).await;
    world.handler.behave("A-1", [Answers("422 Unprocessable Content"), Works]);
    world.queue.send(&version("A-1", 1, "created")).await;
    world.come_to("A-1", &["rejected"]).await;
    world.queue.send(&version("A-1", 2, "cancelled")).await;
    world.come_to("A-1", &["rejected", "applied"]).await;
    // A year later.
    let mut stranger = world.database.stranger().await;
    stranger.run("DELETE FROM events WHERE state = 5").await;
    stranger.run("DELETE FROM entries").await;
    stranger.run("UPDATE versions SET changed_at = changed_at - 31536000000").await;
    let hour = Duration::from_secs(3600);
    assert_eq!(world.database.open().forget_versions("points", hour, 100).await.unwrap(), 0);
    assert_eq!(world.redrive().await, 1);
    world.come_to("A-1", &["stale"]).await;
    assert_eq!(world.handler.states("A-1"), ["cancelled"]);
    // Sent once more, it is so still.
    assert_eq!(world.database.open().forget_versions("points", hour, 100).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_key_come_one_at_a_time_and_in_order_and_others_do_not_wait() {
    let world = World::on(Kind::Sqlite, "key = [['body:/order_no', 'body:/n']]\nentity = 'body:/order_no'").await;
    let gate = Gate::new();
    world.handler.behave("slow", [Waits(gate.clone()), Works]);
    for n in 0..5 {
        world.queue.send(&json!({ "order_no": "slow", "n": n })).await;
    }
    world.handler.called("slow", 1).await;
    for number in 0..50 {
        world.queue.send(&json!({ "order_no": format!("B-{number}"), "n": 0 })).await;
    }
    let others = async || world.handler.effects().iter().filter(|(order, _)| order.starts_with("B-")).count();
    eventually("the others are done", others, |count| *count == 50).await;
    assert_eq!(world.handler.calls("slow"), 1, "the second one waits for the first");
    gate.cancel();
    world.over(55).await;
    let of_slow = world.handler.effects().into_iter().filter(|(order, _)| order == "slow");
    assert_eq!(of_slow.map(|(_, data)| data["n"].clone()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_refused_stops_its_key_and_nobody_else() {
    let world =
        World::on(Kind::Sqlite, "key = [['body:/order_no', 'body:/n']]\nentity = 'body:/order_no'\nattempts = 100")
            .await;
    world.handler.behave("ill", [Answers("503 Service Unavailable")]);
    for n in 0..3 {
        world.queue.send(&json!({ "order_no": "ill", "n": n })).await;
    }
    world.handler.called("ill", 2).await;
    for number in 0..20 {
        world.queue.send(&json!({ "order_no": format!("B-{number}"), "n": 0 })).await;
    }
    let others = async || world.handler.effects().len();
    eventually("the others are done", others, |count| *count == 20).await;
    world.handler.behave("ill", [Works]);
    world.over(23).await;
    let of_ill = world.handler.effects().into_iter().filter(|(order, _)| order == "ill");
    assert_eq!(of_ill.map(|(_, data)| data["n"].clone()).collect::<Vec<_>>(), [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_holds_waits_for_a_person() {
    let world = World::on(
        Kind::Sqlite,
        "key = [['body:/order_no', 'body:/n']]\nentity = 'body:/order_no'\non_failure = 'hold'",
    )
    .await;
    world.handler.behave("A-1", [Answers("422 Unprocessable Content"), Works]);
    for n in 0..2 {
        world.queue.send(&json!({ "order_no": "A-1", "n": n })).await;
    }
    world.come_to("A-1", &["rejected", "-"]).await;
    world.pay_other().await;
    assert_eq!(world.handler.calls("A-1"), 1);
}

impl World {
    /// One of another key, to its end: what could have happened meanwhile has.
    async fn pay_other(&self) {
        self.queue.send(&json!({ "order_no": "other", "n": 0 })).await;
        self.come_to("other", &["applied"]).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
