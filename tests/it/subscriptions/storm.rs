//! A storm: many messages, each sent 1 to 5 times in random order, with handlers that fail and gateways that are
//! killed. Each order has one effect in the end.
//!
//! `ONCEGATE_TEST_MESSAGES` makes it larger, `ONCEGATE_TEST_SEED` repeats one. The large one, from each kind of queue in
//! turn (CONTRIBUTING.md has it from one):
//! `ONCEGATE_TEST_MESSAGES=100000 cargo test --features kafka --test it subscriptions::storm -- --test-threads 1 --nocapture`.

use futures_util::{StreamExt as _, stream};
use oncegate::clock;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use super::eventually;
use super::handler::Behaviour::{Answers, Crashes, Works};
use super::handler::Handler;
use super::process::Gateway;
use super::queue::{Broker, Queue};
use super::world::{document, paid};
use crate::servers::database::{Database, Kind};
use crate::servers::process::given;

/// Messages in a storm of the usual size: a few seconds.
const MESSAGES: usize = 400;

/// Publishing at the same time.
const PRODUCERS: usize = 32;

/// So many messages cost one gateway its life, in a storm that is larger than the usual one.
const MESSAGES_PER_KILL: usize = 2000;

/// What the handler refuses at times, and kills in a row, use up no attempts.
const SUBSCRIPTION: &str = "on_unknown = 'forward'\ntimeout = '1s'\nattempts = 1000\n\
                            backoff = { first = '20ms', max = '200ms' }\nconcurrency = 32";

async fn one_effect_each(kind: Kind, broker: Broker) {
    let seed = given("ONCEGATE_TEST_SEED").map_or_else(rand::random, |seed| seed.parse().unwrap());
    let messages = given("ONCEGATE_TEST_MESSAGES").map_or(MESSAGES, |messages| messages.parse().unwrap());
    println!("storm of {messages} on {kind:?} from {broker:?}: ONCEGATE_TEST_SEED={seed}");
    let mut rng = SmallRng::seed_from_u64(seed);

    let database = Database::create(kind).await;
    let queue = Queue::create(broker, &database).await;
    let handler = Handler::start().await;
    let copies = copies(messages, &handler, &mut rng);
    let sent = copies.len();
    let is_usual = messages <= MESSAGES;
    let (start, lease): (fn(&str, &str) -> Gateway, _) =
        if is_usual { (Gateway::start, "2s") } else { (Gateway::start_patient, "8s") };
    let document = document(&queue, &handler.url(), &format!("{SUBSCRIPTION}\nlease = '{lease}'"));
    let mut gateways: Vec<Gateway> =
        tokio::task::block_in_place(|| (0..2).map(|_| start(&document, &database.url)).collect());
    let begun = clock::now();
    let mut kills: Vec<usize> =
        (0..(messages / MESSAGES_PER_KILL).max(4)).map(|_| rng.random_range(0..messages)).collect();
    kills.sort_unstable();

    let killing = async {
        for at in kills {
            progress("the next kill", async || handler.done(), |done| *done >= at).await;
            let victim = rng.random_range(0..gateways.len());
            tokio::task::block_in_place(|| gateways[victim].crash_and_restart());
        }
    };
    tokio::join!(send(&queue, copies), killing);

    let mut stranger = database.stranger().await;
    let sql = "SELECT COUNT(*) FROM events WHERE queue = 'sub:points' AND state IN (1, 2, 3, 4, 6, 7)";
    // What was sent last has come, and what came is over.
    queue.send(&paid("last")).await;
    let left = async || (messages + 1 - handler.done(), stranger.number(sql).await);
    progress("all are done", left, |left| *left == (0, 0)).await;
    for order in 0..messages {
        assert_eq!(handler.applied(&order.to_string()), 1, "{order}");
    }
    let applied = "SELECT COUNT(*) FROM events WHERE queue = 'sub:points' AND result = 'applied'";
    let applied = stranger.number(applied).await;
    let (calls, elapsed) = (handler.upstream.count(), begun.elapsed());
    println!("{sent} sent, {calls} calls, {applied} deliveries are told as applied, {elapsed:?}");
    assert!(usize::try_from(applied).unwrap() > messages);
}

/// What is sent, in its order: 1 to 5 of each order, under one id or several. A tenth of the orders has troubles.
fn copies(messages: usize, handler: &Handler, rng: &mut SmallRng) -> Vec<(usize, [u8; 16])> {
    let mut copies = Vec::new();
    for order in 0..messages {
        let id = rng.random();
        if rng.random_bool(0.1) {
            let troubles = [vec![Answers("503 Service Unavailable"), Works], vec![Crashes, Works]];
            handler.behave(&order.to_string(), troubles[rng.random_range(0..2)].clone());
        }
        for copy in 0..rng.random_range(1..=5) {
            copies.push((order, if copy % 2 == 0 { id } else { rng.random() }));
        }
    }
    copies.shuffle(rng);
    copies
}

async fn send(queue: &Queue, copies: Vec<(usize, [u8; 16])>) {
    let send = |(order, id): (usize, [u8; 16])| async move { queue.send_as(id, &paid(&order.to_string())).await };
    stream::iter(copies).map(send).buffer_unordered(PRODUCERS).collect::<()>().await;
}

/// Polls until `holds`, and fails when nothing has moved for too long.
async fn progress<S: std::fmt::Debug + PartialEq>(
    what: &str,
    mut look: impl AsyncFnMut() -> S,
    holds: impl Fn(&S) -> bool,
) {
    let mut seen = look().await;
    while !holds(&seen) {
        seen = eventually(&format!("on the way to {what}, anything moves"), &mut look, |now| *now != seen).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_on_postgres() {
    one_effect_each(Kind::Postgres, Broker::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_on_sqlite() {
    one_effect_each(Kind::Sqlite, Broker::Embedded).await;
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_from_rabbitmq() {
    one_effect_each(Kind::MySql, Broker::Rabbitmq).await;
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_from_kafka() {
    one_effect_each(Kind::Postgres, Broker::Kafka).await;
}

#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_from_nats() {
    one_effect_each(Kind::Postgres, Broker::Nats).await;
}

#[cfg(feature = "redis-streams")]
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_from_redis_streams() {
    one_effect_each(Kind::Postgres, Broker::Redis).await;
}
