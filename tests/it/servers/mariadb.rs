//! A private MariaDB.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::process::{Process, ServerDir, free_port, given, run};

/// A server of our own.
#[derive(Debug)]
pub(crate) struct MariaDb {
    pub(crate) process: Process,
    /// Of a superuser, without a database.
    pub(crate) base_url: String,
    port: u16,
}

impl MariaDb {
    /// Starts one with `settings` on top of the defaults; commits are durable.
    pub(crate) fn start(settings: &[&str]) -> Self {
        let dir = ServerDir::new("mariadb", Some("mysql"));
        let data = dir.path().join("data");
        let socket = dir.path().join("s.sock");
        run(dir.command("mariadb-install-db").args([
            "--no-defaults".to_owned(),
            format!("--datadir={}", data.display()),
            "--auth-root-authentication-method=normal".to_owned(),
            "--skip-test-db".to_owned(),
        ]));
        let port = free_port();
        let mut server = dir.command(bin("mariadbd"));
        server.args([
            "--no-defaults".to_owned(),
            format!("--datadir={}", data.display()),
            format!("--port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--socket={}", socket.display()),
            format!("--pid-file={}", dir.path().join("pid").display()),
            "--skip-name-resolve".to_owned(),
            "--max-connections=300".to_owned(),
        ]);
        server.args(settings);
        let process = Process::start(dir, &server, "TERM").wait_until(|| socket.exists()).wait_for_port(port);
        allow_tcp(&socket);
        Self { process, base_url: format!("mysql://oncegate@127.0.0.1:{port}"), port }
    }

    /// Starts it again after a signal has ended it, or is about to: `TERM` is a shutdown, `KILL` a crash.
    pub(crate) fn recover(&mut self) {
        self.process.start_again();
        self.process.await_ready(|| std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }
}

/// Makes a superuser who needs no password on the loopback interface.
fn allow_tcp(socket: &Path) {
    run(std::process::Command::new("mariadb").args([
        "--no-defaults",
        &format!("--socket={}", socket.display()),
        "--user=root",
        "-e",
        "CREATE USER oncegate@'127.0.0.1'; GRANT ALL ON *.* TO oncegate@'127.0.0.1' WITH GRANT OPTION",
    ]));
}

/// The URL of a server without a database: the one that the environment names, or one for this run.
pub(crate) fn base_url() -> &'static str {
    static GIVEN: OnceLock<Option<String>> = OnceLock::new();
    static PRIVATE: OnceLock<MariaDb> = OnceLock::new();
    match GIVEN.get_or_init(|| given("ONCEGATE_TEST_MYSQL_URL")) {
        Some(url) => url.trim_end_matches('/'),
        None => &PRIVATE.get_or_init(|| MariaDb::start(&[])).base_url,
    }
}

fn bin(name: &str) -> PathBuf {
    let system = Path::new("/usr/sbin").join(name);
    if system.exists() { system } else { name.into() }
}
