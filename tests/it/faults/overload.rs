//! More connections and more requests than a gateway takes: most of ten thousand clients are slow or say nothing, and the
//! others ask for far more than ten times what may wait for the database.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::block_in_place;

use super::client::{Answer, Client};
use super::gateway::Gateway;
use super::upstream::{Script, Upstream};
use crate::servers::database::{Database, Kind};
use crate::servers::process::run;

/// Clients that are slow, in three kinds.
const SLOW: usize = 9_000;

/// Clients that ask at the same time, and how often each does.
const BUSY: usize = 900;
const EACH: usize = 3;

/// Requests that may wait for the database.
const MAY_WAIT: usize = 20;

/// What a gateway needs beside its connections, in a build without optimization.
const BASE_BYTES: u64 = 200 << 20;

/// What a connection may take: buffers for both directions, and a request that is under way.
const CONNECTION_BYTES: u64 = 40 << 10;

/// Half a request, by kind: nothing, a part of its head, its head and a part of its body.
const HALVES: [&str; 3] = [
    "",
    "POST /pay HTTP/1.1\r\nhost: gateway\r\nidempotency-key: slow\r\n",
    "POST /pay HTTP/1.1\r\nhost: gateway\r\nidempotency-key: slow\r\ncontent-length: 1000\r\n\r\n{",
];

fn config(address: SocketAddr, store: &str, upstream: SocketAddr) -> String {
    format!(
        r#"
        [server]
        listen = "{address}"
        [store]
        url = "{store}"
        batch_limit = 4
        queue_limit = {MAY_WAIT}
        [secrets]
        fingerprint = ["env:SECRET"]
        [[upstreams]]
        name = "payments"
        urls = ["http://{upstream}"]
        [[routes]]
        name = "pay"
        match = "POST /pay"
        upstream = "payments"
        [routes.idempotency]
        key = ["header"]
        forward_key = "raw"
        "#
    )
}

async fn half(address: SocketAddr, number: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(HALVES[number % HALVES.len()].as_bytes()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_clients_get_an_answer_or_are_told_to_come_again() {
    // Each has a file here.
    run(Command::new("prlimit").args(["--nofile=16384:", "--pid"]).arg(std::process::id().to_string()));
    let database = Database::create(Kind::Postgres).await;
    let upstream = Upstream::start(Script::Within(Duration::from_millis(20))).await;
    let text = |address| config(address, &database.url, upstream.address);
    let gateway = Gateway::run(text, None, "KILL");
    block_in_place(|| gateway.await_ready());
    let slow: Vec<TcpStream> =
        stream::iter(0..SLOW).map(|number| half(gateway.address, number)).buffer_unordered(64).collect().await;

    let (client, address) = (Client::new(), gateway.address);
    let ask = |number: usize| {
        let (client, key) = (client.clone(), format!("busy-{number}"));
        async move {
            let answer = client.post(address, &key).await;
            (key, answer.expect("an answer in time"))
        }
    };
    let told: Vec<(String, Answer)> = stream::iter(0..BUSY * EACH).map(ask).buffer_unordered(BUSY).collect().await;

    let paid = told.iter().filter(|(_, answer)| answer.status == 201).count();
    let (peak, connections) = (gateway.peak_memory(), u64::try_from(SLOW + BUSY).unwrap());
    println!("{paid} of {} paid, at most {} MiB for {connections} connections", told.len(), peak >> 20);
    for (key, answer) in &told {
        let was_paid = answer.status == 201;
        assert!(was_paid || answer.is_problem("unavailable") && answer.retry_after, "{key}: {answer:?}");
        assert_eq!(upstream.seen(key), usize::from(was_paid), "{key}: {answer:?}");
    }
    assert!(0 < paid && paid < told.len(), "some are turned away, and not all");
    assert!(peak < BASE_BYTES + connections * CONNECTION_BYTES, "{peak} bytes");
    // They were there all the time.
    drop(slow);
}
