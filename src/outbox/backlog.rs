//! What a queue has not sent.

use std::time::Duration;

/// What of a queue is not sent. Counts stop at the cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Ready, in hand, retrying, waiting or early.
    pub unsent: u64,
    /// Of them, those that wait for another one of their key: behind it, or early. However long one key's line is,
    /// nobody has anything to do for it.
    pub waiting: u64,
    /// Waiting for a person.
    pub parked: u64,
    /// Events that stop their key: retrying ones, and parked ones that hold.
    pub blocking: u64,
    /// The age of the oldest unsent one.
    pub oldest: Option<Duration>,
}
