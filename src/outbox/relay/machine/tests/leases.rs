//! Leases, failed turns and outages.

use super::*;

#[test]
fn a_lease_counts_from_before_the_call() {
    let now = clock::now();
    let machine = Machine::new("q".into(), RelayId([1; 16]), options(), Ordering::ByCall, now);
    let mut desk = Desk { machine, now };
    desk.machine.next_lane_call(now).unwrap();
    desk.pass(options().lease);
    desk.leased(&held(1), 1, now);
    assert!(!desk.machine.is_leased(desk.now));
    assert!(desk.machine.next_turn(desk.now).is_none(), "it took a whole lease to get it");
    assert_eq!(desk.machine.next_lane_call(desk.now), Some(LaneCall::Lease(Taking::Share)));
    desk.leased(&held(1), 1, desk.now);
    assert!(desk.machine.next_turn(desk.now).is_some());
}

#[test]
fn past_the_lease_nothing_is_published_and_what_is_known_is_still_told() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a", "b"]);
    desk.machine.woken();
    let turn = desk.turn();
    desk.pass(options().lease);
    desk.turned(&turn, vec![event(0, 3, "c")]);
    assert_eq!(desk.positions(), [0; 0], "the fetch was slow");
    desk.end(&calls[0], CONFIRMED);
    desk.pass(options().linger);
    let turn = desk.turn();
    assert_eq!((words(&turn), turn.wants.len()), (vec![(1, "sent")], 0), "the guard decides about it");
    desk.turned(&turn, vec![]);
    desk.machine.next_lane_call(desk.now).unwrap();
    desk.leased(&held(1), 1, desk.now);
    assert_eq!(desk.positions(), [3], "nobody has taken the lane");
}

#[test]
fn what_is_in_hand_of_a_lost_lane_is_forgotten() {
    for (held, what) in [(vec![lane(1)], "missing"), (vec![Lane { number: 0, epoch: 2 }, lane(1)], "another epoch")] {
        let mut desk = Desk::new(2);
        let turn = desk.turn();
        let acquired = vec![event(0, 1, "a"), event(0, 2, "a"), event(0, 3, "b"), event(1, 4, "c")];
        desk.turned(&turn, acquired);
        let calls = desk.calls();
        desk.end(&calls[2], CONFIRMED);
        desk.leased(&held, 2, desk.now);
        assert_eq!(desk.machine.in_hand(), 1, "{what}");
        desk.end(&calls[0], CONFIRMED);
        desk.end(&calls[1], refused());
        desk.end(&calls[3], CONFIRMED);
        assert_eq!(words(&desk.turn()), [(4, "sent")], "{what}");
    }
}

#[test]
fn a_fenced_turn_loses_the_lane_and_asks_what_else_is_lost() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a", "b"]);
    desk.end(&calls[0], CONFIRMED);
    desk.pass(options().linger);
    let turn = desk.turn();
    let turned = Turned {
        now: Timestamp(0),
        lost: vec![lane(0)],
        concluded: vec![Guarded::Fenced; turn.conclusions.len()],
        acquired: vec![],
        more: vec![],
    };
    desk.machine.turned(Ok(turned), desk.now);
    assert_eq!((desk.machine.in_hand(), desk.machine.held().count()), (0, 0));
    assert_eq!(desk.machine.next_lane_call(desk.now), Some(LaneCall::Lease(Taking::Share)));
}

#[test]
fn a_turn_that_was_not_written_is_told_again_before_anything_newer() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a", "b"]);
    desk.end(&calls[0], CONFIRMED);
    desk.pass(options().linger);
    let turn = desk.turn();
    desk.end(&calls[1], CONFIRMED);
    desk.machine.turned(Err(StoreError::Unavailable("gone".to_owned())), desk.now);
    assert!(desk.machine.next_turn(desk.now).is_none(), "after a pause");
    desk.pass(SECOND);
    let again = desk.turn();
    assert_eq!((words(&turn), words(&again)), (vec![(1, "sent")], vec![(1, "sent"), (2, "sent")]));
    assert!(again.again.is_none());
}

#[test]
fn an_unclear_turn_is_applied_again_as_it_is_until_it_tells() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a", "b", "c"]);
    desk.end(&calls[0], CONFIRMED);
    desk.machine.woken();
    desk.pass(options().linger);
    let turn = desk.turn();
    desk.end(&calls[1], CONFIRMED);
    for error in [StoreError::CommitUnknown("cut".to_owned()), StoreError::Unavailable("gone".to_owned())] {
        desk.machine.turned(Err(error), desk.now);
        desk.pass(SECOND * 2);
        let again = desk.turn();
        assert_eq!((words(&again), &again.wants), (words(&turn), &turn.wants));
        let mut before = again.again.clone().unwrap();
        before.sort_unstable();
        assert_eq!(before, [1, 2, 3]);
    }
    desk.turned(&turn, vec![event(0, 4, "d")]);
    assert_eq!(desk.positions(), [4]);
    assert_eq!(words(&desk.turn()), [(2, "sent")]);
}

#[test]
fn what_the_database_refuses_is_told_without_what_people_were_to_read() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a"]);
    desk.end(&calls[0], refused());
    desk.turn();
    desk.machine.turned(Err(StoreError::Refused("no such character".to_owned())), desk.now);
    desk.pass(SECOND);
    let turn = desk.turn();
    assert!(matches!(&turn.conclusions[0].how, How::Retry { reason, .. } if reason.contains("could not be stored")));
}

#[test]
fn what_comes_in_behind_a_failure_that_is_not_written_yet_waits_with_it() {
    for (result, expected) in [(refused(), "waits"), (unavailable(), "given back")] {
        let mut desk = Desk::new(1);
        let calls = desk.publish(&["a", "other"]);
        desk.machine.woken();
        let turn = desk.turn();
        desk.end(&calls[0], result);
        desk.turned(&turn, vec![event(0, 3, "a")]);
        assert_eq!(desk.positions(), [0; 0], "{expected}");
        desk.end(&calls[1], CONFIRMED);
        let turn = desk.turn();
        assert_eq!(words(&turn)[1], (3, expected), "in the same turn");
    }
}

#[test]
fn an_outage_gives_back_what_is_not_published_and_one_event_tries() {
    let mut desk = Desk::new(2);
    let calls = desk.publish(&["a", "b"]);
    desk.machine.woken();
    desk.pass(options().linger);
    let turn = desk.turn();
    assert_eq!(desk.end(&calls[0], unavailable()), Some(Change::Away));
    desk.turned(&turn, vec![event(1, 3, "c")]);
    assert_eq!(desk.positions(), [0; 0]);
    desk.end(&calls[1], unavailable());
    let turn = desk.turn();
    assert_eq!(words(&turn), [(1, "given back"), (3, "given back"), (2, "given back")]);
    assert!(turn.wants.is_empty());
    desk.turned(&turn, vec![]);
    desk.machine.woken();
    assert!(desk.machine.next_turn(desk.now).is_none());
    desk.pass(options().outage.first);
    let turn = desk.turn();
    assert_eq!(turn.wants.iter().map(|want| want.limit).sum::<u32>(), 1);
    desk.turned(&turn, vec![event(turn.wants[0].lane.number, 1, "a")]);
    let calls = desk.calls();
    assert_eq!(desk.end(&calls[0], CONFIRMED), Some(Change::Back));
    desk.machine.woken();
    assert_eq!(desk.turn().wants.iter().map(|want| want.limit).sum::<u32>(), 2, "a slope");
}

#[test]
fn a_refused_event_is_looked_for_when_it_is_due() {
    let mut desk = Desk::with(RelayOptions { poll: SECOND * 3600, ..options() }, Ordering::ByCall, 1);
    let calls = desk.publish(&["a"]);
    desk.end(&calls[0], refused());
    let turn = desk.turn_brings(vec![]);
    let How::Retry { after, .. } = turn.conclusions[0].how else { panic!("{turn:?}") };
    desk.pass(after);
    assert!(desk.machine.next_turn(desk.now).is_none());
    let due = desk.machine.next_time(desk.now);
    assert!(due - desk.now <= Duration::from_millis(1), "the driver sleeps no longer");
    desk.pass(Duration::from_millis(1));
    assert_eq!(desk.turn().wants[0].retries, Retries::Due);
}
