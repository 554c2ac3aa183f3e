//! Topics that take nothing while their broker is there: a pure state machine beside [`health`](super::health).
//!
//! | from | by | to |
//! |---|---|---|
//! | well | an event finds its topic unavailable | resting, for a pause |
//! | resting | another one of it comes | resting; that one is put off uncalled, as one that can't be now |
//! | resting | the pause is over | trying: the next one of it is called |
//! | trying | another one of it comes | put off |
//! | trying | the one that is called finds it unavailable | resting, for twice as long |
//! | trying | no word in as long a pause again | trying, with one more |
//! | any | the broker takes or refuses one of it | well |
//!
//! So a topic costs the others the time of one call now and then, and not the relay's window. Who is put off is out of
//! their way; but a whole backlog is not walked through for a topic that may be all there is: after [`WALK`] of them,
//! nothing is taken up until the topic is tried again, or an event of another topic has been answered.

use std::collections::HashMap;
use std::time::Duration;

use super::backoff::Backoff;
use crate::clock::Instant;

/// How many events are put off for a topic until it is tried again: as many as one turn concludes.
const WALK: usize = 4096;

/// What is known of a queue's topics.
#[derive(Debug)]
pub(super) struct Topics {
    backoff: Backoff,
    /// Those that are not well.
    ill: HashMap<Box<str>, Ill>,
    /// Until when nothing is taken up, since all that comes is put off.
    walked_until: Option<Instant>,
    /// Whether there is something to tell.
    is_news: bool,
}

#[derive(Debug)]
struct Ill {
    /// Tries in a row that were in vain.
    failures: u32,
    pause: Duration,
    until: Instant,
    /// Whether one is called.
    is_tried: bool,
    /// How many were put off since it was tried.
    put_off: usize,
    reason: Box<str>,
    /// The same, for people.
    trouble: Box<str>,
}

/// What to do with an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// Its topic is well, or is tried with it.
    Open,
    /// Its topic rests, and why.
    Later(Box<str>),
    /// The same, and too many were put off.
    Back,
}

impl Topics {
    /// All are believed to be well.
    pub(super) fn new(backoff: Backoff) -> Self {
        Self { backoff, ill: HashMap::new(), walked_until: None, is_news: false }
    }

    /// Whether all are well.
    pub(super) fn are_well(&self) -> bool {
        self.ill.is_empty()
    }

    /// An event of `topic` is about to be called.
    pub(super) fn way(&mut self, topic: &str, now: Instant) -> Way {
        let Some(ill) = self.ill.get_mut(topic) else { return Way::Open };
        if ill.until <= now {
            ill.until = now + ill.pause;
            ill.is_tried = true;
            ill.put_off = 0;
            return Way::Open;
        }
        if ill.put_off < WALK {
            ill.put_off += 1;
            return Way::Later(ill.reason.clone());
        }
        self.walked_until = Some(self.walked_until.map_or(ill.until, |until| until.min(ill.until)));
        Way::Back
    }

    /// The broker said something about an event of `topic`, good or bad.
    pub(super) fn answered(&mut self, topic: &str) {
        if self.ill.is_empty() {
            return;
        }
        self.is_news |= self.ill.remove(topic).is_some();
        // There are others behind whom it is worth to look.
        self.ill.values_mut().for_each(|ill| ill.put_off = 0);
        self.walked_until = None;
    }

    /// An event of `topic` found that it takes nothing.
    pub(super) fn unavailable(&mut self, topic: &str, reason: Box<str>, now: Instant, jitter: f64) {
        let failures = match self.ill.get(topic) {
            Some(ill) if ill.is_tried => ill.failures.saturating_add(1),
            // It left before.
            Some(_) => return,
            None => 1,
        };
        let pause = self.backoff.pause(failures, jitter);
        let trouble = format!("topic {topic}: {reason}").into();
        let ill = Ill { failures, pause, until: now + pause, is_tried: false, put_off: 0, reason, trouble };
        self.is_news |= self.ill.insert(topic.into(), ill).is_none();
    }

    /// Whether it is of no use to take anything up.
    pub(super) fn are_walked_through(&mut self, now: Instant) -> bool {
        self.walked_until.take_if(|until| *until <= now);
        self.walked_until.is_some()
    }

    /// When that is over.
    pub(super) fn walked_until(&self) -> Option<Instant> {
        self.walked_until
    }

    /// One that is ill, and why. The first by name, so that people see the same one each time.
    pub(super) fn trouble(&self) -> Option<&str> {
        let first = self.ill.iter().min_by(|(one, _), (other, _)| one.cmp(other));
        first.map(|(_, ill)| &*ill.trouble)
    }

    /// Whether [`Self::trouble`] may have changed since this was asked.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const OUTAGE: Backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_millis(400) };

    fn ill(topics: &mut Topics, now: Instant) {
        topics.unavailable("a", "no leader".into(), now, 1.0);
    }

    #[test]
    fn one_event_at_a_time_tries_a_topic_that_is_ill_and_others_go_on() {
        let mut now = clock::now();
        let mut topics = Topics::new(OUTAGE);
        ill(&mut topics, now);
        ill(&mut topics, now);
        for pause in [100, 200, 400, 400] {
            let later = Way::Later("no leader".into());
            now += Duration::from_millis(pause - 1);
            assert_eq!((topics.way("a", now), topics.way("b", now)), (later.clone(), Way::Open), "{pause}");
            now += Duration::from_millis(1);
            assert_eq!((topics.way("a", now), topics.way("a", now)), (Way::Open, later), "{pause}");
            ill(&mut topics, now);
        }
        assert_eq!(topics.trouble(), Some("topic a: no leader"));
        topics.answered("b");
        assert!(matches!(topics.way("a", now), Way::Later(_)));
        topics.answered("a");
        assert_eq!((topics.way("a", now), topics.trouble()), (Way::Open, None));
    }

    #[test]
    fn a_try_that_never_comes_back_is_followed_by_another() {
        let mut now = clock::now();
        let mut topics = Topics::new(OUTAGE);
        ill(&mut topics, now);
        for _ in 0..3 {
            now += Duration::from_millis(100);
            assert_eq!(topics.way("a", now), Way::Open);
            assert!(matches!(topics.way("a", now), Way::Later(_)));
        }
    }

    #[test]
    fn a_backlog_of_one_topic_is_not_walked_through_in_vain() {
        let now = clock::now();
        let mut topics = Topics::new(OUTAGE);
        ill(&mut topics, now);
        let put_off = |topics: &mut Topics| {
            let ways = std::iter::from_fn(|| Some(topics.way("a", now)).filter(|way| *way != Way::Back));
            ways.take(2 * WALK).count()
        };
        assert_eq!(put_off(&mut topics), WALK);
        assert!(topics.are_walked_through(now));
        // Somebody else's events lie among them.
        topics.answered("b");
        assert!(!topics.are_walked_through(now));
        assert_eq!(put_off(&mut topics), WALK);
        let later = topics.walked_until().unwrap();
        assert!(!topics.are_walked_through(later));
        assert_eq!(topics.way("a", later), Way::Open);
    }
}
