//! One relay's process: its machine, and what it has asked for without an answer yet.

use std::sync::Arc;
use std::time::Duration;

use oncegate::broker::{Ordering, Published};
use oncegate::clock::Instant;
use oncegate::engine::ledger::StoreError;
use oncegate::outbox::relay::{Backoff, LaneCall, Machine, RelayOptions, Ticket};
use oncegate::outbox::store::{Leased, RelayId, Turn, Turned};

pub(super) const WINDOW: usize = 8;

/// Bytes that the window allows, by the machine's own count.
pub(super) const WINDOW_BYTES: usize = 4096;

pub(super) fn options() -> RelayOptions {
    let millis = Duration::from_millis;
    RelayOptions {
        window_events: WINDOW,
        window_bytes: WINDOW_BYTES,
        calls: 3,
        lease: millis(1000),
        renew: millis(300),
        poll: millis(400),
        linger: millis(5),
        attempts: 3,
        crash_attempts: 4,
        retry: Backoff { first: millis(50), max: millis(400) },
        later: Backoff { first: millis(50), max: millis(400) },
        outage: Backoff { first: millis(20), max: millis(300) },
        ..RelayOptions::default()
    }
}

/// A call of the publisher that has not ended.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) ticket: Ticket,
    pub(super) result: Published,
    /// When it reached the broker, if it did.
    pub(super) receipt: Option<usize>,
}

/// A turn, and the outbox's answer once there is one.
type Asked = (Arc<Turn>, Option<Result<Turned, StoreError>>);

#[derive(Debug)]
pub(super) struct Process {
    pub(super) relay: RelayId,
    pub(super) machine: Machine,
    /// On its way to the outbox, or its answer on its way back.
    pub(super) turn: Option<Asked>,
    pub(super) lanes: Option<(LaneCall, Instant, Option<Option<Leased>>)>,
    pub(super) calls: Vec<Call>,
    /// Confirms that the machine was told of.
    pub(super) confirms: Vec<(Ticket, usize)>,
}

impl Process {
    pub(super) fn new(relay: RelayId, ordering: Ordering, now: Instant) -> Self {
        let machine = Machine::new("q".into(), relay, options(), ordering, now);
        Self { relay, machine, turn: None, lanes: None, calls: Vec::new(), confirms: Vec::new() }
    }

    /// Asks for what is next of the outbox.
    pub(super) fn ask(&mut self, now: Instant) {
        self.machine.tick(now);
        if self.turn.is_none() {
            self.turn = self.machine.next_turn(now).map(|turn| (turn, None));
        }
        if self.lanes.is_none() {
            self.lanes = self.machine.next_lane_call(now).map(|call| (call, now, None));
        }
    }

    /// Hands the machine what the outbox has answered.
    pub(super) fn hear(&mut self, now: Instant) {
        if let Some((_, answer)) = self.turn.take_if(|(_, answer)| answer.is_some()) {
            self.machine.turned(answer.unwrap(), now);
        }
        if let Some((call, begun, answer)) = self.lanes.take_if(|(.., answer)| answer.is_some()) {
            match (call, answer.unwrap()) {
                (LaneCall::Lease(_), Some(leased)) => self.machine.leased(&leased, begun, now),
                (LaneCall::Lease(_), None) => self.machine.not_leased(now),
                (LaneCall::Release(lanes), _) => self.machine.released(&lanes),
                (LaneCall::Retire, _) => self.machine.retired(),
            }
        }
    }

    /// A call ends, and the machine is told.
    pub(super) fn end_call(&mut self, index: usize, now: Instant, jitter: f64) {
        let Call { ticket, result, receipt } = self.calls.swap_remove(index);
        if result.is_ok() {
            self.confirms.push((ticket.clone(), receipt.unwrap()));
        }
        self.machine.published(&ticket, result, now, jitter);
    }
}
