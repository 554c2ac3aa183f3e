//! The local cache and the marks in Redis: what they spare, and that nothing depends on them.

use oncegate::embed::InboxSetup;
use oncegate::inbox::{Begun, Inbox, Options};
use oncegate::marks::MarksOptions;
use oncegate::telemetry;

use super::{Ground, PATIENCE, Pool, eventually, message, told};
use crate::servers::database::{Database, Kind};
use crate::servers::postgres::Postgres;
use crate::servers::redis::{self, Redis};

/// With marks that nothing of a busy machine makes late, and none of which is verified.
fn on(redis: &Redis) -> impl Fn(InboxSetup) -> InboxSetup {
    let marks = MarksOptions {
        url: redis.url.clone(),
        prefix: format!("inbox{:08x}", rand::random::<u32>()),
        time_limit: PATIENCE,
        ..MarksOptions::default()
    };
    move |setup| setup.marks(marks.clone()).options(trusting())
}

fn trusting() -> Options {
    Options { verify_one_in: 0, ..Options::default() }
}

/// A counter of the process by its labels.
fn counted(name: &str, labels: &[&str]) -> u64 {
    let text = telemetry::metrics();
    let line = text.lines().find(|line| line.starts_with(name) && labels.iter().all(|label| line.contains(label)));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_duplicate_is_found_in_memory_and_then_in_redis_and_asks_no_database() {
    telemetry::keep_metrics();
    let on = on(redis::single());
    let ground = Ground::with(Kind::Sqlite, &on).await;
    let inbox = ground.inbox.of("filtered").unwrap();
    let other = ground.another(&on).await.of("filtered").unwrap();
    let order = message("1001").payload(b"paid");
    assert!(!inbox.seen(&order).await && !other.seen(&order).await);
    assert_eq!(ground.handle_in(&inbox, &order).await.unwrap(), "first");

    // Nobody can be asked any more.
    ground.pool.close().await;
    assert!(inbox.seen(&order).await, "its own memory knows with the commit");
    eventually("Redis knows as well", async || other.seen(&order).await).await;
    assert!(other.seen(&order).await, "from now on out of its own memory");
    let found_in = |filter| counted("oncegate_inbox_duplicates_total", &["\"filtered\"", filter]);
    assert_eq!((found_in("\"cache\""), found_in("\"mark\"")), (2, 1));

    assert!(inbox.seen(&message("1001")).await, "nothing to compare");
    assert!(!inbox.seen(&message("1001").payload(b"other")).await, "a conflict is the database's to tell");
    assert!(!inbox.seen(&message("1002").payload(b"paid")).await);
    assert!(!ground.inbox.seen(&order).await, "another consumer's");
}

/// By the statements that the server logs.
#[tokio::test]
async fn a_thousand_duplicates_that_a_filter_knows_are_no_statement_at_all() {
    let server = Postgres::start(&["log_statement=all"]);
    let is_statement = |line: &&str| line.contains("statement: ") || line.contains("execute ");
    let statements = || server.process.log().lines().filter(is_statement).count();
    let database = Database::create_on(Kind::Postgres, &server.base_url).await;
    let on = on(redis::single());
    let cached = on(Inbox::setup(&database.url)).open("points").await.unwrap();
    let marked = on(Inbox::setup(&database.url)).cache_bytes(0).open("points").await.unwrap();
    let unfiltered = Inbox::setup(&database.url).cache_bytes(0).open("points").await.unwrap();
    let pool = Pool::open(&database, PATIENCE).await;
    let order = message("1001").payload(b"paid");
    let handle = async |inbox: &Inbox| {
        if inbox.seen(&order).await {
            return;
        }
        let mut tx = pool.begin().await;
        let receipts = match tx.begin(inbox, &order).await.unwrap() {
            Begun::First(receipt) => vec![receipt],
            other => panic!("{other:?}"),
        };
        tx.commit(inbox, receipts).await.unwrap();
    };
    let before = statements();
    handle(&cached).await;
    let of_the_first = statements() - before;
    assert!(of_the_first >= 3, "begin, record, check with commit: {of_the_first}");
    eventually("sqlx has ended what the commit began", async || server.process.log().contains("ROLLBACK")).await;
    eventually("Redis knows", async || marked.seen(&order).await).await;
    for inbox in [&cached, &marked] {
        let before = statements();
        for _ in 0..1000 {
            handle(inbox).await;
        }
        assert_eq!(statements(), before);
    }
    let mut tx = pool.begin().await;
    let before = statements();
    assert!(!unfiltered.seen(&order).await);
    assert_eq!(told(&tx.begin(&unfiltered, &order).await.unwrap()), "duplicate");
    assert!(statements() > before, "the log tells of questions");
    tx.roll_back().await;
}

#[tokio::test]
async fn without_any_mark_the_database_decides() {
    let redis = Redis::start();
    let on = on(&redis);
    let ground = Ground::with(Kind::Sqlite, &on).await;
    let order = message("1001");
    assert_eq!(ground.handle(&order).await, "first");
    eventually("the mark is there", async || redis.cli(&["DBSIZE"]) == "1").await;
    redis.cli(&["FLUSHALL"]);
    let other = ground.another(&on).await;
    assert!(!other.seen(&order).await);
    assert_eq!(ground.handle_in(&other, &order).await.unwrap(), "duplicate");
    assert_eq!(ground.effects().await, 1);
}

#[tokio::test]
async fn a_redis_that_is_down_costs_questions_and_loses_nothing() {
    let mut redis = Redis::start();
    let url = redis.url.clone();
    let setup = |setup: InboxSetup| {
        setup.marks(MarksOptions { url: url.clone(), ..MarksOptions::default() }).options(trusting())
    };
    let ground = Ground::with(Kind::Sqlite, setup).await;
    assert_eq!(ground.handle(&message("before")).await, "first");
    redis.signal("KILL");
    let other = ground.another(setup).await;
    for key in ["before", "during"] {
        assert!(!other.seen(&message(key)).await);
        let what = if key == "before" { "duplicate" } else { "first" };
        assert_eq!(ground.handle_in(&other, &message(key)).await.unwrap(), what);
    }
    assert!(other.seen(&message("during")).await, "in its own memory");
    redis.start_again();
    let third = ground.another(setup).await;
    assert!(!third.seen(&message("during")).await);
    assert_eq!(ground.handle_in(&third, &message("during")).await.unwrap(), "duplicate");
    third.remember(&message("during")).await;
    let fourth = ground.another(setup).await;
    eventually("marks are back", async || fourth.seen(&message("during")).await).await;
    assert_eq!(ground.effects().await, 2);
}

/// A failover of the database that has lost a commit: record and effect are gone together, so the message is to be
/// handled again, and somebody is to hear of it.
#[tokio::test]
async fn a_mark_of_what_the_database_has_lost_is_found_out() {
    telemetry::keep_metrics();
    let ground =
        Ground::with(Kind::Sqlite, |setup| setup.options(Options { verify_one_in: 3, ..Options::default() })).await;
    let inbox = ground.inbox.of("lossy").unwrap();
    let order = message("1001");
    assert_eq!(ground.handle_in(&inbox, &order).await.unwrap(), "first");
    ground.database.stranger().await.run("DELETE FROM inbox; DELETE FROM effects").await;
    let seen = [inbox.seen(&order).await, inbox.seen(&order).await, inbox.seen(&order).await];
    assert_eq!(seen, [true, true, false], "every third is verified");
    assert_eq!(ground.handle_in(&inbox, &order).await.unwrap(), "first");
    assert_eq!(ground.effects().await, 1);
    assert_eq!(counted("oncegate_inbox_lost_commits_total", &["\"lossy\""]), 1);
}

/// Between the commit and its mark, another process may find the duplicate and mark it first.
#[tokio::test]
async fn who_marks_a_duplicate_before_its_own_process_does_raises_no_alarm() {
    telemetry::keep_metrics();
    let ground = Ground::with(Kind::Postgres, |setup| setup.options(trusting())).await;
    let inbox = ground.inbox.of("racing").unwrap();
    let order = message("1001");
    let mut tx = ground.pool.begin().await;
    let Begun::First(receipt) = tx.begin(&inbox, &order).await.unwrap() else { panic!("not the first") };
    tx.commit(&inbox, Vec::new()).await.unwrap();
    assert_eq!(ground.handle_in(&inbox, &order).await.unwrap(), "duplicate");
    inbox.remember(&order).await;
    receipt.committed().await;
    assert!(inbox.seen(&order).await);
    assert_eq!(counted("oncegate_inbox_lost_commits_total", &["\"racing\""]), 0);
}

#[tokio::test]
async fn a_message_under_a_new_id_is_a_duplicate_and_counted() {
    telemetry::keep_metrics();
    let ground = Ground::with(Kind::MySql, |setup| setup.options(trusting())).await;
    let inbox: Inbox = ground.inbox.of("renamed").unwrap();
    for (id, what) in [("id-1", "first"), ("id-1", "duplicate"), ("id-2", "duplicate")] {
        let mut tx = ground.pool.begin().await;
        let begun = tx.begin(&inbox, &message("1001").id(id)).await.unwrap();
        assert_eq!(told(&begun), what);
        tx.commit(&inbox, Vec::new()).await.unwrap();
    }
    assert_eq!(counted("oncegate_inbox_new_ids_total", &["\"renamed\""]), 1);
}
