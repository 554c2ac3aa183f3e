//! Deadly events, and how a relay ends.

use super::*;

#[test]
fn one_that_a_relay_died_of_keeps_its_lane_until_it_is_concluded() {
    let mut desk = Desk::new(2);
    desk.turn_brings(vec![dying(0, 1, 1), event(1, 2, "b")]);
    let calls = desk.calls();
    assert_eq!(calls.len(), 2, "other lanes go on");
    desk.machine.woken();
    let turn = desk.turn_brings(vec![]);
    assert_eq!(turn.wants.iter().map(|want| want.lane).collect::<Vec<_>>(), [lane(1)]);
    desk.end(&calls[0], CONFIRMED);
    desk.machine.woken();
    assert_eq!(desk.turn().wants.len(), 2);
}

#[test]
fn one_that_two_relays_died_of_is_taken_up_and_published_alone() {
    let mut desk = Desk::new(2);
    desk.turn_brings(vec![event(1, 1, "a"), dying(0, 2, 2), event(1, 3, "b")]);
    assert_eq!(desk.positions(), [0; 0]);
    desk.machine.woken();
    let turn = desk.turn_brings(vec![]);
    assert_eq!((words(&turn), turn.wants.len()), (vec![(2, "given back")], 0), "not beside others");
    let calls = desk.calls();
    assert_eq!(calls.iter().map(|ticket| ticket.position).collect::<Vec<_>>(), [1, 3], "now it is on record");
    desk.end(&calls[0], CONFIRMED);
    desk.end(&calls[1], CONFIRMED);
    let turn = desk.turn_brings(vec![dying(0, 2, 2)]);
    assert_eq!((words(&turn), turn.wants.len()), (vec![(1, "sent"), (3, "sent")], 1));
    assert_eq!((turn.wants[0].lane, turn.wants[0].limit), (lane(0), 1));
    let suspect = desk.calls();
    desk.machine.woken();
    desk.pass(options().linger);
    assert!(desk.machine.next_turn(desk.now).is_none(), "nothing beside it");
    desk.end(&suspect[0], CONFIRMED);
    let turn = desk.turn();
    assert_eq!((words(&turn), turn.wants.len()), (vec![(2, "sent")], 2));
}

#[test]
fn one_that_too_many_relays_died_of_is_parked_unpublished() {
    let mut desk = Desk::new(1);
    desk.turn_brings(vec![dying(0, 1, options().crash_attempts)]);
    assert_eq!(desk.positions(), [0; 0]);
    let turn = desk.turn();
    assert_eq!(words(&turn), [(1, "parked")]);
    assert!(matches!(&turn.conclusions[0].how, How::Parked { reason, .. } if reason.contains("died 5 times")));
}

#[test]
fn one_that_nobody_can_read_is_parked_and_the_others_go_on() {
    let mut desk = Desk::new(1);
    desk.turn_brings(vec![Acquired { event: Err("no such type".into()), ..event(0, 1, "a") }, event(0, 2, "b")]);
    assert_eq!(desk.positions(), [2]);
    desk.pass(options().linger);
    assert_eq!(words(&desk.turn()), [(1, "parked")]);
}

#[test]
fn lanes_above_the_share_are_drained_and_let_go() {
    let mut desk = Desk::new(2);
    desk.turn_brings(vec![event(0, 1, "a"), event(1, 2, "b"), event(1, 3, "b"), event(1, 4, "c")]);
    let calls = desk.calls();
    desk.pass(options().renew);
    desk.machine.next_lane_call(desk.now).unwrap();
    desk.leased(&held(2), 1, desk.now);
    assert_eq!(desk.machine.next_lane_call(desk.now), None, "lane 0 has less in hand, and it is under way");
    desk.machine.woken();
    let turn = desk.turn_brings(vec![]);
    assert_eq!(turn.wants.iter().map(|want| want.lane).collect::<Vec<_>>(), [lane(1)]);
    desk.end(&calls[0], CONFIRMED);
    assert_eq!(desk.machine.next_lane_call(desk.now), None, "it is not written yet");
    desk.pass(options().linger);
    desk.turn_brings(vec![]);
    assert_eq!(desk.machine.next_lane_call(desk.now), Some(LaneCall::Release(vec![lane(0)])));
    desk.machine.released(&[lane(0)]);
    assert_eq!(desk.machine.held().collect::<Vec<_>>(), [lane(1)]);
    assert!(desk.machine.has_neighbours());
}

#[test]
fn a_stop_gives_back_awaits_and_lets_go_at_once() {
    let mut desk = Desk::with(options(), Ordering::OneByOne, 1);
    desk.turn_brings(vec![event(0, 1, "a"), event(0, 2, "a"), event(0, 3, "b")]);
    let calls = desk.calls();
    assert_eq!(calls.len(), 2, "one of each key");
    desk.machine.stop(desk.now);
    desk.machine.woken();
    assert!(desk.machine.next_turn(desk.now).is_none(), "both are under way");
    desk.end(&calls[0], CONFIRMED);
    assert_eq!(words(&desk.turn_brings(vec![])), [(1, "sent"), (2, "given back")]);
    assert_eq!(desk.machine.next_lane_call(desk.now), None);
    desk.end(&calls[1], CONFIRMED);
    assert_eq!(words(&desk.turn_brings(vec![])), [(3, "sent")]);
    assert_eq!(desk.machine.next_lane_call(desk.now), Some(LaneCall::Retire));
    desk.machine.retired();
    assert!(desk.machine.is_done());
}

#[test]
fn giving_up_gives_back_what_is_under_way() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a", "a"]);
    desk.end(&calls[1], CONFIRMED);
    desk.machine.stop(desk.now);
    desk.machine.give_up(desk.now);
    assert_eq!(words(&desk.turn_brings(vec![])), [(1, "given back"), (2, "given back")]);
    assert_eq!(desk.machine.next_lane_call(desk.now), Some(LaneCall::Retire));
}

#[test]
fn one_by_one_calls_are_bounded() {
    let mut desk = Desk::with(RelayOptions { calls: 2, ..options() }, Ordering::OneByOne, 1);
    desk.turn_brings(vec![event(0, 1, "a"), event(0, 2, "b"), event(0, 3, "c"), event(0, 4, "a")]);
    let calls = desk.calls();
    assert_eq!(calls.len(), 2);
    desk.end(&calls[0], CONFIRMED);
    assert_eq!(desk.positions(), [3], "then the next key's");
    desk.end(&calls[1], CONFIRMED);
    assert_eq!(desk.positions(), [4], "the second of the first key, after its confirm");
}
