use std::sync::Arc;

use oncegate::broker::embedded::{EmbeddedSubscriber, EmbeddedSubscriberOptions};

use super::events::check;
use super::gateway::Settings;
use super::world::World;
use super::{a_moment, eventually, seeded};
use crate::servers::database::{Database, Kind};

/// One gateway lives in a week when all that is kept has long expired, another before any of it began. Leases,
/// retention and what the cache may still say go by the database's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_whose_clocks_are_days_off_pay_nothing_twice_and_lose_nothing() {
    let mut rng = seeded("clocks");
    let database = Database::create(Kind::Postgres).await;
    let settings = Settings { policy: "retention = \"1d\"", ..Settings::new(&database.url) };
    let mut world = World::start(database, &settings, 1).await;
    for offset in ["+8d", "-8d"] {
        world.join(&Settings { clock: Some(offset), ..settings.clone() });
    }
    let days_off = world.gateways.iter().map(|gateway| (gateway.clock_offset().as_secs_f64() / 86_400.0).round());
    assert_eq!(days_off.collect::<Vec<_>>(), [0.0, 8.0, 8.0]);

    let load = world.load();
    for victim in 0..world.gateways.len() {
        a_moment(&mut rng).await;
        world.gateways[victim].crash_and_restart();
    }
    let history = load.stop().await;
    eventually("those that were killed have ended", async || world.ended_instances().await >= 3).await;
    world.settle(&history).await;
    assert_eq!(world.ended_instances().await, 3, "only those that were killed");
}

/// A relay holds its lanes by the database's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_whose_clocks_are_minutes_off_announce_everything_in_order() {
    let mut rng = seeded("clocks of relays");
    let database = Database::create(Kind::Postgres).await;
    let events = "[[routes.events]]\nname = 'paid'\ntype = 'com.example.paid'\ntopic = 'payments'\n\
                  key = 'body:/payer'\ndata = 'request'\n[queue]\nlease = '1s'";
    let policy = "on_unknown = \"forward\"";
    let settings = Settings { policy, events: events.to_owned(), ..Settings::new(&database.url) };
    let mut world = World::start(database, &settings, 1).await;
    for offset in ["+5m", "-5m"] {
        world.join(&Settings { clock: Some(offset), ..settings.clone() });
    }
    let load = world.load();
    for victim in 0..world.gateways.len() {
        a_moment(&mut rng).await;
        world.gateways[victim].crash_and_restart();
    }
    let history = load.stop().await;
    let options = EmbeddedSubscriberOptions::new("default", "payments");
    let mut subscriber = EmbeddedSubscriber::new(Arc::new(world.database.open()), options);
    check(&world, &history, &mut subscriber).await;
}
