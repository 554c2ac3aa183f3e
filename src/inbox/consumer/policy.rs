//! How a consumer goes about its messages.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use crate::outbox::relay::Backoff;

/// How messages are tried, and how many at a time.
///
/// A message that fails is tried again in place: later ones of its key wait, those of other keys go on, and what was
/// received together is finished before more is received. So the pauses together should be shorter than the broker
/// waits for an ack, or it delivers the message to somebody else as well, who then finds that it was handled.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How often a message is tried before it is given up: tries that ended with their process count, see
    /// [the module](super).
    pub attempts: NonZeroU32,
    /// How long one try may take, or one batch, from the filters to the commit. What takes longer is rolled back, and
    /// counts as a failure.
    pub timeout: Duration,
    /// The pauses after a failure. No transaction is open meanwhile.
    pub backoff: Backoff,
    /// The pauses while the database, or whatever else the handler needs, is not there. They end when it is back, or
    /// when the consumer is stopped: nothing is given up and nothing acknowledged.
    pub outage: Backoff,
    /// How many keys are worked on at a time. Each takes a connection from the pool.
    pub concurrency: NonZeroUsize,
    /// What shares a commit.
    pub transactions: Transactions,
}

/// What shares a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transactions {
    /// Each message has its own.
    PerMessage,
    /// Up to so many messages share one, handled one after the other in the order of their arrival: a commit costs the
    /// same for one and for many. If one of them fails, all are rolled back and each gets its own, so a handler sees
    /// some of them twice.
    Batched(NonZeroUsize),
}

impl Default for Policy {
    fn default() -> Self {
        const fn at_least_one(number: u32) -> NonZeroU32 {
            NonZeroU32::new(number).expect("not zero")
        }
        Self {
            // With the pauses below about seven seconds: enough for a lock or a restart, and below every ack time-out.
            attempts: const { at_least_one(6) },
            timeout: Duration::from_secs(30),
            backoff: Backoff { first: Duration::from_millis(250), max: Duration::from_secs(10) },
            outage: Backoff { first: Duration::from_millis(250), max: Duration::from_secs(30) },
            concurrency: const { NonZeroUsize::new(4).expect("not zero") },
            transactions: Transactions::PerMessage,
        }
    }
}
