//! The examples `points`, killed at each step, and `shop`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use oncegate::clock;

use super::PATIENCE;
use crate::servers::database::{Database, Kind};

/// Where `cargo test` has put an example, beside the tests themselves.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let example = profile.join("examples").join(name);
    assert!(example.exists(), "build it first: cargo build --example {name}");
    example
}

/// A running example, with `lines` on its input, which then ends. Dropped, it is killed.
struct Running {
    child: Option<Child>,
    output: PathBuf,
}

impl Running {
    fn start(name: &str, database: &Database, lines: &[&str], flags: &[&str]) -> Self {
        let output = std::env::temp_dir().join(format!("oncegate-{name}-{:032x}", rand::random::<u128>()));
        let mut command = Command::new(example(name));
        command.arg(format!("--database={}", database.url)).args(flags);
        command.stdin(Stdio::piped()).stdout(std::fs::File::create(&output).unwrap());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        for line in lines {
            writeln!(input, "{line}").unwrap();
        }
        Self { child: Some(child), output }
    }

    fn printed(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap()
    }

    /// Waits for its end, and returns what it has printed.
    async fn end(mut self) -> String {
        let mut child = self.child.take().unwrap();
        let status = tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{}", self.printed());
        self.printed()
    }

    async fn wait_for(&self, text: &str) {
        let deadline = clock::now() + PATIENCE;
        while !self.printed().contains(text) {
            assert!(clock::now() < deadline, "{}", self.printed());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        std::fs::remove_file(&self.output).unwrap();
    }
}

const ORDER: &str = r#"{"order_no": "1001", "customer": "ada", "points": 19}"#;

/// Killed after `step`, and started again, with the line that was not acknowledged: what it answers then, the points
/// after the kill and at the end, and the records.
async fn killed_after(step: &str) -> (String, [i64; 3]) {
    let database = Database::create(Kind::Sqlite).await;
    let points = Running::start("points", &database, &[ORDER], &[&format!("--stop-after={step}")]);
    points.wait_for("stopped after").await;
    drop(points);
    let mut stranger = database.stranger().await;
    let sum = "SELECT COALESCE(SUM(points), 0) FROM points";
    let after_the_kill = stranger.number(sum).await;
    let answers = Running::start("points", &database, &[ORDER, ORDER], &[]).end().await;
    let records = stranger.number("SELECT COUNT(*) FROM inbox").await;
    (answers, [after_the_kill, stranger.number(sum).await, records])
}

#[tokio::test]
async fn killed_before_the_commit_it_awards_the_points_when_the_order_comes_again() {
    for step in ["begin", "award"] {
        let (answers, numbers) = killed_after(step).await;
        assert_eq!(answers, "awarded\nduplicate\n", "{step}");
        assert_eq!(numbers, [0, 19, 1], "{step}");
    }
}

#[tokio::test]
async fn killed_between_commit_and_acknowledgement_it_awards_no_points_again() {
    let (answers, numbers) = killed_after("commit").await;
    assert_eq!(answers, "duplicate\nduplicate\n");
    assert_eq!(numbers, [19, 19, 1]);
}

#[tokio::test]
async fn a_thousand_announcements_award_the_points_once() {
    let database = Database::create(Kind::Sqlite).await;
    let other = ORDER.replace("19", "20");
    let lines = [vec![ORDER; 1_000], vec![&*other, r#"{"order_no": "", "customer": "ada", "points": 1}"#]].concat();
    let answers = Running::start("points", &database, &lines, &[]).end().await;
    let count = |answer: &str| answers.lines().filter(|line| line.starts_with(answer)).count();
    assert_eq!((count("awarded"), count("duplicate"), count("conflict")), (1, 999, 1));
    assert_eq!(count("not acknowledged: announcement: the message's key can't be one"), 1);
    assert_eq!(database.stranger().await.number("SELECT points FROM points").await, 19);
}

#[tokio::test]
async fn stock_is_deducted_once_per_order_and_never_below_zero() {
    let database = Database::create(Kind::Sqlite).await;
    let order = |order: u32, amount: i64| format!(r#"{{"order": "{order}", "sku": "book", "amount": {amount}}}"#);
    let (two, two_more, one) = (order(1001, 2), order(1002, 2), order(1003, 1));
    let lines = [&*two, &two, &two_more, &one, &two, &one];
    for _ in 0..2 {
        let answers = Running::start("shop", &database, &lines, &[]).end().await;
        assert_eq!(answers.matches("acknowledged").count(), 6, "{answers}");
    }
    let mut stranger = database.stranger().await;
    assert_eq!(stranger.number("SELECT amount FROM stock WHERE sku = 'book'").await, 0);
    let dead = "SELECT COUNT(*) FROM dead_letters WHERE reason = 'rejected: not enough of book' \
                AND CAST(data AS TEXT) LIKE '%1002%'";
    assert_eq!(stranger.number(dead).await, 1);
    assert_eq!(stranger.number("SELECT COUNT(*) FROM dead_letters").await, 1);
}

#[tokio::test]
async fn payments_change_along_their_ways_and_are_booked_once() {
    let database = Database::create(Kind::Sqlite).await;
    let result = |payment: &str, result: &str| format!(r#"{{"payment": "{payment}", "result": "{result}"}}"#);
    let lines = [
        result("p-1", "failed"),
        result("p-1", "paid"),
        result("p-1", "paid"),
        result("p-2", "refunded"),
        result("p-1", "refunded"),
        result("p-1", "failed"),
    ];
    let lines: Vec<&str> = lines.iter().map(|line| &**line).collect();
    for _ in 0..2 {
        let answers = Running::start("shop", &database, &lines, &[]).end().await;
        assert_eq!(answers.matches("acknowledged").count(), 6, "{answers}");
        // The second time nothing is on record, and the states still know.
        database.stranger().await.run("DELETE FROM inbox").await;
    }
    let mut stranger = database.stranger().await;
    let states = "SELECT COUNT(*) FROM payments WHERE (id, status) IN (('p-1', 'refunded'), ('p-2', 'pending'))";
    assert_eq!(stranger.number(states).await, 2);
    assert_eq!(stranger.number("SELECT COUNT(*) FROM bookings").await, 3);
    let dead = "SELECT COUNT(*) FROM dead_letters WHERE reason LIKE 'rejected: a payment that is % can''t be %'";
    assert!(stranger.number(dead).await >= 1);
}
