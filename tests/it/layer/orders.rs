//! The example `orders`, killed at each step.

use std::path::{Path, PathBuf};

use oncegate::clock;

use crate::servers::database::{Database, Kind};
use crate::servers::process::{Process, ServerDir, free_port};

/// Where `cargo test` has put the example, beside the tests themselves.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let example = profile.join("examples/orders");
    assert!(example.exists(), "build it first: cargo build --example orders");
    example
}

/// The example on `database`; it stops after `step`.
fn start(database: &Database, step: Option<&str>) -> (Process, u16) {
    let (dir, port) = (ServerDir::new("orders", None), free_port());
    let mut command = dir.command(example());
    command.arg(format!("--listen=127.0.0.1:{port}")).arg(format!("--database={}", database.url));
    command.args(step.map(|step| format!("--stop-after={step}")));
    (Process::start(dir, &command, "INT").wait_for_port(port), port)
}

/// Sends the order, and returns the answer's head and body; nothing if there is none.
async fn order(port: u16) -> Option<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let body = r#"{"order_no": "1001", "item": "book", "cents": 1900}"#;
    let request = format!(
        "POST /orders HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.ok().filter(|read| *read > 0)?;
    Some(answer)
}

/// Sends the order until it is taken, and returns that answer.
async fn order_until_taken(port: u16) -> String {
    let deadline = clock::now() + std::time::Duration::from_secs(30);
    loop {
        let answer = order(port).await.unwrap();
        if answer.starts_with("HTTP/1.1 201") {
            return answer;
        }
        assert!(clock::now() < deadline, "{answer}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

async fn killed_after(step: &str) -> (String, i64) {
    let database = Database::create(Kind::Sqlite).await;
    let (shop, port) = start(&database, Some(step));
    let client = tokio::spawn(order(port));
    let deadline = clock::now() + std::time::Duration::from_secs(30);
    while !shop.log().contains("stopped after") {
        assert!(clock::now() < deadline, "{}", shop.log());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    shop.signal("KILL");
    assert_eq!(client.await.unwrap(), None, "nobody has answered");

    let (_shop, port) = start(&database, None);
    let answer = order_until_taken(port).await;
    let again = order(port).await.unwrap();
    assert!(again.contains("idempotent-replayed: true"), "{again}");
    (answer, database.stranger().await.number("SELECT COUNT(*) FROM orders").await)
}

#[tokio::test]
async fn killed_between_commit_and_answer_it_replays_the_one_order() {
    let (answer, orders) = killed_after("commit").await;
    assert!(answer.contains("idempotent-replayed: true") && answer.contains(r#""order_no":"1001""#), "{answer}");
    assert_eq!(orders, 1);
}

#[tokio::test]
async fn killed_before_the_commit_it_takes_the_order_when_it_comes_again() {
    for step in ["begin", "complete"] {
        let (answer, orders) = killed_after(step).await;
        assert!(answer.contains("idempotent-replayed: false"), "{step}: {answer}");
        assert_eq!(orders, 1, "{step}");
    }
}
