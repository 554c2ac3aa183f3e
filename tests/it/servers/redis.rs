//! Redis: one server, three that form a cluster, or a master with a replica and a sentinel.
//!
//! The shared ones are started once per run. A test that pauses, kills or empties servers starts its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::process::{Process, ServerDir, free_port, given, run};

/// Hash slots of a cluster.
const SLOTS: u32 = 16384;

/// The shared server, or the one that `ONCEGATE_TEST_REDIS_URL` names.
pub(crate) fn single() -> &'static Redis {
    static SINGLE: OnceLock<Redis> = OnceLock::new();
    SINGLE.get_or_init(|| match given("ONCEGATE_TEST_REDIS_URL") {
        Some(url) => Redis { url, port: 0, process: None },
        None => Redis::start(),
    })
}

/// The shared cluster.
pub(crate) fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

/// The shared master behind a sentinel.
pub(crate) fn sentinels() -> &'static Sentinels {
    static SENTINELS: OnceLock<Sentinels> = OnceLock::new();
    SENTINELS.get_or_init(Sentinels::start)
}

/// One server. Dropped, it is gone, with all that it held.
#[derive(Debug)]
pub(crate) struct Redis {
    pub(crate) url: String,
    pub(crate) port: u16,
    /// `None`: somebody else's.
    process: Option<Process>,
}

impl Redis {
    /// A fresh server.
    pub(crate) fn start() -> Self {
        Self::start_on(free_port(), &[])
    }

    /// A fresh server on a port that is free (again).
    pub(crate) fn start_on(port: u16, args: &[&str]) -> Self {
        let dir = ServerDir::new("redis", None);
        let mut command = server(&dir);
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]).args(args);
        Self::run(port, dir, &command)
    }

    /// A fresh server that speaks TLS only, with a certificate for `localhost`, and wants a password. Also
    /// returns the path of the certificate.
    pub(crate) fn start_with_tls(password: &str) -> (Self, PathBuf) {
        let port = free_port();
        let dir = ServerDir::new("redis-tls", None);
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (cert_path, key_path) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        std::fs::write(&cert_path, key.cert.pem()).unwrap();
        std::fs::write(&key_path, key.signing_key.serialize_pem()).unwrap();
        let mut command = server(&dir);
        command.args(["--port", "0", "--tls-port", &port.to_string(), "--tls-auth-clients", "no"]);
        command.arg("--tls-cert-file").arg(&cert_path).arg("--tls-key-file").arg(&key_path);
        command.args(["--save", "", "--requirepass", password]);
        let server = Self::run(port, dir, &command);
        (Self { url: format!("rediss://localhost:{port}"), ..server }, cert_path)
    }

    fn run(port: u16, dir: ServerDir, command: &Command) -> Self {
        let process = Process::start(dir, command, "KILL").wait_for_port(port);
        Self { url: format!("redis://127.0.0.1:{port}"), port, process: Some(process) }
    }

    /// Runs a command on the server, in a cluster on the node that it concerns.
    pub(crate) fn cli(&self, args: &[&str]) -> String {
        run(Command::new("redis-cli").args(["-e", "-c", "-u", &self.url]).args(args)).trim().to_owned()
    }

    /// Sends the server a signal: `STOP` pauses it, `CONT` lets it go on, `KILL` is a crash.
    pub(crate) fn signal(&self, signal: &str) {
        self.process.as_ref().expect("a private server").signal(signal);
    }

    /// Starts it again, empty, after it was killed.
    pub(crate) fn start_again(&mut self) {
        let process = self.process.as_mut().expect("a private server");
        process.start_again();
        process.await_ready(|| std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    fn wait_until(mut self, ready: impl Fn(&Self) -> bool) -> Self {
        let process = self.process.take().expect("a private server");
        let process = process.wait_until(|| ready(&self));
        Self { process: Some(process), ..self }
    }
}

fn server(dir: &ServerDir) -> Command {
    let mut command = dir.command("redis-server");
    command.args(["--bind", "127.0.0.1", "--dir"]).arg(dir.path());
    command
}

/// Three servers that have a third of the slots each.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) url: String,
    pub(crate) nodes: Vec<Redis>,
}

impl Cluster {
    /// A fresh cluster. A node that is down takes only its own slots along.
    pub(crate) fn start() -> Self {
        let bus_ports = [(); 3].map(|()| free_port());
        let nodes: Vec<Redis> = bus_ports.iter().map(|bus_port| Self::start_node(*bus_port)).collect();
        for (number, node) in (0u32..).zip(&nodes) {
            let (first, last) = (SLOTS * number / 3, SLOTS * (number + 1) / 3 - 1);
            node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            for (other, bus_port) in nodes.iter().zip(bus_ports) {
                node.cli(&["CLUSTER", "MEET", "127.0.0.1", &other.port.to_string(), &bus_port.to_string()]);
            }
        }
        let whole = |node: &Redis| {
            let info = node.cli(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384") && info.contains("size:3")
        };
        let nodes: Vec<Redis> = nodes.into_iter().map(|node| node.wait_until(whole)).collect();
        let hosts: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        Self { url: format!("redis+cluster://{}", hosts.join(",")), nodes }
    }

    fn start_node(bus_port: u16) -> Redis {
        let bus_port = bus_port.to_string();
        let mut args = vec!["--cluster-enabled", "yes", "--cluster-port", &bus_port];
        args.extend(["--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"]);
        Redis::start_on(free_port(), &args)
    }

    /// The slot of `key`.
    pub(crate) fn slot(&self, key: &str) -> u32 {
        self.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]).parse().unwrap()
    }

    /// The position of the node that has `slot` by the first sharing out.
    pub(crate) fn first_owner(slot: u32) -> usize {
        (0..3).find(|number| slot < SLOTS * (number + 1) / 3).unwrap() as usize
    }

    /// Gives `slot`, which has no keys, to node `to`.
    pub(crate) fn move_slot(&self, slot: u32, to: usize) {
        let slot = slot.to_string();
        let id = self.nodes[to].cli(&["CLUSTER", "MYID"]);
        // The new owner first, or it would send everybody back.
        let others = self.nodes.iter().enumerate().filter(|(number, _)| *number != to).map(|(_, node)| node);
        for node in std::iter::once(&self.nodes[to]).chain(others) {
            node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
    }
}

/// A master called `main`, a replica and a sentinel that may replace the one by the other.
#[derive(Debug)]
pub(crate) struct Sentinels {
    pub(crate) url: String,
    pub(crate) master: Redis,
    pub(crate) replica: Redis,
    /// Held to keep it running.
    _sentinel: Redis,
}

impl Sentinels {
    /// A fresh set whose replica follows.
    pub(crate) fn start() -> Self {
        let master = Redis::start();
        let replica = Redis::start_on(free_port(), &["--replicaof", "127.0.0.1", &master.port.to_string()]);
        let replica = replica.wait_until(|replica| replica.cli(&["INFO", "replication"]).contains("link_status:up"));
        let sentinel = Self::start_sentinel(master.port);
        let sentinel =
            sentinel.wait_until(|sentinel| sentinel.cli(&["SENTINEL", "REPLICAS", "main"]).contains("127.0.0.1"));
        let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
        Self { url, master, replica, _sentinel: sentinel }
    }

    fn start_sentinel(master: u16) -> Redis {
        let port = free_port();
        let dir = ServerDir::new("redis-sentinel", None);
        let config = dir.path().join("sentinel.conf");
        std::fs::write(&config, sentinel_config(port, master, dir.path())).unwrap();
        let mut command = dir.command("redis-server");
        command.arg(&config).arg("--sentinel");
        Redis::run(port, dir, &command)
    }
}

fn sentinel_config(port: u16, master: u16, dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "port {port}\nbind 127.0.0.1\ndir {dir}\n\
         sentinel monitor main 127.0.0.1 {master} 1\n\
         sentinel down-after-milliseconds main 1000\n\
         sentinel failover-timeout main 5000\n"
    )
}
