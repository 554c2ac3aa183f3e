//! A database that has crashed, and has forgotten its last commits.

use super::*;

#[test]
fn what_the_database_has_forgotten_to_be_in_hand_still_is() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a", "a"]);
    desk.machine.woken();
    desk.turn_brings(vec![event(0, 1, "a"), event(0, 2, "a"), event(0, 3, "a")]);
    assert_eq!((desk.positions(), desk.machine.in_hand()), (vec![3], 3));
    desk.end(&calls[0], CONFIRMED);
    desk.end(&calls[1], CONFIRMED);
    assert_eq!(words(&desk.turn()), [(1, "sent"), (2, "sent")]);
}

/// 1 is confirmed, and its conclusion meets a row that is not in hand; the same turn takes it up again. Published once
/// more, it would come behind 2, which is under way.
#[test]
fn what_was_confirmed_is_not_published_again_behind_those_of_its_key_in_hand() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a", "a"]);
    desk.end(&calls[0], CONFIRMED);
    desk.machine.woken();
    let turn = desk.turn();
    assert_eq!((words(&turn), turn.wants.len()), (vec![(1, "sent")], 1));
    let concluded = vec![Guarded::Fenced];
    let acquired = vec![event(0, 1, "a"), event(0, 2, "a")];
    let turned = Turned { now: Timestamp(0), lost: vec![], concluded, acquired, more: vec![] };
    desk.machine.turned(Ok(turned), desk.now);
    assert_eq!((desk.positions(), desk.machine.in_hand()), (vec![], 1));
    desk.end(&calls[1], CONFIRMED);
    assert_eq!(words(&desk.turn()), [(1, "sent"), (2, "sent")], "once more");
}

/// The same, while the turn that takes it up was on its way: its conclusion waits already.
#[test]
fn what_was_confirmed_while_it_was_taken_up_again_is_concluded_once() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a", "a"]);
    desk.machine.woken();
    let turn = desk.turn();
    desk.end(&calls[0], CONFIRMED);
    desk.turned(&turn, vec![event(0, 1, "a"), event(0, 2, "a")]);
    assert_eq!((desk.positions(), desk.machine.in_hand()), (vec![], 1));
    desk.pass(options().linger);
    assert_eq!(words(&desk.turn()), [(1, "sent")]);
}

#[test]
fn what_was_skipped_is_not_published_again_behind_those_of_its_key_in_hand() {
    let mut desk = Desk::new(1);
    let skipped = |position| Acquired { on_failure: OnFailure::Skip, ..event(0, position, "a") };
    desk.turn_brings(vec![skipped(1), skipped(2)]);
    let calls = desk.calls();
    desk.end(&calls[0], Err(PublishError::Never("too large".to_owned())));
    desk.machine.woken();
    assert_eq!(words(&desk.turn_brings(vec![skipped(1), skipped(2)])), [(1, "parked")]);
    assert_eq!(desk.positions(), [0; 0]);
    desk.pass(options().linger);
    assert_eq!(words(&desk.turn()), [(1, "parked")]);
}

#[test]
fn what_a_person_wants_to_be_published_again_is() {
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a", "a"]);
    desk.end(&calls[0], CONFIRMED);
    desk.machine.woken();
    desk.turn_brings(vec![]);
    desk.machine.woken();
    desk.turn_brings(vec![Acquired { redrives: 1, ..event(0, 1, "a") }]);
    assert_eq!(desk.positions(), [1]);
}

/// A failover has lost the commit of 1, and its position has been given out again.
#[test]
fn what_has_the_place_of_one_that_is_lost_is_not_taken_for_it() {
    let new = || Acquired { id: Some(EventId([7; 16])), ..event(0, 1, "a") };
    let mut desk = Desk::new(1);
    let calls = desk.publish(&["a", "a"]);
    desk.machine.woken();
    desk.turn_brings(vec![new()]);
    assert_eq!(desk.positions(), [0; 0], "its place is taken for now");
    desk.end(&calls[0], CONFIRMED);
    desk.pass(options().linger);
    let turn = desk.turn_brings(vec![new()]);
    let ids: Vec<_> = turn.conclusions.iter().map(|conclusion| conclusion.id).collect();
    assert_eq!(words(&turn), [(1, "given back"), (1, "sent")]);
    assert_eq!(ids, [new().id, event(0, 1, "a").id]);
    assert_eq!(desk.positions(), [1]);
}
