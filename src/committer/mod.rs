//! The group committer: collects what concurrent requests want written within one flush, so that one
//! durable commit carries many requests.
//!
//! `queue` decides, without I/O, what goes into which batch and what each failure means; `driver` moves
//! batches between it and the ledger. An idle system flushes at once, and batches form by themselves while the
//! previous flush is on its way. Only where flushes are slow, a flush that follows another waits a moment for those
//! whom that one has answered.

mod driver;
mod job;
mod less;
mod queue;
mod slow;
mod writers;

pub use driver::Committer;
pub use job::Job;
pub(crate) use less::leave_out;
pub use queue::{CommitError, Flush, FlushId, Limits, Queue, Reply, Submitted};
pub use writers::Writers;
