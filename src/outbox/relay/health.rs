//! Whether the broker is worth calling, and how many events at once: a pure state machine.
//!
//! | from | by | to |
//! |---|---|---|
//! | well | an event finds it unavailable | away, for a pause |
//! | away | more events find it unavailable | away: they left before |
//! | away | the pause is over | trying, with one event |
//! | trying | that event finds it unavailable | away, for twice as long |
//! | trying | the broker takes or refuses an event | trying, with one event more |
//! | trying | as many as the window holds | well |
//!
//! So an outage costs no event an attempt, and what gathered meanwhile comes back as a slope, not as a cliff.

use std::time::Duration;

use super::backoff::Backoff;
use crate::clock::Instant;

/// Events in a row that the broker must answer until the pauses of an outage start from the first one again: one
/// that takes a single event and dies of the next is still ill.
const CURED: usize = 64;

/// How soon another reason for an outage that has been told is told as well: reasons may take turns.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// What is known of the broker.
#[derive(Debug)]
pub(super) struct Health {
    backoff: Backoff,
    full: usize,
    /// Until when nothing is tried.
    away_until: Option<Instant>,
    /// Outages in a row.
    outages: u32,
    /// How many events may be in hand.
    room: usize,
    /// Why it takes nothing, as it told the last event that tried.
    trouble: Option<Box<str>>,
    /// Whether that has changed since somebody asked.
    is_news: bool,
    /// What was told last about it, and when.
    told: Option<(Box<str>, Instant)>,
}

/// What a result changed; told once per outage each, and again where there is another reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// From now on nothing is published.
    Away,
    /// The broker answers again.
    Back,
}

impl Health {
    /// A broker that is believed to be well, and takes up to `full` events at once.
    pub(super) fn new(backoff: Backoff, full: usize) -> Self {
        Self { backoff, full, away_until: None, outages: 0, room: full, trouble: None, is_news: false, told: None }
    }

    /// How many events may be in hand now.
    pub(super) fn room(&self, now: Instant) -> usize {
        if self.away_until.is_some_and(|until| now < until) { 0 } else { self.room }
    }

    /// Whether nothing is to be published. Lasts until [`Self::tries`] says that something is taken up again.
    pub(super) fn is_away(&self) -> bool {
        self.away_until.is_some()
    }

    /// When to try again.
    pub(super) fn away_until(&self) -> Option<Instant> {
        self.away_until
    }

    /// Events are about to be taken up: no longer away.
    pub(super) fn tries(&mut self) {
        self.away_until = None;
    }

    /// The broker said something about an event, good or bad: it is there.
    pub(super) fn answered(&mut self) -> Option<Change> {
        if self.away_until.is_some() {
            // An answer to what left before the outage.
            return None;
        }
        self.is_news |= self.trouble.take().is_some();
        let back = self.outages > 0 && self.room == 1;
        if self.room < self.full {
            self.room += 1;
        }
        if self.room > CURED.min(self.full - 1) {
            self.outages = 0;
        }
        back.then_some(Change::Back)
    }

    /// Why the broker takes nothing, if it does not.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Whether [`Self::trouble`] has changed since this was asked.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    /// An event found nobody, for this reason.
    pub(super) fn unavailable(&mut self, reason: Box<str>, now: Instant, jitter: f64) -> Option<Change> {
        if self.away_until.is_some() {
            return None;
        }
        let goes_on = self.outages > 0 && self.room == 1;
        let is_told = self.told.as_ref().is_some_and(|(told, at)| *told == reason || now < *at + TELL_AGAIN);
        self.outages = self.outages.saturating_add(1);
        self.away_until = Some(now + self.backoff.pause(self.outages, jitter));
        self.room = 1;
        self.is_news |= self.trouble.as_ref() != Some(&reason);
        let tells = !(goes_on && is_told);
        if tells {
            self.told = Some((reason.clone(), now));
        }
        self.trouble = Some(reason);
        tells.then_some(Change::Away)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const OUTAGE: Backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_millis(400) };

    fn away(health: &mut Health, now: Instant) -> Option<Change> {
        health.unavailable("gone".into(), now, 1.0)
    }

    #[test]
    fn the_reason_is_known_until_it_is_over_and_another_one_is_told_once_a_minute() {
        let mut now = clock::now();
        let mut health = Health::new(OUTAGE, 8);
        let mut tried = |reason: &str, after: u64| {
            now += Duration::from_secs(after);
            health.tries();
            let told = health.unavailable(reason.into(), now, 1.0);
            health.unavailable("an echo".into(), now, 1.0);
            assert_eq!(health.trouble(), Some(reason));
            (told, health.take_news())
        };
        assert_eq!(tried("gone", 0), (Some(Change::Away), true));
        assert_eq!(tried("gone", 61), (None, false));
        assert_eq!(tried("no such user", 1), (Some(Change::Away), true));
        assert_eq!(tried("gone", 1), (None, true), "but not each time");
        assert_eq!(tried("gone", 58), (None, false));
        assert_eq!(tried("gone", 1), (Some(Change::Away), false));
        health.tries();
        assert_eq!((health.answered(), health.trouble()), (Some(Change::Back), None));
        assert!(health.take_news());
        assert_eq!((health.answered(), health.take_news()), (None, false));
    }

    #[test]
    fn an_outage_stops_everything_and_one_event_tries() {
        let now = clock::now();
        let mut health = Health::new(OUTAGE, 8);
        assert_eq!(away(&mut health, now), Some(Change::Away));
        assert_eq!(away(&mut health, now), None, "what left before tells nothing new");
        assert_eq!(health.answered(), None);
        assert_eq!((health.room(now), health.is_away()), (0, true));
        let later = now + Duration::from_millis(100);
        assert_eq!((health.room(later), health.is_away()), (1, true));
        health.tries();
        assert_eq!((health.room(later), health.is_away()), (1, false));
    }

    #[test]
    fn pauses_double_while_it_stays_away_and_it_is_told_once() {
        let mut now = clock::now();
        let mut health = Health::new(OUTAGE, 8);
        for (pause, told) in [(100, Some(Change::Away)), (200, None), (400, None), (400, None)] {
            assert_eq!(away(&mut health, now), told);
            assert_eq!(health.room(now + Duration::from_millis(pause - 1)), 0, "{pause}");
            now += Duration::from_millis(pause);
            assert_eq!(health.room(now), 1, "{pause}");
            health.tries();
        }
        assert_eq!(health.answered(), Some(Change::Back));
        assert_eq!(health.answered(), None);
    }

    #[test]
    fn what_gathered_comes_back_as_a_slope() {
        let now = clock::now();
        let mut health = Health::new(OUTAGE, 4);
        away(&mut health, now);
        health.tries();
        let rooms: Vec<usize> = (0..5).map(|_| (health.answered(), health.room(now)).1).collect();
        assert_eq!(rooms, [2, 3, 4, 4, 4]);
    }

    #[test]
    fn pauses_start_anew_only_once_it_is_cured() {
        let now = clock::now();
        for (answers, pause) in [(1, 200), (CURED, 100)] {
            let mut health = Health::new(OUTAGE, 1024);
            away(&mut health, now);
            health.tries();
            for _ in 0..answers {
                health.answered();
            }
            away(&mut health, now);
            assert_eq!(health.away_until(), Some(now + Duration::from_millis(pause)), "after {answers} answers");
        }
    }
}
