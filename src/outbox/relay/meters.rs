//! What a relay counts and says.

use std::time::Duration;

use metrics::{Counter, Histogram};

use super::health::Change;
use crate::broker::{PublishError, Published};
use crate::clock::Instant;
use crate::engine::ledger::{Guarded, StoreError};
use crate::outbox::store::{How, Turn, Turned};

/// The metrics of one queue's relay.
pub(super) struct Meters {
    queue: Box<str>,
    published: Counter,
    parked: Counter,
    /// By result, in the order of [`RESULTS`].
    attempts: [Counter; RESULTS.len()],
    duration: Histogram,
    /// Whether turns fail, which is told once.
    turns_fail: bool,
    /// When somebody was told of a refused event last.
    refusal_told: Option<Instant>,
    /// The same of an event whose topic was not available.
    topic_told: Option<Instant>,
}

/// One refused event in so long is told, since a whole queue may be refused. Each has its own reason on record.
const REFUSALS_EVERY: Duration = Duration::from_secs(60);

const RESULTS: [&str; 6] = ["confirmed", "unavailable", "refused", "never", "later", "topic_unavailable"];

impl Meters {
    pub(super) fn new(queue: &str) -> Self {
        let label = || String::from(queue);
        let attempts = RESULTS
            .map(|result| metrics::counter!("oncegate_events_attempts_total", "queue" => label(), "result" => result));
        Self {
            queue: queue.into(),
            published: metrics::counter!("oncegate_events_published_total", "queue" => label()),
            parked: metrics::counter!("oncegate_events_parked_total", "queue" => label()),
            attempts,
            duration: metrics::histogram!("oncegate_publish_duration_seconds", "queue" => label()),
            turns_fail: false,
            refusal_told: None,
            topic_told: None,
        }
    }

    pub(super) fn published(&mut self, result: &Published, begun: Instant, now: Instant) {
        let index = match result {
            Ok(_) => 0,
            Err(PublishError::Unavailable(_)) => 1,
            Err(PublishError::Refused(_)) => 2,
            Err(PublishError::Never(_) | PublishError::Judged { .. }) => 3,
            Err(PublishError::Later(_) | PublishError::Early(_)) => 4,
            Err(PublishError::TopicUnavailable(_)) => 5,
        };
        self.attempts[index].increment(1);
        self.duration.record(now - begun);
        if let Err(PublishError::Refused(reason)) = result
            && self.refusal_told.is_none_or(|told| told + REFUSALS_EVERY <= now)
        {
            self.refusal_told = Some(now);
            tracing::warn!(queue = %self.queue, reason, "an event was not taken; it is tried again, and its key waits");
        }
        if let Err(PublishError::TopicUnavailable(reason)) = result
            && self.topic_told.is_none_or(|told| told + REFUSALS_EVERY <= now)
        {
            self.topic_told = Some(now);
            tracing::warn!(queue = %self.queue, reason, "a topic is not available; its events wait, others go on");
        }
    }

    /// `reason` is why the broker takes nothing, if it does not.
    pub(super) fn changed(&self, change: Option<Change>, reason: &str) {
        match change {
            Some(Change::Away) => {
                tracing::warn!(queue = %self.queue, reason, "the broker is not available; events wait");
            }
            Some(Change::Back) => tracing::info!(queue = %self.queue, "the broker is back"),
            None => {}
        }
    }

    pub(super) fn turned(&mut self, turn: &Turn, result: &Result<Turned, StoreError>) {
        match result {
            Err(error) if !self.turns_fail => {
                tracing::error!(queue = %self.queue, %error, "the outbox can't be read or written; events wait");
            }
            Ok(_) if self.turns_fail => tracing::info!(queue = %self.queue, "the outbox is back"),
            Ok(_) | Err(_) => {}
        }
        self.turns_fail = result.is_err();
        let Ok(turned) = result else { return };
        for (conclusion, done) in turn.conclusions.iter().zip(&turned.concluded) {
            match (&conclusion.how, done) {
                (How::Sent { .. }, Guarded::Done) => self.published.increment(1),
                (How::Parked { reason, .. }, Guarded::Done) => {
                    self.parked.increment(1);
                    let position = conclusion.position;
                    tracing::error!(queue = %self.queue, position, %reason, "an event is parked for a person");
                }
                (_, Guarded::Done | Guarded::Fenced) => {}
            }
        }
    }
}
