//! Whether it is an event that the endpoint does not take, or every one.
//!
//! A gateway in front of an endpoint that is down answers for it: 502, 503, 504; one that is overloaded says 429, or
//! nothing. Where that is all that several events in a row have heard, nothing is wrong with any of them. One that
//! hears nothing else while others are taken is refused: it may be what kills the endpoint.

use crate::outbox::event::EventId;

/// How often in a row the same event may find nobody until it is refused once: the relay tries a broker that is away
/// with one event, and were that the one that kills the endpoint, nothing would ever be published again.
const PATIENCE: u32 = 5;

/// What has been heard since the endpoint last spoke for itself.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// The event that was met by it last, and how often in a row.
    last: Option<(EventId, u32)>,
    /// Whether others were before it.
    several: bool,
}

impl Silence {
    /// The endpoint has spoken for itself.
    pub(super) fn ends(&mut self) {
        *self = Self::default();
    }

    /// `event` was met by it. Whether the endpoint as a whole is away, as far as is known.
    pub(super) fn met(&mut self, event: EventId) -> bool {
        let times = match self.last {
            Some((last, times)) if last == event => times.saturating_add(1),
            Some(_) => {
                self.several = true;
                1
            }
            None => 1,
        };
        self.last = Some((event, times));
        self.several && times % PATIENCE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: EventId = EventId([1; 16]);
    const OTHER: EventId = EventId([2; 16]);

    #[test]
    fn an_endpoint_is_away_once_several_events_in_a_row_have_found_nobody() {
        let mut silence = Silence::default();
        assert!(!silence.met(ONE) && !silence.met(ONE), "it may be this event");
        assert!(silence.met(OTHER) && silence.met(ONE));
        silence.ends();
        assert!(!silence.met(OTHER));
    }

    #[test]
    fn an_event_that_alone_finds_nobody_again_and_again_is_refused_in_the_end() {
        let mut silence = Silence::default();
        silence.met(OTHER);
        let away: Vec<bool> = (0..PATIENCE + 1).map(|_| silence.met(ONE)).collect();
        assert_eq!(away, [true, true, true, true, false, true]);
    }
}
