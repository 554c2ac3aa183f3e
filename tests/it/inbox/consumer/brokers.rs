//! The loop on real brokers, in processes of its own that are killed between every two steps.
//!
//! Steps as the documentation of `inbox::consumer` has them:
//!
//! | killed | between the steps |
//! |---|---|
//! | `received` | 1 and 2 |
//! | `begun` | 3 and 4; a kill between 2 and 3 leaves the same |
//! | `done` | 4 and 5 |
//! | `committed` | 6 and 7; a kill between 5 and 6 leaves the same: what a filter in memory knows dies with it |
//! | `acked` | after 7 |

use std::num::{NonZeroU32, NonZeroUsize};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::future::BoxFuture;
use oncegate::broker::subscriber::{Receipt, Received, SubscribeError, Subscriber};
use oncegate::inbox::{
    Consumer, DeadLetter, Delivery, Handler, HandlerError, Inbox, Message, MessageError, Policy, Transactions,
};
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

use super::text;
use crate::servers::database::{Database, Kind};
use crate::servers::process::given;
use crate::subscriptions::queue::{Broker, Queue};

/// Where a life ends. `never`: only by the test's hand.
const STEPS: [&str; 5] = ["received", "begun", "done", "committed", "acked"];

/// What a member that died had comes again after this time, where the broker has such a time.
const SOON: Duration = Duration::from_secs(2);

/// Makes the tests below of each broker.
macro_rules! on_each_broker {
    ($($(#[$feature:meta])? $module:ident: $broker:expr;)*) => {
        $($(#[$feature])? mod $module {
            use super::*;
            #[tokio::test(flavor = "multi_thread")]
            async fn killed_between_every_two_steps() {
                super::killed_between_every_two_steps($broker).await;
            }
            #[tokio::test(flavor = "multi_thread")]
            async fn a_message_that_ends_its_process_is_given_up_and_its_neighbours_are_not() {
                for transactions in ["1", "16"] {
                    super::a_message_that_ends_its_process_is_given_up($broker, transactions).await;
                }
            }
            #[tokio::test(flavor = "multi_thread")]
            async fn a_thousand_copies_of_a_message_have_one_effect() {
                super::a_thousand_copies_of_a_message_have_one_effect($broker).await;
            }
        })*
    };
}

on_each_broker! {
    #[cfg(feature = "rabbitmq")] rabbitmq: Broker::Rabbitmq;
    #[cfg(feature = "kafka")] kafka: Broker::Kafka;
    #[cfg(feature = "nats")] nats: Broker::Nats;
    #[cfg(feature = "redis-streams")] redis_streams: Broker::Redis;
}

async fn killed_between_every_two_steps(broker: Broker) {
    const COPIES: usize = 4;
    let scene = Scene::on(broker).await;
    for step in STEPS {
        for number in 0..COPIES {
            scene.queue.send_text(&format!("{step}-{number}")).await;
        }
        let mut life = scene.live(step, "20", "1");
        super::eventually("it is killed", async || life.has_ended()).await;
        let is_rolled_back = ["received", "begun", "done"].contains(&step);
        assert_eq!(scene.effects().await == 0, is_rolled_back, "{step}");
    }
    let _life = scene.live("never", "20", "1");
    let all = i64::try_from(COPIES * STEPS.len()).unwrap();
    super::eventually("all are done", async || scene.effects().await == all).await;
    // What was acknowledged before does not come again, and what was not is a duplicate.
    scene.queue.send_text("last").await;
    super::eventually("the last one is done", async || scene.effects().await > all).await;
    assert_eq!(scene.number("SELECT COUNT(DISTINCT message) FROM effects").await, all + 1);
    assert_eq!((scene.effects().await, scene.dead_letters().await), (all + 1, 0));
    assert_eq!(scene.number("SELECT COUNT(*) FROM inbox").await, all + 1);
}

async fn a_message_that_ends_its_process_is_given_up(broker: Broker, transactions: &str) {
    let scene = Scene::on(broker).await;
    for text in ["a", "b", "killer", "c", "d"] {
        scene.queue.send_text(text).await;
    }
    let mut deaths = 0;
    let _life = loop {
        let mut life = scene.live("never", "3", transactions);
        let over = async || life.has_ended() || scene.dead_letters().await > 0;
        super::eventually("it dies of it, or gives it up", over).await;
        if scene.dead_letters().await > 0 {
            break life;
        }
        deaths += 1;
        // One more where its first delivery was neither a redelivery nor the first of its life.
        assert!(deaths <= 4, "tried {deaths} times");
    };
    assert!(deaths >= 3, "given up after {deaths} tries");
    super::eventually("its neighbours are done", async || scene.effects().await == 4).await;
    let dead = "killer: tried 3 times; at last: the process ended in the middle of it (3)";
    let dead = format!("SELECT COUNT(*) FROM dead_letters WHERE message = '{dead}'");
    assert_eq!((scene.number(&dead).await, scene.dead_letters().await), (1, 1));
    // A message that was given up begins anew when it is sent again.
    let left = "SELECT COUNT(*) FROM inbox_attempts";
    super::eventually("nothing is left on record", async || scene.number(left).await == 0).await;
}

async fn a_thousand_copies_of_a_message_have_one_effect(broker: Broker) {
    let scene = Scene::on(broker).await;
    let _life = scene.live("never", "3", "16");
    for _ in 0..1000 {
        scene.queue.send_text("again").await;
    }
    scene.queue.send_text("last").await;
    super::eventually("all are handled", async || scene.effects().await == 2).await;
    assert_eq!(scene.number("SELECT COUNT(*) FROM effects WHERE message = 'again'").await, 1);
    assert_eq!(scene.dead_letters().await, 0);
}

/// NATS sends again what is not acknowledged in time, and of Redis others claim it. RabbitMQ waits for half an hour, and
/// Kafka gives a partition away only with its member.
#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_takes_longer_than_nats_waits_has_one_effect() {
    a_handler_that_takes_longer_than_the_broker_waits_has_one_effect(Broker::Nats).await;
}

#[cfg(feature = "redis-streams")]
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_whose_message_is_claimed_by_another_member_has_one_effect() {
    a_handler_that_takes_longer_than_the_broker_waits_has_one_effect(Broker::Redis).await;
}

/// Whoever gets it meanwhile waits for the database to tell, and no try is counted.
async fn a_handler_that_takes_longer_than_the_broker_waits_has_one_effect(broker: Broker) {
    let scene = Scene::on(broker).await;
    for text in ["slow-1", "slow-2", "quick"] {
        scene.queue.send_text(text).await;
    }
    let _members = ["1", "1"].map(|transactions| scene.live("never", "2", transactions));
    super::eventually("all are done", async || scene.effects().await == 3).await;
    // What was handed out again is over as well.
    scene.queue.send_text("last").await;
    super::eventually("the last one is done", async || scene.effects().await == 4).await;
    let left = "SELECT COUNT(*) FROM inbox_attempts";
    super::eventually("nothing is under way", async || scene.number(left).await == 0).await;
    assert_eq!(scene.number("SELECT COUNT(DISTINCT message) FROM effects").await, 4);
    assert_eq!((scene.effects().await, scene.dead_letters().await), (4, 0));
}

/// A topic, and the database of those who consume it.
struct Scene {
    broker: Broker,
    queue: Queue,
    database: Database,
}

/// A consumer's process. Dropped, it is killed.
struct Life(Child);

impl Life {
    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Tells [`a_consumer_that_another_test_kills`] what to do.
const LIFE: &str = "ONCEGATE_TEST_CONSUMER";

impl Scene {
    async fn on(broker: Broker) -> Self {
        let database = Database::create(Kind::Postgres).await;
        let tables = "CREATE TABLE effects (message TEXT NOT NULL); CREATE TABLE dead_letters (message TEXT NOT NULL)";
        database.stranger().await.run(tables).await;
        // So that the first life need not.
        Inbox::setup(&database.url).open("points").await.unwrap();
        Self { broker, queue: Queue::create(broker, &database).await, database }
    }

    fn live(&self, ends: &str, attempts: &str, transactions: &str) -> Life {
        let test = "inbox::consumer::brokers::a_consumer_that_another_test_kills";
        let said =
            [&*format!("{:?}", self.broker), &self.queue.topic, &self.database.url, ends, attempts, transactions];
        let url = match self.broker {
            #[cfg(feature = "rabbitmq")]
            Broker::Rabbitmq => crate::servers::rabbitmq::shared_url().to_owned(),
            _ => self.queue.url.clone(),
        };
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args([test, "--exact", "--ignored", "--nocapture"]).stdout(Stdio::null()).stderr(Stdio::null());
        Life(process.env(LIFE, format!("{url} {}", said.join(" "))).spawn().unwrap())
    }

    async fn number(&self, sql: &str) -> i64 {
        self.database.stranger().await.number(sql).await
    }

    async fn effects(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM effects").await
    }

    async fn dead_letters(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM dead_letters").await
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of the other tests, in a process of its own"]
async fn a_consumer_that_another_test_kills() {
    let Some(life) = given(LIFE) else { return };
    let said: Vec<String> = life.split(' ').map(str::to_owned).collect();
    let [url, broker, topic, database, ends, attempts, transactions] = <[String; 7]>::try_from(said).unwrap();
    let pool = PgPool::connect(&database).await.unwrap();
    let inbox = Inbox::setup(&database).open("points").await.unwrap();
    let transactions = match transactions.parse().unwrap() {
        1 => Transactions::PerMessage,
        size => Transactions::Batched(NonZeroUsize::new(size).unwrap()),
    };
    let attempts = NonZeroU32::new(attempts.parse().unwrap()).unwrap();
    let policy = Policy { attempts, transactions, ..super::hasty() };
    let mut member = Mortal { inner: subscriber(&broker, &url, &topic), ends: ends.clone() };
    let consumer = Consumer::new(inbox, pool, Victim { ends }).policy(policy);
    consumer.run(&mut member, &CancellationToken::new()).await;
}

fn subscriber(broker: &str, url: &str, topic: &str) -> Box<dyn Subscriber> {
    match broker {
        #[cfg(feature = "rabbitmq")]
        "Rabbitmq" => {
            use oncegate::broker::rabbitmq::{
                Declared, QueueKind, RabbitMqOptions, RabbitMqSubscriber, RabbitMqSubscriberOptions, Topology,
            };
            let topology = Topology::Declare(Declared { queues: QueueKind::Classic, ..Declared::default() });
            let options = RabbitMqOptions { topology, ..RabbitMqOptions::new(url) };
            Box::new(RabbitMqSubscriber::new(RabbitMqSubscriberOptions::new(options, topic)).unwrap())
        }
        #[cfg(feature = "kafka")]
        "Kafka" => {
            use oncegate::broker::kafka::{KafkaOptions, KafkaSubscriber, KafkaSubscriberOptions};
            let options = KafkaOptions::new(vec![url.trim_start_matches("kafka://").to_owned()]);
            let options = KafkaSubscriberOptions::new(options, topic, "points");
            // The shortest that brokers take.
            let session_timeout = Duration::from_secs(6);
            Box::new(KafkaSubscriber::new(KafkaSubscriberOptions { session_timeout, ..options }).unwrap())
        }
        #[cfg(feature = "nats")]
        "Nats" => {
            use oncegate::broker::nats::{NatsOptions, NatsSubscriber, NatsSubscriberOptions};
            let options = NatsSubscriberOptions::new(NatsOptions::new(vec![url.to_owned()]), topic, "points");
            Box::new(NatsSubscriber::new(NatsSubscriberOptions { ack_wait: SOON, ..options }).unwrap())
        }
        #[cfg(feature = "redis-streams")]
        "Redis" => {
            use oncegate::broker::redis_streams::{
                RedisStreamsOptions, RedisStreamsSubscriber, RedisStreamsSubscriberOptions,
            };
            let options = RedisStreamsSubscriberOptions::new(RedisStreamsOptions::new(url), topic, "points");
            Box::new(RedisStreamsSubscriber::new(RedisStreamsSubscriberOptions { idle: SOON, ..options }).unwrap())
        }
        other => panic!("no broker is called {other}"),
    }
}

/// Ends this process as the kernel does.
fn die() -> ! {
    Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status().unwrap();
    loop {
        std::thread::park();
    }
}

/// A member that does not live to tell.
struct Mortal {
    inner: Box<dyn Subscriber>,
    ends: String,
}

impl Subscriber for Mortal {
    fn receive(&mut self) -> BoxFuture<'_, Result<Vec<Received>, SubscribeError>> {
        Box::pin(async {
            let received = self.inner.receive().await;
            if self.ends == "received" && received.is_ok() {
                die();
            }
            received
        })
    }

    fn ack<'a>(&'a mut self, receipts: &'a [Receipt]) -> BoxFuture<'a, Result<(), SubscribeError>> {
        Box::pin(async move {
            if self.ends == "committed" {
                die();
            }
            let acked = self.inner.ack(receipts).await;
            if self.ends == "acked" {
                die();
            }
            acked
        })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

struct Victim {
    ends: String,
}

impl Handler<PgConnection> for Victim {
    fn message(&self, received: &Received) -> Result<Message, MessageError> {
        Message::new(&text(received))
    }

    async fn handle(&self, tx: &mut PgConnection, delivery: &Delivery<'_>) -> Result<(), HandlerError> {
        if self.ends == "begun" {
            die();
        }
        let text = text(delivery.received);
        sqlx::query("INSERT INTO effects VALUES ($1)").bind(&text).execute(&mut *tx).await?;
        if text.starts_with("slow") {
            sqlx::query("SELECT pg_sleep($1)").bind(SOON.as_secs_f64() * 3.0).execute(tx).await?;
        }
        if self.ends == "done" || text == "killer" {
            die();
        }
        Ok(())
    }

    async fn dead_letter(&self, tx: &mut PgConnection, dead: &DeadLetter<'_>) -> Result<(), HandlerError> {
        let dead = format!("{}: {} ({})", text(dead.received), dead.reason, dead.attempts);
        sqlx::query("INSERT INTO dead_letters VALUES ($1)").bind(dead).execute(tx).await?;
        Ok(())
    }
}
