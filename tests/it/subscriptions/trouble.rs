//! Handlers that are down, gone, or do not answer; and people who are told.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;

use super::eventually;
use super::handler::Behaviour::{Answers, Crashes, Waits, Works};
use super::handler::Handler;
use super::process::Gateway;
use super::world::World;
use crate::http::upstream::{Gate, Upstream, answer};
use crate::servers::database::Kind;

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_is_not_there_pauses_the_subscription_and_loses_nothing() {
    let mut world = World::on(Kind::Sqlite, "attempts = 1").await;
    // Somebody else's port, which refuses connections.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    world.stop().await;
    let of_before = world.handler.url();
    world.change(&of_before, &format!("http://{address}/points"));
    world.start().await;
    for number in 0..5 {
        world.pay(&format!("A-{number}")).await;
    }
    let kept = async || world.deliveries().await;
    let kept = eventually("all are kept", kept, |kept| kept.len() == 5).await;
    assert!(kept.iter().all(|delivery| delivery.state != 4 && delivery.attempts <= 1), "{kept:?}");
    // It comes back on the same port.
    let handler = Handler::start_on(address).await;
    world.over(5).await;
    assert!((0..5).all(|number| handler.applied(&format!("A-{number}")) == 1), "{:?}", handler.effects());
    assert_eq!(world.entries(2).await, 0, "nothing is unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_gone_wrong_pauses_the_subscription_and_tells_people_once() {
    let bell = Upstream::always(answer("204 No Content", &[], "")).await;
    let mut world = World::on(Kind::Sqlite, "attempts = 2\nalert = 'env:ALERT'").await;
    world.environment.push(("ALERT".to_owned(), format!("{}/hook?token=x", bell.url())));
    let missing = ["404 Not Found", "401 Unauthorized", "403 Forbidden", "405 Method Not Allowed", "302 Found"];
    world.handler.behave_always(missing.map(Answers));
    world.start().await;
    for number in 0..20 {
        world.pay(&format!("A-{number}")).await;
    }
    let calls = async || world.handler.upstream.count();
    eventually("it is probed again and again", calls, |calls| *calls >= 6).await;
    let kept = world.deliveries().await;
    assert!(kept.iter().all(|delivery| delivery.state != 4), "nothing is dead-lettered: {kept:?}");
    bell.reached(1).await;
    world.handler.behave_always([Works]);
    let deliveries = world.over(20).await;
    assert!(deliveries.iter().all(|delivery| delivery.result == "applied"), "{deliveries:?}");
    let told: Vec<serde_json::Value> =
        bell.all().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect();
    let alerts: Vec<_> = told.iter().map(|news| news["alert"].as_str().unwrap()).collect();
    assert_eq!(alerts, ["paused"], "that it goes on is told a minute later, if it still does");
    assert!(told[0]["text"].as_str().unwrap().contains("nothing is delivered: the handler answered "), "{told:?}");
    assert_eq!((&*bell.last().target, &told[0]["subscription"]), ("/hook?token=x", &"points".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_subscription_that_nobody_mentions_any_more_is_told_at_the_start() {
    let mut world = World::on(Kind::Sqlite, "timeout = '500ms'\nconnect_timeout = '200ms'").await;
    world.handler.behave_always([Answers("404 Not Found")]);
    world.pay("A-1").await;
    eventually("it is kept", async || world.deliveries().await, |kept| kept.len() == 1).await;
    world.stop().await;
    let told = |gateway: &Gateway| {
        let log = gateway.log();
        let told: Vec<&str> = log.lines().filter(|line| line.contains("sends nothing of this queue")).collect();
        told.join("\n")
    };
    let gateway = Gateway::start(&world.document, &world.database.url);
    assert_eq!(told(&gateway), "", "it is delivered here");
    drop(gateway);
    world.change("name = 'points'", "name = 'awards'");
    let gateway = Gateway::start(&world.document, &world.database.url);
    let told = told(&gateway);
    assert!(told.contains("sub:points") && told.contains("\"unsent\":1") && told.contains("\"ERROR\""), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_did_not_answer_in_time_is_held_and_its_late_answer_counts() {
    let world = World::on(Kind::Sqlite, "timeout = '300ms'").await;
    let gate = Gate::new();
    world.handler.behave("A-1", [Waits(gate.clone())]);
    world.pay("A-1").await;
    let held = async || world.deliveries().await.first().map_or(0, |delivery| delivery.deferrals);
    eventually("it is held", held, |deferrals| *deferrals >= 3).await;
    assert_eq!((world.handler.calls("A-1"), world.entries(2).await), (1, 1), "never sent again blindly");
    gate.cancel();
    world.come_to("A-1", &["applied"]).await;
    assert_eq!((world.handler.calls("A-1"), world.entries(3).await), (1, 1));
    assert_eq!(world.deliveries().await[0].attempts, 1, "waiting does not count");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_cut_is_held_and_others_do_not_wait() {
    let world = World::on(Kind::Sqlite, "").await;
    world.handler.behave("A-1", [Crashes]);
    world.pay("A-1").await;
    let unknown = async || world.entries(2).await;
    eventually("its outcome is unknown", unknown, |count| *count == 1).await;
    for number in 0..5 {
        world.pay(&format!("B-{number}")).await;
        world.come_to(&format!("B-{number}"), &["applied"]).await;
    }
    assert_eq!((world.handler.calls("A-1"), world.results("A-1").await), (1, vec!["-".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unknown_is_looked_up_where_that_is_configured() {
    let lookup = "on_unknown = 'lookup'\nlookup = { request = 'GET /points/{key}', first = '100ms', \
                  completed_when = { equals = { '/state' = 'paid' } } }";
    let world = World::on(Kind::Sqlite, lookup).await;
    world.handler.behave("A-1", [Crashes]);
    world.pay("A-1").await;
    world.come_to("A-1", &["applied"]).await;
    assert_eq!((world.handler.calls("A-1"), world.handler.applied("A-1")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unknown_is_delivered_again_where_the_handler_honours_the_key() {
    let world = World::on(Kind::Sqlite, "on_unknown = 'forward'\ntimeout = '500ms'\nattempts = 4").await;
    world.handler.behave("A-1", [Crashes, Waits(Gate::new()), Works]);
    world.handler.behave("deaf", [Waits(Gate::new())]);
    world.pay("A-1").await;
    world.pay("deaf").await;
    world.come_to("A-1", &["applied"]).await;
    assert_eq!((world.handler.calls("A-1"), world.handler.applied("A-1")), (3, 1));
    // One that never answers is not tried for ever.
    world.come_to("deaf", &["rejected"]).await;
    assert_eq!((world.handler.calls("deaf"), world.entries(2).await), (4, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_in_good_order_finishes_what_is_under_way_and_hands_over_at_once() {
    let mut world = World::on(Kind::Sqlite, "lease = '30s'").await;
    let gate = Gate::new();
    world.handler.behave("A-1", [Waits(gate.clone())]);
    world.pay("A-1").await;
    world.handler.called("A-1", 1).await;
    let opened = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        gate.cancel();
    });
    world.stop().await;
    opened.await.unwrap();
    assert_eq!(world.results("A-1").await, ["applied"]);
    assert_eq!((world.entries(2).await, world.entries(3).await), (0, 1), "nothing is unknown");
    // Nobody waits for a lease.
    let begun = oncegate::clock::now();
    world.start().await;
    world.pay("A-2").await;
    world.come_to("A-2", &["applied"]).await;
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_share_a_subscription_and_deliver_each_message_once() {
    let world = World::on(Kind::Postgres, "").await;
    let other = world.another().await;
    for number in 0..100 {
        world.pay(&format!("A-{number}")).await;
    }
    let deliveries = world.over(100).await;
    assert!(deliveries.iter().all(|delivery| delivery.result == "applied"));
    assert_eq!(world.handler.upstream.count(), 100);
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn above_the_backlog_nothing_more_is_received() {
    let mut world = World::on(Kind::Sqlite, "max_backlog = 10\nprefetch = 4").await;
    let gate = Gate::new();
    world.handler.behave_always([Waits(gate.clone())]);
    for number in 0..40 {
        world.pay(&format!("A-{number}")).await;
    }
    let kept = async || world.deliveries().await.len();
    let kept = eventually("it is full", kept, |kept| *kept >= 10).await;
    assert!(kept <= 13, "{kept} of 40");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(world.deliveries().await.len() <= 13, "the rest waits in the queue");
    gate.cancel();
    world.over(40).await;
    world.stop().await;
}

/// What is ordered by the order, each message with a key of its own.
const IN_LINES: &str =
    "key = [['body:/order_no', 'body:/n']]\nentity = 'body:/order_no'\nattempts = 1000\nprefetch = 4\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_stands_still_does_not_stop_the_others_however_long_its_line_is() {
    let world = World::on(Kind::Sqlite, &format!("{IN_LINES}max_backlog = 10")).await;
    world.handler.behave("ill", [Answers("503 Service Unavailable")]);
    for n in 0..40 {
        world.queue.send(&json!({ "order_no": "ill", "n": n })).await;
    }
    for n in 0..5 {
        world.queue.send(&json!({ "order_no": "well", "n": n })).await;
    }
    let others = async || world.handler.effects().len();
    eventually("the others are done", others, |count| *count == 5).await;
    world.handler.behave("ill", [Works]);
    world.over(45).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_keys_that_stand_still_is_bounded_and_people_are_told() {
    let bell = Upstream::always(answer("204 No Content", &[], "")).await;
    let rest = format!("{IN_LINES}max_backlog = 10\nmax_waiting = 10\nalert = 'env:ALERT'");
    let mut world = World::on(Kind::Sqlite, &rest).await;
    world.environment.push(("ALERT".to_owned(), bell.url()));
    world.handler.behave("ill", [Answers("503 Service Unavailable")]);
    world.start().await;
    for n in 0..100 {
        world.queue.send(&json!({ "order_no": "ill", "n": n })).await;
    }
    bell.reached(1).await;
    let told: serde_json::Value = serde_json::from_slice(&bell.last().body).unwrap();
    assert_eq!(told["alert"], "stuck");
    assert!(told["text"].as_str().unwrap().contains("10 messages wait for others of their keys"), "{told}");
    assert!(world.deliveries().await.len() < 40);
    world.handler.behave("ill", [Works]);
    world.over(100).await;
    assert_eq!(bell.all().len(), 1, "once");
}

/// Nor does it hold up anybody who does not listen to it.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_to_be_alerted_and_does_not_answer_holds_nothing_up() {
    let deaf = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::on(Kind::Sqlite, "alert = 'env:ALERT'").await;
    world.environment.push(("ALERT".to_owned(), format!("http://{}/hook", deaf.local_addr().unwrap())));
    world.handler.behave_always([Answers("404 Not Found"), Answers("404 Not Found"), Works]);
    world.start().await;
    for number in 0..10 {
        world.pay(&format!("A-{number}")).await;
    }
    let (_unanswered, _) = deaf.accept().await.unwrap();
    let deliveries = world.over(10).await;
    assert!(deliveries.iter().all(|delivery| delivery.result == "applied"), "{deliveries:?}");
}

/// However old it is: a subscription that was not running loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_queue_keeps_what_its_subscription_has_not_taken_and_says_who_is_behind() {
    let mut world = World::on(Kind::Sqlite, "timeout = '500ms'\nconnect_timeout = '200ms'").await;
    world.stop().await;
    for number in 0..3 {
        world.pay(&format!("A-{number}")).await;
    }
    let mut stranger = world.database.stranger().await;
    stranger.run("UPDATE messages SET created_at = 1000").await;
    let topic = world.queue.topic.clone();
    let gone =
        format!("INSERT INTO cursors (queue, topic, consumer, position) VALUES ('default', '{topic}', 'gone', 0)");
    stranger.run(&gone).await;
    let gateway = Gateway::start(&world.document, &world.database.url);
    world.over(3).await;
    let told = async || gateway.log().contains("a subscription has not taken them");
    eventually("who is behind is told", told, |told| *told).await;
    assert!(gateway.log().contains("\"consumer\":\"gone\""), "{}", gateway.log());
    assert_eq!(stranger.number("SELECT COUNT(*) FROM messages").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_key_closes_the_subscription_until_somebody_accepts_it() {
    let mut world = World::on(Kind::Sqlite, "").await;
    world.pay("A-1").await;
    world.come_to("A-1", &["applied"]).await;
    world.stop().await;
    world.change("key = 'body:/order_no'", "key = 'body:/amount'");
    world.start().await;
    world.pay("A-2").await;
    let kept = async || world.deliveries().await.len();
    eventually("it is kept", kept, |kept| *kept == 2).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((world.handler.calls("A-2"), world.results("A-2").await), (0, vec!["-".to_owned()]));
    world.stop().await;
    world.change("key = 'body:/amount'", "key = 'body:/order_no'");
    world.start().await;
    world.come_to("A-2", &["applied"]).await;
}

/// What a person does with a delivery that can't be handled, and that it keeps who it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_redrive_keeps_the_key_and_does_nothing_twice() {
    let world = World::on(Kind::Sqlite, "dead_letter = 'dead'").await;
    world.handler.behave("A-1", [Answers("422 Unprocessable Content"), Answers("422 Unprocessable Content"), Works]);
    world.pay("A-1").await;
    world.come_to("A-1", &["rejected"]).await;
    assert_eq!(world.redrive().await, 1);
    world.handler.called("A-1", 2).await;
    world.come_to("A-1", &["rejected"]).await;
    assert_eq!(world.redrive().await, 1);
    world.come_to("A-1", &["applied"]).await;
    assert_eq!((world.redrive().await, world.handler.calls("A-1"), world.handler.applied("A-1")), (0, 3, 1));
    let keys: Vec<_> = world
        .handler
        .requests("A-1")
        .iter()
        .map(|request| request.field("idempotency-key").map(str::to_owned))
        .collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

/// The handler's database was restored, say: what is on record as applied is not there.
#[tokio::test(flavor = "multi_thread")]
async fn an_effect_that_the_handler_has_lost_is_named_and_not_mended() {
    let lookup = "on_unknown = 'lookup'\nlookup = { request = 'GET /points/{key}', \
                  completed_when = { equals = { '/state' = 'paid' } } }";
    let world = World::on(Kind::Sqlite, lookup).await;
    for order in ["A-1", "A-2", "A-3"] {
        world.pay(order).await;
        world.come_to(order, &["applied"]).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("oncegate.toml");
    std::fs::write(&path, &world.document).unwrap();
    let (store, topic) = (format!("store.url={}", world.database.url), world.queue.topic.clone());
    let reconcile = |more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_oncegate"));
        command.args(["reconcile", "--effects", "--until", "0s", "--topic", &topic, "--set", &store, "--config"]);
        command.arg(&path).args(more).envs(super::world::ENV);
        let output = tokio::task::block_in_place(|| command.output().unwrap());
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = reconcile(&[]);
    assert!(code == Some(0) && text.contains("asked for 3 applied, 0 it does not have, 0 it can't tell"), "{text}");
    world.handler.lose("A-2");
    let (code, text) = reconcile(&["--output", "json"]);
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    let absent = &told["effects"][0]["absent"];
    assert_eq!((code, &absent["count"]), (Some(3), &1.into()), "{text}");
    let lost = format!(
        "SELECT COUNT(*) FROM events WHERE event_key = 'A-2' AND lower(hex(id)) = '{}'",
        absent["first"][0].as_str().unwrap()
    );
    assert_eq!(world.database.stranger().await.number(&lost).await, 1);
    assert_eq!((world.handler.calls("A-2"), world.results("A-2").await), (1, vec!["applied".to_owned()]));
}
