//! What was completed is announced, whatever dies between the commit and the broker's confirm: gateways are killed and
//! paused beyond their leases, and the broker is killed, while clients retry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oncegate::broker::subscriber::Subscriber;
use tokio::task::block_in_place;

use super::client::End;
use super::gateway::Settings;
use super::load::History;
use super::upstream::Script;
use super::world::World;
use super::{PATIENCE, a_moment, eventually, seeded};
use crate::servers::database::{Database, Kind};
use crate::servers::outbox::written;

/// How long payments take: so long that a broker has a core to start on meanwhile.
const PAYMENT: Duration = Duration::from_millis(400);

/// A broker of the test's own, which keeps on disk what it has confirmed.
trait Broker {
    /// The settings of the queue.
    fn settings(&self) -> String;

    fn kill(&self);

    fn start_again(&mut self);

    /// Somebody who has not read anything of `topic`.
    fn subscriber(&self, topic: &str) -> Box<dyn Subscriber>;
}

/// A payment, as its event names it: whose, and which one of theirs.
fn payment(key: &str) -> (&str, usize) {
    let (payer, number) = key.split_once('-').unwrap();
    (payer, number.parse().unwrap())
}

fn paid(data: &[u8]) -> String {
    let data: serde_json::Value = serde_json::from_slice(data).unwrap();
    data["for"].as_str().unwrap().to_owned()
}

async fn announced(mut broker: impl Broker, test: &str) {
    let mut rng = seeded(test);
    let database = Database::create(Kind::Postgres).await;
    let topic = format!("payments-{:08x}", rand::random::<u32>());
    let events = format!(
        "[[routes.events]]\nname = 'paid'\ntype = 'com.example.paid'\ntopic = '{topic}'\nkey = 'body:/payer'\n\
         data = 'request'\n[queue]\nlease = '1s'\n{}",
        broker.settings()
    );
    let settings = Settings { policy: "on_unknown = \"forward\"", events, ..Settings::new(&database.url) };
    let mut world = World::start_with(database, &settings, 3, Script::Within(PAYMENT)).await;
    let load = world.load();
    a_moment(&mut rng).await;
    world.gateways[0].signal("STOP");
    a_moment(&mut rng).await;
    world.gateways[1].crash_and_restart();
    broker.kill();
    eventually("its lease runs out", async || world.ended_instances().await >= 2).await;
    world.gateways[0].signal("CONT");
    a_moment(&mut rng).await;
    block_in_place(|| broker.start_again());
    a_moment(&mut rng).await;
    world.gateways[2].crash_and_restart();
    a_moment(&mut rng).await;
    let history = load.stop().await;
    check(&world, &history, &mut *broker.subscriber(&topic)).await;
}

pub(super) async fn check(world: &World, history: &History, subscriber: &mut dyn Subscriber) {
    let unsettled = async || world.entries(1).await + world.entries(2).await;
    eventually("every entry is completed", async || unsettled().await == 0).await;
    let unsent = async || written(&world.database).await.iter().any(|event| !event.state.starts_with("5."));
    eventually("every event is sent", async || !unsent().await).await;
    let committed: BTreeMap<String, String> =
        written(&world.database).await.into_iter().map(|event| (event.id, paid(event.data.as_bytes()))).collect();
    let announced: BTreeSet<&String> = committed.values().collect();
    assert_eq!((announced.len(), announced), (committed.len(), history.keys().collect()), "each payment has one event");

    let (mut arrived, mut copies) = (Vec::new(), 0);
    let mut seen = BTreeSet::new();
    while seen.len() < committed.len() {
        let received = tokio::time::timeout(PATIENCE, subscriber.receive()).await;
        let received = received.unwrap_or_else(|_| panic!("{} of {} came", seen.len(), committed.len())).unwrap();
        for message in &received {
            let (id, key) = (message.id.as_deref().unwrap().to_owned(), paid(&message.data));
            assert_eq!(committed.get(&id), Some(&key), "no other event, and none with another's id");
            if seen.insert(id) { arrived.push(key) } else { copies += 1 }
        }
        let receipts: Vec<_> = received.iter().map(|message| message.receipt).collect();
        subscriber.ack(&receipts).await.unwrap();
    }
    // Who was not told that it is on record may have gone on before it was.
    let recorded = |end: &End| matches!(end, End::Answered(answer) if answer.recorded);
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for key in arrived.iter().filter(|key| history[*key].iter().all(recorded)) {
        let (payer, number) = payment(key);
        let before = last.insert(payer, number);
        assert!(before < Some(number), "{payer}: {number} came after {before:?}");
    }
    println!("{} events, {copies} of them twice", committed.len());
}

mod redis {
    use oncegate::broker::redis_streams::{RedisStreamsOptions, RedisStreamsSubscriber, RedisStreamsSubscriberOptions};

    use super::*;
    use crate::servers::process::free_port;
    use crate::servers::redis::Redis;

    impl Broker for Redis {
        fn settings(&self) -> String {
            format!("url = '{}'", self.url)
        }

        fn kill(&self) {
            self.signal("KILL");
        }

        fn start_again(&mut self) {
            Self::start_again(self);
        }

        fn subscriber(&self, topic: &str) -> Box<dyn Subscriber> {
            let options = RedisStreamsOptions::new(&self.url);
            Box::new(RedisStreamsSubscriber::new(RedisStreamsSubscriberOptions::new(options, topic, "all")).unwrap())
        }
    }

    /// It confirms what is on disk.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_completed_is_announced_to_redis_whatever_dies() {
        let server =
            block_in_place(|| Redis::start_on(free_port(), &["--appendonly", "yes", "--appendfsync", "always"]));
        announced(server, "announced to redis").await;
    }
}

#[cfg(feature = "rabbitmq")]
mod rabbitmq {
    use oncegate::broker::rabbitmq::{RabbitMqOptions, RabbitMqSubscriber, RabbitMqSubscriberOptions};

    use super::*;
    use crate::servers::rabbitmq::RabbitMq;

    impl Broker for RabbitMq {
        /// A quorum queue of one node that is killed in the seconds after it was made never works again, which is
        /// RabbitMQ's own (3.10, any client).
        fn settings(&self) -> String {
            format!("url = '{}'\n[queue.rabbitmq]\nqueues = 'classic'", self.url)
        }

        fn kill(&self) {
            self.signal("KILL");
        }

        fn start_again(&mut self) {
            Self::start_again(self);
        }

        fn subscriber(&self, topic: &str) -> Box<dyn Subscriber> {
            let options = RabbitMqSubscriberOptions::new(RabbitMqOptions::new(&self.url), topic);
            Box::new(RabbitMqSubscriber::new(options).unwrap())
        }
    }

    /// It confirms what is on disk.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_completed_is_announced_to_rabbitmq_whatever_dies() {
        announced(block_in_place(RabbitMq::start), "announced to rabbitmq").await;
    }
}
