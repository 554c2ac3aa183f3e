//! A private PostgreSQL.

use std::path::PathBuf;
use std::sync::OnceLock;

use oncegate::clock;
use sqlx::{Connection as _, Executor as _};

use super::process::{Process, ServerDir, free_port, given, run};

/// A server of our own.
#[derive(Debug)]
pub(crate) struct Postgres {
    pub(crate) process: Process,
    /// Of a superuser, without a database.
    pub(crate) base_url: String,
    pub(crate) port: u16,
}

impl Postgres {
    /// Starts one with `settings` on top of the defaults; `fsync` stays on.
    pub(crate) fn start(settings: &[&str]) -> Self {
        let dir = ServerDir::new("postgres", Some("postgres"));
        let data = dir.path().join("data");
        run(dir.command(bin("initdb")).arg("-D").arg(&data).args([
            "--username=oncegate",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]));
        Self::run(dir, settings)
    }

    /// Starts a standby of this one, which takes no writes before it is [promoted](Self::promote).
    pub(crate) fn standby(&self) -> Self {
        let dir = ServerDir::new("standby", Some("postgres"));
        let source = ["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "oncegate"];
        let mut copy = dir.command(bin("pg_basebackup"));
        run(copy.arg("-D").arg(dir.path().join("data")).args(source).args(["-R", "--checkpoint=fast", "--no-sync"]));
        Self::run(dir, &[])
    }

    /// Starts a standby without which this one answers no commit any more: what is committed, the standby has.
    pub(crate) async fn synchronous_standby(&self) -> Self {
        let standby = tokio::task::block_in_place(|| self.standby());
        let mut person = sqlx::PgConnection::connect(&format!("{}/postgres", self.base_url)).await.unwrap();
        person.execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await.unwrap();
        person.execute("SELECT pg_reload_conf()").await.unwrap();
        let deadline = clock::now() + std::time::Duration::from_secs(30);
        let state = "SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        while sqlx::query_scalar::<_, i64>(state).fetch_one(&mut person).await.unwrap() == 0 {
            assert!(clock::now() < deadline, "the standby never follows");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        standby
    }

    /// Makes a standby a primary.
    pub(crate) async fn promote(&self) {
        let mut person = sqlx::PgConnection::connect(&format!("{}/postgres", self.base_url)).await.unwrap();
        person.execute("SELECT pg_promote()").await.unwrap();
    }

    fn run(dir: ServerDir, settings: &[&str]) -> Self {
        let port = free_port();
        let mut server = dir.command(bin("postgres"));
        server.arg("-D").arg(dir.path().join("data")).args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k"]);
        server.arg(dir.path());
        for setting in ["max_connections=300"].iter().chain(settings) {
            server.args(["-c", setting]);
        }
        let base_url = format!("postgres://oncegate@127.0.0.1:{port}");
        let process = Process::start(dir, &server, "QUIT").wait_until(|| is_ready(port));
        Self { process, base_url, port }
    }

    /// Ends the server without a checkpoint, as `pg_ctl stop -m immediate` does.
    pub(crate) fn crash(&self) {
        self.process.signal("QUIT");
    }

    /// Starts it again after [`Self::crash`]: it recovers from its log.
    pub(crate) fn recover(&mut self) {
        self.process.start_again();
        self.process.await_ready(|| is_ready(self.port));
    }
}

fn is_ready(port: u16) -> bool {
    let mut probe = std::process::Command::new(bin("pg_isready"));
    probe.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
    probe.status().is_ok_and(|status| status.success())
}

/// The URL of a server without a database: the one that the environment names, or one for this run.
pub(crate) fn base_url() -> &'static str {
    static GIVEN: OnceLock<Option<String>> = OnceLock::new();
    static PRIVATE: OnceLock<Postgres> = OnceLock::new();
    match GIVEN.get_or_init(|| given("ONCEGATE_TEST_POSTGRES_URL")) {
        Some(url) => url.trim_end_matches('/'),
        None => &PRIVATE.get_or_init(|| Postgres::start(&[])).base_url,
    }
}

/// The newest installed version's program, or the one on the path.
pub(crate) fn bin(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}
