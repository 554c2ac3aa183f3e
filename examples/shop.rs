//! Two consumers of a shop, on the ready loop: one deducts stock for each order once and never below zero, one moves
//! payments along their states.
//!
//! `cargo run --example shop` reads messages from its standard input, one JSON object a line, and acknowledges each on its
//! standard output. Send each as often as you like, in any order:
//!
//! ```text
//! {"order": "1001", "sku": "book", "amount": 2}
//! {"payment": "p-1", "result": "paid"}
//! ```
//!
//! There are three books and the payments `p-1` and `p-2`, both pending. What a crash leaves is in the documentation of
//! `oncegate::inbox::consumer`, and step by step in `examples/points.rs`.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::str::FromStr as _;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use futures_util::future::BoxFuture;
use oncegate::broker::subscriber::{Receipt, Received, SubscribeError, Subscriber};
use oncegate::inbox::{
    Consumer, DeadLetter, Delivery, Handler, HandlerError, Inbox, Message, MessageError, Policy, StateMachine,
    Transactions, Transitioned,
};
use serde::Deserialize;
use sqlx::SqliteConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A shop's consumers of orders and of payment results.
#[derive(Debug, Parser)]
struct Flags {
    /// The shop's database, which keeps the inbox's tables too.
    #[arg(long, default_value = "sqlite://shop.db")]
    database: String,
}

/// Deducts stock.
#[derive(Debug)]
struct Stock;

#[derive(Debug, Deserialize)]
struct Order {
    order: String,
    sku: String,
    amount: i64,
}

impl Handler<SqliteConnection> for Stock {
    /// The order is the key: one that is announced twice is deducted once.
    fn message(&self, received: &Received) -> Result<Message, MessageError> {
        let order: Order = serde_json::from_slice(&received.data).map_err(|_| MessageError::Unreadable)?;
        Ok(Message::new(&order.order)?.payload(&received.data))
    }

    async fn handle(&self, tx: &mut SqliteConnection, delivery: &Delivery<'_>) -> Result<(), HandlerError> {
        let order: Order = parse(delivery.received)?;
        if order.amount <= 0 {
            return Err(HandlerError::Reject(format!("an amount of {}", order.amount)));
        }
        // One statement reads and decides, so that two orders can't both take the last book.
        let deduct = "UPDATE stock SET amount = amount - ? WHERE sku = ? AND amount >= ?";
        let deduct = sqlx::query(deduct).bind(order.amount).bind(&order.sku).bind(order.amount);
        if deduct.execute(&mut *tx).await?.rows_affected() == 0 {
            return Err(HandlerError::Reject(format!("not enough of {}", order.sku)));
        }
        Ok(())
    }

    async fn dead_letter(&self, tx: &mut SqliteConnection, dead: &DeadLetter<'_>) -> Result<(), HandlerError> {
        keep("orders", tx, dead).await
    }
}

/// The ways of a payment.
const PAYMENTS: StateMachine = StateMachine::new(
    "payments",
    "id",
    "status",
    &[("pending", "paid"), ("pending", "failed"), ("failed", "paid"), ("paid", "refunded")],
);

/// Takes in what became of payments.
#[derive(Debug)]
struct Results;

#[derive(Debug, Deserialize)]
struct PayResult {
    payment: String,
    result: String,
}

impl Handler<SqliteConnection> for Results {
    /// A payment has several results in its life, so its id alone is no key.
    fn message(&self, received: &Received) -> Result<Message, MessageError> {
        let PayResult { payment, result } =
            serde_json::from_slice(&received.data).map_err(|_| MessageError::Unreadable)?;
        Message::composite(&[&payment, &result])
    }

    async fn handle(&self, tx: &mut SqliteConnection, delivery: &Delivery<'_>) -> Result<(), HandlerError> {
        let PayResult { payment, result } = parse(delivery.received)?;
        match PAYMENTS.transition(tx, &payment, &result).await? {
            Transitioned::Applied => {}
            // Also when the record of the message has long been removed: the state remembers.
            Transitioned::AlreadyThere => return Ok(()),
            Transitioned::Illegal { found } => {
                return Err(HandlerError::Reject(format!("a payment that is {found} can't be {result}")));
            }
            // It may be on its way through another queue.
            Transitioned::Missing => return Err(HandlerError::Retry(format!("no payment {payment}"))),
        }
        // What comes with the new state, once, since the state changes once.
        let book = "INSERT INTO bookings (payment, result) VALUES (?, ?)";
        sqlx::query(book).bind(&payment).bind(&result).execute(&mut *tx).await?;
        Ok(())
    }

    async fn dead_letter(&self, tx: &mut SqliteConnection, dead: &DeadLetter<'_>) -> Result<(), HandlerError> {
        keep("results", tx, dead).await
    }
}

fn parse<'a, T: Deserialize<'a>>(received: &'a Received) -> Result<T, HandlerError> {
    serde_json::from_slice(&received.data).map_err(|error| HandlerError::Reject(error.to_string()))
}

/// By its content, so that one that is given up again after a crash is there once.
async fn keep(topic: &str, tx: &mut SqliteConnection, dead: &DeadLetter<'_>) -> Result<(), HandlerError> {
    let keep = "INSERT INTO dead_letters (topic, data, reason) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";
    let keep = sqlx::query(keep).bind(topic).bind(&dead.received.data[..]).bind(dead.reason.to_string());
    keep.execute(&mut *tx).await?;
    Ok(())
}

/// Stands for a queue's topic. What is not acknowledged is lost with the process here; a queue delivers it again.
#[derive(Debug)]
struct Topic {
    lines: mpsc::Receiver<String>,
    in_hand: VecDeque<(Receipt, String)>,
    /// Told that there will be no more.
    end: CancellationToken,
}

impl Subscriber for Topic {
    fn receive(&mut self) -> BoxFuture<'_, Result<Vec<Received>, SubscribeError>> {
        Box::pin(async {
            let Some(line) = self.lines.recv().await else {
                self.end.cancel();
                return std::future::pending().await;
            };
            let receipt = Receipt(self.in_hand.back().map_or(0, |(receipt, _)| receipt.0) + 1);
            self.in_hand.push_back((receipt, line.clone()));
            Ok(vec![Received {
                receipt,
                id: None,
                place: receipt.0.to_string().into(),
                key: None,
                content_type: Some("application/json".into()),
                attributes: Vec::new(),
                data: Bytes::from(line),
                redelivered: false,
            }])
        })
    }

    fn ack<'a>(&'a mut self, receipts: &'a [Receipt]) -> BoxFuture<'a, Result<(), SubscribeError>> {
        Box::pin(async {
            for (_, line) in self.in_hand.iter().filter(|(receipt, _)| receipts.contains(receipt)) {
                println!("acknowledged: {line}");
            }
            Ok(())
        })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// Deals the lines of the standard input out to the two topics.
fn deal(orders: &mpsc::Sender<String>, results: &mpsc::Sender<String>) -> std::io::Result<()> {
    for line in std::io::stdin().lines() {
        let line = line?;
        let topic = if line.contains("\"payment\"") { results } else { orders };
        if topic.blocking_send(line).is_err() {
            break;
        }
    }
    Ok(())
}

const TABLES: [&str; 6] = [
    "CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, amount INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS payments (id TEXT PRIMARY KEY, status TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bookings (payment TEXT NOT NULL, result TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS dead_letters (topic TEXT, data BLOB, reason TEXT, PRIMARY KEY (topic, data))",
    "INSERT INTO stock VALUES ('book', 3) ON CONFLICT DO NOTHING",
    "INSERT INTO payments VALUES ('p-1', 'pending'), ('p-2', 'pending') ON CONFLICT DO NOTHING",
];

async fn open(database: &str) -> Result<SqlitePool, sqlx::Error> {
    let options = SqliteConnectOptions::from_str(database)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(5));
    let pool = SqlitePoolOptions::new().max_connections(8).connect_with(options).await?;
    for table in TABLES {
        sqlx::query(table).execute(&pool).await?;
    }
    Ok(pool)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flags = Flags::parse();
    let pool = open(&flags.database).await?;
    let inbox = Inbox::setup(&flags.database).open("stock").await?;
    let ((orders, order_lines), (results, result_lines)) = (mpsc::channel(64), mpsc::channel(64));
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    let topic = |lines, end: &CancellationToken| Topic { lines, in_hand: VecDeque::new(), end: end.clone() };
    let (mut order_topic, mut result_topic) = (topic(order_lines, &first), topic(result_lines, &second));

    let payments = Consumer::new(inbox.of("payments")?, pool.clone(), Results);
    // Many orders share a commit, and one that fails is handled alone.
    let batched = Transactions::Batched(NonZeroUsize::new(64).ok_or("not zero")?);
    let stock = Consumer::new(inbox, pool, Stock).policy(Policy { transactions: batched, ..Policy::default() });
    let (dealt, (), ()) = tokio::join!(
        tokio::task::spawn_blocking(move || deal(&orders, &results)),
        stock.run(&mut order_topic, &first),
        payments.run(&mut result_topic, &second)
    );
    Ok(dealt??)
}
