//! The example `orders`, killed at each step.

use std::path::{Path, PathBuf};

use oncegate::clock;

use crate::servers::database::{Database, Kind};
#[cfg(feature = "webhook")]
use crate::servers::endpoint::Endpoint;
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
    start_with(database, step.map(|step| format!("--stop-after={step}")))
}

fn start_with(database: &Database, more: impl IntoIterator<Item = String>) -> (Process, u16) {
    let (dir, port) = (ServerDir::new("orders", None), free_port());
    let mut command = dir.command(example());
    command.arg(format!("--listen=127.0.0.1:{port}")).arg(format!("--database={}", database.url));
    command.args(more);
    (Process::start(dir, &command, "INT").wait_for_port(port), port)
}

/// Sends the order, and returns the answer's head and body; nothing if there is none.
async fn order(port: u16) -> Option<String> {
    send(port, r#"{"order_no": "1001", "item": "book", "cents": 1900}"#).await
}

async fn send(port: u16, body: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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

async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = clock::now() + std::time::Duration::from_secs(30);
    while !done().await {
        assert!(clock::now() < deadline, "never: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Killed after `step` and started again: the answer of the first order that is taken then, and how many orders
/// and events there are.
async fn killed_after(step: &str) -> (String, [i64; 2]) {
    let database = Database::create(Kind::Sqlite).await;
    let (shop, port) = start(&database, Some(step));
    let client = tokio::spawn(order(port));
    eventually("it stops", async || shop.log().contains("stopped after")).await;
    shop.signal("KILL");
    assert_eq!(client.await.unwrap(), None, "nobody has answered");

    let (_shop, port) = start(&database, None);
    let answer = order_until_taken(port).await;
    let again = order(port).await.unwrap();
    assert!(again.contains("idempotent-replayed: true"), "{again}");
    let mut stranger = database.stranger().await;
    let orders = stranger.number("SELECT COUNT(*) FROM orders").await;
    let announced = "SELECT COUNT(*) FROM events JOIN orders ON event_key = order_no \
                     WHERE type = 'com.example.order.placed' AND topic = 'orders' AND state = 1 \
                     AND CAST(data AS TEXT) = json_object('id', orders.id, 'order_no', order_no)";
    (answer, [orders, stranger.number(announced).await])
}

#[tokio::test]
async fn killed_between_commit_and_answer_it_replays_the_one_order() {
    let (answer, orders) = killed_after("commit").await;
    assert!(answer.contains("idempotent-replayed: true") && answer.contains(r#""order_no":"1001""#), "{answer}");
    assert_eq!(orders, [1, 1], "one order, one event");
}

#[tokio::test]
async fn killed_before_the_commit_it_takes_the_order_when_it_comes_again() {
    for step in ["begin", "complete"] {
        let (answer, orders) = killed_after(step).await;
        assert!(answer.contains("idempotent-replayed: false"), "{step}: {answer}");
        assert_eq!(orders, [1, 1], "{step}");
    }
}

#[cfg(feature = "webhook")]
#[tokio::test(flavor = "multi_thread")]
async fn it_announces_its_orders_itself_and_what_a_killed_one_left_and_hands_over_when_it_stops() {
    let (database, endpoint) = (Database::create(Kind::Sqlite).await, Endpoint::start().await);
    let relaying = || format!("--announce-to={}", endpoint.url());
    let (shop, port) = start(&database, Some("commit"));
    let client = tokio::spawn(order(port));
    eventually("it stops", async || shop.log().contains("stopped after")).await;
    shop.signal("KILL");
    assert_eq!(client.await.unwrap(), None, "nobody has answered");
    assert_eq!(endpoint.posted("/orders").len(), 0, "nobody has announced");

    let (shop, port) = start_with(&database, [relaying()]);
    eventually("what was left is announced", async || !endpoint.posted("/orders").is_empty()).await;
    assert!(order_until_taken(port).await.contains("idempotent-replayed: true"));
    let second = send(port, r#"{"order_no": "1002", "item": "pen", "cents": 190}"#).await.unwrap();
    assert!(second.starts_with("HTTP/1.1 201"), "{second}");
    eventually("it is announced", async || endpoint.posted("/orders").len() > 1).await;
    let said = endpoint.posted("/orders").into_iter().map(|posted| {
        let event: serde_json::Value = serde_json::from_slice(&posted.body).unwrap();
        (event["type"].as_str().unwrap().to_owned(), event["data"]["order_no"].as_str().unwrap().to_owned())
    });
    let placed = |number: &str| ("com.example.order.placed".to_owned(), number.to_owned());
    assert_eq!(said.collect::<Vec<_>>(), [placed("1001"), placed("1002")]);
    assert_eq!(tokio::task::block_in_place(|| shop.stop()), Some(0));
    let mut stranger = database.stranger().await;
    assert_eq!(stranger.number("SELECT COUNT(*) FROM events WHERE state = 5").await, 2);
    // Whoever relays it next need not wait for a lease.
    let held = "SELECT (SELECT COUNT(*) FROM relays) + (SELECT COUNT(*) FROM lanes WHERE owner IS NOT NULL)";
    assert_eq!(stranger.number(held).await, 0);
}
