//! An upstream on a real socket. It answers byte by byte, by a script, and keeps what reached it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::in_time;

/// Opened by the test when a script may go on.
pub(crate) type Gate = CancellationToken;

/// One step of an answer.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Send(Bytes),
    Wait(Gate),
    Close,
}

/// A request as it came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// The field's value, if there is just one.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str());
        values.next().filter(|_| values.next().is_none())
    }
}

/// A scripted upstream.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub(crate) addr: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    count: watch::Receiver<usize>,
}

impl Upstream {
    /// Answers each request by what `script` says; it is told the request's number, from 1.
    pub(crate) async fn start(script: impl Fn(usize, &Received) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), script)
    }

    pub(crate) fn on(
        listener: TcpListener,
        script: impl Fn(usize, &Received) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let addr = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (counting, count) = watch::channel(0);
        let (script, counting) = (Arc::new(script), Arc::new(counting));
        let upstream = Self { addr, received: Arc::clone(&received), count };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, counting, received) = (Arc::clone(&script), Arc::clone(&counting), Arc::clone(&received));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(request) = read(&mut stream).await {
                        let number = {
                            let mut received = received.lock().unwrap();
                            received.push(request.clone());
                            received.len()
                        };
                        counting.send_modify(|count| *count += 1);
                        let mut steps = script(number, &request);
                        if request.method == "HEAD" {
                            steps = vec![send("HTTP/1.1 201 Created\r\ncontent-length: 13\r\n\r\n")];
                        }
                        if !perform(&mut stream, steps).await {
                            return;
                        }
                    }
                });
            }
        });
        upstream
    }

    /// Answers every request with 201 and its number.
    pub(crate) async fn counting() -> Self {
        Self::start(|number, _| created(number)).await
    }

    /// Answers every request with the same steps.
    pub(crate) async fn always(steps: Vec<Step>) -> Self {
        Self::start(move |_, _| steps.clone()).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// How many requests have come.
    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until so many requests have come.
    pub(crate) async fn reached(&self, count: usize) {
        let mut seen = self.count.clone();
        in_time(seen.wait_for(|seen| *seen >= count)).await.unwrap();
    }

    /// The last request.
    pub(crate) fn last(&self) -> Received {
        self.received.lock().unwrap().last().cloned().unwrap()
    }

    /// All requests.
    pub(crate) fn all(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

/// The usual answer.
pub(crate) fn created(number: usize) -> Vec<Step> {
    answer("201 Created", &[("content-type", "application/json")], format!("{{\"payment\":{number}}}"))
}

/// A whole answer.
pub(crate) fn answer(status: &str, fields: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<Step> {
    let body = body.as_ref();
    let mut bytes = format!("HTTP/1.1 {status}\r\n").into_bytes();
    for (name, value) in fields {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if !status.starts_with("204") && !status.starts_with("304") {
        bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    vec![send(bytes)]
}

/// Bytes as they are.
pub(crate) fn send(bytes: impl Into<Bytes>) -> Step {
    Step::Send(bytes.into())
}

/// The answer, once the gate is open.
pub(crate) fn after(gate: &Gate, answer: Vec<Step>) -> Vec<Step> {
    std::iter::once(Step::Wait(gate.clone())).chain(answer).collect()
}

/// Whether the connection goes on.
async fn perform(stream: &mut BufReader<TcpStream>, steps: Vec<Step>) -> bool {
    for step in steps {
        match step {
            Step::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return false;
                }
            }
            Step::Wait(gate) => gate.cancelled().await,
            Step::Close => return false,
        }
    }
    true
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Received> {
    let head = until(stream, b"\r\n\r\n").await?;
    let mut lines = head.lines();
    let mut line = lines.next()?.split(' ');
    let (method, target) = (line.next()?.to_owned(), line.next()?.to_owned());
    let fields = lines.filter_map(|line| line.split_once(": "));
    let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let mut request = Received { method, target, fields, body: Vec::new() };
    if request.field("transfer-encoding").is_some() {
        request.body = until(stream, b"0\r\n\r\n").await?.into_bytes();
    } else if let Some(length) = request.field("content-length") {
        request.body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut request.body).await.ok()?;
    }
    Some(request)
}

async fn until(stream: &mut BufReader<TcpStream>, end: &[u8]) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        bytes.push(stream.read_u8().await.ok()?);
    }
    Some(bytes.into_iter().map(char::from).collect())
}
