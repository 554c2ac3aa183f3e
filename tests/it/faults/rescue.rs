use super::client::End;
use super::eventually;
use super::gateway::Settings;
use super::upstream::{Script, Upstream};
use super::world::World;
use crate::servers::database::{Database, Kind};

const LOOKUP: &str = r#"
    on_unknown = "lookup"
    [routes.idempotency.lookup]
    request = "GET /paid/{key}"
    first = "200ms"
    max = "1s"
    [routes.idempotency.lookup.completed_when]
    equals = { "/status" = "paid" }
"#;

/// A gateway of three dies in the middle of an exchange.
async fn orphaned(policy: &'static str) -> World {
    let database = Database::create(Kind::Postgres).await;
    let settings = Settings { policy, ..Settings::new(&database.url) };
    let mut world = World::start_with(database, &settings, 3, Script::Hang).await;
    let call = world.post_later(0, "orphan");
    world.dispatched("orphan").await;
    let dead = world.gateways.remove(0);
    dead.signal("KILL");
    assert_eq!(call.await.unwrap(), None);
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_gateway_had_under_way_is_looked_up_without_a_client() {
    let world = orphaned(LOOKUP).await;
    eventually("the rescuer holds the orphan", async || world.entries(2).await == 1).await;
    world.upstream.release();
    eventually("a lookup completes it", async || world.entries(3).await == 1).await;
    for gateway in world.addresses() {
        let answered = world.client.pay(&[gateway], "orphan").await;
        let End::Answered(answer) = answered else { panic!("{answered:?}") };
        assert!(answer.replayed);
        assert_eq!(answer.body, Upstream::answer("orphan"));
    }
    assert_eq!(world.upstream.seen("orphan"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_gateway_had_under_way_is_held_everywhere() {
    let world = orphaned("").await;
    world.upstream.release();
    eventually("the rescuer holds the orphan", async || world.entries(2).await == 1).await;
    for gateway in world.addresses() {
        let told = world.client.post(gateway, "orphan").await.unwrap();
        assert!(told.is_problem("outcome-unknown"), "{told:?}");
        assert!(told.status == http::StatusCode::CONFLICT && told.retry_after, "{told:?}");
    }
    assert_eq!(world.upstream.seen("orphan"), 1);
}
