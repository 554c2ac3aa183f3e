use super::gateway::Settings;
use super::proxy::Proxy;
use super::world::World;
use super::{load_time, seeded};
use crate::servers::database::{Database, Kind};
use rand::RngExt as _;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_are_cut_are_settled_by_nonce() {
    let mut rng = seeded("commits_that_are_cut");
    let database = Database::create(Kind::Postgres).await;
    let (server, name) = database.url.rsplit_once('/').unwrap();
    let server = server.rsplit('@').next().unwrap().parse().unwrap();
    let proxy = Proxy::start(server, rng.random()).await;
    let settings = Settings::new(&format!("postgres://oncegate@{}/{name}", proxy.address));
    let world = World::start(database, &settings, 2).await;

    proxy.cut(true);
    let load = world.load();
    tokio::time::sleep(load_time()).await;
    proxy.cut(false);
    let history = load.stop().await;
    let (before, after) = proxy.cuts();
    println!("cut {before} commits before and {after} after the server saw them");
    assert!(before > 0 && after > 0);
    assert_eq!(world.settle(&history).await, 0, "no gateway died, so nothing is unknown");
}
