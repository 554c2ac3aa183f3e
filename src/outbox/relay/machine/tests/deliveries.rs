//! What only deliveries come to.

use super::*;

fn later() -> Published {
    Err(PublishError::Later("in progress".to_owned()))
}

fn early() -> Published {
    Err(PublishError::Early("version 2 is missing".to_owned()))
}

fn one_by_one() -> Desk {
    Desk::with(options(), Ordering::OneByOne, 1)
}

#[test]
fn what_can_not_be_now_comes_again_after_its_pause_and_nobody_is_ill() {
    let mut desk = one_by_one();
    let pause = options().later.first;
    desk.turn_brings(vec![event(0, 1, "a"), event(0, 2, "a"), event(0, 3, "b")]);
    let calls = desk.calls();
    assert_eq!(desk.end(&calls[0], later()), None, "the others go on");
    assert_eq!(desk.end(&calls[1], CONFIRMED), None);
    let turn = desk.turn_brings(vec![]);
    assert_eq!(words(&turn), [(1, "later"), (2, "waits"), (3, "sent")]);
    assert!(turn.wants.iter().all(|want| want.reach == Reach::WHOLE && want.limit > 1), "with all its room");
    desk.pass(pause);
    assert!(desk.machine.next_turn(desk.now).is_none(), "not before the database counts it as due");
    assert_eq!(desk.machine.next_time(desk.now), desk.now + Duration::from_millis(1));
    desk.pass(Duration::from_millis(1));
    assert_eq!(desk.turn().wants[0].retries, Retries::Due);
}

#[test]
fn who_came_early_is_passed_and_comes_again() {
    let mut desk = one_by_one();
    desk.turn_brings(vec![event(0, 1, "a"), event(0, 2, "a")]);
    let calls = desk.calls();
    assert_eq!(calls.len(), 1);
    desk.end(&calls[0], early());
    assert_eq!(desk.positions(), [2]);
    assert_eq!(words(&desk.turn_brings(vec![])), [(1, "early")]);
    desk.pass(options().later.first + Duration::from_millis(1));
    assert_eq!(desk.turn().wants[0].retries, Retries::Due);
}

#[test]
fn who_came_early_stands_behind_nobody() {
    let early_again = |position| Acquired { came_early: true, deferrals: 1, ..event(0, position, "a") };
    // Another one of its key is in hand.
    let mut desk = one_by_one();
    desk.turn_brings(vec![event(0, 7, "a")]);
    let calls = desk.calls();
    desk.machine.woken();
    desk.turn_brings(vec![early_again(1)]);
    assert_eq!(words(&desk.turn_brings(vec![])), [(1, "early")]);
    // It has failed, which is not on record yet.
    desk.machine.woken();
    let turn = desk.turn();
    desk.end(&calls[0], refused());
    desk.turned(&turn, vec![early_again(1)]);
    assert_eq!(words(&desk.turn_brings(vec![])), [(7, "retry"), (1, "early")]);
    // Alone it is tried.
    desk.machine.woken();
    desk.turn_brings(vec![early_again(1), event(0, 8, "a")]);
    assert_eq!(desk.positions(), [1]);
}

#[test]
fn a_turn_says_what_becomes_of_what_is_parked() {
    let dead_letter = Some(DeadLetter { queue: "q".into(), topic: "dead".into() });
    let parking = Parking { result: Some("rejected"), dead_letter };
    let mut desk = Desk::with(RelayOptions { parking: parking.clone(), ..options() }, Ordering::OneByOne, 1);
    assert_eq!(desk.turn().parking, parking);
}

/// Its transaction was the slower one of two.
#[test]
fn who_was_committed_late_does_not_wait_in_front_of_who_stops_its_key() {
    let mut desk = Desk::with(RelayOptions { late: Late::Waits, ..options() }, Ordering::OneByOne, 1);
    desk.turn_brings(vec![event(0, 7, "a")]);
    let calls = desk.calls();
    desk.machine.woken();
    desk.turn_brings(vec![event(0, 3, "a"), event(0, 4, "b"), event(0, 8, "a")]);
    assert_eq!(desk.positions(), [4], "another key's");
    // It is unknown what became of the first one, and that is not on record yet.
    desk.machine.woken();
    let turn = desk.turn();
    desk.end(&calls[0], later());
    desk.turned(&turn, vec![event(0, 5, "a"), event(0, 9, "a")]);
    let expected = [(7, "later"), (3, "early"), (8, "waits"), (5, "early"), (9, "waits")];
    assert_eq!(words(&desk.turn_brings(vec![])), expected);
}

#[test]
fn who_was_committed_late_comes_after_whom_was_taken_up_before() {
    let mut desk = Desk::with(RelayOptions { late: Late::Waits, ..options() }, Ordering::OneByOne, 1);
    desk.turn_brings(vec![event(0, 7, "a")]);
    let calls = desk.calls();
    desk.machine.woken();
    desk.turn_brings(vec![event(0, 3, "a")]);
    assert!(desk.positions().is_empty());
    desk.end(&calls[0], CONFIRMED);
    assert_eq!(desk.positions(), [3], "however busy its key is");
}
