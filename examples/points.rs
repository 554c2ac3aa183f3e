//! Awards points for each order once, however often the order is announced.
//!
//! `cargo run --example points` reads announcements from its standard input, one JSON object a line, as a queue would
//! deliver them: `{"order_no": "1001", "customer": "ada", "points": 19}`. What it prints for each is its
//! acknowledgement. Send the same line as often as you like, in several runs. With
//! `--stop-after begin|award|commit` it stops after that step, so that you can end the process there (`kill -9`) and
//! see what is left; then start it again and send the line again, as a queue would.

use std::str::FromStr as _;
use std::time::Duration;

use clap::Parser;
use oncegate::inbox::{self, Begun, Inbox, Message, MessageError};
use serde::Deserialize;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

/// Awards points for each order once.
#[derive(Debug, Parser)]
struct Flags {
    /// The service's database, which keeps the inbox's tables too: that is what makes one commit of both.
    #[arg(long, default_value = "sqlite://points.db")]
    database: String,
    /// Stops after this step.
    #[arg(long)]
    stop_after: Option<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Step {
    Begin,
    Award,
    Commit,
}

#[derive(Debug)]
struct Points {
    pool: SqlitePool,
    inbox: Inbox,
    stop_after: Option<Step>,
}

#[derive(Debug, Deserialize)]
struct Announcement {
    order_no: String,
    customer: String,
    points: i64,
}

impl Points {
    /// Handles one announcement. Each comment says what a crash right there leaves behind; the queue delivers the
    /// announcement again after each of them, since it has no acknowledgement yet.
    async fn award(&self, line: &str) -> Result<&'static str, Failure> {
        let announced: Announcement = serde_json::from_str(line)?;
        // The order's number, and not the id that the queue or its producer gave the message: an order that is announced
        // anew has another one. What it says is compared, so that other points for the same order are noticed.
        let message = Message::new(&announced.order_no)?.payload(line.as_bytes());
        if self.inbox.seen(&message).await {
            // Committed by this process a while ago: no transaction is needed to know that.
            return Ok("duplicate");
        }

        // Nothing.
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let receipt = match self.inbox.begin(&mut *tx, &message).await? {
            Begun::First(receipt) => receipt,
            // Acknowledged as well: what is dropped here holds nothing.
            Begun::Duplicate => return Ok("duplicate"),
            Begun::Stale { .. } => return Ok("stale"),
            Begun::Conflict => return Ok("conflict: for a person to look at"),
        };
        // Nothing: the database rolls the record back. Until it does, whoever else has got the message waits in `begin`.
        self.reached(Step::Begin).await;

        let award = "INSERT INTO points (customer, points) VALUES (?, ?) \
                     ON CONFLICT (customer) DO UPDATE SET points = points + excluded.points";
        sqlx::query(award).bind(&announced.customer).bind(announced.points).execute(&mut *tx).await?;
        // Nothing: record and points are rolled back together.
        self.reached(Step::Award).await;

        receipt.commit(tx).await?;
        // Record and points, both. The announcement comes again, and `begin` says that it is a duplicate; in this
        // process, `seen` does.
        self.reached(Step::Commit).await;
        Ok("awarded")
    }

    async fn open(flags: &Flags) -> Result<Self, Box<dyn std::error::Error>> {
        // Kept for much longer than an announcement can come late, also out of a dead-letter queue.
        let inbox =
            Inbox::setup(&flags.database).retention(Duration::from_secs(90 * 24 * 60 * 60)).open("points").await?;
        let options = SqliteConnectOptions::from_str(&flags.database)?
            .journal_mode(SqliteJournalMode::Wal)
            // One writer at a time: a transaction waits for another one's.
            .busy_timeout(Duration::from_secs(5));
        let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await?;
        let table = "CREATE TABLE IF NOT EXISTS points (customer TEXT PRIMARY KEY, points INTEGER NOT NULL)";
        sqlx::query(table).execute(&pool).await?;
        Ok(Self { pool, inbox, stop_after: flags.stop_after })
    }

    async fn reached(&self, step: Step) {
        if self.stop_after == Some(step) {
            println!("stopped after {step:?}: kill -9 {}", std::process::id());
            std::future::pending::<()>().await;
        }
    }
}

/// Why an announcement was not handled. It is not acknowledged, and comes again.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("inbox: {0}")]
    Inbox(#[from] inbox::Error),
    #[error("announcement: {0}")]
    Json(#[from] serde_json::Error),
    #[error("announcement: {0}")]
    Message(#[from] MessageError),
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let points = Points::open(&Flags::parse()).await?;
    // Now and then, as `Consumer` does by itself.
    points.inbox.forget().await?;
    for line in std::io::stdin().lines() {
        match points.award(&line?).await {
            Ok(result) => println!("{result}"),
            Err(failure) => println!("not acknowledged: {failure}"),
        }
    }
    Ok(())
}
