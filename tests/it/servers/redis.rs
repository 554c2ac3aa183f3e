//! Redis: one server, three that form a cluster, or a master with a replica and a sentinel.
//!
//! The shared ones are started once per run. A test that pauses, kills or empties servers starts its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use tempfile::TempDir;

use super::authority::Authority;
use super::process::{Process, ServerDir, free_port, given, run};

/// Hash slots of a cluster.
const SLOTS: u32 = 16384;

/// The shared server, or the one that `ONCEGATE_TEST_REDIS_URL` names.
pub(crate) fn single() -> &'static Redis {
    static SINGLE: OnceLock<Redis> = OnceLock::new();
    SINGLE.get_or_init(|| match given("ONCEGATE_TEST_REDIS_URL") {
        Some(url) => Redis { url, port: 0, tls: None, process: None },
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
    /// What it speaks TLS with; `None`: it speaks none.
    tls: Option<Arc<Tls>>,
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
        Self::start_over(port, None, args)
    }

    /// A fresh server that speaks TLS only, with a certificate for `localhost`, and wants a password. Also
    /// returns the path of the certificate.
    pub(crate) fn start_with_tls(password: &str) -> (Self, PathBuf) {
        let tls = Arc::new(Tls::new());
        let server = Self::start_over(free_port(), Some(&tls), &["--requirepass", password]);
        (Self { url: server.url.replace("127.0.0.1", "localhost"), ..server }, tls.certificate.clone())
    }

    /// A fresh server that speaks TLS only, with those whose certificates `authority` has signed, and wants a
    /// password.
    pub(crate) fn start_for_known(authority: &Authority, password: &str) -> Self {
        let tls = Arc::new(Tls::of(authority));
        Self::start_over(free_port(), Some(&tls), &["--requirepass", password])
    }

    /// A fresh server that speaks nothing but TLS, if `tls` is given.
    fn start_over(port: u16, tls: Option<&Arc<Tls>>, args: &[&str]) -> Self {
        let dir = ServerDir::new("redis", None);
        let mut command = dir.command("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]).arg(dir.path());
        for (name, value) in settings(port, tls) {
            command.arg(format!("--{name}")).arg(value);
        }
        command.args(args);
        Self::run(port, tls, dir, &command)
    }

    fn run(port: u16, tls: Option<&Arc<Tls>>, dir: ServerDir, command: &Command) -> Self {
        let process = Process::start(dir, command, "KILL").wait_for_port(port);
        let scheme = if tls.is_some() { "rediss" } else { "redis" };
        Self { url: format!("{scheme}://127.0.0.1:{port}"), port, tls: tls.cloned(), process: Some(process) }
    }

    /// All keys that it has.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.cli(&["--scan"]).lines().map(str::to_owned).collect()
    }

    /// Whether it says that it is a master. One that has just become it ends its connections.
    pub(crate) fn is_master(&self) -> bool {
        let output = self.command(&["ROLE"]).stdin(Stdio::null()).output().unwrap();
        output.status.success() && output.stdout.starts_with(b"master")
    }

    /// Runs a command on the server, in a cluster on the node that it concerns.
    pub(crate) fn cli(&self, args: &[&str]) -> String {
        run(&mut self.command(args)).trim().to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut cli = Command::new("redis-cli");
        cli.args(["-e", "-c", "-u", &self.url]);
        if let Some(tls) = &self.tls {
            cli.arg("--cacert").arg(&tls.trusted).arg("--cert").arg(&tls.certificate).arg("--key").arg(&tls.key);
        }
        cli.args(args);
        cli
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

/// Which port a server listens on, and how, as its settings are called.
fn settings(port: u16, tls: Option<&Arc<Tls>>) -> Vec<(&'static str, String)> {
    let Some(tls) = tls else { return vec![("port", port.to_string())] };
    let path = |path: &Path| path.display().to_string();
    vec![
        ("port", "0".to_owned()),
        ("tls-port", port.to_string()),
        ("tls-cert-file", path(&tls.certificate)),
        ("tls-key-file", path(&tls.key)),
        ("tls-ca-cert-file", path(&tls.trusted)),
        ("tls-auth-clients", tls.clients.to_owned()),
        ("tls-replication", "yes".to_owned()),
    ]
}

/// A certificate of `localhost` and of its address, for all servers that belong together.
#[derive(Debug)]
struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    /// Whom they trust.
    trusted: PathBuf,
    /// Whether clients must show a certificate: `yes` or `no`.
    clients: &'static str,
    /// Where the files are, if they are theirs alone.
    _dir: Option<TempDir>,
}

impl Tls {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [certificate, key] = ["cert.pem", "key.pem"].map(|name| dir.path().join(name));
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let certified = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(&certificate, certified.cert.pem()).unwrap();
        std::fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
        Self { trusted: certificate.clone(), certificate, key, clients: "no", _dir: Some(dir) }
    }

    fn of(authority: &Authority) -> Self {
        let [certificate, key, trusted] = ["server.pem", "server.key", "ca.pem"].map(|name| authority.path(name));
        Self { certificate, key, trusted, clients: "yes", _dir: None }
    }
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
        Self::start_over(None)
    }

    /// The same, where everybody speaks TLS only. Also returns the path of the certificate.
    pub(crate) fn start_with_tls() -> (Self, PathBuf) {
        let tls = Arc::new(Tls::new());
        (Self::start_over(Some(&tls)), tls.certificate.clone())
    }

    /// The same, with those whose certificates `authority` has signed.
    pub(crate) fn start_for_known(authority: &Authority) -> Self {
        Self::start_over(Some(&Arc::new(Tls::of(authority))))
    }

    fn start_over(tls: Option<&Arc<Tls>>) -> Self {
        let bus_ports = [(); 3].map(|()| free_port());
        let nodes: Vec<Redis> = bus_ports.iter().map(|bus_port| Self::start_node(*bus_port, tls)).collect();
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
        let scheme = if tls.is_some() { "rediss" } else { "redis" };
        Self { url: format!("{scheme}+cluster://{}", hosts.join(",")), nodes }
    }

    fn start_node(bus_port: u16, tls: Option<&Arc<Tls>>) -> Redis {
        let bus_port = bus_port.to_string();
        let mut args = vec!["--cluster-enabled", "yes", "--cluster-port", &bus_port];
        args.extend(["--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"]);
        if tls.is_some() {
            args.extend(["--tls-cluster", "yes"]);
        }
        Redis::start_over(free_port(), tls, &args)
    }

    /// The slot of `key`.
    pub(crate) fn slot(&self, key: &str) -> u32 {
        self.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]).parse().unwrap()
    }

    /// The position of the node that has `slot` by the first sharing out.
    pub(crate) fn first_owner(slot: u32) -> usize {
        (0..3).find(|number| slot < SLOTS * (number + 1) / 3).unwrap() as usize
    }

    /// Gives `slot`, with what is in it, from its first owner to node `to`, as an operator does.
    pub(crate) fn move_slot(&self, slot: u32, to: usize) {
        let from = Self::first_owner(slot);
        let ids: Vec<String> = self.nodes.iter().map(|node| node.cli(&["CLUSTER", "MYID"])).collect();
        let (slot, port) = (slot.to_string(), self.nodes[to].port.to_string());
        let set = |node: usize, how: &[&str]| self.nodes[node].cli(&[&["CLUSTER", "SETSLOT", &slot][..], how].concat());
        // Announced first: only of a slot that it imports the new owner raises the cluster's epoch. Without, what
        // the nodes still tell each other of the old owner may undo the move at some of them, for good.
        set(to, &["IMPORTING", &ids[from]]);
        set(from, &["MIGRATING", &ids[to]]);
        loop {
            let keys = self.nodes[from].cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.is_empty() {
                break;
            }
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            self.nodes[from].cli(&migrate.into_iter().chain(keys.lines()).collect::<Vec<_>>());
        }
        let others = (0..self.nodes.len()).filter(|node| ![to, from].contains(node));
        for node in [to, from].into_iter().chain(others) {
            set(node, &["NODE", &ids[to]]);
        }
    }
}

/// A master called `main`, a replica and a sentinel that may replace the one by the other.
#[derive(Debug)]
pub(crate) struct Sentinels {
    pub(crate) url: String,
    pub(crate) master: Redis,
    pub(crate) replica: Redis,
    pub(crate) sentinel: Redis,
}

impl Sentinels {
    /// Asks the sentinel to make the replica the master, and says whether it agrees.
    pub(crate) fn fail_over(&self) -> bool {
        let mut cli = Command::new("redis-cli");
        cli.args(["-e", "-u", &self.sentinel.url, "SENTINEL", "FAILOVER", "main"]);
        cli.output().unwrap().status.success()
    }

    /// Whether master and replica have changed places.
    pub(crate) fn has_failed_over(&self) -> bool {
        let is = |server: &Redis, role: &str| server.cli(&["INFO", "replication"]).contains(role);
        is(&self.replica, "role:master") && is(&self.master, "role:slave")
    }

    /// A fresh set whose replica follows.
    pub(crate) fn start() -> Self {
        Self::start_over(None)
    }

    /// The same, where everybody speaks TLS only. Also returns the path of the certificate.
    pub(crate) fn start_with_tls() -> (Self, PathBuf) {
        let tls = Arc::new(Tls::new());
        (Self::start_over(Some(&tls)), tls.certificate.clone())
    }

    /// The same, with those whose certificates `authority` has signed.
    pub(crate) fn start_for_known(authority: &Authority) -> Self {
        Self::start_over(Some(&Arc::new(Tls::of(authority))))
    }

    fn start_over(tls: Option<&Arc<Tls>>) -> Self {
        let master = Redis::start_over(free_port(), tls, &[]);
        let of_master = ["--replicaof", "127.0.0.1", &master.port.to_string()];
        let replica = Redis::start_over(free_port(), tls, &of_master);
        let replica = replica.wait_until(|replica| replica.cli(&["INFO", "replication"]).contains("link_status:up"));
        let sentinel = Self::start_sentinel(master.port, tls);
        let sentinel =
            sentinel.wait_until(|sentinel| sentinel.cli(&["SENTINEL", "REPLICAS", "main"]).contains("127.0.0.1"));
        let scheme = if tls.is_some() { "rediss" } else { "redis" };
        let url = format!("{scheme}+sentinel://127.0.0.1:{}/main", sentinel.port);
        Self { url, master, replica, sentinel }
    }

    fn start_sentinel(master: u16, tls: Option<&Arc<Tls>>) -> Redis {
        let port = free_port();
        let dir = ServerDir::new("redis-sentinel", None);
        let config = dir.path().join("sentinel.conf");
        std::fs::write(&config, sentinel_config(port, tls, master, dir.path())).unwrap();
        let mut command = dir.command("redis-server");
        command.arg(&config).arg("--sentinel");
        Redis::run(port, tls, dir, &command)
    }
}

fn sentinel_config(port: u16, tls: Option<&Arc<Tls>>, master: u16, dir: &Path) -> String {
    let dir = dir.display();
    let listening: String = settings(port, tls).iter().map(|(name, value)| format!("{name} {value}\n")).collect();
    format!(
        "{listening}bind 127.0.0.1\ndir {dir}\n\
         sentinel monitor main 127.0.0.1 {master} 1\n\
         sentinel down-after-milliseconds main 1000\n\
         sentinel failover-timeout main 5000\n"
    )
}
