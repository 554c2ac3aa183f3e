//! Which lanes are held, and until when.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Machine;
use crate::clock::Instant;
use crate::outbox::relay::lane::{HeldLane, Stage};
use crate::outbox::store::{Lane, Leased, Taking};

/// What to ask the outbox about lanes. One question at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneCall {
    /// Renew, and take what is free up to the share. The answer goes to [`Machine::leased`] or
    /// [`Machine::not_leased`].
    Lease(Taking),
    /// Nothing is in hand of these lanes: let others have them at once. The answer goes to [`Machine::released`].
    Release(Vec<Lane>),
    /// The same of all, for good. The answer goes to [`Machine::retired`].
    Retire,
}

/// How soon a renewal comes at the earliest: after one that failed, and when lanes may be free. As a part of the
/// time between two.
const AGAIN: u32 = 10;

#[derive(Debug)]
pub(super) struct Leases {
    /// Until when the lanes are held, by this process's clock.
    until: Option<Instant>,
    /// When the last renewal was begun.
    begun: Instant,
    renew_at: Instant,
    asking: bool,
    /// How many lanes the queue has, where that is known.
    lanes: Option<u32>,
    retired: bool,
}

impl Leases {
    pub(super) fn new(now: Instant) -> Self {
        Self { until: None, begun: now, renew_at: now, asking: false, lanes: None, retired: false }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        (!self.asking).then_some(self.renew_at)
    }

    /// Somebody may have let lanes go: renews earlier than it would, but not each time.
    pub(super) fn renew_soon(&mut self, renew: Duration) {
        self.renew_at(self.begun + renew / AGAIN);
    }

    pub(super) fn renew_at(&mut self, at: Instant) {
        self.renew_at = self.renew_at.min(at);
    }
}

impl Machine {
    /// Whether the lanes are surely held.
    #[must_use]
    pub fn is_leased(&self, now: Instant) -> bool {
        self.leases.until.is_some_and(|until| now < until)
    }

    /// Whether other relays hold lanes of the queue, or might.
    #[must_use]
    pub fn has_neighbours(&self) -> bool {
        self.leases.lanes.is_none_or(|lanes| self.lanes.len() < lanes as usize)
    }

    /// What to ask about lanes next, if anything.
    pub fn next_lane_call(&mut self, now: Instant) -> Option<LaneCall> {
        if self.leases.asking || self.leases.retired {
            return None;
        }
        let is_free =
            |lane: Lane, held: &HeldLane| held.stage == Stage::Leaving && held.in_hand == 0 && !self.turns.names(lane);
        let lanes = self.lanes.iter().map(|(number, held)| (Lane { number: *number, epoch: held.epoch }, held));
        let free: Vec<Lane> = lanes.filter(|(lane, held)| is_free(*lane, held)).map(|(lane, _)| lane).collect();
        let call = match (self.stopping, free.len()) {
            (true, count) if count == self.lanes.len() && self.turns.is_idle() => LaneCall::Retire,
            (_, count) if count > 0 => LaneCall::Release(free),
            (stopping, _) if self.leases.renew_at <= now => {
                LaneCall::Lease(if stopping { Taking::Nothing } else { Taking::Share })
            }
            (_, _) => return None,
        };
        self.leases.asking = true;
        Some(call)
    }

    /// What is held after a renewal that was begun at `begun`.
    pub fn leased(&mut self, leased: &Leased, begun: Instant, now: Instant) {
        self.leases.asking = false;
        self.leases.begun = begun;
        self.leases.until = Some(begun + self.options.lease);
        self.leases.renew_at = begun + self.options.renew;
        self.leases.lanes = Some(leased.lanes);
        let held: BTreeMap<u32, i64> = leased.held.iter().map(|lane| (lane.number, lane.epoch)).collect();
        let lanes: Vec<Lane> = self.held().collect();
        for lane in lanes.into_iter().filter(|lane| held.get(&lane.number) != Some(&lane.epoch)) {
            self.lose(lane.number);
        }
        for (number, epoch) in held {
            self.lanes.entry(number).or_insert_with(|| HeldLane::new(epoch));
        }
        match self.stopping {
            true => self.stop(now),
            false => self.balance(leased.share as usize, now),
        }
    }

    /// Lets the lanes above `share` go, those with least in hand first, and keeps the others.
    fn balance(&mut self, share: usize, now: Instant) {
        let mut lanes: Vec<(usize, u32)> = self.lanes.iter().map(|(number, lane)| (lane.in_hand, *number)).collect();
        lanes.sort_unstable();
        let above = lanes.len().saturating_sub(share);
        for (index, (_, number)) in lanes.into_iter().enumerate() {
            let leaves = index < above;
            if let Some(lane) = self.lanes.get_mut(&number) {
                lane.stage = if leaves { Stage::Leaving } else { Stage::Held };
            }
            if leaves {
                self.recall(number, now);
            }
        }
    }

    /// A renewal has no answer.
    pub fn not_leased(&mut self, now: Instant) {
        self.leases.asking = false;
        self.leases.renew_at = now + self.options.renew / AGAIN;
    }

    /// `lanes` were let go. Where that failed, the lease's end does it, or the next renewal brings them back.
    pub fn released(&mut self, lanes: &[Lane]) {
        self.leases.asking = false;
        lanes.iter().for_each(|lane| self.lose(lane.number));
    }

    /// All lanes were let go, or could not be: then the lease's end does it.
    pub fn retired(&mut self) {
        self.leases.asking = false;
        self.leases.retired = true;
        self.lanes.clear();
    }

    /// Whether it has been stopped and holds nothing any more.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.leases.retired
    }

    /// Forgets a lane: it is somebody else's.
    pub(super) fn lose(&mut self, number: u32) {
        let rules = self.rules(0.0);
        let Some(mut held) = self.lanes.remove(&number) else { return };
        let lane = Lane { number, epoch: held.epoch };
        for (_, left) in held.abandon(&rules) {
            self.count_out(&left);
        }
        self.turns.forget(lane);
        self.quarantine.take_if(|quarantine| quarantine.lane == lane);
        self.calls.retain(|ticket| ticket.lane != lane);
        self.retries.retain(|(_, retry)| *retry != number);
    }
}
