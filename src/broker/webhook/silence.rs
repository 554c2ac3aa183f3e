//! Whether it is an event that the endpoint does not take, or every one of its topic.
//!
//! A gateway in front of an endpoint that is down answers for it: 502, 503, 504; one that is overloaded says 429, or
//! nothing. A topic is a path, behind which there may be a service of its own. Where that is all that several of its
//! events in a row have heard, nothing is wrong with any of them. One that hears nothing else while others are taken is
//! refused: it may be what kills the endpoint.

use std::collections::HashMap;

use crate::outbox::event::EventId;

/// How often in a row the same event may find nobody until it is refused once: the relay tries a topic that is away
/// with one event, and were that the one that kills the endpoint, nothing of it would ever be published again.
const PATIENCE: u32 = 5;

/// What has been heard since the endpoint last spoke for itself, for each topic where it does not.
#[derive(Debug, Default)]
pub(super) struct Silence(HashMap<Box<str>, Met>);

#[derive(Debug)]
struct Met {
    /// The event that was met by it last.
    last: EventId,
    /// How often in a row.
    times: u32,
    /// Whether others were before it.
    several: bool,
}

impl Silence {
    /// The endpoint has spoken for itself.
    pub(super) fn ends(&mut self, topic: &str) {
        self.0.remove(topic);
    }

    /// `event` was met by it. Whether the topic as a whole is away, as far as is known.
    pub(super) fn met(&mut self, topic: &str, event: EventId) -> bool {
        let met = self.0.entry(topic.into()).or_insert(Met { last: event, times: 0, several: false });
        if met.last == event {
            met.times = met.times.saturating_add(1);
        } else {
            *met = Met { last: event, times: 1, several: true };
        }
        met.several && !met.times.is_multiple_of(PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: EventId = EventId([1; 16]);
    const OTHER: EventId = EventId([2; 16]);

    #[test]
    fn a_topic_is_away_once_several_of_its_events_in_a_row_have_found_nobody() {
        let mut silence = Silence::default();
        assert!(!silence.met("t", ONE) && !silence.met("t", ONE), "it may be this event");
        assert!(silence.met("t", OTHER) && silence.met("t", ONE));
        assert!(!silence.met("u", OTHER), "another topic");
        silence.ends("u");
        assert!(silence.met("t", OTHER));
        silence.ends("t");
        assert!(!silence.met("t", OTHER));
    }

    #[test]
    fn an_event_that_alone_finds_nobody_again_and_again_is_refused_in_the_end() {
        let mut silence = Silence::default();
        silence.met("t", OTHER);
        let away: Vec<bool> = (0..PATIENCE + 1).map(|_| silence.met("t", ONE)).collect();
        assert_eq!(away, [true, true, true, true, false, true]);
    }
}
