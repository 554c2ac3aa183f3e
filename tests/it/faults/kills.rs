use std::collections::HashSet;
use std::time::Duration;

use super::client::End;
use super::gateway::{Gateway, Settings};
use super::load::History;
use super::upstream::{Script, Upstream};
use super::world::World;
use super::{a_moment, eventually, load_time, seeded};
use crate::servers::database::{Database, Kind};
use oncegate::clock;
use rand::RngExt as _;

/// Loads two gateways whose route has `policy`, and kills them again and again.
async fn killed_again_and_again(kind: Kind, policy: &'static str, test: &str) -> (World, History) {
    let mut rng = seeded(test);
    let database = Database::create(kind).await;
    let settings = Settings { policy, ..Settings::new(&database.url) };
    let mut world = World::start(database, &settings, 2).await;
    let load = world.load();
    let end = clock::now() + load_time();
    while clock::now() < end {
        a_moment(&mut rng).await;
        let victim = rng.random_range(0..world.gateways.len());
        world.gateways[victim].crash_and_restart();
    }
    let history = load.stop().await;
    (world, history)
}

async fn killed_and_held(kind: Kind, test: &str) {
    let (world, history) = killed_again_and_again(kind, "", test).await;
    world.settle(&history).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateways_pay_nothing_twice_and_lose_nothing_on_sqlite() {
    killed_and_held(Kind::Sqlite, "killed on sqlite").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateways_pay_nothing_twice_and_lose_nothing_on_postgres() {
    killed_and_held(Kind::Postgres, "killed on postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateways_pay_nothing_twice_and_lose_nothing_on_mysql() {
    killed_and_held(Kind::MySql, "killed on mysql").await;
}

/// The upstream honours the key, so that it may see one again; but no attempt at it twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateways_forward_again_and_every_payment_ends_with_its_answer() {
    let policy = "on_unknown = \"forward\"";
    let (world, history) = killed_again_and_again(Kind::Postgres, policy, "killed and forwarded").await;
    assert!(history.values().flatten().all(|end| *end != End::Held), "nobody is told that nobody knows");
    // Some may be missing: claimed, and killed before they were sent.
    let each_once = |attempts: &[u32]| attempts.len() == attempts.iter().collect::<HashSet<_>>().len();
    world.settle_all(&history, each_once).await;
}

/// What was under way is found paid; what was claimed and never sent is found absent, and runs then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateways_look_up_what_they_did_not_send_and_every_payment_is_made_once() {
    /// Absence is believed twice as late as an upstream may answer here.
    const LOOKUP: &str = r#"
        on_unknown = "lookup"
        [routes.idempotency.lookup]
        request = "GET /paid/{key}"
        first = "200ms"
        max = "500ms"
        absent = "not_executed"
        after = "3s"
        [routes.idempotency.lookup.completed_when]
        equals = { "/status" = "paid" }
    "#;
    let (world, history) = killed_again_and_again(Kind::MySql, LOOKUP, "killed and looked up").await;
    eventually("all is settled without a client", async || (world.entries(1).await, world.entries(2).await) == (0, 0))
        .await;
    world.settle_all(&history, |attempts| attempts == [1]).await;
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

/// Ctrl-C, and Ctrl-C again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_who_insists_is_not_kept_waiting() {
    let database = Database::create(Kind::Postgres).await;
    let settings = Settings::new(&database.url);
    let upstream = Upstream::start(Script::Hang).await;
    let gateway = Gateway::start_with(&settings, &upstream, "INT");
    let mut world = World::around(database, upstream, vec![gateway]);
    let call = world.post_later(0, "hangs");
    world.dispatched("hangs").await;
    let gateway = world.gateways.pop().unwrap();
    let address = gateway.address;
    gateway.signal("INT");
    let closed = async || tokio::net::TcpStream::connect(address).await.is_err();
    eventually("the gateway takes no more connections", closed).await;
    assert_eq!(tokio::task::block_in_place(|| gateway.stop()), Some(1));
    assert!(call.await.unwrap().is_none(), "it was cut off");
    assert_eq!(world.entries(1).await, 1, "to be unknown when the lease has run out");
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
