//! The wire between a client and a server: a TCP proxy that a test bends and cuts at the worst moment.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::process::free_port;

/// What goes over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All of it.
    Whole,
    /// All of it, so much later.
    Late(Duration),
    /// What the client says arrives. What the server says is swallowed.
    Unanswered,
    /// What either says is swallowed.
    Dead,
}

/// The wire. Ends with the test's runtime.
#[derive(Debug)]
pub(crate) struct Wire {
    /// Where clients connect, on the loopback interface.
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: AtomicU16,
    lines: Mutex<Lines>,
    swallowed: AtomicUsize,
    answered: AtomicUsize,
}

#[derive(Debug)]
struct Lines {
    /// The mode of connections to come.
    next: Mode,
    /// The connections that there are. One whose sender is gone is closed, at both ends.
    open: Vec<watch::Sender<Mode>>,
    count: usize,
}

impl Wire {
    /// A wire to `server`, a port of the loopback interface on which nobody needs to listen yet.
    pub(crate) async fn to(server: u16) -> Self {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let lines = Lines { next: Mode::Whole, open: Vec::new(), count: 0 };
        let (swallowed, answered) = (AtomicUsize::default(), AtomicUsize::default());
        let shared = Arc::new(Shared { server: server.into(), lines: Mutex::new(lines), swallowed, answered });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mode, shared) = (accepting.lines.lock().unwrap().open(), Arc::clone(&accepting));
                // However a connection ends, both sides see it end.
                tokio::spawn(async move { drop(pass(client, mode, &shared).await) });
            }
        });
        Self { port, shared }
    }

    /// Has connections to come lead to another server.
    pub(crate) fn lead_to(&self, server: u16) {
        self.shared.server.store(server, Ordering::SeqCst);
    }

    /// Has `mode` hold for all connections, those to come included.
    pub(crate) fn set(&self, mode: Mode) {
        let mut lines = self.shared.lines.lock().unwrap();
        lines.next = mode;
        for line in &lines.open {
            line.send_replace(mode);
        }
    }

    /// Has `mode` hold for connections to come.
    pub(crate) fn set_next(&self, mode: Mode) {
        self.shared.lines.lock().unwrap().next = mode;
    }

    /// Closes the connections that there are.
    pub(crate) fn cut(&self) {
        self.shared.lines.lock().unwrap().open.clear();
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.shared.lines.lock().unwrap().count
    }

    /// How many bytes did not arrive.
    pub(crate) fn swallowed(&self) -> usize {
        self.shared.swallowed.load(Ordering::SeqCst)
    }

    /// How many bytes of what servers said arrived.
    pub(crate) fn answered(&self) -> usize {
        self.shared.answered.load(Ordering::SeqCst)
    }
}

impl Lines {
    fn open(&mut self) -> watch::Receiver<Mode> {
        let (sender, mode) = watch::channel(self.next);
        self.open.push(sender);
        self.count += 1;
        mode
    }
}

async fn pass(mut client: TcpStream, mut mode: watch::Receiver<Mode>, shared: &Shared) -> std::io::Result<()> {
    let server = SocketAddr::from(([127, 0, 0, 1], shared.server.load(Ordering::SeqCst)));
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut asked, mut answered) = (vec![0; 65536], vec![0; 65536]);
    let swallow = |chunk: &[u8]| {
        shared.swallowed.fetch_add(chunk.len(), Ordering::SeqCst);
    };
    loop {
        let now = *mode.borrow_and_update();
        let delay = if let Mode::Late(delay) = now { delay } else { Duration::ZERO };
        tokio::select! {
            // What is on its way when the mode changes is passed on by the new one.
            biased;
            changed = mode.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
            }
            read = client.read(&mut asked) => {
                let chunk = &asked[..read?];
                if chunk.is_empty() {
                    return Ok(());
                }
                match now {
                    Mode::Whole | Mode::Late(_) | Mode::Unanswered => {
                        tokio::time::sleep(delay).await;
                        server.write_all(chunk).await?;
                    }
                    Mode::Dead => swallow(chunk),
                }
            }
            read = server.read(&mut answered) => {
                let chunk = &answered[..read?];
                if chunk.is_empty() {
                    return Ok(());
                }
                match now {
                    Mode::Whole | Mode::Late(_) => {
                        tokio::time::sleep(delay).await;
                        shared.answered.fetch_add(chunk.len(), Ordering::SeqCst);
                        client.write_all(chunk).await?;
                    }
                    Mode::Unanswered | Mode::Dead => swallow(chunk),
                }
            }
        }
    }
}
