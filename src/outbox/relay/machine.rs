//! The relay's decisions, without I/O: time, randomness and every answer come in as arguments.
//!
//! What each answer means:
//!
//! | who | says | what happens |
//! |---|---|---|
//! | publisher | anything about an event | the table of [`line`](super::line), when the event is the head of its key |
//! | publisher | not now, too early | besides: it comes again after its pause, and the broker counts as well |
//! | publisher | topic not available | the same, and the table of [`topics`](super::topics) |
//! | publisher | not available | besides: the table of [`health`](super::health); all that is not published is given back |
//! | outbox | turned | what it took up is published, in order within each key, unless an earlier one of its key has failed meanwhile |
//! | outbox | turned, an event that came early, of a key that has others in hand or has just stopped | it stays early for a moment more |
//! | outbox | turned, an event with one death | nothing more of its lane is taken up until it is concluded |
//! | outbox | turned, an event with two deaths or more beside others | it is given back; nothing is taken up until nothing is in hand, and then that one alone |
//! | outbox | turned, an event with two deaths or more alone | nothing is taken up until it is on record what became of it |
//! | outbox | turned, an event with too many deaths | it is parked unpublished |
//! | outbox | turned, an event that is in hand (the database has crashed, and forgotten that) | nothing: it is |
//! | outbox | turned, an event that has left the line of its key for good, of which others still are in hand (the same) | what became of it is concluded once more |
//! | outbox | turned, an event at the place of another one that is in hand (a failover has lost that one) | it is given back, and taken up once the other one is over |
//! | outbox | turned, lanes are lost | all that is in hand of them is forgotten; the lease is renewed at once |
//! | outbox | turn not written | the same conclusions again, after a pause; nothing was taken up |
//! | outbox | turn unclear | the same turn again, until it tells what it took up |
//! | outbox | leased, a lane as before | it goes on |
//! | outbox | leased, a lane is missing or has another epoch | all that is in hand of it is forgotten: it is somebody else's |
//! | outbox | leased, more than the share | the lanes above it take nothing up any more, and are released when nothing is in hand |
//! | outbox | no answer to a renewal | nothing, until the lease is over by this process's clock, counted from before the last renewal was begun: then nothing is published or taken up until one succeeds |
//! | owner | stop | nothing is taken up any more, what is not published is given back, what is under way is awaited |
//! | owner | give up | what is under way is given back as well; then every lane is let go |

mod leases;
mod take_up;
mod turns;

pub use leases::LaneCall;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::health::{Change, Health};
use super::lane::{HeldLane, Stage};
use super::line::{Left, Rules, text};
use super::options::RelayOptions;
use super::topics::{Topics, Way};
use crate::broker::{Ordering, PublishError, Published};
use crate::clock::Instant;
use crate::outbox::event::Outgoing;
use crate::outbox::store::{Lane, MAX_TURN, RelayId};
use leases::Leases;
use turns::Turns;

/// An event that two relays have died of waits until nothing is in hand.
#[derive(Debug)]
struct Quarantine {
    lane: Lane,
    /// Whether it is on record that it was given back. Until then nothing is published: it would be counted as one
    /// more death of it, should that be deadly too.
    recorded: bool,
}

/// Names an event in hand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The lane under which it was taken up.
    pub lane: Lane,
    /// Its place in the outbox.
    pub position: i64,
    /// What it is ordered by.
    pub key: Arc<str>,
    /// Which taking up: the same event may have been given back and taken up again since.
    serial: u64,
}

/// What one relay has in hand, and what it does next.
#[derive(Debug)]
pub struct Machine {
    options: RelayOptions,
    ordering: Ordering,
    health: Health,
    topics: Topics,
    leases: Leases,
    lanes: BTreeMap<u32, HeldLane>,
    turns: Turns,
    /// Events to be handed to the publisher, in order within each lane.
    calls: VecDeque<Ticket>,
    /// Calls of the publisher that have not ended, those of lost lanes included.
    under_way: usize,
    in_hand: usize,
    in_hand_bytes: usize,
    /// Of them, those that two relays have died of: nothing is taken up beside one.
    killers: usize,
    /// The lane of such an event that came beside others: it comes again once nothing is in hand.
    quarantine: Option<Quarantine>,
    /// Events taken up so far.
    serial: u64,
    /// When retries of which lanes are due.
    retries: BTreeSet<(Instant, u32)>,
    poll_at: Instant,
    stopping: bool,
}

impl Machine {
    /// A relay of `queue` that holds nothing yet.
    #[must_use]
    pub fn new(queue: Box<str>, relay: RelayId, mut options: RelayOptions, ordering: Ordering, now: Instant) -> Self {
        // A turn takes up no more, and concludes no more.
        options.window_events = options.window_events.clamp(1, MAX_TURN);
        Self {
            health: Health::new(options.outage, options.window_events),
            topics: Topics::new(options.outage),
            ordering,
            leases: Leases::new(now),
            lanes: BTreeMap::new(),
            turns: Turns::new(queue, relay),
            calls: VecDeque::new(),
            under_way: 0,
            in_hand: 0,
            in_hand_bytes: 0,
            killers: 0,
            quarantine: None,
            serial: 0,
            retries: BTreeSet::new(),
            poll_at: now + options.poll,
            stopping: false,
            options,
        }
    }

    /// Somebody has told of new events, or of lanes that are free.
    pub fn woken(&mut self) {
        self.lanes.values_mut().for_each(|lane| lane.more = true);
        if self.has_neighbours() {
            self.leases.renew_soon(self.options.renew);
        }
    }

    /// Does what time alone brings. Call it before asking for what is next.
    pub fn tick(&mut self, now: Instant) {
        if self.poll_at <= now {
            self.poll_at = now + self.options.poll;
            self.lanes.values_mut().for_each(HeldLane::look_anew);
        }
        while let Some(&(at, number)) = self.retries.first()
            && at <= now
        {
            self.retries.pop_first();
            if let Some(lane) = self.lanes.get_mut(&number) {
                lane.retries = true;
            }
        }
    }

    /// The next event to hand to the publisher, if any.
    pub fn next_call(&mut self, now: Instant) -> Option<(Ticket, Outgoing)> {
        let waits = self.quarantine.as_ref().is_some_and(|quarantine| !quarantine.recorded);
        if !self.is_leased(now) || self.health.is_away() || !self.has_calls_left() || waits {
            return None;
        }
        while let Some(ticket) = self.calls.pop_front() {
            // As `lane`, of which the borrow checker knows no parts.
            let line = self.lanes.get_mut(&ticket.lane.number).filter(|lane| lane.epoch == ticket.lane.epoch);
            let line = line.and_then(|lane| lane.line(&ticket.key));
            let line = line.filter(|line| line.get(ticket.position).is_some_and(|event| event.serial == ticket.serial));
            let Some(line) = line else { continue };
            let Some(topic) = line.next_topic(ticket.position, self.ordering) else { continue };
            let failure = match self.topics.way(topic, now) {
                Way::Open => {
                    let Some(outgoing) = line.publish(ticket.position, self.ordering) else { continue };
                    self.under_way += 1;
                    return Some((ticket, outgoing));
                }
                Way::Later(reason) => PublishError::TopicUnavailable(reason.into()),
                Way::Back => PublishError::Unavailable("its topic rests".to_owned()),
            };
            self.put_off(&ticket, failure, now);
        }
        None
    }

    /// An event is not published, since it would fail so.
    fn put_off(&mut self, ticket: &Ticket, failure: PublishError, now: Instant) {
        /// The golden ratio's part: places in a row are spread as evenly as can be.
        const SPREAD: f64 = 0.618_033_988_749_895;
        let rules = self.rules((ticket.serial as f64 * SPREAD).fract());
        if let Some(line) = self.lane(ticket.lane).and_then(|lane| lane.line(&ticket.key)) {
            line.put_off(ticket.position, failure, &rules);
            self.settle(ticket.lane, &ticket.key, &rules, now);
        }
    }

    /// The lane, unless it was lost since.
    fn lane(&mut self, lane: Lane) -> Option<&mut HeldLane> {
        self.lanes.get_mut(&lane.number).filter(|held| held.epoch == lane.epoch)
    }

    fn has_calls_left(&self) -> bool {
        match self.ordering {
            Ordering::ByCall => true,
            Ordering::OneByOne => self.under_way < self.options.calls,
        }
    }

    /// A call has ended. `jitter`, between 0 and 1, spreads what is tried again.
    pub fn published(&mut self, ticket: &Ticket, result: Published, now: Instant, jitter: f64) -> Option<Change> {
        self.under_way = self.under_way.saturating_sub(1);
        let change = match &result {
            Err(PublishError::Unavailable(reason)) => self.health.unavailable(text(reason.clone()), now, jitter),
            // Whatever it is, it is about this event.
            Ok(_) | Err(_) => self.health.answered(),
        };
        self.heard_of_topic(ticket, &result, now, jitter);
        if self.health.take_news() | self.topics.take_news() {
            // People see it with the lease.
            self.leases.renew_soon(self.options.renew);
        }
        let rules = self.rules(jitter);
        let line = self.lane(ticket.lane).and_then(|lane| lane.line(&ticket.key));
        let line = line.filter(|line| line.get(ticket.position).is_some_and(|event| event.serial == ticket.serial));
        if line.is_some_and(|line| line.ended(ticket.position, result, &rules)) {
            self.settle(ticket.lane, &ticket.key, &rules, now);
        }
        if self.health.is_away() {
            self.recall_all(now);
        }
        change
    }

    /// What a result says about its event's topic.
    fn heard_of_topic(&mut self, ticket: &Ticket, result: &Published, now: Instant, jitter: f64) {
        let reason = match result {
            Err(PublishError::TopicUnavailable(reason)) => Some(reason),
            // Nothing about it.
            Err(PublishError::Unavailable(_)) => return,
            Ok(_) | Err(_) if self.topics.are_well() => return,
            Ok(_) | Err(_) => None,
        };
        let lane = self.lanes.get_mut(&ticket.lane.number).filter(|lane| lane.epoch == ticket.lane.epoch);
        let event = lane.and_then(|lane| lane.line(&ticket.key)?.get(ticket.position).map(|event| &*event.topic));
        match (event, reason) {
            (Some(topic), Some(reason)) => self.topics.unavailable(topic, text(reason.clone()), now, jitter),
            (Some(topic), None) => self.topics.answered(topic),
            (None, Some(_) | None) => {}
        }
    }

    fn rules(&self, jitter: f64) -> Rules {
        let RelayOptions { attempts, retry, later, keep_sent, late, .. } = self.options;
        Rules { attempts, retry, later, keep: keep_sent, jitter, late }
    }

    /// Concludes what has an end in the line of `key`.
    fn settle(&mut self, lane: Lane, key: &Arc<str>, rules: &Rules, now: Instant) {
        let Some(held) = self.lane(lane) else { return };
        let left = held.settle(key, rules);
        let next = held.line(key).and_then(|line| line.unpublished_head());
        let is_next = !left.is_empty() && self.ordering == Ordering::OneByOne;
        self.left(lane, key, &left, now);
        if let Some((position, serial)) = next.filter(|_| is_next) {
            self.calls.push_back(Ticket { lane, position, key: Arc::clone(key), serial });
        }
    }

    fn left(&mut self, lane: Lane, key: &Arc<str>, left: &[Left], now: Instant) {
        self.count_out(left);
        self.turns.conclude(lane, key, left, now);
    }

    fn count_out(&mut self, left: &[Left]) {
        self.in_hand -= left.len();
        self.in_hand_bytes -= left.iter().map(|event| event.bytes).sum::<usize>();
        self.killers -= left.iter().filter(|event| event.deaths > 1).count();
    }

    /// Gives back what is not published, of all lanes.
    fn recall_all(&mut self, now: Instant) {
        let lanes: Vec<u32> = self.lanes.keys().copied().collect();
        lanes.into_iter().for_each(|lane| self.recall(lane, now));
    }

    fn recall(&mut self, number: u32, now: Instant) {
        let rules = self.rules(0.0);
        let Some(held) = self.lanes.get_mut(&number) else { return };
        let lane = Lane { number, epoch: held.epoch };
        for (key, left) in held.recall(&rules) {
            self.left(lane, &key, &left, now);
        }
        self.calls.retain(|ticket| ticket.lane.number != number);
    }

    /// Looks for retries of `lane` then.
    fn retry_at(&mut self, at: Instant, lane: u32) {
        /// Enough for the keys that a broker refuses in one second; polling finds the others.
        const MOST: usize = 1024;
        self.retries.insert((at, lane));
        if self.retries.len() > MOST {
            self.retries.pop_last();
        }
    }

    /// From now on nothing is taken up, and what is not published is given back.
    pub fn stop(&mut self, now: Instant) {
        self.stopping = true;
        self.lanes.values_mut().for_each(|lane| lane.stage = Stage::Leaving);
        self.recall_all(now);
    }

    /// Waits no longer for what is under way: it is given back too, and may be published twice.
    pub fn give_up(&mut self, now: Instant) {
        let rules = self.rules(0.0);
        let lanes: Vec<Lane> = self.held().collect();
        for lane in lanes {
            let Some(held) = self.lane(lane) else { continue };
            for (key, left) in held.abandon(&rules) {
                self.left(lane, &key, &left, now);
            }
        }
    }

    /// When to call [`Self::tick`] and ask for what is next, should nothing happen before.
    #[must_use]
    pub fn next_time(&self, now: Instant) -> Instant {
        let retry = self.retries.first().map(|(at, _)| *at);
        let turn = self.turns.due(self.options.linger);
        let (away, walked) = (self.health.away_until(), self.topics.walked_until());
        let times = [Some(self.poll_at), self.leases.due(), away, walked, turn, retry];
        let next = times.into_iter().flatten().filter(|time| *time > now).min();
        next.unwrap_or(now + self.options.poll)
    }

    /// Why the broker takes nothing, if it does not, or nothing of a topic.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.health.trouble().or_else(|| self.topics.trouble())
    }

    /// Whether the broker is given time to come back.
    #[must_use]
    pub fn rests(&self, now: Instant) -> bool {
        self.health.room(now) == 0
    }

    /// Events in hand: taken up and not concluded.
    #[must_use]
    pub fn in_hand(&self) -> usize {
        self.in_hand
    }

    /// The bytes of their data.
    #[must_use]
    pub fn in_hand_bytes(&self) -> usize {
        self.in_hand_bytes
    }

    /// The lanes that are held.
    pub fn held(&self) -> impl Iterator<Item = Lane> + '_ {
        self.lanes.iter().map(|(number, held)| Lane { number: *number, epoch: held.epoch })
    }
}

#[cfg(test)]
mod tests;
