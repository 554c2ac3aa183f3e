//! Real servers as private processes: a free loopback port, a directory of its own, and a watchdog that ends
//! the server and removes the directory when the test process is gone, however it went.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use oncegate::clock;

/// How long a server may take to start; generous, since machines that test are busy.
const START_LIMIT: Duration = Duration::from_secs(180);

/// Runs `$3…` with the output in `$1/server.log`; `$2` is the signal that stops it. Reads its standard input: a
/// line means that the server was killed and is to be started again; the end comes when the test process ends or
/// lets go. Then it stops the server, first kindly, removes the directory, and ends with the server's exit code.
const WATCHDOG: &str = r#"
dir=$1; signal=$2; shift 2
exec 2>/dev/null
start() {
    "$@" </dev/null >>"$dir/server.log" 2>&1 &
    pid=$!
    echo $pid
}
start "$@"
while read -r _; do wait $pid; start "$@"; done
kill -CONT $pid; kill -"$signal" $pid
n=0; while kill -0 $pid && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done
kill -KILL $pid; wait $pid; code=$?
rm -rf "$dir"
exit $code
"#;

/// A directory for one server. Its watchdog removes it.
#[derive(Debug)]
pub(crate) struct ServerDir {
    path: PathBuf,
    /// Whom the server runs as, where the tests run as root and the server refuses to.
    user: Option<&'static str>,
}

impl ServerDir {
    /// A fresh directory that `user` may write to. `user` counts only when the tests run as root.
    pub(crate) fn new(name: &str, user: Option<&'static str>) -> Self {
        let dir = tempfile::Builder::new().prefix(&format!("oncegate-{name}-")).tempdir().unwrap();
        let path = dir.keep();
        let user = user.filter(|_| std::fs::metadata("/proc/self").unwrap().uid() == 0);
        if let Some(user) = user {
            run(Command::new("chown").arg(user).arg(&path));
        }
        Self { path, user }
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A command that runs as the directory's user, in the directory.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = match self.user {
            None => Command::new(program.as_ref()),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--init-groups").arg("--");
                command.arg(program.as_ref());
                command
            }
        };
        command.current_dir(&self.path);
        command
    }
}

/// A running server. Dropped, it is stopped; in a `static`, it is stopped when the test process ends.
#[derive(Debug)]
pub(crate) struct Process {
    dir: PathBuf,
    pub(crate) pid: u32,
    watchdog: Child,
    /// Its end is what the watchdog waits for.
    lifeline: Option<ChildStdin>,
    /// Where the watchdog says the server's process id.
    pids: BufReader<ChildStdout>,
}

impl Process {
    /// Starts `command` (made by `dir.command`). `stop_signal` is what ends it fast and whole, as `QUIT` does
    /// for PostgreSQL.
    pub(crate) fn start(dir: ServerDir, command: &Command, stop_signal: &str) -> Self {
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, "watchdog"]).arg(&dir.path).arg(stop_signal);
        watchdog.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => watchdog.env(name, value),
                None => watchdog.env_remove(name),
            };
        }
        // Its own process group: Ctrl-C ends the tests, and the watchdog then cleans up after them.
        watchdog.current_dir(&dir.path).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut watchdog = watchdog.spawn().unwrap();
        let mut pids = BufReader::new(watchdog.stdout.take().unwrap());
        let lifeline = watchdog.stdin.take();
        Self { dir: dir.path, pid: next_pid(&mut pids), watchdog, lifeline, pids }
    }

    /// Starts the server again, with what it has on disk. It was killed before, or is about to end.
    pub(crate) fn start_again(&mut self) {
        self.lifeline.as_mut().unwrap().write_all(b"\n").unwrap();
        self.pid = next_pid(&mut self.pids);
    }

    /// Stops the server with its signal, and returns its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        drop(self.lifeline.take());
        self.watchdog.wait().unwrap().code()
    }

    /// Polls until `ready` says so.
    ///
    /// Panics with the server's log if it never does.
    pub(crate) fn wait_until(self, ready: impl FnMut() -> bool) -> Self {
        self.await_ready(ready);
        self
    }

    /// As [`Self::wait_until`], of a server that was started again.
    pub(crate) fn await_ready(&self, mut ready: impl FnMut() -> bool) {
        let deadline = clock::now() + START_LIMIT;
        while !ready() {
            assert!(clock::now() < deadline && self.runs(), "the server did not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Polls until `port` on the loopback interface takes connections.
    pub(crate) fn wait_for_port(self, port: u16) -> Self {
        self.wait_until(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    /// Sends the server a signal: `STOP` pauses it, `CONT` lets it go on, `KILL` is a crash.
    pub(crate) fn signal(&self, signal: &str) {
        run(Command::new("kill").arg(format!("-{signal}")).arg(self.pid.to_string()));
    }

    /// Sends a signal to the server and to the processes that it has started.
    pub(crate) fn signal_family(&self, signal: &str) {
        // The parent first when it stops, so that nobody is born unnoticed.
        self.signal(signal);
        run(Command::new("pkill").arg(format!("-{signal}")).arg("-P").arg(self.pid.to_string()));
    }

    /// What the server has printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }

    fn runs(&self) -> bool {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        !stat.contains(") Z ")
    }
}

fn next_pid(pids: &mut BufReader<ChildStdout>) -> u32 {
    let mut pid = String::new();
    pids.read_line(&mut pid).unwrap();
    pid.trim().parse().unwrap()
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        if let Err(error) = self.watchdog.wait() {
            eprintln!("watchdog of {}: {error}", self.dir.display());
        }
    }
}

/// A port of the loopback interface that nobody listens on.
///
/// Each is handed out once, and none is of the range from which the system takes ports for outgoing
/// connections: tests that run beside this one open many between this call and the server's start.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 15_000;
    const COUNT: u32 = 15_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Test processes that run at the same time begin far apart.
    let start = std::process::id().wrapping_mul(2_017);
    let mut ports = std::iter::repeat_with(|| start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % COUNT);
    let free = ports.find_map(|offset| {
        let port = u16::try_from(FIRST + offset).ok()?;
        std::net::TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
    });
    free.unwrap()
}

/// Runs `command` to its end and returns what it printed.
///
/// Panics with its output if it fails.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The server that the environment names, in place of a private one.
#[expect(clippy::disallowed_methods, reason = "tests are told of servers by the environment")]
pub(crate) fn given(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}
