//! Turns: one commit that concludes what is over and takes up what is next. One at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Machine, Quarantine};
use crate::broker::Ordering;
use crate::clock::Instant;
use crate::engine::ledger::{Guarded, StoreError};
use crate::outbox::relay::lane::{HeldLane, Stage};
use crate::outbox::relay::line::Left;
use crate::outbox::store::{Conclusion, How, Lane, MAX_TURN, Reach, RelayId, Retries, Suspects, Turn, Turned, Want};

/// The pauses between tries of a turn that was not written.
const TURN_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_TURN_PAUSE: Duration = Duration::from_secs(2);

/// What is to be written, and what is being written.
#[derive(Debug)]
pub(super) struct Turns {
    queue: Box<str>,
    relay: RelayId,
    pending: Pending,
    /// The turn under way, or to be applied again.
    current: Option<Current>,
    /// Turns in a row that have failed.
    failures: u32,
    /// Not before.
    not_before: Option<Instant>,
    /// When the last turn ended.
    ended: Option<Instant>,
    /// Turns so far: which lanes come first when there is room for few.
    count: usize,
}

#[derive(Debug, Default)]
struct Pending {
    conclusions: Vec<Conclusion>,
    /// What becomes of events that are taken up before these conclusions are written: their keys stop.
    stopped: HashMap<(Lane, Arc<str>), Stopped>,
    since: Option<Instant>,
}

/// A key that stops as soon as that is on record.
#[derive(Debug, Clone)]
pub(super) struct Stopped {
    /// What becomes of those that come behind.
    pub(super) how: How,
    /// The highest position of those that have left its line.
    pub(super) last: i64,
}

#[derive(Debug)]
struct Current {
    turn: Arc<Turn>,
    pending: Pending,
    /// What was in hand before it, its own conclusions included.
    before: Vec<i64>,
    /// Whether an earlier application's commit is unclear: from then on only its success tells.
    unclear: bool,
    is_under_way: bool,
}

impl Turns {
    pub(super) fn new(queue: Box<str>, relay: RelayId) -> Self {
        let pending = Pending::default();
        Self { queue, relay, pending, current: None, failures: 0, not_before: None, ended: None, count: 0 }
    }

    /// Whether nothing is left to be written and no answer is awaited.
    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.pending.conclusions.is_empty()
    }

    /// Whether something is to be written of the lane, or may still be taken up of it.
    pub(super) fn names(&self, lane: Lane) -> bool {
        let is_taken_up = |current: &Current| current.turn.wants.iter().any(|want| want.lane == lane);
        let current = self.current.as_ref();
        let conclusions = current.map_or(&[][..], |current| &current.turn.conclusions).iter();
        let mut conclusions = conclusions.chain(&self.pending.conclusions);
        current.is_some_and(is_taken_up) || conclusions.any(|conclusion| conclusion.lane == lane)
    }

    /// Notes what becomes of the events that have left the line of `key`.
    pub(super) fn conclude(&mut self, lane: Lane, key: &Arc<str>, left: &[Left], now: Instant) {
        let Some(last) = left.iter().map(|event| event.position).max() else { return };
        let is_stopped = left.iter().any(|event| event.stops || event.how == How::Waiting);
        let is_given_back = left.iter().any(|event| event.how == How::GivenBack);
        let behind = match (is_stopped, is_given_back) {
            (true, _) => Some(How::Waiting),
            (false, true) => Some(How::GivenBack),
            (false, false) => None,
        };
        if let Some(how) = behind {
            self.pending.stopped.insert((lane, Arc::clone(key)), Stopped { how, last });
        }
        for Left { position, id, how, .. } in left {
            self.pending.conclusions.push(Conclusion { lane, position: *position, id: *id, how: how.clone() });
        }
        self.pending.since.get_or_insert(now);
    }

    /// Concludes once more what the database has forgotten, unless it is about to be told.
    pub(super) fn repeat(&mut self, lane: Lane, key: &Arc<str>, left: Left, now: Instant) {
        if !self.pending.conclusions.iter().any(|pending| pending.lane == lane && pending.position == left.position) {
            self.conclude(lane, key, &[left], now);
        }
    }

    /// What becomes of one of `key` that is taken up before what stops the key is on record.
    pub(super) fn stopped(&self, lane: Lane, key: &Arc<str>) -> Option<Stopped> {
        self.pending.stopped.get(&(lane, Arc::clone(key))).cloned()
    }

    /// Forgets what is to be said about a lane that is lost.
    pub(super) fn forget(&mut self, lane: Lane) {
        self.pending.conclusions.retain(|conclusion| conclusion.lane != lane);
        self.pending.stopped.retain(|(stopped, _), _| *stopped != lane);
    }

    /// When time alone makes a turn due.
    pub(super) fn due(&self, linger: Duration) -> Option<Instant> {
        if self.current.as_ref().is_some_and(|current| current.is_under_way) {
            return None;
        }
        let gathered = self.pending.since.map(|since| since + linger);
        let soonest = gathered.or_else(|| self.ended.map(|ended| ended + linger));
        soonest.into_iter().chain(self.not_before).max()
    }
}

impl Machine {
    /// The next turn to apply, if one is due. Its result goes to [`Self::turned`].
    pub fn next_turn(&mut self, now: Instant) -> Option<Arc<Turn>> {
        if self.turns.not_before.is_some_and(|until| now < until) {
            return None;
        }
        if let Some(current) = &mut self.turns.current {
            if current.is_under_way {
                return None;
            }
            current.is_under_way = true;
            return Some(Arc::clone(&current.turn));
        }
        let wants = self.wants(now);
        if wants.is_empty() && !self.concludes(now) {
            return None;
        }
        Some(self.take_turn(wants))
    }

    /// Whether conclusions have gathered for long enough.
    fn concludes(&self, now: Instant) -> bool {
        let Some(since) = self.turns.pending.since else { return false };
        let enough = self.turns.pending.conclusions.len() >= self.options.window_events / 4;
        enough || self.under_way == 0 || self.stopping || since + self.options.linger <= now
    }

    fn take_turn(&mut self, mut wants: Vec<Want>) -> Arc<Turn> {
        let mut pending = std::mem::take(&mut self.turns.pending);
        if pending.conclusions.len() > MAX_TURN {
            self.turns.pending.conclusions = pending.conclusions.split_off(MAX_TURN);
            self.turns.pending.since = pending.since;
            self.turns.pending.stopped = pending.stopped.clone();
        }
        let concluded = pending.conclusions.iter().chain(&self.turns.pending.conclusions);
        let concluded = concluded.map(|conclusion| conclusion.position);
        let before = self.lanes.values().flat_map(HeldLane::positions).chain(concluded).collect();
        if !wants.is_empty() {
            // Not each turn: one that asks and one that concludes take turns while the broker is probed.
            self.turns.count = self.turns.count.wrapping_add(1);
            self.health.tries();
        }
        for want in &mut wants {
            if let Some(lane) = self.lane(want.lane) {
                want.reach = lane.look();
            }
        }
        let turn = Arc::new(Turn {
            queue: self.turns.queue.clone(),
            relay: self.turns.relay,
            conclusions: pending.conclusions.clone(),
            wants,
            bytes: self.options.window_bytes.saturating_sub(self.in_hand_bytes) as u64,
            suspects: Suspects::Take,
            parking: self.options.parking.clone(),
            late: self.options.late,
            again: None,
        });
        let current = Current { turn: Arc::clone(&turn), pending, before, unclear: false, is_under_way: true };
        self.turns.current = Some(current);
        turn
    }

    /// What to take up now.
    fn wants(&mut self, now: Instant) -> Vec<Want> {
        let room = self.health.room(now).saturating_sub(self.in_hand);
        let bytes = self.options.window_bytes.saturating_sub(self.in_hand_bytes);
        // One turn after the other where much lies ready; else what comes in a moment comes in one turn, unless
        // nobody has anything to do.
        let has_backlog = self.lanes.values().any(|lane| lane.backlog);
        let is_worth_it = (has_backlog && room >= self.options.window_events / 4)
            || self.in_hand == 0
            || self.turns.ended.is_none_or(|ended| ended + self.options.linger <= now);
        // Less than half, and a look would end at the first large event again and again.
        let has_bytes = bytes >= self.options.window_bytes / 2;
        // What is taken up beside a killer would be suspected too.
        let is_quiet = self.killers == 0 && (self.quarantine.is_none() || self.in_hand == 0);
        let may = self.is_leased(now) && !self.stopping && is_quiet && !self.topics.are_walked_through(now);
        if !may || room == 0 || !is_worth_it || !has_bytes {
            return Vec::new();
        }
        if let Some(Quarantine { lane, .. }) = self.quarantine {
            return vec![Want { lane, limit: 1, retries: Retries::Due, reach: Reach::WHOLE }];
        }
        let most = self.lane_limit();
        let mut asking: Vec<(usize, Lane)> = Vec::new();
        for (number, lane) in &self.lanes {
            let is_asking = lane.stage == Stage::Held && lane.suspect.is_none() && (lane.more || lane.retries);
            let wanted = lane.quota.min(most.saturating_sub(lane.in_hand));
            if is_asking && wanted > 0 {
                asking.push((wanted, Lane { number: *number, epoch: lane.epoch }));
            }
        }
        if room < asking.len() {
            // Others of them each time.
            let start = self.turns.count % asking.len();
            asking.rotate_left(start);
            asking.truncate(room);
        }
        // The modest first, so that what they leave goes to those that want more.
        asking.sort_unstable();
        let mut room = room;
        let count = asking.len();
        let wants = asking.into_iter().enumerate().map(|(index, (wanted, lane))| {
            let limit = wanted.min(room / (count - index));
            room -= limit;
            let held = self.lanes.get(&lane.number);
            let retries = if held.is_some_and(|held| held.retries) { Retries::Due } else { Retries::Leave };
            Want { lane, limit: u32::try_from(limit).unwrap_or(u32::MAX), retries, reach: Reach::WHOLE }
        });
        wants.collect()
    }

    /// The most of a lane in hand: one lane's slow events must leave room for the others'. One by one they are
    /// slower.
    fn lane_limit(&self) -> usize {
        let part = match self.ordering {
            Ordering::ByCall => 2,
            Ordering::OneByOne => 8,
        };
        (self.options.window_events / part).max(1)
    }

    /// A turn that was applied at `now` has ended. Says what is lost or cannot be written, for the log.
    pub fn turned(&mut self, result: Result<Turned, StoreError>, now: Instant) {
        self.turns.ended = Some(now);
        let Some(current) = self.turns.current.take() else { return };
        match result {
            Ok(turned) => {
                self.turns.failures = 0;
                self.turns.not_before = None;
                self.apply(&current, turned, now);
            }
            Err(StoreError::CommitUnknown(_)) => self.apply_again(Current { unclear: true, ..current }, now),
            Err(_) if current.unclear => self.apply_again(current, now),
            Err(StoreError::Refused(_)) => self.not_turned(without_reasons(current), now),
            Err(StoreError::Conflict(_) | StoreError::Locked(_) | StoreError::Unavailable(_)) => {
                self.not_turned(current, now);
            }
        }
    }

    fn pause_turns(&mut self, now: Instant) {
        let pause = TURN_PAUSE.saturating_mul(1 << self.turns.failures.min(10)).min(LONGEST_TURN_PAUSE);
        self.turns.failures = self.turns.failures.saturating_add(1);
        self.turns.not_before = Some(now + pause);
    }

    /// Nobody knows whether it was written: the same turn once more, which then tells what it took up.
    fn apply_again(&mut self, current: Current, now: Instant) {
        let turn = Turn { again: Some(current.before.clone()), ..Turn::clone(&current.turn) };
        self.turns.current = Some(Current { turn: Arc::new(turn), is_under_way: false, ..current });
        self.pause_turns(now);
    }

    /// Nothing was written: what was to be concluded still is, before anything newer.
    fn not_turned(&mut self, current: Current, now: Instant) {
        let mut pending = current.pending;
        let newer = std::mem::take(&mut self.turns.pending);
        pending.since = pending.since.or(newer.since);
        pending.conclusions.extend(newer.conclusions);
        pending.stopped.extend(newer.stopped);
        self.turns.pending = pending;
        for want in &current.turn.wants {
            if let Some(lane) = self.lane(want.lane) {
                lane.look_anew();
            }
        }
        self.pause_turns(now);
    }

    fn apply(&mut self, current: &Current, turned: Turned, now: Instant) {
        for (conclusion, done) in current.turn.conclusions.iter().zip(&turned.concluded) {
            if let (Some(after), Guarded::Done) = (conclusion.how.again_after(), done) {
                // The database counts whole milliseconds.
                self.retry_at(now + after + Duration::from_millis(1), conclusion.lane.number);
            }
        }
        for lane in &turned.lost {
            if self.lane(*lane).is_some() {
                self.lose(lane.number);
                self.leases.renew_at(now);
            }
        }
        if let Some(quarantine) = &mut self.quarantine {
            quarantine.recorded = true;
        }
        if current.turn.wants.iter().any(|want| self.quarantine.as_ref().is_some_and(|one| one.lane == want.lane)) {
            self.quarantine = None;
        }
        let is_alone = self.in_hand == 0 && turned.acquired.len() == 1;
        let mut found: HashMap<Lane, usize> = HashMap::new();
        for acquired in turned.acquired {
            *found.entry(acquired.lane).or_default() += 1;
            self.take_up(acquired, is_alone, now);
        }
        for (lane, reach) in &turned.more {
            // Also of lanes that were only concluded: whoever waited there may be first now.
            if let Some(lane) = self.lane(*lane) {
                lane.go_on(*reach);
            }
        }
        let most = self.lane_limit();
        for want in &current.turn.wants {
            let Some(lane) = self.lane(want.lane) else { continue };
            if turned.more.iter().any(|(lane, _)| *lane == want.lane) {
                lane.filled(most);
            } else {
                lane.emptied(found.get(&want.lane).copied().unwrap_or_default());
            }
        }
    }
}

/// A database that refuses a turn refuses what people were to read.
fn without_reasons(mut current: Current) -> Current {
    for conclusion in &mut current.pending.conclusions {
        match &mut conclusion.how {
            How::Retry { reason, .. }
            | How::Later { reason, .. }
            | How::Early { reason, .. }
            | How::Parked { reason, .. } => *reason = "the reason could not be stored".into(),
            How::Sent { .. } | How::GivenBack | How::Waiting => {}
        }
    }
    current
}
