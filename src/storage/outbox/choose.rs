//! What a turn takes up, out of what it found: the pure part of [`super::turn`].

use std::collections::{HashMap, HashSet};

use super::stored;
use crate::outbox::store::{Lane, Late, Reach, Suspects, Want};

/// An event that a turn may take up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) lane: u32,
    pub(super) position: i64,
    pub(super) state: i64,
    /// The epoch of a relay that did not conclude it, if it was in one's hands.
    pub(super) epoch: Option<i64>,
    pub(super) deaths: i64,
    /// Of its data, in bytes.
    pub(super) size: u64,
    /// Who is first in its key's line, if the key is stopped.
    pub(super) first_in_line: Option<i64>,
    /// Whether it waits for another one of its key, wherever that is.
    pub(super) came_early: bool,
}

impl Candidate {
    /// 1 if it was in the hands of a relay that did not conclude it.
    pub(super) fn died(&self) -> i64 {
        i64::from(self.epoch.is_some())
    }

    fn is_blocked(&self) -> bool {
        self.first_in_line.is_some_and(|first| first < self.position)
    }

    /// Whether all who stop its key lie behind it: they were taken up before it was there.
    fn is_late(&self) -> bool {
        self.first_in_line.is_some_and(|first| first > self.position)
    }
}

/// One in the line of a stopped key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InLine {
    pub(super) event: Candidate,
    /// Whether it stops its key while it is parked.
    pub(super) holds: bool,
}

/// What is to be written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// Into the relay's hands.
    pub(super) take: Vec<Candidate>,
    /// Behind who stops their key.
    pub(super) wait: Vec<Candidate>,
    /// First in line, and taken up by a later turn.
    pub(super) free: Vec<Candidate>,
    /// Early ones that are due, but whose key is stopped: they stay early for a moment more.
    pub(super) put_off: Vec<Candidate>,
    /// Lanes that have more to take, and where.
    pub(super) more: Vec<(u32, Reach)>,
}

/// What may still be taken of a lane.
struct Room {
    left: u32,
    /// How much of it may go to keys that were stopped: half, so that one of them with a long line does not keep
    /// the lane's other keys.
    left_for_lines: u32,
    taken: u32,
    is_closed: bool,
    /// Whether the one that was taken comes alone.
    is_alone: bool,
    /// Whether one was left that another turn may take.
    has_more: bool,
    /// Whether that one is to be looked for from the lane's beginning.
    is_before: bool,
    /// Where ready ones are looked at, from the first one on that was not dealt with.
    reach: Reach,
    /// Whether there may be some behind.
    is_part: bool,
    /// Whether a ready one was not dealt with, so that no later one moves the beginning of the reach.
    has_left: bool,
}

impl Room {
    fn new(want: &Want) -> Self {
        Self {
            left: want.limit,
            left_for_lines: want.limit.div_ceil(2),
            taken: 0,
            is_closed: false,
            is_alone: false,
            has_more: false,
            is_before: false,
            reach: want.reach,
            is_part: want.reach.to < Reach::WHOLE.to,
            has_left: false,
        }
    }

    /// A ready one was met.
    fn meet(&mut self, position: i64, is_dealt_with: bool) {
        self.has_left |= !is_dealt_with;
        if !self.has_left {
            self.reach.from = position + 1;
        }
    }

    /// Where another turn may find more.
    fn more(&self) -> Option<Reach> {
        match (self.has_more, self.is_before, self.is_part) {
            (true, false, _) => Some(self.reach),
            (true, true, _) | (false, _, true) => Some(Reach::WHOLE),
            (false, _, false) => None,
        }
    }
}

/// Chooses, within the bounds of a turn.
pub(super) struct Chooser {
    rooms: HashMap<u32, Room>,
    bytes: u64,
    suspects: Suspects,
    late: Late,
    seen: HashSet<i64>,
    early: Vec<Candidate>,
    choice: Choice,
}

impl Chooser {
    /// Nothing is taken of lanes that are not wanted.
    pub(super) fn new(wants: &[Want], bytes: u64, suspects: Suspects, late: Late) -> Self {
        let rooms = wants.iter().map(|want| (want.lane.number, Room::new(want))).collect();
        Self { rooms, bytes, suspects, late, seen: HashSet::new(), early: Vec::new(), choice: Choice::default() }
    }

    /// Offers due retries. They stop their keys themselves, so nobody stands in their way. Early ones come last.
    pub(super) fn retries(&mut self, mut due: Vec<Candidate>) {
        due.sort_unstable_by_key(|event| event.position);
        for event in due {
            match event.came_early {
                true => self.early.push(event),
                false => drop(self.offer(event)),
            }
        }
    }

    /// Offers the beginning of a stopped key's line, in order, in a lane under `lane`'s epoch.
    ///
    /// Those in this relay's hands let those behind them come along, in order; a retrying or a held one, or one
    /// that finds no room, ends it. If then nobody at the head will be taken up by anybody, the first one is let
    /// go, to be found by a later turn.
    pub(super) fn line(&mut self, lane: Lane, line: &[InLine]) {
        let mut is_first = true;
        for InLine { event, holds } in line {
            let is_in_hand = event.state == stored::READY && event.epoch == Some(lane.epoch);
            match event.state {
                _ if is_in_hand => {}
                stored::READY | stored::WAITING => {
                    let is_suspect = event.deaths + event.died() > 0;
                    let may_come = is_first || !is_suspect;
                    if !(may_come && self.offer_of_line(*event)) {
                        if is_first && event.state == stored::WAITING && self.seen.insert(event.position) {
                            self.note_more_before(event.lane);
                            self.choice.free.push(*event);
                        }
                        return;
                    }
                    if is_suspect {
                        return;
                    }
                }
                stored::RETRYING => return,
                stored::PARKED if *holds => return,
                _ => continue,
            }
            is_first = false;
        }
    }

    /// Offers ready events. Those whose key is stopped by another one wait. Positions up to `newest` had been given
    /// out when they were looked for.
    pub(super) fn ready(&mut self, mut ready: Vec<Candidate>, newest: i64) {
        self.rooms.values_mut().for_each(|room| room.reach.to = room.reach.to.min(newest));
        ready.sort_unstable_by_key(|event| event.position);
        match self.late {
            Late::Goes => {}
            Late::Waits => self.dead_first(&ready),
        }
        for event in ready {
            let is_dealt_with = self.seen.contains(&event.position) || self.deal_with(event);
            if let Some(room) = self.rooms.get_mut(&event.lane) {
                room.meet(event.position, is_dealt_with);
            }
        }
    }

    /// Those that a dead relay had in hand before any that lie before them: these may have come later, and be of the
    /// same key.
    fn dead_first(&mut self, ready: &[Candidate]) {
        for event in ready {
            if event.died() > 0 && !event.came_early && event.first_in_line.is_none() {
                self.offer(*event);
            }
        }
    }

    fn deal_with(&mut self, event: Candidate) -> bool {
        if event.came_early || (self.late == Late::Waits && event.is_late()) {
            self.early.push(event);
        } else if event.is_blocked() {
            if let Some(room) = self.rooms.get_mut(&event.lane) {
                room.has_more = true;
            }
            self.seen.insert(event.position);
            self.choice.wait.push(event);
        } else {
            return self.offer(event);
        }
        true
    }

    /// After all others, who may be of the same key and come before them: where those have found room. One whose key
    /// is stopped stays early, as it may wait for whoever stops it.
    fn early(&mut self) {
        let mut early = std::mem::take(&mut self.early);
        early.sort_unstable_by_key(|event| event.position);
        for event in early {
            if event.first_in_line.is_some() {
                self.choice.put_off.push(event);
            } else {
                self.offer(event);
            }
        }
    }

    /// A look that was ended by its limit may have left some.
    pub(super) fn done(mut self) -> Choice {
        self.early();
        let Choice { take, wait, free, put_off, more } = &mut self.choice;
        for events in [take, wait, free, put_off] {
            events.sort_unstable_by_key(|event| event.position);
        }
        more.extend(self.rooms.iter().filter_map(|(lane, room)| Some((*lane, room.more()?))));
        self.choice
    }

    /// Of a lane that is not wanted as well: its relay would not look again.
    fn note_more_before(&mut self, lane: u32) {
        match self.rooms.get_mut(&lane) {
            Some(room) => (room.has_more, room.is_before) = (true, true),
            None if self.choice.more.iter().all(|(other, _)| *other != lane) => {
                self.choice.more.push((lane, Reach::WHOLE));
            }
            None => {}
        }
    }

    fn offer_of_line(&mut self, event: Candidate) -> bool {
        let has_room = self.rooms.get(&event.lane).is_some_and(|room| room.left_for_lines > 0);
        let is_taken = has_room && self.offer(event);
        if is_taken && let Some(room) = self.rooms.get_mut(&event.lane) {
            room.left_for_lines -= 1;
        }
        is_taken
    }

    /// Takes `event` if there is room. Where there is not, its lane gives nothing more: order is kept.
    fn offer(&mut self, event: Candidate) -> bool {
        if self.seen.contains(&event.position) {
            return false;
        }
        let deaths = event.deaths + event.died();
        let fits = self.choice.take.is_empty() || event.size <= self.bytes;
        let Some(room) = self.rooms.get_mut(&event.lane) else { return false };
        if room.is_closed {
            room.has_more |= room.left == 0 || !fits || room.is_alone;
            return false;
        }
        let may_be_suspect = match deaths {
            0 => true,
            1 => room.taken == 0,
            _ => room.taken == 0 && self.suspects == Suspects::Take,
        };
        if room.left == 0 || !fits || !may_be_suspect {
            room.is_closed = true;
            // One with deaths that must not come now does later: the relay asks again once it has less in hand.
            room.has_more |= may_be_suspect || room.taken > 0;
            return false;
        }
        room.left -= 1;
        room.taken += 1;
        room.is_alone = deaths > 0;
        room.is_closed = room.is_alone;
        // A look goes no further than its limit.
        room.has_more |= room.left == 0;
        if deaths > 1 {
            self.suspects = Suspects::Leave;
        }
        self.bytes = self.bytes.saturating_sub(event.size);
        self.seen.insert(event.position);
        self.choice.take.push(event);
        true
    }
}
