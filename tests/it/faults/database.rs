use std::time::Duration;

use super::client::End;
use super::gateway::{Gateway, Settings};
use super::upstream::{Script, Upstream};
use super::world::World;
use super::{LEASE, a_moment, eventually, load_time, seeded};
use crate::servers::database::{Database, Kind};
use crate::servers::mariadb::MariaDb;
use crate::servers::postgres::Postgres;
use crate::servers::wire::{Mode, Wire};
use http::StatusCode;
use oncegate::clock;

/// Two gateways on a server of their own.
async fn own_server(script: Option<Script>) -> (Postgres, World) {
    let server = Postgres::start(&[]);
    let database = Database::create_on(Kind::Postgres, &server.base_url).await;
    let settings = Settings::new(&database.url);
    let world = match script {
        Some(script) => World::start_with(database, &settings, 2, script).await,
        None => World::start(database, &settings, 2).await,
    };
    (server, world)
}

/// A new key is refused, with a time to come again, and does not reach the upstream.
async fn refused(world: &World, key: &str) {
    for gateway in world.addresses() {
        let told = world.client.post(gateway, key).await.expect("an answer");
        assert_eq!(told.status, StatusCode::SERVICE_UNAVAILABLE, "{told:?}");
        assert!(told.is_problem("unavailable") && told.retry_after, "{told:?}");
    }
    assert_eq!(world.upstream.seen(key), 0, "executed without a claim");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_crashes_under_load_loses_and_doubles_nothing() {
    let mut rng = seeded("database crashes");
    let (mut server, world) = own_server(None).await;
    let load = world.load();
    a_moment(&mut rng).await;
    server.crash();
    let down = async || tokio::net::TcpStream::connect(server_address(&world)).await.is_err();
    eventually("the database is down", down).await;
    refused(&world, "while-down").await;
    tokio::task::block_in_place(|| server.recover());
    a_moment(&mut rng).await;
    let history = load.stop().await;
    assert_eq!(world.settle(&history).await, 0, "no gateway died, so nothing is unknown");
}

/// A standby may be behind, so that a replay read from it would be missing what was paid. It is waited for until it is
/// the primary, and nothing is answered meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_on_a_standby_answers_when_it_is_promoted() {
    let (server, mut world) = own_server(None).await;
    let End::Answered(first) = world.client.pay(&world.addresses(), "paid").await else { panic!() };
    let standby = server.standby();
    let url = world.database.url.replace(&server.base_url, &standby.base_url);
    let gateway = Gateway::launch(&Settings::new(&url), &world.upstream, "KILL");
    eventually("it waits", async || gateway.log().contains("read-only transaction")).await;
    assert!(world.client.post(gateway.address, "paid").await.is_none(), "it answers");

    server.crash();
    standby.promote().await;
    tokio::task::block_in_place(|| gateway.await_ready());
    world.gateways = vec![gateway];
    let End::Answered(replay) = world.client.pay(&world.addresses(), "paid").await else { panic!() };
    assert!(replay.replayed && replay.body == first.body, "{replay:?}");
    assert_eq!(world.upstream.seen("paid"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_that_is_stopped_and_then_crashes_under_load_loses_and_doubles_nothing() {
    let mut rng = seeded("mariadb stopped");
    let mut server = MariaDb::start(&[]);
    let database = Database::create_on(Kind::MySql, &server.base_url).await;
    let settings = Settings::new(&database.url);
    let world = World::start(database, &settings, 2).await;
    let load = world.load();
    for signal in ["TERM", "KILL"] {
        a_moment(&mut rng).await;
        server.process.signal(signal);
        let down = async || tokio::net::TcpStream::connect(server_address(&world)).await.is_err();
        eventually("the database is down", down).await;
        refused(&world, &format!("while-down-{signal}")).await;
        tokio::task::block_in_place(|| server.recover());
    }
    a_moment(&mut rng).await;
    let history = load.stop().await;
    assert_eq!(world.settle(&history).await, 0, "no gateway died, so nothing is unknown");
}

/// By somebody who is no gateway: a person with a client, a backup.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_file_that_is_locked_under_load_loses_and_doubles_nothing() {
    let mut rng = seeded("sqlite locked");
    let database = Database::create(Kind::Sqlite).await;
    let settings = Settings::new(&database.url);
    let world = World::start(database, &settings, 2).await;
    let mut stranger = world.database.stranger().await;
    // The gateways write all the time: it is not the stranger's turn at once.
    stranger.run("PRAGMA busy_timeout = 30000").await;
    let load = world.load();
    a_moment(&mut rng).await;
    stranger.run("BEGIN IMMEDIATE").await;
    let until = clock::now() + LEASE * 2;
    for number in 0.. {
        refused(&world, &format!("while-locked-{number}")).await;
        if clock::now() > until {
            break;
        }
    }
    stranger.run("ROLLBACK").await;
    a_moment(&mut rng).await;
    let history = load.stop().await;
    assert_eq!(world.settle(&history).await, 0, "no gateway died, so nothing is unknown");
    assert_eq!(world.ended_instances().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_waits_for_a_database_that_starts_later_and_stops_when_it_is_told_to() {
    let mut server = Postgres::start(&[]);
    let database = Database::create_on(Kind::Postgres, &server.base_url).await;
    let (settings, upstream) = (Settings::new(&database.url), Upstream::start(Script::Hang).await);
    server.crash();
    let waiting = Gateway::launch(&settings, &upstream, "TERM");
    let told_off = Gateway::launch(&settings, &upstream, "TERM");
    for gateway in [&waiting, &told_off] {
        eventually("it waits", async || gateway.log().contains("waiting for it")).await;
    }
    tokio::task::block_in_place(|| {
        assert_eq!(told_off.stop(), Some(0));
        server.recover();
        waiting.await_ready();
    });
}

/// Whichever of its connections it is that is cut while it starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_whose_start_is_cut_off_from_its_database_begins_again() {
    /// More than a start makes.
    const CONNECTIONS: usize = 8;
    let server = Postgres::start(&[]);
    let database = Database::create_on(Kind::Postgres, &server.base_url).await;
    let upstream = Upstream::start(Script::Hang).await;
    let mut again = 0;
    for cut in 1..=CONNECTIONS {
        let wire = Wire::to(server.port).await;
        let (_, name) = database.url.rsplit_once('/').unwrap();
        let settings = Settings::new(&format!("postgres://oncegate@127.0.0.1:{}/{name}", wire.port));
        let gateway = Gateway::launch(&settings, &upstream, "KILL");
        let deadline = clock::now() + LEASE;
        while wire.connections() < cut && clock::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        wire.cut();
        tokio::task::block_in_place(|| gateway.await_ready());
        again += usize::from(gateway.log().contains("begins again"));
    }
    println!("{again} of {CONNECTIONS} starts began again");
}

/// What it says to its database is swallowed, and nobody ends the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_starts_on_a_half_open_connection_tries_another_one() {
    let database = Database::create(Kind::Postgres).await;
    let (server, name) = database.url.rsplit_once('/').unwrap();
    let wire = Wire::to(server.rsplit(':').next().unwrap().parse().unwrap()).await;
    wire.set(Mode::Dead);
    let settings = Settings::new(&format!("postgres://oncegate@127.0.0.1:{}/{name}", wire.port));
    let upstream = Upstream::start(Script::Hang).await;
    let gateway = Gateway::launch(&settings, &upstream, "KILL");
    eventually("it has spoken", async || wire.swallowed() > 0).await;
    wire.set_next(Mode::Whole);
    eventually("it answers", async || gateway.log().contains("\"listening\"")).await;
}

fn server_address(world: &World) -> String {
    let (server, _) = world.database.url.rsplit_once('/').unwrap();
    server.rsplit('@').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_database_ends_under_load_lose_and_double_nothing() {
    let mut rng = seeded("connections ended");
    let database = Database::create(Kind::Postgres).await;
    let settings = Settings::new(&database.url);
    let world = World::start(database, &settings, 2).await;
    let load = world.load();
    let mut stranger = world.database.stranger().await;
    let end = clock::now() + load_time();
    while clock::now() < end {
        a_moment(&mut rng).await;
        stranger.kill_the_others().await;
    }
    let history = load.stop().await;
    assert_eq!(world.settle(&history).await, 0, "no gateway died, so nothing is unknown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_paused_for_longer_than_a_lease_expires_nobody() {
    let mut rng = seeded("database paused");
    let (server, world) = own_server(None).await;
    let load = world.load();
    a_moment(&mut rng).await;
    server.process.signal_family("STOP");
    let until = clock::now() + LEASE * 2;
    // The first may find its claim on the way.
    for number in 0.. {
        refused(&world, &format!("while-paused-{number}")).await;
        if clock::now() > until {
            break;
        }
    }
    server.process.signal_family("CONT");
    // Whoever were taken for dead would be so within another lease.
    tokio::time::sleep(LEASE + LEASE / 2).await;
    let history = load.stop().await;
    assert_eq!(world.settle(&history).await, 0, "no gateway died, so nothing is unknown");
    assert_eq!(world.ended_instances().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_can_not_be_recorded_is_given_and_recorded_later() {
    let (mut server, world) = own_server(Some(Script::Hang)).await;
    let call = world.post_later(0, "late");
    world.dispatched("late").await;
    server.crash();
    let down = async || tokio::net::TcpStream::connect(server_address(&world)).await.is_err();
    eventually("the database is down", down).await;
    world.upstream.release();
    let answer = call.await.unwrap().expect("an answer");
    assert_eq!((answer.status, &*answer.body), (StatusCode::CREATED, &*Upstream::answer("late")));
    assert!(!answer.recorded);
    let retried = world.client.post(world.gateways[0].address, "late").await.unwrap();
    assert!(retried.is_problem("processing"), "it stays guarded: {retried:?}");

    tokio::task::block_in_place(|| server.recover());
    eventually("the answer is recorded", async || world.entries(3).await == 1).await;
    for gateway in world.addresses() {
        let answered = world.client.pay(&[gateway], "late").await;
        let End::Answered(answer) = answered else { panic!("{answered:?}") };
        assert!(answer.replayed && answer.body == Upstream::answer("late"));
    }
    assert_eq!(world.upstream.seen("late"), 1);
}
