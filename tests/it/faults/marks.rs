use std::time::Duration;

use super::gateway::Settings;
use super::world::World;
use super::{a_moment, load_time, seeded};
use crate::servers::database::{Database, Kind};
use crate::servers::process::free_port;
use crate::servers::redis::Redis;
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
