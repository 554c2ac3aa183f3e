//! A server that runs a script on each connection, byte by byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A listening script. Stops when dropped; so do its connections.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Runs `script` on each connection; it is told the connection's number, from 0.
    pub(crate) async fn start<F>(script: impl Fn(usize, TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), script)
    }

    pub(crate) fn on<F>(listener: TcpListener, script: impl Fn(usize, TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let addr = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(script(count.fetch_add(1, Ordering::SeqCst), stream));
            }
        });
        Self { addr, accepted, accepting }
    }

    /// Answers every request with 200.
    pub(crate) async fn ok() -> Self {
        Self::start(|_, mut stream| async move {
            while read_request(&mut stream).await.is_some() {
                write(&mut stream, OK).await;
            }
        })
        .await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// How many connections there have been.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The URL of a port that nobody listens on.
pub(crate) async fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Reads up to and with `end`; `None` if the connection ends before.
pub(crate) async fn read_until(stream: &mut TcpStream, end: &str) -> Option<String> {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        text.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(text).unwrap())
}

/// Reads a head, and the body that its `Content-Length` tells.
pub(crate) async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = read_until(stream, "\r\n\r\n").await?;
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    text.push_str(std::str::from_utf8(&body).unwrap());
    Some(text)
}

/// Writes what the peer may no longer want to read.
pub(crate) async fn write(stream: &mut TcpStream, text: &str) {
    drop(stream.write_all(text.as_bytes()).await);
}

/// Ends the connection with RST instead of FIN.
pub(crate) fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
    drop(stream);
}
