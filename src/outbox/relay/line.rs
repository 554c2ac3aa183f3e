//! The events of one key that a relay has in hand, in order: what may be published, and what each result means.
//!
//! Only the head of the line is ever concluded:
//!
//! | the head | attempts | what becomes of it | what becomes of those behind it |
//! |---|---|---|---|
//! | confirmed | any | sent | the next one is the head |
//! | refused | some left | retried after a pause | wait behind it |
//! | refused | used up | parked | by the head's own rule: wait (hold) or go on (skip) |
//! | never taken, judged, or can't be published | any | parked | the same |
//! | not now, topic not available | not counted | again after a pause that grows | wait behind it |
//! | too early | not counted | the same | the next one is the head |
//! | broker not available | not counted | given back | given back |
//! | not published, line recalled | not counted | given back | given back |
//!
//! Those that wait or are given back are so whether or not the broker has confirmed them: they overtook the head,
//! so they are published once more after it. One that was committed late, and stands behind a head that lies behind
//! it, is early instead of waiting, where [`Late`] says so. Nothing is said about a line that ends before everything of it that
//! is under way has come back, or a late one could overtake what is published again.

use std::collections::VecDeque;
use std::time::Duration;

use super::backoff::Backoff;
use crate::broker::{Confirmed, Ordering, PublishError, Published};
use crate::outbox::event::{EventId, OnFailure, Outgoing};
use crate::outbox::store::{How, Late};

/// An event in hand.
#[derive(Debug)]
pub(super) struct InHand {
    pub(super) position: i64,
    pub(super) id: Option<EventId>,
    /// Which taking up.
    pub(super) serial: u64,
    pub(super) attempts: u32,
    /// Times that it could not be then.
    pub(super) deferrals: u32,
    pub(super) on_failure: OnFailure,
    /// Relays that died with it in their hands.
    pub(super) deaths: u32,
    /// Times that a person has had it published again.
    pub(super) redrives: u32,
    /// Where it goes. Empty where nobody can publish it.
    pub(super) topic: Box<str>,
    pub(super) bytes: usize,
    pub(super) state: InHandState,
}

/// How far an event in hand is.
#[derive(Debug)]
pub(super) enum InHandState {
    Unpublished(Box<Outgoing>),
    /// Nobody can or may publish it, and why.
    Unpublishable(Box<str>),
    UnderWay,
    Ended(Published),
}

/// An event that has left the line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) position: i64,
    pub(super) id: Option<EventId>,
    pub(super) bytes: usize,
    pub(super) deaths: u32,
    pub(super) how: How,
    /// Whether later ones of its key wait for it.
    pub(super) stops: bool,
}

/// When an event is tried again and when it is parked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) attempts: u32,
    pub(super) retry: Backoff,
    pub(super) later: Backoff,
    /// How long what was sent is kept.
    pub(super) keep: Duration,
    /// Between 0 and 1.
    pub(super) jitter: f64,
    /// What becomes of those that lie before the one that they stand behind.
    pub(super) late: Late,
}

/// How soon an early event is looked at again that another one of its key keeps back.
const BEHIND_PAUSE: Duration = Duration::from_secs(1);

/// What becomes of an event that others of its key keep back, and must not wait in their line.
pub(super) fn kept_back() -> How {
    How::Early { after: BEHIND_PAUSE, reason: "another one of its key is first".into() }
}

/// The longest reason that is stored.
const MAX_REASON_BYTES: usize = 500;

/// The events of one key in hand, in the order in which they were taken up.
#[derive(Debug, Default)]
pub(super) struct Line {
    events: VecDeque<InHand>,
    under_way: usize,
    /// Nothing more of it is published: it ends as soon as what is under way is back.
    closed: bool,
    /// The first event that will stop the line once it is the head: nothing behind it is published.
    stop: Option<i64>,
    /// Those that have left it for good while others stayed, the last ones.
    gone: VecDeque<Gone>,
    /// The highest position among all that ever were in [`Self::gone`].
    gone_to: i64,
}

/// An event that is over as far as its line knows. A database that comes back without its last commits hands it out
/// once more, behind those that came after it.
#[derive(Debug)]
struct Gone {
    position: i64,
    id: Option<EventId>,
    redrives: u32,
    how: How,
}

/// How many of those are remembered: what a database forgets is what was in hand at the same time.
const MOST_GONE: usize = 1024;

/// What is to become of an event once it is the head.
enum Fate {
    /// It is under way, or may still be published.
    Open,
    /// It leaves, and the next one is the head.
    Leaves(How),
    /// The line ends here. The others wait behind it.
    Stops(How),
    /// The line ends here, and all is given back.
    GivenBack,
}

impl Line {
    pub(super) fn push(&mut self, event: InHand, rules: &Rules) {
        self.note(&event, rules);
        self.events.push_back(event);
    }

    fn note(&mut self, event: &InHand, rules: &Rules) {
        if self.stop.is_none() && matches!(fate(event, rules), Fate::Stops(_) | Fate::GivenBack) {
            self.stop = Some(event.position);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Gives back what has not been published, once what is under way is back.
    pub(super) fn recall(&mut self) {
        self.closed = true;
    }

    /// The topic of the event at `position`, if it is its turn to be published.
    pub(super) fn next_topic(&self, position: i64, ordering: Ordering) -> Option<&str> {
        let index = self.index(position)?;
        let is_next = match ordering {
            Ordering::ByCall => true,
            Ordering::OneByOne => index == 0,
        };
        let is_stopped = self.stop.and_then(|stop| self.index(stop)).is_some_and(|stop| stop < index);
        if self.closed || is_stopped || !is_next {
            return None;
        }
        let event = self.events.get(index)?;
        matches!(event.state, InHandState::Unpublished(_)).then_some(&*event.topic)
    }

    /// Takes out the event at `position` for publishing, if it is its turn.
    pub(super) fn publish(&mut self, position: i64, ordering: Ordering) -> Option<Outgoing> {
        self.next_topic(position, ordering)?;
        let index = self.index(position)?;
        let state = &mut self.events.get_mut(index)?.state;
        match std::mem::replace(state, InHandState::UnderWay) {
            InHandState::Unpublished(outgoing) => {
                self.under_way += 1;
                Some(*outgoing)
            }
            other @ (InHandState::Unpublishable(_) | InHandState::UnderWay | InHandState::Ended(_)) => {
                *state = other;
                None
            }
        }
    }

    /// The event at `position` is not published, since it would fail so.
    pub(super) fn put_off(&mut self, position: i64, failure: PublishError, rules: &Rules) {
        let Some(index) = self.index(position) else { return };
        let Some(mut event) = self.events.remove(index) else { return };
        if matches!(event.state, InHandState::Unpublished(_)) {
            event.state = InHandState::Ended(Err(failure));
            self.note(&event, rules);
        }
        self.events.insert(index, event);
    }

    /// The event at `position`, if it still is in hand.
    pub(super) fn get(&self, position: i64) -> Option<&InHand> {
        self.events.get(self.index(position)?)
    }

    /// The positions of all of it.
    pub(super) fn positions(&self) -> impl Iterator<Item = i64> + '_ {
        self.events.iter().map(|event| event.position)
    }

    /// The head, if it waits to be published.
    pub(super) fn unpublished_head(&self) -> Option<(i64, u64)> {
        let head = self.events.front()?;
        matches!(head.state, InHandState::Unpublished(_)).then_some((head.position, head.serial))
    }

    /// A publish has ended. `false` if the line knows nothing of it.
    pub(super) fn ended(&mut self, position: i64, result: Published, rules: &Rules) -> bool {
        let Some(index) = self.index(position) else { return false };
        let Some(mut event) = self.events.remove(index) else { return false };
        let is_under_way = matches!(event.state, InHandState::UnderWay);
        if is_under_way {
            event.state = InHandState::Ended(result);
            self.under_way -= 1;
            self.note(&event, rules);
        }
        self.events.insert(index, event);
        is_under_way
    }

    /// Takes out everything that has an end.
    pub(super) fn settle(&mut self, rules: &Rules) -> Vec<Left> {
        let mut left = Vec::new();
        while let Some(head) = self.events.front() {
            let is_unpublished = matches!(head.state, InHandState::Unpublished(_));
            let (how, behind) = match fate(head, rules) {
                Fate::Leaves(how) => {
                    self.remember(&how);
                    left.extend(self.pop(how, false));
                    continue;
                }
                Fate::Stops(how) => (how, How::Waiting),
                Fate::GivenBack => (How::GivenBack, How::GivenBack),
                Fate::Open if self.closed && is_unpublished => (How::GivenBack, How::GivenBack),
                Fate::Open => break,
            };
            self.closed = true;
            if self.under_way == 0 {
                let head = head.position;
                left.extend(self.pop(how, behind == How::Waiting));
                while let Some(next) = self.events.front() {
                    let is_late = behind == How::Waiting && rules.late == Late::Waits && next.position < head;
                    left.extend(self.pop(if is_late { kept_back() } else { behind.clone() }, false));
                }
            }
            break;
        }
        left
    }

    /// Takes out everything, whatever is under way: what is not known to have an end is given back.
    pub(super) fn abandon(mut self, rules: &Rules) -> Vec<Left> {
        self.recall();
        self.under_way = 0;
        let mut left = self.settle(rules);
        left.extend(std::iter::from_fn(|| self.pop(How::GivenBack, false)));
        left
    }

    /// The head is about to leave.
    fn remember(&mut self, how: &How) {
        let is_over = match how {
            How::Sent { .. } | How::Parked { .. } => true,
            // It comes again.
            How::Early { .. } | How::Retry { .. } | How::Later { .. } | How::GivenBack | How::Waiting => false,
        };
        let Some(InHand { position, id, redrives, .. }) = self.events.front().filter(|_| is_over) else { return };
        if self.gone.len() == MOST_GONE {
            self.gone.pop_front();
        }
        self.gone_to = self.gone_to.max(*position);
        self.gone.push_back(Gone { position: *position, id: *id, redrives: *redrives, how: how.clone() });
    }

    /// What became of an event that has left this line, unless a person has had it published again since.
    pub(super) fn became(&self, position: i64, id: Option<EventId>, redrives: u32) -> Option<How> {
        // Positions mostly grow.
        if position > self.gone_to {
            return None;
        }
        let is_it = |gone: &&Gone| gone.position == position && gone.id == id && gone.redrives == redrives;
        let gone = self.gone.iter().find(is_it)?;
        Some(gone.how.clone())
    }

    fn pop(&mut self, how: How, stops: bool) -> Option<Left> {
        let InHand { position, id, bytes, deaths, .. } = self.events.pop_front()?;
        Some(Left { position, id, bytes, deaths, how, stops })
    }

    /// Results come mostly in order, so it is near the front.
    fn index(&self, position: i64) -> Option<usize> {
        self.events.iter().position(|event| event.position == position)
    }
}

fn fate(event: &InHand, rules: &Rules) -> Fate {
    let how = match &event.state {
        InHandState::Unpublished(_) | InHandState::UnderWay => return Fate::Open,
        InHandState::Ended(Ok(Confirmed { result, frees })) => {
            return Fate::Leaves(How::Sent { keep: rules.keep, result: *result, frees: *frees });
        }
        InHandState::Ended(Err(PublishError::Unavailable(_))) => return Fate::GivenBack,
        InHandState::Ended(Err(error @ PublishError::Refused(_))) if event.attempts < rules.attempts => {
            return Fate::Stops(How::Retry {
                after: rules.retry.pause(event.attempts, rules.jitter),
                reason: text(error.to_string()),
            });
        }
        InHandState::Ended(Err(error @ (PublishError::Later(_) | PublishError::TopicUnavailable(_)))) => {
            return Fate::Stops(How::Later { after: later(event, rules), reason: text(error.to_string()) });
        }
        InHandState::Ended(Err(error @ PublishError::Early(_))) => {
            return Fate::Leaves(How::Early { after: later(event, rules), reason: text(error.to_string()) });
        }
        InHandState::Ended(Err(error @ (PublishError::Refused(_) | PublishError::Never(_)))) => {
            How::Parked { reason: text(error.to_string()), result: None }
        }
        InHandState::Ended(Err(PublishError::Judged { result, reason })) => {
            How::Parked { reason: text(reason.clone()), result: Some(result) }
        }
        InHandState::Unpublishable(reason) => How::Parked { reason: reason.clone(), result: None },
    };
    match event.on_failure {
        OnFailure::Hold => Fate::Stops(how),
        OnFailure::Skip => Fate::Leaves(how),
    }
}

fn later(event: &InHand, rules: &Rules) -> Duration {
    rules.later.pause(event.deferrals.saturating_add(1), rules.jitter)
}

/// What a broker says is stored for people, but not at any length, nor with what a database can't store.
pub(super) fn text(mut reason: String) -> Box<str> {
    reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
    reason.retain(|char| char != '\0');
    reason.into()
}

#[cfg(test)]
mod tests;
