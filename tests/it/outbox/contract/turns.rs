use std::time::Duration;

use oncegate::engine::ledger::{Guarded, StoreError};
use oncegate::outbox::event::{EventId, OnFailure};
use oncegate::outbox::store::{Conclusion, How, MAX_TURN, Outbox as _, Retries, Turn, Want};

use super::{Ground, HOUR, Holder, New, SENT, conclusions, more, new, parked, positions, retry};
use crate::servers::database::{Kind, Stranger, on_each_database};

on_each_database!(
    an_event_comes_as_it_was_committed,
    attempts_are_counted_when_taken_up_and_given_back,
    events_come_in_order_and_within_bounds,
    a_late_commit_of_a_lower_position_is_found,
    a_retry_comes_again_when_it_is_due_and_before_the_others,
    marks_of_a_lost_lane_are_refused,
    a_turn_that_is_applied_twice_counts_once,
    a_conclusion_that_is_not_in_hand_is_fenced,
    what_a_lost_turn_acquired_is_found_again,
    reasons_of_any_text_are_kept,
    a_turn_is_bounded,
);

async fn an_event_comes_as_it_was_committed(kind: Kind) {
    let ground = Ground::new(kind).await;
    let position = ground.commit(New { holds: 0, bytes: 3, ..new(2, "order-1") }).await;
    let holder = ground.holder().await;
    let [event] = &holder.acquire().await[..] else { panic!() };
    assert_eq!((event.position, event.lane, &*event.key), (position, holder.lane(2), "order-1"));
    assert_eq!((event.attempts, event.deaths, event.on_failure), (1, 0, OnFailure::Skip));
    let outgoing = event.event.as_ref().unwrap();
    assert_eq!((outgoing.sequence, outgoing.epoch, outgoing.time.0), (position, event.lane.epoch, 1000));
    let said = &outgoing.event;
    assert_eq!(
        (&*said.queue, &*said.topic, &*said.key, &*said.route),
        ("default", "payments", "order-1", "create-payment")
    );
    assert_eq!(
        (&*said.kind, &*said.source, &*said.content_type),
        ("com.example.paid", "/payments", "application/json")
    );
    assert_eq!((said.traceparent.as_deref(), &said.data[..]), (Some("00-trace"), &b"ddd"[..]));
}

async fn attempts_are_counted_when_taken_up_and_given_back(kind: Kind) {
    let ground = Ground::new(kind).await;
    let position = ground.commit(new(0, "a")).await;
    let holder = ground.holder().await;
    for _ in 0..2 {
        let acquired = holder.acquire().await;
        assert_eq!(acquired[0].attempts, 1, "what was given back does not count");
        assert_eq!(holder.acquire().await, [], "in hand");
        holder.conclude(&[(&acquired[0], How::GivenBack)]).await;
        assert_eq!((ground.state(position).await, ground.column("attempts", position).await), (1, 0));
    }
    for attempt in 1..4 {
        let acquired = holder.acquire().await;
        assert_eq!(acquired[0].attempts, attempt);
        holder.conclude(&[(&acquired[0], retry(Duration::ZERO))]).await;
    }
    let acquired = holder.acquire().await;
    holder.conclude(&[(&acquired[0], SENT)]).await;
    assert_eq!((ground.state(position).await, ground.column("attempts", position).await), (5, 4));
    assert_eq!(ground.column("epoch", position).await, -1);
    assert_eq!(holder.acquire().await, []);
}

async fn events_come_in_order_and_within_bounds(kind: Kind) {
    let ground = Ground::new(kind).await;
    let mut all = Vec::new();
    for key in ["a", "b", "a", "c", "b"] {
        all.push(ground.commit(New { bytes: 1000, ..new(1, key) }).await);
    }
    let other = ground.commit(new(3, "d")).await;
    let holder = ground.holder().await;
    let wants = vec![holder.want(1, 2), holder.want(3, 2)];
    let turned = holder.apply(&Turn { wants: wants.clone(), ..holder.empty() }).await;
    assert_eq!(positions(&turned.acquired), [all[0], all[1], other]);
    assert_eq!(more(&turned), [holder.lane(1)], "its limit ended the look");

    let tight = Turn { wants: wants.clone(), bytes: 10, ..holder.empty() };
    let turned = holder.apply(&tight).await;
    assert_eq!(positions(&turned.acquired), [all[2]], "one comes whatever its size");
    assert_eq!(more(&turned), [holder.lane(1)]);
    let turned = holder.apply(&Turn { wants: vec![holder.want(3, 9)], ..holder.empty() }).await;
    assert_eq!((turned.acquired, turned.more), (vec![], vec![]));
    let turned = holder.apply(&Turn { wants: vec![holder.want(1, 9)], ..holder.empty() }).await;
    assert_eq!((positions(&turned.acquired), turned.more), (all[3..].to_vec(), vec![]));
}

/// Positions do not commit in order.
async fn a_late_commit_of_a_lower_position_is_found(kind: Kind) {
    let ground = Ground::new(kind).await;
    let holder = ground.holder().await;
    let (late, early) = if kind == Kind::Sqlite {
        // There is one writer, so a lower position can't come later by itself.
        let early = ground.commit(new(0, "early")).await;
        assert_eq!(positions(&holder.acquire().await), [early]);
        ground.run(&ground.insert(new(0, "late"), Some(early - 1))).await;
        (early - 1, early)
    } else {
        let mut slow: Stranger = ground.database.stranger().await;
        slow.run("BEGIN").await;
        slow.run(&ground.insert(new(0, "late"), None)).await;
        let late = slow.number("SELECT MAX(position) FROM events").await;
        let early = ground.commit(new(0, "early")).await;
        assert_eq!(positions(&holder.acquire().await), [early]);
        slow.run("COMMIT").await;
        (late, early)
    };
    assert!(late < early);
    assert_eq!(positions(&holder.acquire().await), [late]);
}

async fn a_retry_comes_again_when_it_is_due_and_before_the_others(kind: Kind) {
    let ground = Ground::new(kind).await;
    let first = ground.commit(new(0, "a")).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    holder.conclude(&[(&acquired[0], retry(HOUR))]).await;
    let second = ground.commit(new(0, "b")).await;
    let acquired = holder.acquire().await;
    assert_eq!(positions(&acquired), [second], "another key is not kept");
    holder.conclude(&[(&acquired[0], How::GivenBack)]).await;

    ground.run(&format!("UPDATE events SET due_at = 1 WHERE position = {first}")).await;
    let leave = Want { retries: Retries::Leave, ..holder.want(0, 1) };
    let turned = holder.apply(&Turn { wants: vec![leave], ..holder.empty() }).await;
    assert_eq!(positions(&turned.acquired), [second]);
    holder.conclude(&[(&turned.acquired[0], How::GivenBack)]).await;
    let turned = holder.apply(&Turn { wants: vec![holder.want(0, 1)], ..holder.empty() }).await;
    assert_eq!(positions(&turned.acquired), [first]);
    assert!(turned.acquired[0].event.is_ok(), "why it failed before does not make it unfit");
}

/// A slow owner's marks: another relay has its lanes by now.
async fn marks_of_a_lost_lane_are_refused(kind: Kind) {
    let ground = Ground::new(kind).await;
    let events = ground.commit_many(1, "a", 4).await;
    ground.commit(new(2, "b")).await;
    let late = ground.holder().await;
    let in_hand = late.acquire().await;
    assert_eq!(in_hand.len(), 5);
    ground.run("UPDATE lanes SET expires_at = 1 WHERE lane = 1").await;
    let heir = ground.holder().await;
    assert_eq!(heir.lanes.len(), 1);

    let marks = |from: usize| {
        let hows = [SENT, retry(HOUR), parked(), How::GivenBack];
        let marks: Vec<_> = in_hand[from..].iter().zip(hows).collect();
        conclusions(&marks)
    };
    let turned = late.apply(&Turn { conclusions: marks(0), ..late.turn() }).await;
    assert_eq!(turned.lost, [late.lane(1)]);
    assert_eq!(turned.concluded, vec![Guarded::Fenced; 4]);
    assert_eq!(turned.acquired, [], "nothing of a lane that is lost");
    for event in &events {
        assert_eq!(ground.state(*event).await, 1);
    }
    // The new owner's epoch in the hands of the old one does not help, nor the other way round.
    let mut forged = marks(0);
    forged.iter_mut().for_each(|conclusion| conclusion.lane = heir.lane(1));
    let turned = late.apply(&Turn { conclusions: forged.clone(), ..late.empty() }).await;
    assert_eq!((turned.lost, turned.concluded), (vec![heir.lane(1)], vec![Guarded::Fenced; 4]));
    let turned = heir.apply(&Turn { conclusions: forged[..1].to_vec(), ..heir.empty() }).await;
    assert_eq!(turned.concluded, [Guarded::Fenced], "it has not taken it up");
    // What is not lost is marked all the same.
    let turned = late.apply(&Turn { conclusions: conclusions(&[(&in_hand[4], SENT)]), ..late.turn() }).await;
    assert_eq!((turned.lost, turned.concluded), (vec![late.lane(1)], vec![Guarded::Done]));
}

async fn a_turn_that_is_applied_twice_counts_once(kind: Kind) {
    let ground = Ground::new(kind).await;
    let first = ground.commit_many(0, "a", 3).await;
    ground.commit_many(0, "x", 4).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let next = ground.commit_many(2, "y", 3).await;
    let [a, b, c, sent, refused, given, spare] = &acquired[..] else { panic!() };
    let marks =
        [(a, SENT), (b, retry(HOUR)), (c, How::Waiting), (sent, SENT), (refused, parked()), (given, How::Waiting)];
    let mut turn = Turn { conclusions: conclusions(&marks), ..holder.turn() };
    let once = holder.apply(&turn).await;
    assert_eq!(once.concluded, vec![Guarded::Done; 6]);
    assert_eq!(positions(&once.acquired), next);

    turn.again = Some(positions(&acquired));
    let twice = holder.apply(&turn).await;
    assert_eq!(twice.concluded, once.concluded);
    assert_eq!(twice.acquired, once.acquired, "handed out again, and counted once");
    assert_eq!(ground.state(first[0]).await, 5);
    assert_eq!((ground.state(first[1]).await, ground.column("attempts", first[1]).await), (2, 1));
    assert_eq!((ground.state(first[2]).await, ground.column("attempts", first[2]).await), (3, 0));
    holder.conclude(&[(spare, SENT)]).await;
}

/// Given back and taken up again in the same turn, which is applied twice.
async fn what_a_lost_turn_acquired_is_found_again(kind: Kind) {
    let ground = Ground::new(kind).await;
    let all = ground.commit_many(0, "a", 3).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let marks = [(&acquired[0], SENT), (&acquired[1], How::GivenBack)];
    let mut turn = Turn { conclusions: conclusions(&marks), ..holder.turn() };
    let once = holder.apply(&turn).await;
    assert_eq!(positions(&once.acquired), all[1..2]);
    turn.again = Some(positions(&acquired));
    let twice = holder.apply(&turn).await;
    assert_eq!((positions(&twice.acquired), twice.acquired[0].attempts), (all[1..2].to_vec(), 1));
    assert_eq!(twice.concluded, [Guarded::Done; 2]);

    // Nothing was committed: the second application is the first.
    let more = ground.commit_many(1, "b", 2).await;
    let again = Some(vec![all[1], all[2]]);
    let turned = holder.apply(&Turn { again, ..holder.turn() }).await;
    assert_eq!(positions(&turned.acquired), more);
    assert_eq!(turned.acquired[0].attempts, 1);
}

async fn a_conclusion_that_is_not_in_hand_is_fenced(kind: Kind) {
    let ground = Ground::new(kind).await;
    let ready = ground.commit(new(0, "a")).await;
    let holder = ground.holder().await;
    let conclude = |position, lane, how| Conclusion { lane, position, id: None, how };
    let lane = holder.lane(0);
    let marks =
        vec![conclude(ready, lane, SENT), conclude(ready + 7, lane, retry(HOUR)), conclude(ready, lane, parked())];
    let turned = holder.apply(&Turn { conclusions: marks, ..holder.empty() }).await;
    assert_eq!((turned.concluded, turned.lost), (vec![Guarded::Fenced; 3], vec![]));
    let acquired = holder.acquire().await;
    let elsewhere = vec![conclude(ready, holder.lane(1), SENT)];
    let turned = holder.apply(&Turn { conclusions: elsewhere, ..holder.empty() }).await;
    assert_eq!(turned.concluded, [Guarded::Fenced], "another lane's epoch is no guard");
    let other = Conclusion { id: Some(EventId([9; 16])), ..conclude(ready, lane, SENT) };
    let turned = holder.apply(&Turn { conclusions: vec![other], ..holder.empty() }).await;
    assert_eq!(turned.concluded, [Guarded::Fenced], "another event was at its place");
    holder.conclude(&[(&acquired[0], SENT)]).await;
}

async fn reasons_of_any_text_are_kept(kind: Kind) {
    let ground = Ground::new(kind).await;
    let position = ground.commit(new(0, "a")).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let reason = format!("nul \0 and \u{1f4a5}{}", "é".repeat(5_000)).into();
    holder.conclude(&[(&acquired[0], How::Parked { reason, result: None })]).await;
    assert_eq!(ground.state(position).await, 4);
    let kept = ground.column("LENGTH(reason)", position).await;
    assert!((900..2_010).contains(&kept), "{kept}");
}

async fn a_turn_is_bounded(kind: Kind) {
    let ground = Ground::new(kind).await;
    let holder: Holder<'_> = ground.holder().await;
    let conclusion = Conclusion { lane: holder.lane(0), position: 1, id: None, how: SENT };
    let turn = Turn { conclusions: vec![conclusion; MAX_TURN + 1], ..holder.empty() };
    assert!(matches!(ground.store.turn(&turn).await, Err(StoreError::Refused(_))));
    let limit = u32::try_from(MAX_TURN).unwrap();
    let turn = Turn { wants: vec![holder.want(0, limit), holder.want(1, 1)], ..holder.empty() };
    assert!(matches!(ground.store.turn(&turn).await, Err(StoreError::Refused(_))));
    let turn = Turn { wants: vec![holder.want(0, limit)], ..holder.empty() };
    assert_eq!(holder.apply(&turn).await.acquired, []);
}
