//! Stores that are down, that have lost what they had, or that were brought back from a backup.

use serde_json::json;

use super::eventually;
use super::handler::Behaviour::{Answers, Waits, Works};
use super::queue::{Broker, Queue};
use super::world::{World, paid};
use crate::http::upstream::Gate;
use crate::servers::database::{Database, Kind};
use crate::servers::postgres::Postgres;
use crate::servers::redis;

/// What the group has been given and has not acknowledged, and how many entries it has been given.
fn group(topic: &str) -> (u64, u64) {
    let told = redis::single().cli(&["XINFO", "GROUPS", topic]);
    let lines: Vec<&str> = told.lines().map(str::trim).collect();
    let value = |name| lines.windows(2).find(|pair| pair[0] == name).map_or(0, |pair| pair[1].parse().unwrap());
    (value("pending"), value("entries-read"))
}

/// Nothing is acknowledged that is not kept, and nothing is given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_down_leaves_messages_in_their_queue() {
    let mut server = Postgres::start(&[]);
    let database = Database::create_on(Kind::Postgres, &server.base_url).await;
    let queue = Queue::create(Broker::Redis, &database).await;
    let mut world = World::around(database, queue, "attempts = 1").await;
    world.pay("before").await;
    world.come_to("before", &["applied"]).await;
    server.crash();
    for number in 0..5 {
        world.pay(&format!("A-{number}")).await;
    }
    let topic = world.queue.topic.clone();
    let given = async || group(&topic);
    let is_in_hand = |(pending, read): &(u64, u64)| *pending > 0 && read - pending == 1;
    eventually("what was handed out is not acknowledged", given, is_in_hand).await;
    server.recover();
    let deliveries = world.over(6).await;
    assert!(deliveries.iter().all(|delivery| delivery.result == "applied"), "{deliveries:?}");
    assert_eq!(world.handler.upstream.count(), 6, "once each");
    eventually("all are acknowledged", given, |told| *told == (0, 6)).await;
    world.stop().await;
}

/// The handler's effect is there, and its answer is in the mark: the row that a failover has lost is in nobody's way.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_has_lost_and_a_mark_still_knows_is_not_delivered_again() {
    let marks = redis::Redis::start();
    let mut world = World::on(Kind::Sqlite, "").await;
    world.stop().await;
    world.document = format!("marks.url = '{}'\n{}", marks.url, world.document);
    world.start().await;
    world.queue.send_as([1; 16], &paid("A-1")).await;
    world.come_to("A-1", &["applied"]).await;
    world.stop().await;
    let mut stranger = world.database.stranger().await;
    for table in ["events", "entries", "cursors"] {
        stranger.run(&format!("DELETE FROM {table}")).await;
    }
    world.start().await;
    // The queue begins anew, with A-1.
    world.pay("last").await;
    world.come_to("last", &["applied"]).await;
    assert_eq!((world.handler.calls("A-1"), world.handler.applied("A-1")), (1, 1));
    world.stop().await;
}

/// The store goes back, the queue and the handler do not. What was acknowledged since the backup has to be sent again,
/// under keys that are what they were.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_restored_is_sent_everything_again_and_nothing_is_done_twice() {
    let versions = "version = 'body:/version'\nentity = 'body:/order_no'\non_unknown = 'forward'";
    let mut world = World::with(Kind::Sqlite, Broker::Redis, versions).await;
    let order =
        |order: &str, version: u32| json!({ "order_no": order, "version": version, "state": version.to_string() });
    world.queue.send(&order("A-1", 1)).await;
    world.queue.send(&order("A-2", 1)).await;
    world.over(2).await;
    world.stop().await;
    let file = world.database.url.trim_start_matches("sqlite://").split('?').next().unwrap().to_owned();
    let mut stranger = world.database.stranger().await;
    stranger.run(&format!("VACUUM INTO '{file}.backup'")).await;
    drop(stranger);

    world.start().await;
    world.queue.send(&order("A-1", 2)).await;
    world.queue.send(&order("A-3", 1)).await;
    world.over(4).await;
    world.stop().await;
    let done = world.handler.effects();
    assert_eq!(done.len(), 4);

    for more in ["-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{file}{more}")));
    }
    std::fs::copy(format!("{file}.backup"), &file).unwrap();
    world.start().await;
    // The queue does not know that anything was lost: it is told.
    redis::single().cli(&["XGROUP", "SETID", &world.queue.topic, "points", "0"]);
    world.queue.send(&order("A-4", 1)).await;
    let deliveries = world.over(5).await;
    assert!(deliveries.iter().all(|delivery| delivery.result == "applied"), "{deliveries:?}");
    assert_eq!(world.handler.effects().len(), 5, "the handler knows the keys of before");
    assert_eq!(world.handler.states("A-1"), ["1", "2"], "nothing older came after it");
    assert_eq!(world.handler.calls("A-2"), 1, "what the backup has is not delivered again");
    assert_eq!(world.handler.calls("A-3"), 2, "what it has not is, under the same key");
    world.stop().await;
}

/// The record of a dead letter's key may be long gone when somebody sends it again; the handler's own key is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_sent_again_after_everything_was_forgotten_is_done_once() {
    let world = World::on(Kind::Sqlite, "on_unknown = 'forward'\nattempts = 1\ntimeout = '300ms'").await;
    // Its effect is there, and nobody was told in time.
    world.handler.behave("A-1", [Waits(Gate::new()), Answers("503 Service Unavailable"), Works]);
    world.pay("A-1").await;
    world.come_to("A-1", &["rejected"]).await;
    world.database.stranger().await.run("DELETE FROM entries").await;
    for expected in ["rejected", "applied"] {
        assert_eq!(world.redrive().await, 1);
        world.come_to("A-1", &[expected]).await;
    }
    assert_eq!((world.handler.calls("A-1"), world.handler.applied("A-1")), (3, 1));
}
