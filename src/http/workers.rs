//! The threads that serve connections.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Threads with a single-threaded runtime each. A connection, its requests and their connections to upstreams
/// stay on the thread that they were given to: most of what a small request costs is waking other threads.
///
/// Connections are dealt out in turns, not by the kernel's hash of their addresses (`SO_REUSEPORT`): a few
/// long-lived connections of a pool would share one thread by chance.
#[derive(Debug)]
pub struct Workers {
    dealer: Dealer,
    stop: DropGuard,
    /// Each ends when its thread does.
    ended: Vec<oneshot::Receiver<()>>,
}

/// Deals connections out.
#[derive(Debug, Clone)]
pub struct Dealer {
    workers: Arc<[Handle]>,
    next: Arc<AtomicUsize>,
}

impl Workers {
    /// Starts `count` threads; one at least.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn start(count: usize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let (mut workers, mut ended) = (Vec::new(), Vec::new());
        for number in 0..count.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (alive, end) = oneshot::channel();
            workers.push(runtime.handle().clone());
            ended.push(end);
            let stopped = stop.clone().cancelled_owned();
            thread::Builder::new().name(format!("oncegate-worker-{number}")).spawn(move || {
                runtime.block_on(stopped);
                drop((runtime, alive));
            })?;
        }
        let dealer = Dealer { workers: workers.into(), next: Arc::default() };
        Ok(Self { dealer, stop: stop.drop_guard(), ended })
    }

    /// What deals connections out to them.
    #[must_use]
    pub fn dealer(&self) -> Dealer {
        self.dealer.clone()
    }

    /// Ends the threads. Whatever still runs on them is dropped.
    pub async fn end(self) {
        drop(self.stop);
        for ended in self.ended {
            // An error is what says that the thread has ended: nothing is ever sent.
            drop(ended.await);
        }
    }
}

impl Dealer {
    /// The runtime that is being run in: for tests, and for listeners that few use.
    #[must_use]
    pub fn here() -> Self {
        Self { workers: Arc::new([Handle::current()]), next: Arc::default() }
    }

    /// Whose turn it is.
    pub(super) fn next(&self) -> &Handle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.workers[turn % self.workers.len()]
    }
}
