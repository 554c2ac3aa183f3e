//! A handler that announces something itself: from a message to the event of its effect.

use super::handler::Behaviour::{Crashes, Works};
use super::process::Gateway;
use super::world::{World, paid};
use crate::servers::database::{Database, Kind};
use crate::servers::outbox::written;

/// A route in front of the handler, which announces what it did. The delivery's key is the request's.
fn route(handler: &str) -> String {
    format!(
        "secrets.fingerprint = ['env:SECRET']\n[[upstreams]]\nname = 'points'\nurls = ['{handler}']\ntimeout = '1s'\n\
         [[routes]]\nname = 'grant'\nmatch = 'POST /points'\nupstream = 'points'\n[routes.idempotency]\nkey = 'header'\n\
         on_unknown = 'forward'\nretention = '1d'\n[[routes.events]]\nname = 'granted'\ntype = 'com.example.granted'\n\
         topic = 'granted'\nkey = 'body:/order_no'\n"
    )
}

/// However often the message is delivered, what its effect announces is one event of one id.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_delivery_announces_is_announced_once_and_keeps_its_id() {
    let mut world = World::on(Kind::Sqlite, "on_unknown = 'forward'").await;
    world.stop().await;
    let database = Database::create(Kind::Sqlite).await;
    let gateway = Gateway::start(&route(&world.handler.upstream.url()), &database.url);
    let direct = world.handler.url();
    world.change(&direct, &format!("{}/points", gateway.url()));
    world.start().await;
    // Its effect is there when the connection is cut: it is done once, and announced by the second call.
    world.handler.behave("A-1", [Crashes, Works]);
    world.queue.send_as([1; 16], &paid("A-1")).await;
    world.come_to("A-1", &["applied"]).await;
    assert_eq!((world.handler.calls("A-1"), world.handler.applied("A-1")), (2, 1));
    let announced = written(&database).await;
    assert_eq!((announced.len(), &*announced[0].kind, &*announced[0].key), (1, "com.example.granted", "A-1"));

    // All that was known of it here is gone, and it comes again.
    world.stop().await;
    let mut stranger = world.database.stranger().await;
    for table in ["events", "entries", "cursors"] {
        stranger.run(&format!("DELETE FROM {table}")).await;
    }
    world.start().await;
    world.come_to("A-1", &["applied"]).await;
    let again = written(&database).await;
    let ids =
        |events: &[crate::servers::outbox::Written]| events.iter().map(|event| event.id.clone()).collect::<Vec<_>>();
    assert_eq!((ids(&again), world.handler.calls("A-1")), (ids(&announced), 2), "told the first answer");
    world.stop().await;
}
