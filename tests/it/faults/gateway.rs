//! A gateway process.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use oncegate::clock;

use super::LEASE;
use super::upstream::Upstream;
use crate::servers::process::{Process, ServerDir, free_port};

/// What gateways of a test are started with.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) store: String,
    pub(super) marks: String,
    /// What the route says beyond its key.
    pub(super) policy: &'static str,
    /// How far its clock is off, as libfaketime writes it.
    pub(super) clock: Option<&'static str>,
    /// What it announces, and where.
    pub(super) events: String,
}

impl Settings {
    /// Marks in memory, Unknown held, nothing announced.
    pub(super) fn new(store: &str) -> Self {
        Self { store: store.to_owned(), marks: "memory:".to_owned(), policy: "", events: String::new(), clock: None }
    }
}

/// A running gateway. Dropped, it is killed.
#[derive(Debug)]
pub(super) struct Gateway {
    process: Process,
    pub(super) address: SocketAddr,
}

impl Gateway {
    /// Starts one that dropping kills.
    pub(super) fn start(settings: &Settings, upstream: &Upstream) -> Self {
        Self::start_with(settings, upstream, "KILL")
    }

    /// Starts one that `stop_signal` ends.
    pub(super) fn start_with(settings: &Settings, upstream: &Upstream, stop_signal: &str) -> Self {
        let gateway = Self::launch(settings, upstream, stop_signal);
        gateway.await_ready();
        gateway
    }

    /// Starts one without waiting for it.
    pub(super) fn launch(settings: &Settings, upstream: &Upstream, stop_signal: &str) -> Self {
        Self::run(|address| text(settings, upstream, address), settings.clock, stop_signal)
    }

    /// Starts one with the configuration that is made for its address.
    pub(super) fn run(text: impl FnOnce(SocketAddr) -> String, clock: Option<&str>, stop_signal: &str) -> Self {
        let dir = ServerDir::new("gateway", None);
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let config = dir.path().join("oncegate.toml");
        std::fs::write(&config, text(address)).unwrap();
        // As most systems start a service: few open files, though more are allowed.
        let mut command = dir.command("prlimit");
        command.arg("--nofile=1024:").arg(env!("CARGO_BIN_EXE_oncegate"));
        command.arg("serve").arg("--config").arg(&config);
        command.env("SECRET", "a secret of the tests, of some length");
        if let Some(offset) = clock {
            command.env("LD_PRELOAD", faketime()).env("FAKETIME", offset);
            // It measures time as well as ever: only what it thinks the time is, is wrong.
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        }
        Self { process: Process::start(dir, &command, stop_signal), address }
    }

    /// Waits until it says that it is ready.
    pub(super) fn await_ready(&self) {
        self.process.await_ready(|| is_ready(self.address));
    }

    /// Kills it as the kernel does, and starts it again at once.
    pub(super) fn crash_and_restart(&mut self) {
        self.restart("KILL");
    }

    /// Ends it by `signal`, and starts it again.
    pub(super) fn restart(&mut self, signal: &str) {
        self.signal(signal);
        self.process.start_again();
        self.await_ready();
    }

    /// `STOP` pauses it, `CONT` lets it go on, `KILL` is a crash.
    pub(super) fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// Stops it with its signal and returns its exit code.
    pub(super) fn stop(self) -> Option<i32> {
        self.process.stop()
    }

    /// How far its clock is from ours, by the date of its answers.
    pub(super) fn clock_offset(&self) -> Duration {
        let answer = readiness(self.address).unwrap();
        let date = answer.lines().find_map(|line| line.strip_prefix("date: ")).unwrap();
        let (date, now) = (httpdate::parse_http_date(date).unwrap(), clock::wall().to_system());
        date.duration_since(now).unwrap_or_else(|error| error.duration())
    }

    /// How many files it may have open, and how many it could allow itself.
    pub(super) fn open_files(&self) -> (String, String) {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.process.pid)).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        let mut words = line.split_whitespace().map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    }

    /// The most memory that it ever had, in bytes.
    pub(super) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }

    pub(super) fn log(&self) -> String {
        self.process.log()
    }
}

/// Debian's libfaketime, wherever its architecture has it.
fn faketime() -> PathBuf {
    let dirs = std::fs::read_dir("/usr/lib").unwrap();
    let files = dirs.map(|dir| dir.unwrap().path().join("faketime/libfaketimeMT.so.1"));
    files.into_iter().find(|file| file.exists()).expect("please install faketime")
}

/// Whether it says so itself; its port is open before that.
fn is_ready(address: SocketAddr) -> bool {
    readiness(address).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

fn readiness(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map(|_| answer)
}

fn text(settings: &Settings, upstream: &Upstream, address: SocketAddr) -> String {
    let Settings { store, marks, policy, events, clock: _ } = settings;
    let (upstream, lease) = (upstream.address, LEASE.as_millis());
    format!(
        r#"
        [server]
        listen = "{address}"
        [store]
        url = "{store}"
        acquire_timeout = "500ms"
        statement_timeout = "1s"
        [marks]
        url = "{marks}"
        ttl = "2s"
        [engine]
        lease = "{lease}ms"
        renew = "400ms"
        margin = "200ms"
        record_wait = "500ms"
        [secrets]
        fingerprint = ["env:SECRET"]
        [[upstreams]]
        name = "payments"
        urls = ["http://{upstream}"]
        timeout = "1500ms"
        [[routes]]
        name = "pay"
        match = "POST /pay"
        upstream = "payments"
        [routes.idempotency]
        key = ["header"]
        forward_key = "raw"
        {policy}
        {events}
        "#
    )
}
