//! The load: connections that each send a request, wait for its whole answer, and send the next one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oncegate::clock::{self, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Answers are a few hundred bytes; a larger one is a mistake of the benchmark.
const LARGEST_ANSWER: usize = 16 * 1024;

/// Digits of a key: what a UUID has.
const KEY_DIGITS: usize = 32;

/// Which keys a load's requests carry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keys {
    /// One that was never sent before.
    Fresh,
    /// Of this many that were all sent before, one after the other.
    Known(u64),
}

/// What is sent, to whom.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) port: u16,
    pub(crate) path: &'static str,
    pub(crate) keys: Keys,
    pub(crate) connections: usize,
}

/// When a load ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    Elapsed(Duration),
    /// Each connection has sent this many.
    Sent(u64),
}

/// What a load came to.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    /// Median time from a request's first byte to its answer's last.
    pub(crate) median: Duration,
}

impl Load {
    /// Sends requests until `until`.
    ///
    /// Panics at the first answer that is not 201: a benchmark of errors is worthless.
    pub(crate) async fn run(&self, until: Until) -> Measured {
        let clients = self.connect().await;
        let begun = clock::now();
        let mut running = JoinSet::new();
        for client in clients {
            running.spawn(client.run(begun, until));
        }
        let mut times = running.join_all().await.concat();
        let elapsed = begun.elapsed().as_secs_f64();
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        Measured { per_second: times.len() as f64 / elapsed, median: Duration::from_nanos(median) }
    }

    /// Sends one request on each connection; they stay open while what is returned lives.
    #[must_use]
    pub(crate) async fn begin(&self) -> impl Sized + use<> {
        let mut clients = self.connect().await;
        for client in &mut clients {
            client.next_key();
            client.stream.write_all(&client.request).await.unwrap();
        }
        clients
    }

    async fn connect(&self) -> Vec<Client> {
        let mut clients = Vec::new();
        for number in 0..self.connections {
            clients.push(Client::connect(self, number as u64).await);
        }
        clients
    }
}

/// One connection.
struct Client {
    stream: TcpStream,
    /// The whole request; only the key's digits change.
    request: Vec<u8>,
    key_at: usize,
    keys: Keys,
    /// Sent so far; the connections begin at different known keys.
    count: u64,
    answer: Vec<u8>,
}

impl Client {
    async fn connect(load: &Load, number: u64) -> Self {
        let Load { port, path, keys, .. } = *load;
        let body = r#"{"order_no":"2026-0001","amount":1250,"currency":"EUR","customer":"c_8f3b","method":"card"}"#;
        let head = format!("POST {path} HTTP/1.1\r\nhost: bench\r\nidempotency-key: ");
        let rest = format!("\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let request = format!("{head}{}{rest}", "0".repeat(KEY_DIGITS)).into_bytes();
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, request, key_at: head.len(), keys, count: number * 17, answer: Vec::new() }
    }

    /// The nanoseconds that each request took.
    async fn run(mut self, begun: Instant, until: Until) -> Vec<u64> {
        let mut times = Vec::new();
        let mut sent_at = begun;
        loop {
            self.next_key();
            self.exchange().await;
            let now = clock::now();
            times.push(u64::try_from((now - sent_at).as_nanos()).unwrap());
            sent_at = now;
            match until {
                Until::Elapsed(limit) if now - begun >= limit => return times,
                Until::Sent(count) if times.len() as u64 >= count => return times,
                Until::Elapsed(_) | Until::Sent(_) => {}
            }
        }
    }

    fn next_key(&mut self) {
        static FRESH: AtomicU64 = AtomicU64::new(0);
        self.count += 1;
        let (kind, number) = match self.keys {
            Keys::Fresh => ('f', FRESH.fetch_add(1, Ordering::Relaxed)),
            Keys::Known(count) => ('a', self.count % count),
        };
        let digits = format!("{kind}{number:031}");
        self.request[self.key_at..self.key_at + KEY_DIGITS].copy_from_slice(digits.as_bytes());
    }

    async fn exchange(&mut self) {
        self.stream.write_all(&self.request).await.unwrap();
        self.answer.clear();
        loop {
            let count = self.stream.read_buf(&mut self.answer).await.unwrap();
            assert!(count > 0 && self.answer.len() < LARGEST_ANSWER, "{}", String::from_utf8_lossy(&self.answer));
            if is_whole(&self.answer) {
                break;
            }
        }
        assert!(self.answer.starts_with(b"HTTP/1.1 201"), "{}", String::from_utf8_lossy(&self.answer));
    }
}

fn is_whole(answer: &[u8]) -> bool {
    let Some(head) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return false };
    let length = answer[..head].split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked("content-length:".len())?;
        name.eq_ignore_ascii_case(b"content-length:").then(|| std::str::from_utf8(value).unwrap().trim())
    });
    answer.len() >= head + 4 + length.expect("answers have a length").parse::<usize>().unwrap()
}
