//! The table of the module, row by row.

use bytes::Bytes;

use super::*;
use crate::broker::CONFIRMED;
use crate::clock::Timestamp;
use crate::outbox::event::{Attributes, Envelope, EventId};

const KEEP: Duration = Duration::from_secs(60);
const RULES: Rules = Rules {
    attempts: 3,
    retry: Backoff { first: Duration::from_secs(1), max: Duration::from_secs(8) },
    later: Backoff { first: Duration::from_secs(2), max: Duration::from_secs(16) },
    keep: KEEP,
    jitter: 1.0,
    late: Late::Goes,
};

fn outgoing(position: i64) -> Box<Outgoing> {
    let event = Envelope {
        id: EventId([0; 16]),
        queue: "q".into(),
        topic: "t".into(),
        key: "k".into(),
        kind: "e".into(),
        source: "/".into(),
        route: "r".into(),
        content_type: "application/json".into(),
        traceparent: None,
        attributes: Attributes::new(),
        data: Bytes::from_static(b"{}"),
    };
    Box::new(Outgoing {
        event,
        sequence: position,
        epoch: 1,
        time: Timestamp(0),
        attempts: 1,
        tried: false,
        redrives: 0,
    })
}

fn in_hand(position: i64, attempts: u32, on_failure: OnFailure) -> InHand {
    InHand {
        position,
        id: None,
        serial: 7,
        attempts,
        deferrals: 0,
        on_failure,
        deaths: 0,
        redrives: 0,
        topic: "t".into(),
        bytes: 1,
        state: InHandState::Unpublished(outgoing(position)),
    }
}

/// A line of so many events at positions 1, 2, ..., all under way at their first attempt.
fn under_way(count: i64, on_failure: OnFailure) -> Line {
    let mut line = Line::default();
    for position in 1..=count {
        line.push(in_hand(position, 1, on_failure), &RULES);
    }
    for position in 1..=count {
        assert!(line.publish(position, Ordering::ByCall).is_some());
    }
    line
}

fn refused() -> Published {
    Err(PublishError::Refused("full".to_owned()))
}

fn never() -> Published {
    Err(PublishError::Never("too large".to_owned()))
}

fn unavailable() -> Published {
    Err(PublishError::Unavailable("gone".to_owned()))
}

fn later() -> Published {
    Err(PublishError::Later("in progress".to_owned()))
}

fn early() -> Published {
    Err(PublishError::Early("version 2 is missing".to_owned()))
}

/// What left the line, in one word each.
fn words(left: &[Left]) -> Vec<(i64, &'static str)> {
    let word = |left: &Left| match (&left.how, left.stops) {
        (How::Sent { keep, .. }, false) if *keep == KEEP => "sent",
        (How::Retry { .. }, true) => "retry",
        (How::Later { .. }, true) => "later",
        (How::Early { .. }, false) => "early",
        (How::Parked { .. }, true) => "parked, holds",
        (How::Parked { .. }, false) => "parked, skipped",
        (How::GivenBack, false) => "given back",
        (How::Waiting, false) => "waits",
        _ => panic!("{left:?}"),
    };
    left.iter().map(|left| (left.position, word(left))).collect()
}

/// Ends calls one after the other and says what left the line after each.
fn end(line: &mut Line, results: Vec<(i64, Published)>) -> Vec<Vec<(i64, &'static str)>> {
    let step = |(position, result)| {
        assert!(line.ended(position, result, &RULES), "{position}");
        words(&line.settle(&RULES))
    };
    results.into_iter().map(step).collect()
}

#[test]
fn only_the_confirmed_beginning_is_sent() {
    let mut line = under_way(3, OnFailure::Hold);
    let left = end(&mut line, vec![(2, CONFIRMED), (1, CONFIRMED), (3, CONFIRMED)]);
    assert_eq!(left, [vec![], vec![(1, "sent"), (2, "sent")], vec![(3, "sent")]]);
    assert!(line.is_empty());
}

#[test]
fn a_line_ends_at_a_refused_head_once_everything_is_back() {
    for on_failure in [OnFailure::Hold, OnFailure::Skip] {
        let mut line = under_way(4, on_failure);
        let left = end(&mut line, vec![(1, CONFIRMED), (4, CONFIRMED), (2, refused()), (3, CONFIRMED)]);
        let whole = vec![(2, "retry"), (3, "waits"), (4, "waits")];
        assert_eq!(left, [vec![(1, "sent")], vec![], vec![], whole], "{on_failure:?}");
    }
}

#[test]
fn what_failed_behind_the_head_is_told_when_it_is_the_head() {
    let mut line = under_way(2, OnFailure::Hold);
    assert_eq!(end(&mut line, vec![(2, never()), (1, CONFIRMED)]), [vec![], vec![(1, "sent"), (2, "parked, holds")]]);
    let mut line = under_way(2, OnFailure::Hold);
    let left = end(&mut line, vec![(2, never()), (1, refused())]);
    assert_eq!(left, [vec![], vec![(1, "retry"), (2, "waits")]], "it is tried again after the first");
}

#[test]
fn who_failed_for_good_holds_its_key_or_lets_it_go_on() {
    let cases = [
        (OnFailure::Hold, vec![vec![], vec![(1, "parked, holds"), (2, "waits")]]),
        (OnFailure::Skip, vec![vec![(1, "parked, skipped")], vec![(2, "sent")]]),
    ];
    for (on_failure, expected) in cases {
        let mut line = under_way(2, on_failure);
        assert_eq!(end(&mut line, vec![(1, never()), (2, CONFIRMED)]), expected, "{on_failure:?}");
    }
}

#[test]
fn attempts_are_used_up_and_the_pauses_between_them_grow() {
    for (attempts, expected) in [(1, Some(1)), (2, Some(2)), (3, None), (9, None)] {
        let mut line = Line::default();
        line.push(in_hand(1, attempts, OnFailure::Hold), &RULES);
        line.publish(1, Ordering::ByCall).unwrap();
        line.ended(1, refused(), &RULES);
        let left = line.settle(&RULES);
        match (&left[0].how, expected) {
            (How::Retry { after, reason }, Some(seconds)) => {
                assert_eq!(*after, Duration::from_secs(seconds));
                assert!(reason.contains("full"), "{reason}");
            }
            (How::Parked { reason, .. }, None) => assert!(reason.contains("full"), "{reason}"),
            other => panic!("attempt {attempts}: {other:?}"),
        }
    }
}

#[test]
fn what_can_not_be_now_stops_its_key_however_often_and_its_pauses_grow() {
    for (deferrals, seconds) in [(0, 2), (1, 4), (2, 8), (3, 16), (1000, 16)] {
        let mut line = under_way(1, OnFailure::Skip);
        line.events[0].attempts = RULES.attempts;
        line.events[0].deferrals = deferrals;
        line.push(in_hand(2, 1, OnFailure::Skip), &RULES);
        line.ended(1, later(), &RULES);
        let left = line.settle(&RULES);
        assert_eq!(words(&left), [(1, "later"), (2, "waits")]);
        let How::Later { after, reason } = &left[0].how else { panic!("{left:?}") };
        assert_eq!((*after, &**reason), (Duration::from_secs(seconds), "not now: in progress"), "{deferrals}");
    }
}

#[test]
fn who_came_early_leaves_its_place_to_the_next_one() {
    let mut line = Line::default();
    for position in 1..=3 {
        line.push(in_hand(position, RULES.attempts, OnFailure::Hold), &RULES);
    }
    line.publish(1, Ordering::OneByOne).unwrap();
    line.ended(1, early(), &RULES);
    let left = line.settle(&RULES);
    assert_eq!(words(&left), [(1, "early")]);
    assert!(matches!(&left[0].how, How::Early { after, .. } if *after == Duration::from_secs(2)), "{left:?}");
    line.publish(2, Ordering::OneByOne).unwrap();
    assert_eq!(end(&mut line, vec![(2, later())]), [vec![(2, "later"), (3, "waits")]]);
}

#[test]
fn what_came_of_an_event_goes_on_record() {
    let judged = Err(PublishError::Judged { result: "conflict", reason: "another message".to_owned() });
    let applied = Ok(Confirmed { result: Some("applied"), frees: Some(7) });
    let cases = [
        (applied, How::Sent { keep: KEEP, result: Some("applied"), frees: Some(7) }),
        (judged, How::Parked { reason: "another message".into(), result: Some("conflict") }),
        (never(), How::Parked { reason: never().unwrap_err().to_string().into(), result: None }),
    ];
    for (result, how) in cases {
        let mut line = under_way(1, OnFailure::Hold);
        line.ended(1, result, &RULES);
        assert_eq!(line.settle(&RULES)[0].how, how);
    }
}

#[test]
fn a_broker_that_is_away_costs_nothing() {
    let mut line = under_way(3, OnFailure::Skip);
    let left = end(&mut line, vec![(1, CONFIRMED), (2, unavailable()), (3, CONFIRMED)]);
    let overtook = vec![(2, "given back"), (3, "given back")];
    assert_eq!(left, [vec![(1, "sent")], vec![], overtook], "what overtook it comes again after it");
}

#[test]
fn recalled_lines_publish_nothing_more_and_keep_what_is_confirmed() {
    let mut line = under_way(1, OnFailure::Hold);
    line.push(in_hand(2, 1, OnFailure::Hold), &RULES);
    line.recall();
    assert_eq!(line.publish(2, Ordering::ByCall), None);
    assert_eq!(words(&line.settle(&RULES)), [], "the first is under way");
    assert_eq!(end(&mut line, vec![(1, CONFIRMED)]), [vec![(1, "sent"), (2, "given back")]]);
}

#[test]
fn an_abandoned_line_gives_back_what_is_not_known() {
    let mut line = under_way(3, OnFailure::Hold);
    assert_eq!(end(&mut line, vec![(1, CONFIRMED), (3, CONFIRMED)]), [vec![(1, "sent")], vec![]]);
    assert_eq!(words(&line.abandon(&RULES)), [(2, "given back"), (3, "given back")]);
}

#[test]
fn one_by_one_the_next_follows_the_confirm() {
    let mut line = Line::default();
    for position in 1..=2 {
        line.push(in_hand(position, 1, OnFailure::Hold), &RULES);
    }
    assert!(line.publish(2, Ordering::OneByOne).is_none());
    assert!(line.publish(1, Ordering::OneByOne).is_some());
    assert!(line.publish(2, Ordering::OneByOne).is_none());
    assert_eq!(end(&mut line, vec![(1, CONFIRMED)]), [vec![(1, "sent")]]);
    assert_eq!(line.unpublished_head(), Some((2, 7)));
    assert!(line.publish(2, Ordering::OneByOne).is_some());
    assert!(line.publish(2, Ordering::OneByOne).is_none(), "once");
}

#[test]
fn nothing_is_published_behind_what_will_stop_the_line() {
    let cases: [(InHandState, bool, &str); 4] = [
        (InHandState::Unpublishable("no".into()), false, "can't be published"),
        (InHandState::Ended(refused()), false, "refused"),
        (InHandState::Ended(unavailable()), false, "not available"),
        (InHandState::Ended(CONFIRMED), true, "confirmed"),
    ];
    for (state, is_published, what) in cases {
        let mut line = under_way(1, OnFailure::Hold);
        line.push(InHand { state, ..in_hand(2, 1, OnFailure::Hold) }, &RULES);
        line.push(in_hand(3, 1, OnFailure::Hold), &RULES);
        assert_eq!(line.publish(3, Ordering::ByCall).is_some(), is_published, "{what}");
    }
}

#[test]
fn what_is_before_an_unpublishable_one_goes_first() {
    let mut line = Line::default();
    line.push(in_hand(1, 1, OnFailure::Hold), &RULES);
    line.push(InHand { state: InHandState::Unpublishable("no".into()), ..in_hand(2, 1, OnFailure::Hold) }, &RULES);
    assert_eq!(words(&line.settle(&RULES)), []);
    assert!(line.publish(1, Ordering::ByCall).is_some());
    assert_eq!(end(&mut line, vec![(1, CONFIRMED)]), [vec![(1, "sent"), (2, "parked, holds")]]);
}

#[test]
fn a_result_that_nobody_waits_for_changes_nothing() {
    let mut line = under_way(1, OnFailure::Hold);
    assert!(!line.ended(7, CONFIRMED, &RULES));
    assert_eq!(end(&mut line, vec![(1, CONFIRMED)]), [vec![(1, "sent")]]);
    line.push(in_hand(2, 1, OnFailure::Hold), &RULES);
    assert!(!line.ended(2, CONFIRMED, &RULES), "it was not published");
    assert_eq!(words(&line.settle(&RULES)), []);
}

#[test]
fn reasons_are_bounded_and_can_be_stored() {
    let reason = text(format!("a\0b{}", "ü".repeat(MAX_REASON_BYTES)));
    assert!(reason.len() <= MAX_REASON_BYTES && reason.starts_with("abü") && reason.ends_with('ü'), "{reason}");
}
