use std::time::Duration;

use oncegate::engine::ledger::Guarded;
use oncegate::outbox::store::{Acquired, How, Turn};

use super::{Ground, HOUR, Holder, New, SENT, conclusions, more, new, parked, positions, retry};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    a_retrying_event_stops_its_key_and_no_other,
    a_held_event_stops_its_key_and_a_skipped_one_does_not,
    one_that_nobody_can_publish_stops_its_key_in_its_place,
    a_long_line_drains_in_order_and_in_bounded_batches,
    those_in_flight_behind_a_failed_one_are_published_again_in_order,
    a_failure_in_the_middle_of_a_draining_line_stops_it_there,
    a_line_outlives_its_relay,
    what_was_given_back_of_a_draining_line_keeps_its_place,
    a_line_moves_although_its_lane_is_not_wanted,
    a_waiting_mark_without_anybody_in_front_waits_for_nobody,
    a_long_line_does_not_keep_the_other_keys_of_its_lane,
    lanes_of_other_queues_are_left_alone,
);

/// The due time of everything that is tried again is over.
async fn make_due(ground: &Ground) {
    ground.run("UPDATE events SET due_at = 1 WHERE state = 2").await;
}

async fn lines(ground: &Ground) -> i64 {
    ground.number("SELECT COUNT(*) FROM blocked").await
}

/// Publishes all that comes, turn by turn, and returns the order.
async fn drain(holder: &Holder<'_>, mut acquired: Vec<Acquired>) -> Vec<i64> {
    let mut published = Vec::new();
    loop {
        published.extend(positions(&acquired));
        let marks: Vec<_> = acquired.iter().map(|event| (event, SENT)).collect();
        let turned = holder.apply(&Turn { conclusions: conclusions(&marks), ..holder.turn() }).await;
        assert!(turned.concluded.iter().all(|done| *done == Guarded::Done));
        if turned.acquired.is_empty() && turned.more.is_empty() {
            return published;
        }
        acquired = turned.acquired;
    }
}

async fn a_retrying_event_stops_its_key_and_no_other(kind: Kind) {
    let ground = Ground::new(kind).await;
    let failing = ground.commit(new(0, "a")).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    holder.conclude(&[(&acquired[0], retry(HOUR))]).await;
    let behind = ground.commit_many(0, "a", 3).await;
    let others = [ground.commit(new(0, "b")).await, ground.commit(new(1, "a")).await];
    let turned = holder.apply(&holder.turn()).await;
    assert_eq!(positions(&turned.acquired), others, "the same key in another lane is another key");
    assert_eq!(more(&turned), [holder.lane(0)], "what it met had to wait");
    assert_eq!((ground.state(behind[0]).await, ground.state(behind[2]).await), (3, 3));
    assert_eq!(ground.column("attempts", behind[0]).await, 0);
    assert_eq!(holder.acquire().await, []);

    make_due(&ground).await;
    let acquired = holder.acquire().await;
    assert_eq!((positions(&acquired), acquired[0].attempts), (vec![failing], 2));
    let later = ground.commit(new(0, "a")).await;
    assert_eq!(holder.acquire().await, [], "the key is stopped until the first one is gone");
    assert_eq!(drain(&holder, acquired).await, [vec![failing], behind, vec![later]].concat());
    assert_eq!(lines(&ground).await, 0);
}

async fn a_held_event_stops_its_key_and_a_skipped_one_does_not(kind: Kind) {
    let ground = Ground::new(kind).await;
    let held = ground.commit(new(0, "held")).await;
    let skipped = ground.commit(New { holds: 0, ..new(0, "skipped") }).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let marks: Vec<_> = acquired.iter().map(|event| (event, parked())).collect();
    holder.conclude(&marks).await;
    assert_eq!((ground.state(held).await, ground.state(skipped).await), (4, 4));
    let behind = ground.commit(new(0, "held")).await;
    let free = ground.commit(New { holds: 0, ..new(0, "skipped") }).await;
    assert_eq!(positions(&holder.acquire().await), [free]);
    assert_eq!(ground.state(behind).await, 3);
}

/// Whoever stands in front of it, and whoever lets go of it: that nobody can publish it is not forgotten.
async fn one_that_nobody_can_publish_stops_its_key_in_its_place(kind: Kind) {
    let ground = Ground::new(kind).await;
    let mut all = Vec::new();
    for (key, holds) in [("held", 1), ("skipped", 0)] {
        let good = New { holds, ..new(0, key) };
        all.push([good, New { unfit: Some("no JSON"), ..good }, good]);
    }
    let mut expected = Vec::new();
    for place in 0..3 {
        for events in &all {
            expected.push(ground.commit(events[place]).await);
        }
    }
    let [.., held_unfit, skipped_unfit, held_last, skipped_last] = expected[..] else { panic!() };
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    assert_eq!(positions(&acquired), expected);
    let mut marks: Vec<_> = acquired.iter().map(|event| (event, How::Waiting)).collect();
    (marks[0].1, marks[1].1) = (retry(HOUR), retry(HOUR));
    assert_eq!(holder.go_on(&marks).await, []);

    make_due(&ground).await;
    let first = holder.acquire().await;
    assert_eq!(positions(&first), expected[..2]);
    let acquired = holder.go_on(&[(&first[0], SENT), (&first[1], SENT)]).await;
    assert_eq!(positions(&acquired), expected[2..]);
    let unfit: Vec<_> = acquired.iter().filter(|event| event.event.is_err()).collect();
    assert_eq!(unfit.iter().map(|event| event.position).collect::<Vec<_>>(), [held_unfit, skipped_unfit]);
    assert!(unfit.iter().all(|event| event.attempts == 1 && event.event == Err("no JSON".into())));
    let [held, skipped, behind, free] = &acquired[..] else { panic!() };
    let marks = [(held, parked()), (skipped, parked()), (behind, How::Waiting), (free, SENT)];
    assert_eq!(holder.go_on(&marks).await, []);
    let states = [ground.state(held_last).await, ground.state(skipped_last).await];
    assert_eq!(states, [3, 5]);
    let later = ground.commit(new(0, "held")).await;
    assert_eq!(holder.acquire().await, []);
    assert_eq!(ground.state(later).await, 3);
}

async fn a_long_line_drains_in_order_and_in_bounded_batches(kind: Kind) {
    let ground = Ground::new(kind).await;
    let first = ground.commit(new(0, "hot")).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    holder.conclude(&[(&acquired[0], retry(HOUR))]).await;
    let behind = ground.commit_many(0, "hot", 12).await;
    let want = |limit| Turn { wants: vec![holder.want(0, limit)], ..holder.empty() };
    for _ in 0..4 {
        assert_eq!(holder.apply(&want(4)).await.acquired, []);
    }
    assert_eq!(ground.number("SELECT COUNT(*) FROM events WHERE state = 3").await, 12);

    make_due(&ground).await;
    let mut acquired = holder.apply(&want(4)).await.acquired;
    let (mut published, mut turns) = (Vec::new(), 0);
    while !acquired.is_empty() {
        published.extend(positions(&acquired));
        let marks: Vec<_> = acquired.iter().map(|event| (event, SENT)).collect();
        let turn = Turn { conclusions: conclusions(&marks), ..want(8) };
        acquired = holder.apply(&turn).await.acquired;
        assert!(acquired.len() <= 4, "half of what is wanted");
        turns += 1;
    }
    assert_eq!(published, [vec![first], behind].concat());
    assert_eq!((turns, lines(&ground).await), (4, 0), "several at a time");
}

async fn those_in_flight_behind_a_failed_one_are_published_again_in_order(kind: Kind) {
    let ground = Ground::new(kind).await;
    let all = ground.commit_many(0, "a", 5).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let [one, two, three, four, five] = &acquired[..] else { panic!() };
    let marks = [(one, SENT), (two, retry(HOUR)), (three, How::Waiting), (four, How::Waiting), (five, How::Waiting)];
    assert_eq!(holder.go_on(&marks).await, []);
    assert_eq!((ground.state(all[1]).await, ground.state(all[2]).await), (2, 3));
    assert_eq!((ground.column("attempts", all[1]).await, ground.column("attempts", all[2]).await), (1, 0));
    make_due(&ground).await;
    let acquired = holder.acquire().await;
    assert_eq!(drain(&holder, acquired).await, all[1..]);
}

async fn a_failure_in_the_middle_of_a_draining_line_stops_it_there(kind: Kind) {
    let ground = Ground::new(kind).await;
    let all = ground.commit_many(0, "a", 6).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let mut marks: Vec<_> = acquired.iter().map(|event| (event, How::Waiting)).collect();
    marks[0].1 = retry(HOUR);
    holder.conclude(&marks).await;
    make_due(&ground).await;
    let first = holder.acquire().await;
    let drained = holder.go_on(&[(&first[0], SENT)]).await;
    assert_eq!(positions(&drained), all[1..]);
    let mut marks: Vec<_> = drained.iter().map(|event| (event, How::Waiting)).collect();
    (marks[0].1, marks[1].1) = (SENT, retry(HOUR));
    assert_eq!(holder.go_on(&marks).await, []);
    let later = ground.commit(new(0, "a")).await;
    assert_eq!(holder.acquire().await, []);
    make_due(&ground).await;
    let acquired = holder.acquire().await;
    assert_eq!(drain(&holder, acquired).await, [&all[2..], &[later]].concat());
}

/// In the middle of a line's draining the relay dies. What it had in hand comes first, one by one.
async fn a_line_outlives_its_relay(kind: Kind) {
    let ground = Ground::new(kind).await;
    let all = ground.commit_many(0, "a", 6).await;
    let dead = ground.holder().await;
    let acquired = dead.acquire().await;
    let mut marks: Vec<_> = acquired.iter().map(|event| (event, How::Waiting)).collect();
    marks[0].1 = retry(HOUR);
    dead.conclude(&marks).await;
    make_due(&ground).await;
    let first = dead.acquire().await;
    let turn = Turn { conclusions: conclusions(&[(&first[0], SENT)]), wants: vec![dead.want(0, 6)], ..dead.empty() };
    assert_eq!(positions(&dead.apply(&turn).await.acquired), all[1..4]);
    let later = ground.commit(new(0, "a")).await;

    let heir = ground.heir().await;
    let acquired = heir.acquire().await;
    assert_eq!((positions(&acquired), acquired[0].deaths), (vec![all[1]], 1));
    let acquired = heir.go_on(&[(&acquired[0], SENT)]).await;
    assert_eq!((positions(&acquired), acquired[0].deaths), (vec![all[2]], 1), "alone");
    assert_eq!(drain(&heir, acquired).await, [&all[2..], &[later]].concat());
    assert_eq!(lines(&ground).await, 0);
}

async fn what_was_given_back_of_a_draining_line_keeps_its_place(kind: Kind) {
    let ground = Ground::new(kind).await;
    let all = ground.commit_many(0, "a", 6).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let mut marks: Vec<_> = acquired.iter().map(|event| (event, How::Waiting)).collect();
    marks[0].1 = retry(HOUR);
    holder.conclude(&marks).await;
    make_due(&ground).await;
    let first = holder.acquire().await;
    let turn =
        Turn { conclusions: conclusions(&[(&first[0], SENT)]), wants: vec![holder.want(0, 4)], ..holder.empty() };
    let drained = holder.apply(&turn).await.acquired;
    assert_eq!(positions(&drained), all[1..3]);
    let marks: Vec<_> = drained.iter().map(|event| (event, How::GivenBack)).collect();
    let acquired = holder.go_on(&marks).await;
    assert_eq!(positions(&acquired)[0], all[1]);
    assert_eq!(drain(&holder, acquired).await, all[1..]);
}

/// The relay drains the lane, or its queue is away: the next who wants it finds the line's first.
async fn a_line_moves_although_its_lane_is_not_wanted(kind: Kind) {
    let ground = Ground::new(kind).await;
    let all = ground.commit_many(0, "a", 3).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let [one, two, three] = &acquired[..] else { panic!() };
    holder.conclude(&[(one, retry(Duration::ZERO)), (two, How::Waiting), (three, How::Waiting)]).await;
    let acquired = holder.acquire().await;
    assert_eq!(positions(&acquired), all[..1]);
    holder.conclude(&[(&acquired[0], SENT)]).await;
    assert_eq!((ground.state(all[1]).await, ground.state(all[2]).await), (1, 3));
    let acquired = ground.heir().await.acquire().await;
    assert_eq!(positions(&acquired), all[1..2]);
}

async fn a_waiting_mark_without_anybody_in_front_waits_for_nobody(kind: Kind) {
    let ground = Ground::new(kind).await;
    let all = ground.commit_many(0, "a", 2).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let marks: Vec<_> = acquired.iter().map(|event| (event, How::Waiting)).collect();
    let acquired = holder.go_on(&marks).await;
    assert_eq!(drain(&holder, acquired).await, all);
    assert_eq!(lines(&ground).await, 0);
}

async fn a_long_line_does_not_keep_the_other_keys_of_its_lane(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit_many(0, "hot", 8).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let mut marks: Vec<_> = acquired.iter().map(|event| (event, How::Waiting)).collect();
    marks[0].1 = retry(HOUR);
    holder.conclude(&marks).await;
    make_due(&ground).await;
    let first = holder.acquire().await;
    let others = ground.commit_many(0, "cold", 4).await;
    let turn =
        Turn { conclusions: conclusions(&[(&first[0], SENT)]), wants: vec![holder.want(0, 4)], ..holder.empty() };
    let acquired = holder.apply(&turn).await.acquired;
    let cold = acquired.iter().filter(|event| &*event.key == "cold").count();
    assert_eq!((acquired.len(), cold), (4, 2));
    assert_eq!(positions(&acquired)[2..], others[..2]);
}

async fn lanes_of_other_queues_are_left_alone(kind: Kind) {
    let ground = Ground::new(kind).await;
    let event = ground.commit(new(0, "a")).await;
    ground.run("UPDATE events SET queue = 'other'").await;
    let holder = ground.holder().await;
    assert_eq!(holder.acquire().await, []);
    ground.run("UPDATE events SET state = 1, epoch = 1, attempts = 1").await;
    let mark = oncegate::outbox::store::Conclusion { lane: holder.lane(0), position: event, id: None, how: SENT };
    let turned = holder.apply(&Turn { conclusions: vec![mark], ..holder.empty() }).await;
    assert_eq!(turned.concluded, [Guarded::Fenced]);
}
