//! What is in the way of events that wait, as far as it is not about each of them.

use std::collections::BTreeMap;

use oncegate::clock::Timestamp;
use oncegate::inbox::store::subscription_of;
use oncegate::outbox::desk::{Listed, Seen, State};

use super::desk_text::{date, one_line};

/// By queue: why nothing of it is taken now.
#[derive(Debug, Default)]
pub(super) struct Troubles(BTreeMap<Box<str>, String>);

/// A queue's relays, as far as they have been counted.
#[derive(Default)]
struct Relays<'a> {
    alive: usize,
    troubled: usize,
    /// The trouble that lasts longest.
    first: Option<(&'a str, Timestamp)>,
}

impl Troubles {
    /// Of the queues of `events`, by the relays that are alive.
    pub(super) fn new<'a>(relays: &[Seen], events: impl IntoIterator<Item = &'a Listed>) -> Self {
        let waiting = events.into_iter().filter(|event| waits(event));
        let mut queues: BTreeMap<Box<str>, Relays<'_>> =
            waiting.map(|event| (event.queue.clone(), Relays::default())).collect();
        for seen in relays {
            let Some(queue) = queues.get_mut(&seen.queue) else { continue };
            queue.alive += 1;
            if let Some((reason, since)) = &seen.trouble {
                queue.troubled += 1;
                if queue.first.is_none_or(|(_, first)| *since < first) {
                    queue.first = Some((reason, *since));
                }
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

    /// For people, a line each.
    pub(super) fn lines(&self) -> String {
        self.0.iter().map(|(queue, told)| format!("{}: {told}\n", one_line(queue))).collect()
    }
}

impl Relays<'_> {
    /// `whom` is who takes the events.
    fn told(&self, whom: &str) -> Option<String> {
        if self.alive == 0 {
            return Some("no process publishes it now".to_owned());
        }
        let (reason, since) = self.first?;
        let (reason, since) = (one_line(reason), date(since));
        let part = match (self.troubled, self.alive) {
            (_, 1) => String::new(),
            (troubled, alive) => format!(", says {troubled} of {alive} processes"),
        };
        Some(format!("the {whom} is not available since {since}{part}: {reason}"))
    }
}

/// Whether it would be published if it could be.
fn waits(event: &Listed) -> bool {
    match event.state {
        State::Ready | State::Retrying | State::Waiting | State::Early => true,
        State::Parked | State::Sent | State::Discarded => false,
    }
}
