//! What bounds and times a relay.

use std::time::Duration;

use super::backoff::Backoff;
use crate::outbox::store::{Late, Parking};

/// How a relay works. One relay serves one queue in one process.
#[derive(Debug, Clone)]
pub struct RelayOptions {
    /// The most events in hand: taken up and not yet concluded. Above some hundred, a commit's cost no longer
    /// matters; with more, more is published again after a crash.
    pub window_events: usize,
    /// The most bytes of events in hand. A single larger event still passes, alone.
    pub window_bytes: usize,
    /// The most events handed to a publisher that orders [one by one](crate::broker::Ordering::OneByOne): each is
    /// a call of its own to somebody's server.
    pub calls: usize,
    /// How long a lane counts as held after its last renewal was begun.
    pub lease: Duration,
    /// How often leases are renewed. A third of the lease survives two failed renewals.
    pub renew: Duration,
    /// How often to look for events that nobody has told of: of a process that died after its commit, or that has
    /// no way to tell. A look at an empty outbox is one cheap query.
    pub poll: Duration,
    /// How long conclusions may gather while other events still are under way. Shorter than a disk's flush: more
    /// would only make more events come twice after a crash.
    pub linger: Duration,
    /// Refusals until an event is parked.
    pub attempts: u32,
    /// Deaths of a relay with an event in its hands until the event is parked. One death says little about an
    /// event, since whatever was in hand is suspected.
    pub crash_attempts: u32,
    /// The pauses between attempts of a refused event. With the default number of attempts they last half a day to a
    /// day: a bad deployment in the evening is mended before anything waits for a person.
    pub retry: Backoff,
    /// The pauses of an event that can't be [now](crate::broker::PublishError::Later). They double each time, so
    /// that what is over in a moment is found soon, and what waits for a person costs little.
    pub later: Backoff,
    /// The pauses between probes of a broker that is not there.
    pub outage: Backoff,
    /// How long sent events are kept, for people and for a broker that loses what it had confirmed.
    pub keep_sent: Duration,
    /// What is done besides for each event that is parked.
    pub parking: Parking,
    /// What becomes of events that were committed after one that lies behind them.
    pub late: Late,
    /// How long a call of the publisher may take. Publishers promise to end; this bounds what a bug of one costs.
    pub publish_limit: Duration,
    /// How long a stop waits for events under way.
    pub drain: Duration,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            window_events: 1024,
            window_bytes: 16 << 20,
            calls: 64,
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(5),
            poll: Duration::from_secs(1),
            linger: Duration::from_millis(5),
            attempts: 20,
            crash_attempts: 5,
            retry: Backoff { first: Duration::from_secs(1), max: Duration::from_secs(4 * 3600) },
            later: Backoff { first: Duration::from_millis(250), max: Duration::from_secs(30) },
            outage: Backoff { first: Duration::from_millis(100), max: Duration::from_secs(10) },
            keep_sent: Duration::from_secs(24 * 3600),
            parking: Parking::default(),
            late: Late::default(),
            publish_limit: Duration::from_secs(60),
            drain: Duration::from_secs(20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_a_refused_event_is_tried_for_about_a_day() {
        let RelayOptions { attempts, retry, .. } = RelayOptions::default();
        let lasts = |jitter| (1..attempts).map(|failures| retry.pause(failures, jitter)).sum::<Duration>();
        let hour = Duration::from_secs(3600);
        assert!(lasts(0.0) >= 12 * hour, "{:?}", lasts(0.0));
        assert!((20 * hour..=30 * hour).contains(&lasts(1.0)), "{:?}", lasts(1.0));
    }
}
