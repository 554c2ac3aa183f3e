//! A message's way, with one guard or another.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use oncegate::clock;
use oncegate::inbox::{Begun, Inbox, Message, StateMachine, Transitioned};
use sqlx::PgConnection;

use crate::ground::{ACCOUNTS, Ground, PAYMENTS as ORDERS};
use crate::load::Measured;

const PAYMENTS: StateMachine = StateMachine::new("payments", "id", "status", &[("pending", "paid")]);

/// What a message asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// One update: the least that a transaction is worth.
    Update,
    /// What awarding points is in a shop: read the order, book the award, add it to the account.
    Award,
}

/// What keeps a message from having its effect twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Nothing: as good as an effect that is idempotent by nature.
    None,
    UniqueKey,
    StateMachine,
    /// The record in the transaction, behind a cache.
    Record,
    /// The same behind a cache and Redis: the whole ladder.
    RecordAndMark,
    /// With an entity's version.
    Version,
    /// The whole ladder, so many messages in one transaction.
    Batch(usize),
}

/// What is asked of a message that was handled long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Cache,
    Mark,
    Database,
}

/// Messages are numbered through, over all contenders: none comes twice.
static NEXT: AtomicI64 = AtomicI64::new(0);

/// Payments that wait are as many as a run needs.
static PAYMENT: AtomicI64 = AtomicI64::new(0);

/// Messages that are asked about.
const KNOWN: i64 = 10_000;

/// Handles new messages for `period` with `workers` at a time.
pub(crate) async fn handle(
    ground: &Arc<Ground>,
    (guard, effect): (Guard, Effect),
    workers: usize,
    period: Duration,
) -> Measured {
    run(workers, period, move |worker| {
        let ground = Arc::clone(ground);
        async move { guard.handle(effect, &ground, worker, workers).await }
    })
    .await
}

/// Asks about handled messages for `period`.
pub(crate) async fn ask(ground: &Arc<Ground>, asked: Asked, workers: usize, period: Duration) -> Measured {
    run(workers, period, move |_| {
        let ground = Arc::clone(ground);
        async move { asked.ask(&ground).await }
    })
    .await
}

async fn run<R>(workers: usize, period: Duration, work: impl Fn(usize) -> R) -> Measured
where
    R: Future<Output = u64>,
{
    let begun = clock::now();
    let worker = |worker: usize| {
        let work = &work;
        async move {
            let (mut count, mut times) = (0, Vec::new());
            let mut last = begun;
            while last - begun < period {
                count += work(worker).await;
                let now = clock::now();
                times.push(now - last);
                last = now;
            }
            (count, times)
        }
    };
    let all = join_all((0..workers).map(worker)).await;
    let elapsed = begun.elapsed().as_secs_f64();
    let mut times: Vec<Duration> = all.iter().flat_map(|(_, times)| times.iter().copied()).collect();
    times.sort_unstable();
    let count: u64 = all.iter().map(|(count, _)| count).sum();
    Measured { per_second: count as f64 / elapsed, median: times[times.len() / 2] }
}

impl Guard {
    /// Handles one message, or a batch, and says how many.
    async fn handle(self, effect: Effect, ground: &Ground, worker: usize, workers: usize) -> u64 {
        let next = || NEXT.fetch_add(1, Ordering::Relaxed);
        let account = |number: i64| account(number, worker, workers);
        match self {
            Self::None => {
                let mut tx = ground.pool.begin().await.unwrap();
                let number = next();
                effect.have(&mut tx, number, account(number)).await;
                tx.commit().await.unwrap();
            }
            Self::UniqueKey => {
                let number = next();
                let mut tx = ground.pool.begin().await.unwrap();
                let insert = "INSERT INTO awards VALUES ($1, 19) ON CONFLICT DO NOTHING";
                let insert = sqlx::query(insert).bind(number.to_string());
                assert_eq!(insert.execute(&mut *tx).await.unwrap().rows_affected(), 1);
                effect.have(&mut tx, number, account(number)).await;
                tx.commit().await.unwrap();
            }
            Self::StateMachine => {
                let number = PAYMENT.fetch_add(1, Ordering::Relaxed);
                let mut tx = ground.pool.begin().await.unwrap();
                let transitioned = PAYMENTS.transition(&mut *tx, number, "paid").await.unwrap();
                assert_eq!(transitioned, Transitioned::Applied);
                effect.have(&mut tx, number, account(number)).await;
                tx.commit().await.unwrap();
            }
            Self::Record => {
                let number = next();
                record(ground, &ground.inbox, &plain(number), effect, (number, account(number))).await;
            }
            Self::RecordAndMark => {
                let number = next();
                record(ground, &ground.marked, &plain(number), effect, (number, account(number))).await;
            }
            Self::Version => {
                let number = next();
                let account = account(number);
                let message = plain(number).version(&format!("account-{account}"), number).unwrap();
                record(ground, &ground.marked, &message, effect, (number, account)).await;
            }
            Self::Batch(size) => {
                let numbers: Vec<i64> = std::iter::repeat_with(next).take(size).collect();
                let accounts: Vec<_> = numbers.iter().map(|number| (*number, account(*number))).collect();
                batch(ground, &numbers.into_iter().map(plain).collect::<Vec<_>>(), effect, &accounts).await;
                return size as u64;
            }
        }
        1
    }
}

impl Asked {
    /// Asks about one known message.
    async fn ask(self, ground: &Ground) -> u64 {
        let message = known(NEXT.fetch_add(1, Ordering::Relaxed) % KNOWN);
        match self {
            Self::Cache => assert!(ground.inbox.seen(&message).await),
            Self::Mark => assert!(ground.forgetful.seen(&message).await),
            Self::Database => {
                let mut tx = ground.pool.begin().await.unwrap();
                assert!(matches!(ground.inbox.begin(&mut *tx, &message).await.unwrap(), Begun::Duplicate));
                tx.rollback().await.unwrap();
            }
        }
        1
    }
}

/// Has the known messages handled.
pub(crate) async fn make_known(ground: &Ground) {
    let messages: Vec<Message> = (0..KNOWN).map(known).collect();
    for inbox in [&ground.inbox, &ground.forgetful] {
        for messages in messages.chunks(256) {
            let mut tx = ground.pool.begin().await.unwrap();
            let begun = inbox.begin_many(&mut *tx, messages).await.unwrap();
            let receipts = begun.into_iter().map(|begun| match begun {
                Begun::First(receipt) => receipt,
                other => panic!("{other:?}"),
            });
            inbox.commit(tx, receipts.collect()).await.unwrap();
        }
    }
}

/// What an order's announcement may look like.
fn plain(number: i64) -> Message {
    let payload = format!(r#"{{"order_no":"{number}","customer":"c_8f3b","points":19,"currency":"EUR"}}"#);
    Message::new(&format!("order-{number}")).unwrap().payload(payload.as_bytes())
}

fn known(number: i64) -> Message {
    Message::new(&format!("known-{number}")).unwrap()
}

/// One of the worker's own.
fn account(number: i64, worker: usize, workers: usize) -> i64 {
    let (worker, workers) = (i64::try_from(worker).unwrap(), i64::try_from(workers).unwrap());
    (number / workers * workers + worker) % ACCOUNTS
}

impl Effect {
    async fn have(self, tx: &mut PgConnection, number: i64, account: i64) {
        if self == Self::Award {
            let order = sqlx::query_scalar::<_, String>("SELECT status FROM payments WHERE id = $1");
            assert_eq!(order.bind(number % ORDERS).fetch_one(&mut *tx).await.unwrap().len(), "pending".len());
            let booking = sqlx::query("INSERT INTO bookings (order_no, account, points) VALUES ($1, $2, 19)");
            booking.bind(number).bind(account).execute(&mut *tx).await.unwrap();
        }
        let update = sqlx::query("UPDATE accounts SET points = points + 19 WHERE id = $1").bind(account);
        assert_eq!(update.execute(tx).await.unwrap().rows_affected(), 1);
    }
}

/// A message's whole way, as the module's documentation has it.
async fn record(ground: &Ground, inbox: &Inbox, message: &Message, effect: Effect, (number, account): (i64, i64)) {
    assert!(!inbox.seen(message).await);
    let mut tx = ground.pool.begin().await.unwrap();
    let begun = inbox.begin(&mut *tx, message).await.unwrap();
    let Begun::First(receipt) = begun else { panic!("{begun:?}") };
    effect.have(&mut tx, number, account).await;
    receipt.commit(tx).await.unwrap();
}

async fn batch(ground: &Ground, messages: &[Message], effect: Effect, accounts: &[(i64, i64)]) {
    let inbox = &ground.marked;
    let seen = join_all(messages.iter().map(|message| inbox.seen(message))).await;
    assert!(!seen.contains(&true));
    let mut tx = ground.pool.begin().await.unwrap();
    let mut receipts = Vec::with_capacity(messages.len());
    for (begun, (number, account)) in inbox.begin_many(&mut *tx, messages).await.unwrap().into_iter().zip(accounts) {
        let Begun::First(receipt) = begun else { panic!("{begun:?}") };
        effect.have(&mut tx, *number, *account).await;
        receipts.push(receipt);
    }
    inbox.commit(tx, receipts).await.unwrap();
}
