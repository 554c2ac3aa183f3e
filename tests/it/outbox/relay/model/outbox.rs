//! The outbox's contract in memory: the rules of `oncegate::outbox::store` and nothing else.

// Named, so that the model of all parts can use this file as well.
#[path = "outbox/look.rs"]
mod look;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use oncegate::clock::{Timestamp, millis};
use oncegate::engine::ledger::Guarded;
use oncegate::outbox::event::{Attributes, Envelope, EventId, OnFailure, Outgoing};
use oncegate::outbox::store::{Acquired, Conclusion, How, Lane, Leased, Reach, RelayId, Taking, Turn, Turned, Want};

use look::Looking;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Retrying { due: i64 },
    Early { due: i64 },
    Waiting,
    Parked,
    Sent,
    Discarded,
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) key: u8,
    pub(super) lane: u32,
    pub(super) holds: OnFailure,
    pub(super) state: State,
    pub(super) attempts: u32,
    pub(super) deaths: u32,
    pub(super) deferrals: u32,
    pub(super) redrives: u32,
    pub(super) came_early: bool,
    pub(super) epoch: Option<i64>,
    pub(super) reason: String,
    /// Whether it stops its key or waits, or did so and is not over: others of its key stay behind it.
    pub(super) in_line: bool,
    /// For the invariants: conclusions that count an attempt, and deaths, since it was new or a person's.
    pub(super) counted: u32,
}

#[derive(Debug, Clone, Default)]
struct LaneRow {
    owner: Option<RelayId>,
    epoch: i64,
    expires: i64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    pub(super) now: i64,
    pub(super) rows: BTreeMap<i64, Row>,
    lanes: Vec<LaneRow>,
    relays: BTreeMap<RelayId, i64>,
    /// What the disk has, where that is less.
    durable: Option<Box<Table>>,
    /// How often it has crashed.
    session: u64,
}

impl Row {
    fn defer(&mut self) {
        self.attempts -= 1;
        self.deferrals += 1;
        self.deaths = 0;
    }

    /// It stays early: its key has a line.
    fn put_off(&mut self, now: i64) {
        let died = u32::from(self.epoch.take().is_some());
        self.deaths += died;
        self.counted += died;
        self.state = State::Early { due: now + 1000 };
    }

    /// It waits behind another one of its key.
    fn stand_in_line(&mut self) {
        let died = u32::from(self.epoch.take().is_some());
        self.deaths += died;
        self.counted += died;
        self.state = State::Waiting;
        self.in_line = true;
    }
}

impl Table {
    pub(super) fn new(lanes: u32) -> Self {
        Self { lanes: (0..lanes).map(|_| LaneRow::default()).collect(), ..Self::default() }
    }

    /// Everything is on the disk now.
    pub(super) fn flush(&mut self) {
        self.durable = None;
    }

    /// The database ends and comes back with what the disk has.
    pub(super) fn crash(&mut self) {
        if let Some(durable) = self.durable.take() {
            *self = Self { now: self.now, session: self.session, ..*durable };
        }
        self.session += 1;
    }

    pub(super) fn insert(&mut self, position: i64, key: u8, holds: OnFailure) {
        self.flush();
        let lane = u32::from(key) % u32::try_from(self.lanes.len()).unwrap();
        let state = State::Ready;
        let row = Row {
            key,
            lane,
            holds,
            state,
            attempts: 0,
            deaths: 0,
            deferrals: 0,
            redrives: 0,
            came_early: false,
            epoch: None,
            reason: String::new(),
            in_line: false,
            counted: 0,
        };
        self.rows.insert(position, row);
    }

    pub(super) fn lease(&mut self, relay: RelayId, lease: Duration, taking: Taking) -> Leased {
        self.flush();
        let until = self.now + millis(lease);
        let now = self.now;
        self.relays.retain(|_, expires| *expires > now);
        if taking == Taking::Share {
            self.relays.insert(relay, until);
        }
        let count = self.lanes.len();
        let share = count.div_ceil(self.relays.len().max(1));
        for lane in self.lanes.iter_mut().filter(|lane| lane.owner == Some(relay)) {
            lane.expires = until;
        }
        let mut owned = self.lanes.iter().filter(|lane| lane.owner == Some(relay)).count();
        for lane in &mut self.lanes {
            let is_free = lane.owner.is_none() || lane.expires <= now;
            if taking == Taking::Share && is_free && owned < share {
                *lane = LaneRow { owner: Some(relay), epoch: lane.epoch + 1, expires: until };
                owned += 1;
            }
        }
        let held = (0..).zip(&self.lanes).filter(|(_, lane)| lane.owner == Some(relay));
        Leased {
            now: Timestamp(now),
            lanes: u32::try_from(count).unwrap(),
            relays: u32::try_from(self.relays.len()).unwrap(),
            share: u32::try_from(share).unwrap(),
            held: held.map(|(number, lane)| Lane { number, epoch: lane.epoch }).collect(),
        }
    }

    pub(super) fn release(&mut self, relay: RelayId, lanes: &[Lane]) {
        self.flush();
        for lane in lanes {
            if self.holds(relay, *lane) {
                self.lanes[lane.number as usize].owner = None;
            }
        }
    }

    pub(super) fn retire(&mut self, relay: RelayId) {
        self.flush();
        self.relays.remove(&relay);
        self.lanes.iter_mut().filter(|lane| lane.owner == Some(relay)).for_each(|lane| lane.owner = None);
    }

    /// What is in the hands of `relay`.
    pub(super) fn in_hands_of(&self, relay: RelayId) -> Vec<i64> {
        let is_in_hand = |row: &Row| {
            let epoch = row.epoch.filter(|_| row.state == State::Ready);
            epoch.is_some_and(|epoch| self.holds(relay, Lane { number: row.lane, epoch }))
        };
        self.rows.iter().filter(|(_, row)| is_in_hand(row)).map(|(position, _)| *position).collect()
    }

    pub(super) fn holds(&self, relay: RelayId, lane: Lane) -> bool {
        let row = &self.lanes[lane.number as usize];
        row.owner == Some(relay) && row.epoch == lane.epoch
    }

    pub(super) fn turn(&mut self, turn: &Turn) -> Turned {
        if !turn.conclusions.is_empty() {
            self.flush();
        } else if self.durable.is_none() {
            self.durable = Some(Box::new(self.clone()));
        }
        let mut named: BTreeSet<Lane> = turn.conclusions.iter().map(|conclusion| conclusion.lane).collect();
        named.extend(turn.wants.iter().map(|want| want.lane));
        let lost: Vec<Lane> = named.into_iter().filter(|lane| !self.holds(turn.relay, *lane)).collect();
        let concluded = turn.conclusions.iter().map(|conclusion| match lost.contains(&conclusion.lane) {
            true => Guarded::Fenced,
            false => self.conclude(conclusion),
        });
        let concluded = concluded.collect();
        let wants: Vec<Want> = turn.wants.iter().filter(|want| !lost.contains(&want.lane)).copied().collect();
        let mut turned = Turned { now: Timestamp(self.now), lost, concluded, acquired: vec![], more: vec![] };
        if let Some(before) = &turn.again {
            turned.acquired = self.lost_application(&wants, before);
        }
        if turned.acquired.is_empty() {
            let mut look = Looking { bytes: turn.bytes, suspects: turn.suspects, taken: Vec::new() };
            for want in wants {
                let more = self.look(want, &mut look);
                turned.more.extend(more.map(|reach| (want.lane, Reach { session: self.session, ..reach })));
            }
            look.taken.sort_unstable();
            turned.acquired = look.taken.into_iter().map(|position| self.acquired(position)).collect();
        } else {
            turned.more = wants.iter().map(|want| (want.lane, Reach::WHOLE)).collect();
        }
        turned
    }

    fn conclude(&mut self, conclusion: &Conclusion) -> Guarded {
        let now = self.now;
        let Some(row) = self.rows.get_mut(&conclusion.position) else { return Guarded::Fenced };
        let in_hand = row.state == State::Ready && row.epoch == Some(conclusion.lane.epoch);
        if !in_hand {
            let is_so = match &conclusion.how {
                How::Sent { .. } => row.state == State::Sent,
                How::Retry { .. } | How::Later { .. } => matches!(row.state, State::Retrying { .. }),
                How::Early { .. } => matches!(row.state, State::Early { .. }),
                How::Parked { .. } => row.state == State::Parked,
                How::GivenBack | How::Waiting => matches!(row.state, State::Ready | State::Waiting),
            };
            return if is_so { Guarded::Done } else { Guarded::Fenced };
        }
        row.epoch = None;
        row.came_early &= conclusion.how == How::GivenBack;
        match &conclusion.how {
            How::Sent { .. } => {
                row.state = State::Sent;
                row.in_line = false;
            }
            How::Retry { after, reason } => {
                row.state = State::Retrying { due: now + millis(*after) };
                row.deaths = 0;
                row.in_line = true;
                row.counted += 1;
                row.reason = reason.to_string();
            }
            How::Later { after, .. } => {
                row.state = State::Retrying { due: now + millis(*after) };
                row.defer();
                row.in_line = true;
            }
            How::Early { after, .. } => {
                row.state = State::Early { due: now + millis(*after) };
                row.defer();
                row.in_line = false;
                row.came_early = true;
            }
            How::Parked { reason, .. } => {
                row.state = State::Parked;
                row.in_line = row.holds == OnFailure::Hold;
                row.reason = reason.to_string();
            }
            How::GivenBack => row.attempts -= 1,
            How::Waiting => {
                row.attempts -= 1;
                row.state = State::Waiting;
                row.in_line = true;
            }
        }
        Guarded::Done
    }

    fn lost_application(&self, wants: &[Want], before: &[i64]) -> Vec<Acquired> {
        let is_wanted = |row: &Row| {
            let wanted = wants.iter().find(|want| want.lane.number == row.lane);
            row.state == State::Ready && row.epoch.is_some() && row.epoch == wanted.map(|want| want.lane.epoch)
        };
        let lost = self.rows.iter().filter(|(position, row)| is_wanted(row) && !before.contains(position));
        lost.map(|(position, _)| self.acquired(*position)).collect()
    }

    fn acquired(&self, position: i64) -> Acquired {
        let row = &self.rows[&position];
        let lane = Lane { number: row.lane, epoch: row.epoch.unwrap() };
        let event = Envelope {
            id: EventId(u128::try_from(position).unwrap().to_be_bytes()),
            queue: "q".into(),
            topic: format!("t{}", row.key % 2).into(),
            key: row.key.to_string().into(),
            kind: "e".into(),
            source: "/".into(),
            route: "r".into(),
            content_type: "application/json".into(),
            traceparent: None,
            attributes: Attributes::new(),
            data: Bytes::from_static(&[0; BYTES as usize]),
        };
        Acquired {
            lane,
            position,
            id: Some(event.id),
            key: event.key.clone(),
            attempts: row.attempts,
            deferrals: row.deferrals,
            came_early: row.came_early,
            deaths: row.deaths,
            redrives: row.redrives,
            on_failure: row.holds,
            event: Ok(Outgoing {
                event,
                sequence: position,
                epoch: lane.epoch,
                time: Timestamp(0),
                attempts: row.attempts,
                tried: false,
                redrives: row.redrives,
            }),
        }
    }
}

/// Of each event's data.
pub(super) const BYTES: u64 = 100;
