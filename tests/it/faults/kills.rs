use std::time::Duration;

use super::gateway::{Gateway, Settings};
use super::upstream::{Script, Upstream};
use super::world::World;
use super::{a_moment, eventually, load_time, seeded};
use crate::servers::database::{Database, Kind};
use oncegate::clock;
use rand::RngExt as _;

async fn killed_again_and_again(kind: Kind, test: &str) {
    let mut rng = seeded(test);
    let database = Database::create(kind).await;
    let settings = Settings::new(&database.url);
    let mut world = World::start(database, &settings, 2).await;
    let load = world.load();
    let end = clock::now() + load_time();
    while clock::now() < end {
        a_moment(&mut rng).await;
        let victim = rng.random_range(0..world.gateways.len());
        world.gateways[victim].crash_and_restart();
    }
    let history = load.stop().await;
    world.settle(&history).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateways_pay_nothing_twice_and_lose_nothing_on_sqlite() {
    killed_again_and_again(Kind::Sqlite, "killed on sqlite").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateways_pay_nothing_twice_and_lose_nothing_on_postgres() {
    killed_again_and_again(Kind::Postgres, "killed on postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateways_pay_nothing_twice_and_lose_nothing_on_mysql() {
    killed_again_and_again(Kind::MySql, "killed on mysql").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_told_to_stop_finishes_what_is_in_flight() {
    /// Requests in flight.
    const COUNT: usize = 20;
    let database = Database::create(Kind::Postgres).await;
    let settings = Settings::new(&database.url);
    let upstream = Upstream::start(Script::Hang).await;
    let gateway = Gateway::start_with(&settings, &upstream, "TERM");
    let mut world = World::around(database, upstream, vec![gateway]);
    let keys: Vec<String> = (0..COUNT).map(|number| format!("flight-{number}")).collect();
    let calls: Vec<_> = keys.iter().map(|key| world.post_later(0, key)).collect();
    for key in &keys {
        world.dispatched(key).await;
    }

    let gateway = world.gateways.pop().unwrap();
    let address = gateway.address;
    gateway.signal("TERM");
    let closed = async || tokio::net::TcpStream::connect(address).await.is_err();
    eventually("the gateway takes no more connections", closed).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.upstream.release();
    for (key, call) in keys.iter().zip(calls) {
        let answer = call.await.unwrap().unwrap_or_else(|| panic!("{key} was cut off"));
        assert_eq!((answer.status.as_u16(), answer.body), (201, Upstream::answer(key)));
    }
    assert_eq!(tokio::task::block_in_place(|| gateway.stop()), Some(0));
    assert_eq!((world.entries(1).await, world.entries(2).await), (0, 0));
    assert_eq!(world.entries(3).await, i64::try_from(COUNT).unwrap());
    assert_eq!(world.ended_instances().await, 1, "nobody has to wait for its lease");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_told_to_stop_under_load_leaves_nothing_unknown() {
    let mut rng = seeded("told to stop under load");
    let database = Database::create(Kind::Postgres).await;
    let settings = Settings::new(&database.url);
    let upstream = Upstream::start(Script::Within(Duration::from_millis(20))).await;
    let gateways = [(); 2].map(|()| Gateway::start_with(&settings, &upstream, "TERM"));
    let mut world = World::around(database, upstream, gateways.into());
    let load = world.load();
    a_moment(&mut rng).await;
    let gone = world.gateways.pop().unwrap();
    assert_eq!(tokio::task::block_in_place(|| gone.stop()), Some(0));
    let history = load.stop().await;
    assert_eq!(world.settle(&history).await, 0, "nothing is unknown");
}
