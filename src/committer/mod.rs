//! The group committer: collects what concurrent requests want written within one flush, so that one
//! durable commit carries many requests.
//!
//! `queue` decides, without I/O, what goes into which batch and what each failure means; `driver` moves
//! batches between it and the ledger. There is no linger timer: an idle system flushes at once, and batches
//! form by themselves while the previous flush is on its way.

mod driver;
mod queue;

pub use driver::Committer;
pub use queue::{CommitError, Flush, FlushId, Job, Limits, Queue, Reply};
