//! What the layer and its handler tell each other about the end of an execution.
//!
//! | state | meaning | left by |
//! |---|---|---|
//! | open | the handler runs | `complete_in`, or its end |
//! | begun | `complete_in` was called: the row decides, whatever else happens | - |
//! | closed | the handler has ended: its answer decides, and `complete_in` is refused | - |

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use http::Response;

use crate::engine::Recorded;
use crate::entry::StoredResponse;
use crate::http::replay;

/// How an execution ends, known to its handler and to the layer.
#[derive(Debug, Default)]
pub(super) struct Ending {
    progress: Mutex<Progress>,
    /// Whether the handler made its answer of [`super::Completed`].
    answered: AtomicBool,
}

#[derive(Debug, Default)]
enum Progress {
    #[default]
    Open,
    Begun(Arc<StoredResponse>),
    Closed,
}

impl Ending {
    /// The handler is about to finish the entry with `response`; `false` if its time is over.
    pub(super) fn begin(&self, response: Arc<StoredResponse>) -> bool {
        let mut progress = self.progress();
        let is_open = matches!(*progress, Progress::Open);
        if is_open {
            *progress = Progress::Begun(response);
        }
        is_open
    }

    /// The handler has ended; says whether it began to finish the entry itself.
    pub(super) fn close(&self) -> bool {
        let mut progress = self.progress();
        match *progress {
            Progress::Begun(_) => true,
            Progress::Open | Progress::Closed => {
                *progress = Progress::Closed;
                false
            }
        }
    }

    /// The handler's answer is the stored one.
    pub(super) fn answer(&self) {
        self.answered.store(true, Ordering::Release);
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    /// The stored answer, if the row has it.
    pub(super) fn completed_as(&self, recorded: Recorded) -> Option<Response<Body>> {
        match (&*self.progress(), recorded) {
            (Progress::Begun(stored), Recorded::Completed(_)) => Some(replay::response(stored)),
            (Progress::Begun(_) | Progress::Open | Progress::Closed, _) => None,
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
