//! The threads that write batches.

use std::io;
use std::thread;

use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Committer;

/// Writers, each on a thread of its own: a batch takes several short round trips to the database, and on the
/// requests' threads each of them would queue behind whatever requests are ready to go on.
#[derive(Debug)]
pub struct Writers {
    stop: DropGuard,
    /// Each ends when its thread does.
    ended: Vec<oneshot::Receiver<()>>,
}

impl Writers {
    /// Starts `count` writers of `committer`. They write until [`Self::end`], or until this is dropped.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn start(committer: &Committer, count: usize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let mut writers = Self { stop: stop.clone().drop_guard(), ended: Vec::new() };
        for _ in 0..count {
            let (alive, ended) = oneshot::channel();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let run = committer.clone().run(stop.clone());
            thread::Builder::new().name("oncegate-writer".to_owned()).spawn(move || {
                runtime.block_on(run);
                drop(alive);
            })?;
            writers.ended.push(ended);
        }
        Ok(writers)
    }

    /// Writes what is waiting, then ends.
    pub async fn end(self) {
        drop(self.stop);
        for ended in self.ended {
            // An error is what says that the thread has ended: nothing is ever sent.
            drop(ended.await);
        }
    }
}
