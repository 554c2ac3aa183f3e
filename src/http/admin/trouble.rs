//! What is in the way of events that wait, as far as it is not about each of them.

use std::collections::BTreeMap;

use crate::clock::Timestamp;
use crate::outbox::delivery::subscription_of;
use crate::outbox::desk::{Listed, Seen, State};

/// By queue: why nothing of it is taken now.
#[derive(Debug, Default)]
pub(super) struct Troubles(BTreeMap<Box<str>, String>);

/// A queue's relays, as far as they have been counted.
#[derive(Default)]
pub(super) struct Relays<'a> {
    pub(super) alive: usize,
    troubled: usize,
    /// The trouble that lasts longest.
    pub(super) first: Option<(&'a str, Timestamp)>,
}

impl Troubles {
    /// Of the queues of `events`, by the relays that are alive.
    pub(super) fn new<'a>(relays: &[Seen], events: impl IntoIterator<Item = &'a Listed>) -> Self {
        let waiting = events.into_iter().filter(|event| waits(event));
        let mut queues: BTreeMap<Box<str>, Relays<'_>> =
            waiting.map(|event| (event.queue.clone(), Relays::default())).collect();
        for seen in relays {
            if let Some(queue) = queues.get_mut(&seen.queue) {
                queue.count(seen);
            }
        }
        let told = queues.into_iter().filter_map(|(queue, relays)| {
            let told = relays.told(if subscription_of(&queue).is_some() { "handler" } else { "broker" })?;
            Some((queue, told))
        });
        Self(told.collect())
    }

    /// Why `event` waits, if all of its queue do.
    pub(super) fn of(&self, event: &Listed) -> Option<&str> {
        self.0.get(&event.queue).filter(|_| waits(event)).map(String::as_str)
    }

    /// All of them, by queue.
    pub(super) const fn all(&self) -> &BTreeMap<Box<str>, String> {
        &self.0
    }
}

impl<'a> Relays<'a> {
    /// Those of `queue`.
    pub(super) fn of(queue: &str, relays: &'a [Seen]) -> Self {
        let mut counted = Self::default();
        relays.iter().filter(|seen| *seen.queue == *queue).for_each(|seen| counted.count(seen));
        counted
    }

    fn count(&mut self, seen: &'a Seen) {
        self.alive += 1;
        if let Some((reason, since)) = &seen.trouble {
            self.troubled += 1;
            if self.first.is_none_or(|(_, first)| *since < first) {
                self.first = Some((reason, *since));
            }
        }
    }

    /// `whom` is who takes the events.
    fn told(&self, whom: &str) -> Option<String> {
        if self.alive == 0 {
            return Some("no process publishes it now".to_owned());
        }
        let (reason, since) = self.first?;
        let (reason, since) = (one_line(reason), httpdate::fmt_http_date(since.to_system()));
        let part = match (self.troubled, self.alive) {
            (_, 1) => String::new(),
            (troubled, alive) => format!(", says {troubled} of {alive} processes"),
        };
        Some(format!("the {whom} is not available since {since}{part}: {reason}"))
    }
}

/// What others wrote must not paint on a person's screen.
fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Whether it would be published if it could be.
fn waits(event: &Listed) -> bool {
    match event.state {
        State::Ready | State::Retrying | State::Waiting | State::Early => true,
        State::Parked | State::Sent | State::Discarded => false,
    }
}
