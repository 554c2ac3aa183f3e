use std::collections::BTreeSet;
use std::time::Duration;

use super::gateway::Settings;
use super::world::World;
use super::{a_moment, eventually, load_time, seeded};
use crate::servers::database::{Database, Kind};
use crate::servers::process::free_port;
use crate::servers::redis::{Cluster, Redis, Sentinels};
use oncegate::clock;
use rand::RngExt as _;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_may_be_emptied_paused_and_killed_at_any_moment() {
    let mut rng = seeded("redis at any moment");
    let database = Database::create(Kind::Postgres).await;
    let mut redis = Redis::start();
    let settings = Settings { marks: redis.url.clone(), ..Settings::new(&database.url) };
    let world = World::start(database, &settings, 2).await;
    let load = world.load();
    let end = clock::now() + load_time() * 2;
    // Every fault at least once, then as the seed decides.
    for round in 0.. {
        a_moment(&mut rng).await;
        match if round < 3 { round } else { rng.random_range(0..3) } {
            0 => drop(redis.cli(&["FLUSHALL"])),
            1 => {
                redis.signal("STOP");
                tokio::time::sleep(Duration::from_millis(400)).await;
                redis.signal("CONT");
            }
            _ => {
                redis.signal("KILL");
                a_moment(&mut rng).await;
                tokio::task::block_in_place(|| redis.start_again());
            }
        }
        if clock::now() > end && round >= 3 {
            break;
        }
    }
    let history = load.stop().await;
    assert_eq!(world.settle(&history).await, 0, "the database has it all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_was_never_there_changes_nothing() {
    let database = Database::create(Kind::Postgres).await;
    let marks = format!("redis://127.0.0.1:{}", free_port());
    let settings = Settings { marks, ..Settings::new(&database.url) };
    let world = World::start(database, &settings, 2).await;
    let load = world.load();
    tokio::time::sleep(load_time() / 2).await;
    let history = load.stop().await;
    assert_eq!(world.settle(&history).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_may_move_slots_and_lose_a_node_under_load() {
    /// Marks whose slots move, with whatever else is in them.
    const MOVED: usize = 12;
    let mut rng = seeded("cluster under load");
    let database = Database::create(Kind::Postgres).await;
    let mut cluster = Cluster::start();
    let settings = Settings { marks: cluster.url.clone(), ..Settings::new(&database.url) };
    let world = World::start(database, &settings, 2).await;
    let load = world.load();
    let marked = async || cluster.nodes[0].keys().len() >= MOVED;
    eventually("the first node has marks", marked).await;
    tokio::task::block_in_place(|| {
        let keys = cluster.nodes[0].keys();
        let slots: BTreeSet<u32> = keys.iter().take(MOVED).map(|key| cluster.slot(key)).collect();
        for slot in slots {
            cluster.move_slot(slot, 1);
        }
    });
    a_moment(&mut rng).await;
    cluster.nodes[2].signal("KILL");
    a_moment(&mut rng).await;
    tokio::task::block_in_place(|| cluster.nodes[2].start_again());
    let back = async || !cluster.nodes[2].keys().is_empty();
    eventually("the node that was lost has marks again", back).await;
    let history = load.stop().await;
    assert_eq!(world.settle(&history).await, 0, "the database has it all");
}

/// The new master lacks whatever the old one had not sent it yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_may_replace_the_master_under_load() {
    let mut rng = seeded("failover under load");
    let database = Database::create(Kind::Postgres).await;
    let sentinels = Sentinels::start();
    let settings = Settings { marks: sentinels.url.clone(), ..Settings::new(&database.url) };
    let world = World::start(database, &settings, 2).await;
    let load = world.load();
    a_moment(&mut rng).await;
    assert!(!sentinels.master.keys().is_empty(), "marks are in use");
    sentinels.master.signal("KILL");
    eventually("the replica is the master", async || sentinels.replica.is_master()).await;
    let before: BTreeSet<String> = sentinels.replica.keys().into_iter().collect();
    let has_new = async || sentinels.replica.keys().iter().any(|key| !before.contains(key));
    eventually("the new master has new marks", has_new).await;
    let history = load.stop().await;
    assert_eq!(world.settle(&history).await, 0, "the database has it all");
}
