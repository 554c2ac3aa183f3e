//! The ready loop: what is handled, given up and acknowledged, and when.

mod broker;
mod brokers;
mod endings;
mod faults;
mod order;

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncegate::broker::subscriber::Received;
use oncegate::inbox::{
    Consumer, DeadLetter, Delivery, Handler, HandlerError, Message, MessageError, Policy, Transactions, TxPool,
};
use oncegate::outbox::relay::Backoff;
use sqlx::{AssertSqlSafe, MySqlConnection, PgConnection, SqliteConnection};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::broker::Broker;
use super::{Ground, Pool, eventually};

/// What the handler does with a message, by how often it was called for it before.
type Plan = Box<dyn Fn(&Received, u32) -> Result<(), HandlerError> + Send + Sync>;

/// A handler that inserts a row for each message, and then does by plan.
#[derive(Clone)]
struct Points(Arc<Inner>);

struct Inner {
    plan: Plan,
    /// What was called, in order.
    calls: Mutex<Vec<String>>,
}

impl Points {
    fn new(plan: impl Fn(&Received, u32) -> Result<(), HandlerError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { plan: Box::new(plan), calls: Mutex::default() }))
    }

    /// Does what it is asked for.
    fn willing() -> Self {
        Self::new(|_, _| Ok(()))
    }

    fn calls(&self) -> Vec<String> {
        self.0.calls.lock().unwrap().clone()
    }

    fn call(&self, received: &Received) -> Result<(), HandlerError> {
        let text = text(received);
        let before = {
            let mut calls = self.0.calls.lock().unwrap();
            calls.push(text.clone());
            u32::try_from(calls.iter().filter(|call| **call == text).count()).unwrap() - 1
        };
        (self.0.plan)(received, before)
    }
}

fn text(received: &Received) -> String {
    String::from_utf8(received.data.to_vec()).unwrap()
}

/// Data is `key` or `key@version` or `key=content`; the entity is what the producer ordered it by.
fn identify(received: &Received) -> Result<Message, MessageError> {
    let text = text(received);
    assert!(text != "unreadable", "the handler's own");
    if let Some((key, version)) = text.split_once('@') {
        return Message::new(key)?.version(received.key.as_deref().unwrap_or_default(), version.parse().unwrap());
    }
    match text.split_once('=') {
        Some((key, _)) => Ok(Message::new(key)?.payload(&received.data)),
        None => Message::new(&text),
    }
}

macro_rules! handles {
    ($($connection:ty),*) => {$(
        impl Handler<$connection> for Points {
            fn message(&self, received: &Received) -> Result<Message, MessageError> {
                identify(received)
            }

            async fn handle(&self, tx: &mut $connection, delivery: &Delivery<'_>) -> Result<(), HandlerError> {
                let sql = format!("INSERT INTO effects VALUES ('{}')", delivery.message.key());
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await?;
                let text = text(delivery.received);
                if text.starts_with("swallows") && delivery.attempt == 1 {
                    assert!(sqlx::raw_sql("SELECT * FROM nowhere").execute(&mut *tx).await.is_err());
                }
                if text.starts_with("hangs") && delivery.attempt == 1 {
                    std::future::pending::<()>().await;
                }
                self.call(delivery.received)
            }

            async fn dead_letter(&self, tx: &mut $connection, dead: &DeadLetter<'_>) -> Result<(), HandlerError> {
                if let Some(missing) = text(dead.received).strip_prefix("unburied ") {
                    sqlx::raw_sql(AssertSqlSafe(format!("INSERT INTO {missing} VALUES ('')"))).execute(&mut *tx).await?;
                }
                let (text, reason) = (text(dead.received), dead.reason.to_string().replace('\'', "''"));
                let sql = format!("INSERT INTO dead_letters VALUES ('{text}: {reason} ({})')", dead.attempts);
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await?;
                Ok(())
            }
        }
    )*};
}

handles!(SqliteConnection, PgConnection, MySqlConnection);

/// A policy whose pauses a test does not feel.
fn hasty() -> Policy {
    let pause = Backoff { first: Duration::from_millis(5), max: Duration::from_millis(20) };
    Policy { attempts: NonZeroU32::new(3).unwrap(), backoff: pause, outage: pause, ..Policy::default() }
}

fn batched() -> Policy {
    Policy { transactions: Transactions::Batched(NonZeroUsize::new(16).unwrap()), ..hasty() }
}

/// A running consumer.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

impl Ground {
    async fn with_dead_letters(self) -> Self {
        self.database.stranger().await.run("CREATE TABLE dead_letters (message VARCHAR(300) NOT NULL)").await;
        self
    }

    /// Runs a consumer on its pool until it is ended.
    fn consume(&self, broker: &Broker, points: &Points, policy: Policy) -> Running {
        match self.pool.clone() {
            Pool::Sqlite(pool) => self.consume_with(pool, broker, points, policy),
            Pool::Postgres(pool) => self.consume_with(pool, broker, points, policy),
            Pool::MySql(pool) => self.consume_with(pool, broker, points, policy),
        }
    }

    fn consume_with<P: TxPool>(&self, pool: P, broker: &Broker, points: &Points, policy: Policy) -> Running
    where
        Points: Handler<P::Connection>,
    {
        let consumer = Consumer::new(self.inbox.clone(), pool, points.clone()).policy(policy);
        let (stop, mut subscriber) = (CancellationToken::new(), broker.subscriber());
        let stopped = stop.clone();
        let task = tokio::spawn(async move { consumer.run(&mut subscriber, &stopped).await });
        Running { stop, task }
    }

    /// Consumes until the broker has nothing left.
    async fn consume_all(&self, broker: &Broker, points: &Points, policy: Policy) {
        let running = self.consume(broker, points, policy);
        eventually("all is acknowledged", async || broker.is_empty()).await;
        running.end().await;
    }

    async fn dead_letters(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM dead_letters").await
    }

    /// How many dead letters say so.
    async fn dead_like(&self, pattern: &str) -> i64 {
        self.number(&format!("SELECT COUNT(*) FROM dead_letters WHERE message LIKE '{pattern}'")).await
    }
}
