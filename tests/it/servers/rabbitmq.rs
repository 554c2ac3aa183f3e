//! RabbitMQ: one node, with a port mapper (epmd) of the tests' own.
//!
//! It takes seconds to start, so the shared one is started by the first test that needs it. A test that pauses,
//! kills or fills a node starts its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::authority::Authority;
use super::process::{Process, ServerDir, free_port, given, run};

const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";

/// The largest message that nodes take: small, so that tests can exceed it.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Where a node of the shared ones is, or the one that `ONCEGATE_TEST_AMQP_URL` names (with the limit above).
pub(crate) fn shared_url() -> &'static str {
    static SHARED: OnceLock<(String, Option<RabbitMq>)> = OnceLock::new();
    let (url, _) = SHARED.get_or_init(|| match given("ONCEGATE_TEST_AMQP_URL") {
        Some(url) => (url, None),
        None => {
            let node = RabbitMq::start();
            (node.url.clone(), Some(node))
        }
    });
    url
}

/// One node. Dropped, it is gone, with all that it held.
#[derive(Debug)]
pub(crate) struct RabbitMq {
    pub(crate) url: String,
    pub(crate) port: u16,
    /// With [`Self::start_with_tls`], of the port that speaks it; and the path of its certificate.
    pub(crate) tls: Option<(u16, PathBuf)>,
    name: String,
    home: PathBuf,
    process: Process,
}

impl RabbitMq {
    /// A fresh node.
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    /// A fresh node that also speaks TLS, with a certificate for `localhost`.
    pub(crate) fn start_with_tls() -> Self {
        Self::start_with(Some(free_port()))
    }

    /// A fresh node that also speaks TLS, with those whose certificates `authority` has signed.
    pub(crate) fn start_for_known(authority: &Authority) -> Self {
        let files = ["server.pem", "server.key", "ca.pem"].map(|name| authority.path(name));
        Self::start_over(|_| Some(Tls { port: free_port(), files, clients: "known" }))
    }

    fn start_with(tls_port: Option<u16>) -> Self {
        Self::start_over(|home| {
            let port = tls_port?;
            let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let [cert, key] = ["cert.pem", "key.pem"].map(|name| home.join(name));
            std::fs::write(&cert, pair.cert.pem()).unwrap();
            std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
            Some(Tls { port, files: [cert.clone(), key, cert], clients: "any" })
        })
    }

    fn start_over(tls: impl FnOnce(&Path) -> Option<Tls>) -> Self {
        let (dir, port) = (ServerDir::new("rabbitmq", None), free_port());
        let home = dir.path().to_owned();
        let mut config = format!(
            "listeners.tcp.default = 127.0.0.1:{port}\n\
             max_message_size = {MAX_MESSAGE_BYTES}\n\
             disk_free_limit.absolute = 1MB\n\
             log.console.level = warning\n"
        );
        let tls = tls(&home).map(|tls| {
            config += &tls.settings();
            let [certificate, ..] = tls.files;
            (tls.port, certificate)
        });
        std::fs::write(home.join("rabbitmq.conf"), config).unwrap();
        std::fs::write(home.join("none"), "").unwrap();
        let name = format!("oncegate{port}@localhost");
        let mut command = dir.command(format!("{PROGRAMS}/rabbitmq-server"));
        environment(&mut command, &home, &name);
        command
            .env("RABBITMQ_MNESIA_BASE", home.join("mnesia"))
            .env("RABBITMQ_LOG_BASE", home.join("log"))
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_CONFIG_FILE", home.join("rabbitmq.conf"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", home.join("plugins"))
            .env("RABBITMQ_PID_FILE", home.join("pid"))
            .env("RABBITMQ_DIST_PORT", free_port().to_string())
            // Makes the script give way to the node, so that signals reach it.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}");
        let process = Process::start(dir, &command, "KILL").wait_for_port(port);
        Self { url: format!("amqp://127.0.0.1:{port}"), port, tls, name, home, process }
    }

    /// Runs `rabbitmqctl` on it.
    pub(crate) fn ctl(&self, args: &[&str]) -> String {
        let mut command = Command::new(format!("{PROGRAMS}/rabbitmqctl"));
        environment(&mut command, &self.home, &self.name);
        run(command.arg("--quiet").args(args))
    }

    /// Sends it a signal: `STOP` pauses it, `CONT` lets it go on, `KILL` is a crash.
    pub(crate) fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// Starts it again, with what it has on disk, after it was killed.
    pub(crate) fn start_again(&mut self) {
        self.process.start_again();
        self.process.await_ready(|| std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }
}

/// How a node speaks TLS.
struct Tls {
    port: u16,
    /// Its certificate, its key, and whom it trusts.
    files: [PathBuf; 3],
    /// `any` or `known`.
    clients: &'static str,
}

impl Tls {
    fn settings(&self) -> String {
        let [cert, key, ca] = self.files.each_ref().map(|path| path.display());
        let (verify, must_show) = if self.clients == "known" { ("verify_peer", true) } else { ("verify_none", false) };
        format!(
            "listeners.ssl.default = 127.0.0.1:{}\n\
             ssl_options.certfile = {cert}\nssl_options.keyfile = {key}\nssl_options.cacertfile = {ca}\n\
             ssl_options.verify = {verify}\nssl_options.fail_if_no_peer_cert = {must_show}\n",
            self.port
        )
    }
}

/// What a node and the commands for it agree on. Nothing of the machine's own configuration is read.
fn environment(command: &mut Command, home: &PathBuf, name: &str) {
    command
        .env("HOME", home)
        .env("RABBITMQ_NODENAME", name)
        .env("RABBITMQ_CONF_ENV_FILE", home.join("none"))
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("ERL_EPMD_PORT", port_mapper().to_string());
}

/// The port of the tests' own port mapper. A node would start one that outlives it, and all tests.
fn port_mapper() -> u16 {
    static MAPPER: OnceLock<(u16, Process)> = OnceLock::new();
    let (port, _) = MAPPER.get_or_init(|| {
        let (dir, port) = (ServerDir::new("epmd", None), free_port());
        let mut command = dir.command("epmd");
        command.args(["-address", "127.0.0.1", "-port", &port.to_string()]);
        (port, Process::start(dir, &command, "KILL").wait_for_port(port))
    });
    *port
}
