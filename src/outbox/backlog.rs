//! What a queue has not sent.

use std::time::Duration;

/// What of a queue is not sent. Counts stop at the cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Ready, in hand, retrying or waiting.
    pub unsent: u64,
    /// Waiting for a person.
    pub parked: u64,
    /// Events that stop their key: retrying ones, and parked ones that hold.
    pub blocking: u64,
    /// The age of the oldest unsent one.
    pub oldest: Option<Duration>,
}
