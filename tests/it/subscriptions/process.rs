//! A gateway process with one subscription, to be killed.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::world::ENV;
use crate::servers::process::{Process, ServerDir, free_port};

/// A running gateway. Dropped, it is killed.
#[derive(Debug)]
pub(super) struct Gateway {
    process: Process,
    address: SocketAddr,
}

impl Gateway {
    /// Starts one with this configuration, on this store, with leases as short as a slow machine allows.
    pub(super) fn start(document: &str, store: &str) -> Self {
        let store = format!("store = {{ url = '{store}', acquire_timeout = '500ms', statement_timeout = '1s' }}");
        Self::start_with(
            document,
            &format!("{store}\nengine = {{ lease = '2500ms', renew = '400ms', margin = '200ms' }}"),
        )
    }

    /// Starts one that is patient with a store and a machine that are busy for minutes.
    pub(super) fn start_patient(document: &str, store: &str) -> Self {
        Self::start_with(
            document,
            &format!("store.url = '{store}'\nengine = {{ lease = '8s', renew = '1s', margin = '1s' }}"),
        )
    }

    fn start_with(document: &str, settings: &str) -> Self {
        let dir = ServerDir::new("gateway", None);
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let path = dir.path().join("oncegate.toml");
        let own = format!("server.listen = '{address}'\n{settings}\n");
        std::fs::write(&path, own + document).unwrap();
        let mut command = dir.command(env!("CARGO_BIN_EXE_oncegate"));
        command.arg("serve").arg("--config").arg(&path).envs(ENV);
        let gateway = Self { process: Process::start(dir, &command, "KILL"), address };
        gateway.await_ready();
        gateway
    }

    fn await_ready(&self) {
        self.process.await_ready(|| is_ready(self.address));
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Kills it as the kernel does.
    pub(super) fn kill(&self) {
        self.process.signal("KILL");
    }

    /// Starts it again, after it was killed.
    pub(super) fn start_again(&mut self) {
        self.process.start_again();
        self.await_ready();
    }

    pub(super) fn crash_and_restart(&mut self) {
        self.kill();
        self.start_again();
    }

    pub(super) fn log(&self) -> String {
        self.process.log()
    }
}

/// A failed test tells what its gateways had to say.
impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let last: Vec<&str> = log.lines().rev().take(60).collect();
            eprintln!("gateway {}:\n{}", self.address, last.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
    }
}

fn is_ready(address: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).map(|()| head)
    };
    ask().is_ok_and(|head| &head == b"HTTP/1.1 200")
}
