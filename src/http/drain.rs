//! The open connections of a listener, and how they end.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The open connections.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    tasks: TaskTracker,
    /// "Finish what you are doing, then close."
    pub(super) finish: CancellationToken,
    /// "Close now."
    cut: CancellationToken,
}

/// How a listener ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were closed in the middle of something. The requests they carried go on in their
    /// own tasks where they are executions; only the answers are lost.
    pub cut: usize,
}

impl Connections {
    pub(super) fn new(finish: CancellationToken) -> Self {
        Self { tasks: TaskTracker::new(), finish, cut: CancellationToken::new() }
    }

    /// Runs `connection` in a task of `runtime`, until it ends or is cut.
    pub(super) fn spawn_on(&self, runtime: &Handle, connection: impl Future<Output = ()> + Send + 'static) {
        let cut = self.cut.clone();
        let connection = async move {
            tokio::select! {
                () = connection => {}
                () = cut.cancelled() => {}
            }
        };
        drop(self.tasks.spawn_on(connection, runtime));
    }

    /// Waits until all have finished, at most for `limit`, and cuts the rest. They must have been told to
    /// finish before.
    pub(super) async fn drain(self, limit: Duration) -> Drained {
        self.tasks.close();
        let cut = match timeout(limit, self.tasks.wait()).await {
            Ok(()) => 0,
            Err(_elapsed) => self.tasks.len(),
        };
        self.cut.cancel();
        self.tasks.wait().await;
        Drained { cut }
    }
}
