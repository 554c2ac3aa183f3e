//! NATS servers with JetStream.

use std::process::Command;
use std::sync::OnceLock;

use super::process::{Process, ServerDir, free_port, given};

/// The shared server, or the one that `ONCEGATE_TEST_NATS_URL` names.
pub(crate) fn url() -> &'static str {
    static SHARED: OnceLock<(String, Option<Nats>)> = OnceLock::new();
    let (url, _) = SHARED.get_or_init(|| match given("ONCEGATE_TEST_NATS_URL") {
        Some(url) => (url, None),
        None => {
            let server = Nats::start();
            (server.url.clone(), Some(server))
        }
    });
    url
}

/// One server. Dropped, it is gone, with all that it held.
#[derive(Debug)]
pub(crate) struct Nats {
    pub(crate) url: String,
    pub(crate) port: u16,
    process: Process,
}

impl Nats {
    /// A fresh server.
    pub(crate) fn start() -> Self {
        Self::start_with("", &[])
    }

    /// A fresh server with a configuration of its own, and files beside it (name and text).
    pub(crate) fn start_with(config: &str, files: &[(&str, &str)]) -> Self {
        let port = free_port();
        let dir = ServerDir::new("nats", None);
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        std::fs::write(dir.path().join("nats.conf"), config).unwrap();
        let mut command: Command = dir.command("nats-server");
        command.args(["-c", "nats.conf", "-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]).arg(dir.path());
        let process = Process::start(dir, &command, "KILL").wait_for_port(port);
        Self { url: format!("nats://127.0.0.1:{port}"), port, process }
    }

    /// Sends the server a signal: `STOP` pauses it, `CONT` lets it go on, `KILL` is a crash.
    pub(crate) fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// Starts it again, with what it has on disk, after it was killed.
    pub(crate) fn start_again(&mut self) {
        self.process.start_again();
        self.process.await_ready(|| std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }
}
