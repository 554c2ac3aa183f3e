//! Topics that take nothing while their broker is there.

use super::*;

fn topic_unavailable() -> Published {
    Err(PublishError::TopicUnavailable("no leader".to_owned()))
}

fn event_to(topic: &str, position: i64, key: &str) -> Acquired {
    let mut event = event(0, position, key);
    if let Ok(outgoing) = &mut event.event {
        outgoing.event.topic = topic.into();
    }
    event
}

#[test]
fn events_of_a_topic_that_is_not_available_are_out_of_the_way_of_others_uncalled() {
    for ordering in [Ordering::ByCall, Ordering::OneByOne] {
        let mut desk = Desk::with(options(), ordering, 1);
        desk.turn_brings(vec![event_to("ill", 1, "a"), event_to("well", 2, "b")]);
        let calls = desk.calls();
        assert_eq!(desk.end(&calls[0], topic_unavailable()), None, "the broker is there");
        desk.end(&calls[1], CONFIRMED);
        let turn = desk.turn_brings((3..6).map(|n| event_to("ill", n, &format!("k{n}"))).collect());
        assert_eq!(words(&turn), [(1, "later"), (2, "sent")]);
        assert_eq!(desk.positions(), [0; 0], "its topic rests");
        let turn = desk.turn_brings(vec![event_to("well", 6, "d")]);
        assert_eq!(words(&turn), [(3, "later"), (4, "later"), (5, "later")]);
        assert_eq!(desk.positions(), [6], "others go on");
        assert_eq!(desk.machine.trouble(), Some("topic ill: no leader"), "people are told");
    }
}

#[test]
fn one_event_tries_a_topic_that_rests_and_the_first_answer_opens_it() {
    let mut desk = Desk::new(1);
    let ill = |range: std::ops::Range<i64>| range.map(|n| event_to("ill", n, &format!("k{n}"))).collect::<Vec<_>>();
    desk.turn_brings(ill(1..2));
    let call = desk.calls().remove(0);
    desk.end(&call, topic_unavailable());
    desk.pass(options().outage.first);
    desk.turn_brings(ill(2..5));
    let calls = desk.calls();
    assert_eq!(calls.iter().map(|call| call.position).collect::<Vec<_>>(), [2]);
    desk.end(&calls[0], refused());
    desk.turn_brings(ill(5..8));
    assert_eq!(desk.positions(), [5, 6, 7], "an answer, good or bad");
    assert_eq!(desk.machine.trouble(), None);
}

#[test]
fn nobody_of_a_key_passes_one_whose_topic_rests() {
    let mut desk = Desk::new(1);
    desk.turn_brings(vec![event_to("ill", 1, "a"), event_to("well", 2, "b"), event_to("well", 3, "c")]);
    let calls = desk.calls();
    desk.end(&calls[0], topic_unavailable());
    desk.end(&calls[1], CONFIRMED);
    desk.turn_brings(vec![event_to("ill", 4, "b"), event_to("well", 5, "b"), event_to("well", 6, "c")]);
    assert_eq!(desk.positions(), [6]);
    assert_eq!(words(&desk.turn()), [(4, "later"), (5, "waits")]);
}

#[test]
fn nothing_is_taken_up_once_too_many_were_put_off_in_vain() {
    let mut desk = Desk::with(RelayOptions { window_events: 4096, poll: SECOND, ..options() }, Ordering::ByCall, 1);
    desk.turn_brings(vec![event_to("ill", 0, "k")]);
    let call = desk.calls().remove(0);
    desk.end(&call, topic_unavailable());
    let mut position = 0;
    let mut outcomes = Vec::new();
    // Turns that are due at once: time would end the rest.
    desk.machine.woken();
    while let Some(turn) = desk.machine.next_turn(desk.now) {
        outcomes.extend(words(&turn).into_iter().map(|(_, word)| word));
        let limit = turn.wants.iter().map(|want| want.limit).sum::<u32>();
        let acquired = (0..limit).map(|_| {
            position += 1;
            event_to("ill", position, &format!("k{position}"))
        });
        let more = turn.wants.iter().map(|want| (want.lane, Reach::WHOLE)).collect();
        desk.turned_with_more(&turn, acquired.collect(), more);
        assert_eq!(desk.positions(), [0; 0]);
        assert!(position < 3 * 4096, "it never ends");
    }
    assert!(outcomes.iter().filter(|word| **word == "later").count() > 4096);
    assert!(outcomes.contains(&"given back"));
    desk.pass(options().outage.first);
    let turn = desk.machine.next_turn(desk.now).expect("the topic is tried again");
    assert!(!turn.wants.is_empty());
}
