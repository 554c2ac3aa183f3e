//! Gateways killed between every two steps of a delivery.
//!
//! | killed after | test |
//! |---|---|
//! | the message was received | [`killed_before_the_message_is_kept`] |
//! | it was kept | [`killed_before_the_queue_hears_of_it`] |
//! | the queue has heard of it | [`killed_before_a_turn_takes_it_up`] |
//! | a turn took it up | [`killed_before_its_key_is_claimed`] |
//! | its key was claimed | [`killed_before_the_handler_is_called`] |
//! | the handler was called, its effect committed | [`killed_while_the_handler_works`] |
//! | its outcome was recorded | [`killed_before_its_version_is_on_record`] |
//! | its version was advanced | [`killed_before_the_delivery_is_concluded`] |

use serde_json::json;

use super::eventually;
use super::handler::Behaviour::{Answers, Waits, Works};
use super::handler::Handler;
use super::process::Gateway;
use super::queue::{Broker, Queue};
use super::world::{document, paid};
use crate::http::upstream::Gate;
use crate::servers::database::{Database, Kind, Stranger};
use crate::servers::outbox::{Delivered, delivered};

/// A gateway process and what is around it.
struct Scene {
    database: Database,
    queue: Queue,
    handler: Handler,
    gateway: Gateway,
}

impl Scene {
    async fn on(kind: Kind, rest: &str) -> Self {
        let database = Database::create(kind).await;
        let queue = Queue::create(Broker::Embedded, &database).await;
        Self::around(database, queue, rest).await
    }

    async fn around(database: Database, queue: Queue, rest: &str) -> Self {
        let handler = Handler::start().await;
        let document = document(&queue, &handler.url(), &format!("timeout = '1s'\nretention = '1d'\n{rest}"));
        let gateway = tokio::task::block_in_place(|| Gateway::start(&document, &database.url));
        Self { database, queue, handler, gateway }
    }

    fn restart(&mut self) {
        tokio::task::block_in_place(|| self.gateway.crash_and_restart());
    }

    async fn deliveries(&self) -> Vec<Delivered> {
        delivered(&self.database, "sub:points").await
    }

    #[track_caller]
    fn come_to<'a>(&'a self, expected: &'a [&'a str]) -> impl Future<Output = Vec<Delivered>> + 'a {
        let holds = move |seen: &Vec<Delivered>| seen.iter().map(|one| &*one.result).collect::<Vec<_>>() == expected;
        eventually("the deliveries are over", async || self.deliveries().await, holds)
    }
}

/// Its effect is committed, and nobody was told: only the handler's own memory, or a lookup, can tell.
async fn killed_while_the_handler_works(kind: Kind) {
    let mut scene = Scene::on(kind, "on_unknown = 'forward'").await;
    scene.handler.behave("A-1", [Waits(Gate::new()), Works]);
    scene.queue.send(&paid("A-1")).await;
    scene.handler.called("A-1", 1).await;
    scene.restart();
    let deliveries = scene.come_to(&["applied"]).await;
    assert_eq!((scene.handler.calls("A-1"), scene.handler.applied("A-1")), (2, 1));
    // What died with its relay is counted as tried.
    assert!(deliveries[0].attempts >= 2, "{deliveries:?}");
    let again = scene.handler.requests("A-1").pop().unwrap();
    assert_eq!(again.field("oncegate-attempt"), Some("2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_the_handler_works_on_sqlite() {
    killed_while_the_handler_works(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_the_handler_works_on_postgres() {
    killed_while_the_handler_works(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_the_handler_works_on_mysql() {
    killed_while_the_handler_works(Kind::MySql).await;
}

/// Where the handler does not honour the key, nothing is sent again blindly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_the_handler_works_and_held() {
    let mut scene = Scene::on(Kind::Postgres, "").await;
    scene.handler.behave("A-1", [Waits(Gate::new())]);
    scene.queue.send(&paid("A-1")).await;
    scene.handler.called("A-1", 1).await;
    scene.restart();
    let unknown = async || scene.database.stranger().await.number("SELECT COUNT(*) FROM entries WHERE state = 2").await;
    eventually("it is unknown", unknown, |count| *count == 1).await;
    let deferred = async || scene.deliveries().await[0].deferrals;
    eventually("it is tried, and held", deferred, |deferrals| *deferrals >= 2).await;
    assert_eq!(scene.handler.calls("A-1"), 1);
}

/// A lock of somebody else's, held until it is dropped.
async fn locked(database: &Database, sql: &str) -> Stranger {
    let mut stranger = database.stranger().await;
    stranger.run(&format!("BEGIN; {sql}")).await;
    stranger
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_before_the_message_is_kept() {
    let database = Database::create(Kind::Postgres).await;
    let queue = Queue::create(Broker::Rabbitmq, &database).await;
    let mut scene = Scene::around(database, queue, "").await;
    // It can't be kept as long as somebody has the table.
    let lock = locked(&scene.database, "LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE").await;
    scene.queue.send(&paid("A-1")).await;
    let log = async || scene.gateway.log().contains("nothing is received");
    eventually("it was received and not kept", log, |told| *told).await;
    scene.restart();
    drop(lock);
    scene.come_to(&["applied"]).await;
    assert_eq!(scene.handler.calls("A-1"), 1);
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_before_the_queue_hears_of_it() {
    let node = tokio::task::block_in_place(crate::servers::rabbitmq::RabbitMq::start);
    let database = Database::create(Kind::Postgres).await;
    let queue = Queue::on_rabbitmq(&node.url, "payments".to_owned());
    let mut scene = Scene::around(database, queue, "").await;
    let lock = locked(&scene.database, "LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE").await;
    scene.queue.send(&paid("A-1")).await;
    let log = async || scene.gateway.log().contains("nothing is received");
    eventually("it was received and not kept", log, |told| *told).await;
    // From now on no acknowledgement arrives.
    node.signal("STOP");
    drop(lock);
    scene.come_to(&["applied"]).await;
    scene.gateway.kill();
    node.signal("CONT");
    tokio::task::block_in_place(|| scene.gateway.start_again());
    // It comes again, and is known.
    scene.queue.send(&paid("A-2")).await;
    scene.come_to(&["applied", "applied"]).await;
    let left = async || node.ctl(&["list_queues", "-q", "messages"]);
    eventually("both are acknowledged", left, |left| left.lines().any(|line| line.trim() == "0")).await;
    assert_eq!((scene.handler.calls("A-1"), scene.deliveries().await.len()), (1, 2));
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_before_a_turn_takes_it_up() {
    let node = tokio::task::block_in_place(crate::servers::rabbitmq::RabbitMq::start);
    let database = Database::create(Kind::Postgres).await;
    let queue = Queue::on_rabbitmq(&node.url, "payments".to_owned());
    let mut scene = Scene::around(database, queue, "").await;
    let lock = locked(&scene.database, "SELECT * FROM lanes FOR UPDATE").await;
    scene.queue.send(&paid("A-1")).await;
    let kept = async || scene.deliveries().await.len();
    eventually("it is kept", kept, |kept| *kept == 1).await;
    let left = async || node.ctl(&["list_queues", "-q", "messages"]);
    eventually("it is acknowledged", left, |left| left.lines().any(|line| line.trim() == "0")).await;
    assert_eq!(scene.deliveries().await[0].attempts, 0);
    scene.gateway.kill();
    drop(lock);
    tokio::task::block_in_place(|| scene.gateway.start_again());
    let deliveries = scene.come_to(&["applied"]).await;
    assert_eq!((scene.handler.calls("A-1"), deliveries[0].deaths), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_before_its_key_is_claimed() {
    let mut scene = Scene::on(Kind::Postgres, "").await;
    // The ledger waits for this; the relay's turns do not.
    let lock = locked(&scene.database, "LOCK TABLE entries IN SHARE ROW EXCLUSIVE MODE").await;
    scene.queue.send(&paid("A-1")).await;
    let in_hand = "SELECT COUNT(*) FROM events WHERE queue = 'sub:points' AND epoch IS NOT NULL";
    let in_hand = async || scene.database.stranger().await.number(in_hand).await;
    eventually("it is in hand", in_hand, |count| *count == 1).await;
    scene.gateway.kill();
    drop(lock);
    tokio::task::block_in_place(|| scene.gateway.start_again());
    scene.come_to(&["applied"]).await;
    assert_eq!((scene.handler.calls("A-1"), scene.handler.applied("A-1")), (1, 1));
}

/// Nobody can tell from outside whether it was called: the entry is unknown, and forwarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_before_the_handler_is_called() {
    let database = Database::create(Kind::Postgres).await;
    let queue = Queue::create(Broker::Embedded, &database).await;
    // A connection to it waits, since its line of those who wait is full.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let deaf = socket.listen(1).unwrap();
    let address = deaf.local_addr().unwrap();
    let waiting = [(); 2].map(|()| std::net::TcpStream::connect(address).unwrap());
    let rest = "timeout = '1s'\nretention = '1d'\non_unknown = 'forward'";
    let document = document(&queue, &format!("http://{address}/points"), rest);
    let mut gateway = tokio::task::block_in_place(|| Gateway::start(&document, &database.url));
    queue.send(&paid("A-1")).await;
    let claimed = async || database.stranger().await.number("SELECT COUNT(*) FROM entries WHERE state = 1").await;
    eventually("its key is claimed", claimed, |count| *count == 1).await;
    gateway.kill();
    drop((waiting, deaf));
    let handler = Handler::start_on(address).await;
    tokio::task::block_in_place(|| gateway.start_again());
    let results =
        async || delivered(&database, "sub:points").await.into_iter().map(|one| one.result).collect::<Vec<_>>();
    eventually("it is applied", results, |results| results == &["applied"]).await;
    assert_eq!((handler.calls("A-1"), handler.applied("A-1")), (1, 1));
    assert_eq!(handler.requests("A-1")[0].field("oncegate-attempt"), Some("2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_before_its_version_is_on_record() {
    let mut scene = Scene::on(Kind::Postgres, "version = 'body:/version'\nentity = 'body:/order_no'").await;
    let version = |number: u32| json!({ "order_no": "A-1", "version": number, "state": number.to_string() });
    // Reading versions goes on.
    let lock = locked(&scene.database, "LOCK TABLE versions IN SHARE ROW EXCLUSIVE MODE").await;
    scene.queue.send(&version(2)).await;
    let done = async || scene.database.stranger().await.number("SELECT COUNT(*) FROM entries WHERE state = 3").await;
    eventually("its outcome is recorded", done, |count| *count == 1).await;
    scene.gateway.kill();
    assert_eq!(scene.database.stranger().await.number("SELECT COUNT(*) FROM versions").await, 0);
    // It waits in its line, behind the one whose version nobody knows yet.
    scene.queue.send(&version(1)).await;
    drop(lock);
    tokio::task::block_in_place(|| scene.gateway.start_again());
    scene.come_to(&["applied", "stale"]).await;
    assert_eq!(scene.handler.states("A-1"), ["2"]);
    assert_eq!(scene.handler.calls("A-1"), 1, "told the first answer, and not called");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_before_the_delivery_is_concluded() {
    let mut scene = Scene::on(Kind::Postgres, "").await;
    let gate = Gate::new();
    scene.handler.behave("A-1", [Waits(gate.clone())]);
    scene.queue.send(&paid("A-1")).await;
    scene.handler.called("A-1", 1).await;
    // The relay's turns wait for this; the ledger does not.
    let lock = locked(&scene.database, "SELECT * FROM lanes FOR UPDATE").await;
    gate.cancel();
    let done = async || scene.database.stranger().await.number("SELECT COUNT(*) FROM entries WHERE state = 3").await;
    eventually("its outcome is recorded", done, |count| *count == 1).await;
    scene.gateway.kill();
    drop(lock);
    tokio::task::block_in_place(|| scene.gateway.start_again());
    let deliveries = scene.come_to(&["applied"]).await;
    assert_eq!((scene.handler.calls("A-1"), deliveries[0].deaths), (1, 1), "told the first answer, and not called");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_survive_a_crash() {
    // Killed before the refusal is on record, a call is unknown.
    let rest = "attempts = 6\nbackoff = { first = '400ms', max = '400ms' }\non_unknown = 'forward'";
    let mut scene = Scene::on(Kind::Sqlite, rest).await;
    scene.handler.behave("A-1", [Answers("503 Service Unavailable")]);
    scene.queue.send(&paid("A-1")).await;
    for calls in [2, 4] {
        scene.handler.called("A-1", calls).await;
        scene.restart();
    }
    let deliveries = scene.come_to(&["rejected"]).await;
    assert_eq!((deliveries[0].state, deliveries[0].attempts), (4, 6));
    assert!(scene.handler.calls("A-1") <= 6, "{}", scene.handler.calls("A-1"));
}
