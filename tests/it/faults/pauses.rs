use std::time::Duration;

use super::client::End;
use super::gateway::Settings;
use super::load::History;
use super::upstream::{Script, Upstream};
use super::world::World;
use super::{LEASE, a_moment, eventually, seeded};
use crate::servers::database::{Database, Kind};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_while_its_gateway_is_paused_is_kept() {
    let database = Database::create(Kind::Postgres).await;
    let settings = Settings::new(&database.url);
    let world = World::start_with(database, &settings, 2, Script::Hang).await;
    let call = world.post_later(0, "paused");
    world.dispatched("paused").await;

    world.gateways[0].signal("STOP");
    eventually("the rescuer holds the orphan", async || world.entries(2).await == 1).await;
    assert_eq!(world.client.pay(&world.addresses()[1..], "paused").await, End::Held);
    world.upstream.release();
    world.gateways[0].signal("CONT");

    drop(call.await);
    eventually("the late answer completes the entry", async || world.entries(3).await == 1).await;
    for gateway in world.addresses() {
        let answered = world.client.pay(&[gateway], "paused").await;
        let End::Answered(answer) = answered else { panic!("{answered:?}") };
        assert!(answer.replayed);
        assert_eq!(answer.body, Upstream::answer("paused"));
    }
    assert_eq!(world.upstream.seen("paused"), 1);
}

/// Under load some requests are between their claim and their first byte when the pause comes. None may go
/// out afterwards if its lease is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_are_paused_beyond_their_lease_pay_nothing_twice() {
    let mut rng = seeded("paused beyond their lease");
    let database = Database::create(Kind::Postgres).await;
    let settings = Settings::new(&database.url);
    let world = World::start(database, &settings, 3).await;
    let load = world.load();
    for (gateway, ended) in world.gateways[..2].iter().zip(1..) {
        a_moment(&mut rng).await;
        gateway.signal("STOP");
        eventually("its lease runs out", async || world.ended_instances().await == ended).await;
        gateway.signal("CONT");
    }
    a_moment(&mut rng).await;
    let history: History = load.stop().await;
    let held = world.settle(&history).await;
    // Each pause left at most what its gateway had under way, and the late answers settled most of that.
    assert!(held <= 32, "{held} held");
}

/// Shorter than a lease: nobody notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_pause_costs_nothing() {
    let mut rng = seeded("a short pause");
    let database = Database::create(Kind::Postgres).await;
    let settings = Settings::new(&database.url);
    let world = World::start(database, &settings, 2).await;
    let load = world.load();
    a_moment(&mut rng).await;
    world.gateways[0].signal("STOP");
    tokio::time::sleep(LEASE / 5).await;
    world.gateways[0].signal("CONT");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let history = load.stop().await;
    assert_eq!(world.settle(&history).await, 0);
    assert_eq!(world.ended_instances().await, 0);
}
