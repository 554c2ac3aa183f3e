//! The servers, started privately on free loopback ports; each ends with this process.

use std::path::{Path, PathBuf};

use crate::private::process::{Process, ServerDir, free_port};

/// A server and where it listens.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) port: u16,
    process: Process,
}

impl Running {
    /// Bytes of memory that the process holds.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

/// One of `crate::peers`: this program again, with other arguments.
pub(crate) fn peer(name: &str, arguments: &[u16]) -> Running {
    let port = free_port();
    let dir = ServerDir::new(name, None);
    let mut command = dir.command(std::env::current_exe().unwrap());
    command.arg(name).arg(port.to_string()).args(arguments.iter().map(u16::to_string));
    Running { port, process: Process::start(dir, &command, "TERM").wait_for_port(port) }
}

/// nginx as a reverse proxy with one worker per core, if it is installed.
pub(crate) fn nginx(upstream: u16) -> Option<Running> {
    let program = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"]
        .into_iter()
        .find(|path| Path::new(path).exists())?;
    let port = free_port();
    let dir = ServerDir::new("nginx", None);
    let config = format!(
        "daemon off; worker_processes auto; pid nginx.pid; error_log stderr error;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; keepalive_requests 100000000;\n\
         upstream up {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}\n\
         server {{ listen 127.0.0.1:{port} backlog=4096; location / {{\n\
         proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}\n"
    );
    let file = dir.path().join("nginx.conf");
    std::fs::write(&file, config).unwrap();
    let mut command = dir.command(program);
    command.arg("-p").arg(dir.path()).arg("-c").arg(file);
    Some(Running { port, process: Process::start(dir, &command, "TERM").wait_for_port(port) })
}

/// How a gateway is to run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settings<'a> {
    /// The store; without, a SQLite file of its own.
    pub(crate) store: Option<&'a str>,
    /// Jobs in one batch, if not the default.
    pub(crate) batch_limit: Option<u32>,
    /// Bytes of cached answers, if not the default.
    pub(crate) cache: Option<&'a str>,
    /// The settings of the queue that each request to `/pay` is announced in; without, none is announced.
    pub(crate) queue: Option<&'a str>,
}

/// The program that is measured.
#[derive(Debug, Clone)]
pub(crate) struct Program(pub(crate) PathBuf);

impl Program {
    /// A gateway before `upstream`: `/pay` is guarded, as is `/slow`; `/pass` is not.
    pub(crate) fn gateway(&self, upstream: u16, settings: Settings<'_>) -> Running {
        let port = free_port();
        let dir = ServerDir::new("gateway", None);
        let file = dir.path().join("oncegate.toml");
        std::fs::write(&file, config(port, upstream, settings)).unwrap();
        let mut command = dir.command(&self.0);
        command.arg("serve").arg("--config").arg(&file).env("RUST_LOG", "warn");
        command.env("FINGERPRINT", "a secret of the benchmark, 32 bytes or more");
        Running { port, process: Process::start(dir, &command, "TERM").wait_for_port(port) }
    }
}

/// What is announced of each request to `/pay`.
const EVENT: &str = "[[routes.events]]\nname = \"created\"\ntype = \"com.example.payment.created\"\n\
     topic = \"payments\"\n";

fn config(port: u16, upstream: u16, settings: Settings<'_>) -> String {
    let store = settings.store.unwrap_or("sqlite://oncegate.db");
    let batch = settings.batch_limit.map_or_else(String::new, |limit| format!("batch_limit = {limit}\n"));
    let cache = settings.cache.map_or_else(String::new, |bytes| format!("[cache]\nbytes = \"{bytes}\"\n"));
    let queue = settings.queue.map_or_else(String::new, |queue| format!("[queue]\n{queue}\n"));
    let event = if settings.queue.is_some() { EVENT } else { "" };
    let guarded = |path: &str| {
        format!(
            "[[routes]]\nname = \"{path}\"\nmatch = \"POST /{path}\"\nupstream = \"up\"\n\
             [routes.idempotency]\nkey = [\"header\"]\n"
        )
    };
    format!(
        "[server]\nlisten = \"127.0.0.1:{port}\"\nmax_connections = 20000\n\
         [store]\nurl = \"{store}\"\n{batch}{cache}{queue}\
         [secrets]\nfingerprint = [\"env:FINGERPRINT\"]\n\
         [[upstreams]]\nname = \"up\"\nurls = [\"http://127.0.0.1:{upstream}\"]\n\
         {pay}{event}{slow}\
         [[routes]]\nname = \"pass\"\nmatch = \"POST /pass\"\nupstream = \"up\"\n",
        pay = guarded("pay"),
        slow = guarded("slow"),
    )
}
