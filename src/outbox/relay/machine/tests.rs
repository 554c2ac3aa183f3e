//! The table of the module, row by row.

mod deliveries;
mod endings;
mod forgotten;
mod leases;
mod topics;

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::broker::CONFIRMED;
use crate::clock::{self, Timestamp};
use crate::engine::ledger::{Guarded, StoreError};
use crate::outbox::event::{Attributes, Envelope, EventId, OnFailure};
use crate::outbox::store::{Acquired, DeadLetter, How, Late, Leased, Parking, Reach, Retries, Taking, Turn, Turned};

const SECOND: Duration = Duration::from_secs(1);

fn options() -> RelayOptions {
    RelayOptions { window_events: 64, window_bytes: 1 << 20, ..RelayOptions::default() }
}

/// A machine, the time, and what was asked of it.
struct Desk {
    machine: Machine,
    now: Instant,
}

impl Desk {
    /// A relay that holds lanes 0, 1, ... under epoch 1.
    fn with(options: RelayOptions, ordering: Ordering, lanes: u32) -> Self {
        let now = clock::now();
        let machine = Machine::new("q".into(), RelayId([1; 16]), options, ordering, now);
        let mut desk = Self { machine, now };
        assert_eq!(desk.machine.next_lane_call(now), Some(LaneCall::Lease(Taking::Share)));
        desk.leased(&held(lanes), lanes, now);
        desk
    }

    fn new(lanes: u32) -> Self {
        Self::with(options(), Ordering::ByCall, lanes)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.machine.tick(self.now);
    }

    fn leased(&mut self, held: &[Lane], share: u32, begun: Instant) {
        let leased = Leased { now: Timestamp(0), lanes: 4, relays: 1, share, held: held.to_vec() };
        self.machine.leased(&leased, begun, self.now);
    }

    /// The turn that is due a moment later.
    fn turn(&mut self) -> Arc<Turn> {
        self.pass(options().linger);
        self.machine.next_turn(self.now).expect("a turn is due")
    }

    /// A turn that must be due, and brings `acquired`.
    fn turn_brings(&mut self, acquired: Vec<Acquired>) -> Arc<Turn> {
        let turn = self.turn();
        self.turned(&turn, acquired);
        turn
    }

    fn turned(&mut self, turn: &Turn, acquired: Vec<Acquired>) {
        self.turned_with_more(turn, acquired, Vec::new());
    }

    fn turned_with_more(&mut self, turn: &Turn, acquired: Vec<Acquired>, more: Vec<(Lane, Reach)>) {
        let concluded = vec![Guarded::Done; turn.conclusions.len()];
        let turned = Turned { now: Timestamp(0), lost: Vec::new(), concluded, acquired, more };
        self.machine.turned(Ok(turned), self.now);
    }

    /// What is to be published now.
    fn calls(&mut self) -> Vec<Ticket> {
        std::iter::from_fn(|| self.machine.next_call(self.now)).map(|(ticket, _)| ticket).collect()
    }

    fn positions(&mut self) -> Vec<i64> {
        self.calls().iter().map(|ticket| ticket.position).collect()
    }

    fn end(&mut self, ticket: &Ticket, result: Published) -> Option<Change> {
        self.machine.published(ticket, result, self.now, 1.0)
    }

    /// Takes up one event for each of `keys`, at positions 1, 2, ..., and publishes them.
    fn publish(&mut self, keys: &[&str]) -> Vec<Ticket> {
        let acquired = (1..).zip(keys).map(|(position, key)| event(0, position, key)).collect();
        self.turn_brings(acquired);
        let calls = self.calls();
        assert_eq!(calls.len(), keys.len());
        calls
    }
}

fn lane(number: u32) -> Lane {
    Lane { number, epoch: 1 }
}

fn held(lanes: u32) -> Vec<Lane> {
    (0..lanes).map(lane).collect()
}

fn event(number: u32, position: i64, key: &str) -> Acquired {
    let event = Envelope {
        id: EventId([0; 16]),
        queue: "q".into(),
        topic: "t".into(),
        key: key.into(),
        kind: "e".into(),
        source: "/".into(),
        route: "r".into(),
        content_type: "application/json".into(),
        traceparent: None,
        attributes: Attributes::new(),
        data: Bytes::from_static(b"{}"),
    };
    Acquired {
        lane: lane(number),
        position,
        id: Some(EventId(i128::from(position).to_be_bytes())),
        key: key.into(),
        attempts: 1,
        deferrals: 0,
        came_early: false,
        deaths: 0,
        redrives: 0,
        on_failure: OnFailure::Hold,
        event: Ok(Outgoing {
            event,
            sequence: position,
            epoch: 1,
            time: Timestamp(0),
            attempts: 1,
            tried: false,
            redrives: 0,
        }),
    }
}

fn dying(number: u32, position: i64, deaths: u32) -> Acquired {
    Acquired { deaths, attempts: deaths + 1, ..event(number, position, "k") }
}

fn refused() -> Published {
    Err(PublishError::Refused("full".to_owned()))
}

fn unavailable() -> Published {
    Err(PublishError::Unavailable("gone".to_owned()))
}

/// What a turn concludes, in one word each.
fn words(turn: &Turn) -> Vec<(i64, &'static str)> {
    let word = |how: &How| match how {
        How::Sent { .. } => "sent",
        How::Retry { .. } => "retry",
        How::Later { .. } => "later",
        How::Early { .. } => "early",
        How::Parked { .. } => "parked",
        How::GivenBack => "given back",
        How::Waiting => "waits",
    };
    turn.conclusions.iter().map(|conclusion| (conclusion.position, word(&conclusion.how))).collect()
}

#[test]
fn one_commit_concludes_and_takes_up() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a", "b"]);
    desk.end(&calls[0], CONFIRMED);
    desk.end(&calls[1], CONFIRMED);
    desk.machine.woken();
    let turn = desk.turn();
    assert_eq!(words(&turn), [(1, "sent"), (2, "sent")]);
    assert_eq!(turn.wants.len(), 1);
}

#[test]
fn publishing_goes_on_while_a_turn_is_written() {
    let mut desk = Desk::new(1);
    let first = desk.publish(&["a", "b"]);
    desk.machine.woken();
    let turn = desk.turn();
    desk.end(&first[0], CONFIRMED);
    assert!(desk.machine.next_turn(desk.now).is_none(), "one at a time");
    desk.turned(&turn, vec![event(0, 3, "c")]);
    assert_eq!(desk.positions(), [3], "while the second is under way");
}

#[test]
fn a_slow_key_delays_nobodys_conclusion() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["slow", "b", "slow"]);
    desk.end(&calls[1], CONFIRMED);
    desk.end(&calls[2], CONFIRMED);
    assert!(desk.machine.next_turn(desk.now).is_none(), "a moment, since others are under way");
    desk.pass(options().linger);
    assert_eq!(words(&desk.turn()), [(2, "sent")]);
}

#[test]
fn conclusions_wait_for_nobody_when_nothing_is_under_way() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a"]);
    desk.end(&calls[0], CONFIRMED);
    let turn = desk.machine.next_turn(desk.now).unwrap();
    assert_eq!(words(&turn), [(1, "sent")]);
}

#[test]
fn wakes_gather_for_a_moment_unless_nothing_is_in_hand() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a"]);
    desk.machine.woken();
    assert!(desk.machine.next_turn(desk.now).is_none());
    desk.end(&calls[0], CONFIRMED);
    assert_eq!(desk.machine.next_turn(desk.now).unwrap().wants.len(), 1);
}

#[test]
fn what_was_given_back_and_came_again_is_published_in_its_new_place() {
    let mut desk = Desk::with(RelayOptions { calls: 1, ..options() }, Ordering::OneByOne, 2);
    desk.turn_brings(vec![event(0, 1, "a"), event(0, 7, "b")]);
    let calls = desk.calls();
    assert_eq!(calls.len(), 1, "the second waits for its turn");
    desk.end(&calls[0], unavailable());
    let turn = desk.turn_brings(vec![]);
    assert_eq!(turn.conclusions.len(), 2);
    desk.pass(options().outage.first);
    desk.turn_brings(vec![event(0, 5, "b"), event(0, 7, "b")]);
    let calls = desk.calls();
    assert_eq!(calls.iter().map(|ticket| ticket.position).collect::<Vec<_>>(), [5]);
}

#[test]
fn who_hears_of_something_looks_for_lanes_that_are_free_but_not_each_time() {
    let mut desk = Desk::new(2);
    desk.machine.woken();
    assert_eq!(desk.machine.next_lane_call(desk.now), None);
    desk.pass(options().renew / 10);
    assert_eq!(desk.machine.next_lane_call(desk.now), Some(LaneCall::Lease(Taking::Share)));
}

#[test]
fn the_window_bounds_what_is_in_hand() {
    let mut desk = Desk::new(1);
    let mut position = 0;
    let mut limits = Vec::new();
    while let Some(turn) = desk.machine.next_turn(desk.now) {
        let limit = turn.wants[0].limit;
        limits.push(limit);
        let acquired = (0..limit).map(|_| {
            position += 1;
            event(0, position, "hot")
        });
        desk.turned_with_more(&turn, acquired.collect(), vec![(lane(0), Reach::WHOLE)]);
        desk.pass(options().linger);
    }
    assert_eq!(limits, [16, 16], "half of the window for one lane");
    assert_eq!(desk.positions().len(), 32, "many of one key at once");
}

#[test]
fn bytes_bound_what_is_in_hand() {
    let mut desk = Desk::new(2);
    let mut large = event(0, 1, "a");
    if let Ok(outgoing) = &mut large.event {
        outgoing.event.data = vec![0; 700 << 10].into();
    }
    let turn = desk.turn_brings(vec![large]);
    assert_eq!(turn.bytes, 1 << 20);
    desk.machine.woken();
    desk.pass(options().linger);
    assert!(desk.machine.next_turn(desk.now).is_none());
    let calls = desk.calls();
    desk.end(&calls[0], CONFIRMED);
    assert_eq!(desk.turn().wants.len(), 2, "as soon as it is over");
}

#[test]
fn lanes_with_little_leave_their_room_to_a_hot_one() {
    let mut desk = Desk::with(RelayOptions { window_events: 96, ..options() }, Ordering::ByCall, 4);
    for expected in [[16, 16, 16, 16], [16, 16, 16, 48]] {
        let turn = desk.turn();
        let mut limits: Vec<u32> = turn.wants.iter().map(|want| want.limit).collect();
        limits.sort_unstable();
        assert_eq!(limits, expected);
        desk.turned_with_more(&turn, vec![], vec![(lane(0), Reach::WHOLE)]);
        desk.machine.woken();
    }
}

/// Beyond the end of a reach there may be an event of a key that has an earlier one, committed late, below its beginning.
#[test]
fn a_look_goes_on_where_the_last_one_ended_and_each_second_from_the_beginning() {
    let mut desk = Desk::new(1);
    let reach = |from| Reach { from, to: 100, session: 7 };
    for from in [10, 20, 30] {
        let turn = desk.turn();
        assert_eq!(turn.wants[0].reach, if from == 10 { Reach::WHOLE } else { reach(from - 10) });
        desk.machine.woken();
        desk.turned_with_more(&turn, vec![], vec![(lane(0), reach(from))]);
    }
    desk.pass(options().poll);
    let turn = desk.turn();
    assert_eq!(turn.wants[0].reach, Reach::WHOLE, "for what committed late");
    desk.turned_with_more(&turn, vec![], vec![(lane(0), reach(40))]);
    assert_eq!(desk.turn_brings(vec![]).wants[0].reach, reach(40));
    desk.machine.woken();
    assert_eq!(desk.turn().wants[0].reach, Reach::WHOLE, "a look that found everything ends it");
}

/// Of one key, 1 is given back while a look takes up what comes after 2: a look that went on would find 3 alone.
#[test]
fn what_is_given_back_is_looked_for_from_the_beginning() {
    let mut desk = Desk::with(options(), Ordering::ByCall, 1);
    let reach = Reach { from: 2, to: 100, session: 7 };
    let turn = desk.turn();
    desk.turned_with_more(&turn, vec![event(0, 1, "a")], vec![(lane(0), reach)]);
    let call = desk.calls().remove(0);
    let turn = desk.turn();
    assert_eq!(turn.wants[0].reach, reach);
    desk.end(&call, unavailable());
    desk.turned_with_more(&turn, vec![event(0, 2, "b")], vec![(lane(0), Reach { from: 3, ..reach })]);
    desk.pass(options().outage.first);
    let turn = desk.turn();
    assert_eq!(words(&turn), [(1, "given back"), (2, "given back")]);
    assert_eq!(turn.wants.first().map(|want| want.reach), Some(Reach::WHOLE));
}
