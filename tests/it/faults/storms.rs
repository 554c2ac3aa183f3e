use tokio::task::JoinSet;

use super::client::End;
use super::gateway::Settings;
use super::load::History;
use super::seeded;
use super::upstream::Upstream;
use super::world::World;
use crate::servers::database::{Database, Kind};
use crate::servers::redis::Redis;
use rand::RngExt as _;

/// Keys, and callers of each.
const KEYS: usize = 40;
const CALLERS: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_the_same_keys_is_one_payment_a_key_at_one_gateway_two_and_four() {
    for gateways in [1, 2, 4] {
        a_storm_of_the_same_keys(gateways).await;
    }
}

async fn a_storm_of_the_same_keys(gateways: usize) {
    let mut rng = seeded("a_storm_of_the_same_keys");
    let database = Database::create(Kind::Postgres).await;
    let redis = Redis::start();
    let settings = Settings { marks: redis.url.clone(), ..Settings::new(&database.url) };
    let world = World::start(database, &settings, gateways).await;

    let mut order: Vec<usize> = (0..KEYS * CALLERS).map(|number| number % KEYS).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, rng.random_range(0..=last));
    }
    let mut callers = JoinSet::new();
    for key in order {
        let (client, gateways) = (world.client.clone(), world.addresses());
        let key = format!("storm-{key}");
        callers.spawn(async move { (client.pay(&gateways, &key).await, key) });
    }
    let mut history = History::new();
    while let Some(caller) = callers.join_next().await {
        let (end, key) = caller.unwrap();
        history.entry(key).or_default().push(end);
    }

    assert_eq!(world.settle(&history).await, 0);
    for (key, ends) in &history {
        let first = |end: &&End| matches!(end, End::Answered(answer) if !answer.replayed);
        // Or none: on a slow machine the first one may have been told of a time-out.
        assert!(ends.iter().filter(first).count() <= 1, "several callers of {key} were the first: {ends:?}");
        assert!(ends.iter().all(|end| matches!(end, End::Answered(answer) if answer.body == Upstream::answer(key))));
    }
}

#[tokio::test]
async fn a_gateway_allows_itself_all_the_open_files_that_it_may_have() {
    let database = Database::create(Kind::Sqlite).await;
    let world = World::start(database.shared(), &Settings::new(&database.url), 1).await;
    let (current, most) = world.gateways[0].open_files();
    assert_eq!(current, most);
}
