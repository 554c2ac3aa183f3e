use oncegate::engine::ledger::Guarded;
use oncegate::outbox::desk::{Action, Desk as _, Filter, Mode, Order, State, Which};
use oncegate::outbox::store::{Acquired, How, Late, Turn};

use super::{Ground, HOUR, Holder, New, SENT, conclusions, new, parked, positions, retry};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    what_can_not_be_now_stops_its_key_and_costs_no_attempt,
    a_reason_to_be_never_published_outlives_giving_back,
    an_early_event_stops_nobody_and_comes_again,
    an_early_event_that_stopped_its_key_lets_it_go,
    an_early_event_waits_for_whoever_stops_its_key,
    an_early_event_comes_after_those_that_are_ready,
    an_early_event_stays_early_through_outages_and_deaths,
    an_early_event_comes_as_soon_as_whom_it_waits_for_is_sent,
    early_events_are_counted_listed_and_decided_about,
    a_person_begins_anew,
    one_that_was_committed_late_waits_for_who_stops_its_key,
    one_that_was_committed_late_does_not_pass_what_a_dead_relay_had_in_hand,
);

const EARLY: i64 = 7;

fn later() -> How {
    How::Later { after: HOUR, reason: "in progress".into() }
}

fn early() -> How {
    How::Early { after: HOUR, reason: "version 2 is missing".into() }
}

/// The due time of all that is tried again is over.
async fn make_due(ground: &Ground) {
    ground.run("UPDATE events SET due_at = 1 WHERE state = 2 OR state = 7").await;
}

/// An event of key `a` in lane 0 that came early.
async fn early_event(ground: &Ground, holder: &Holder<'_>) -> i64 {
    let position = ground.commit(new(0, "a")).await;
    let acquired = holder.acquire().await;
    assert_eq!(positions(&acquired), [position]);
    holder.conclude(&[(&acquired[0], early())]).await;
    position
}

fn facts(event: &Acquired) -> (u32, u32, bool) {
    (event.attempts, event.deferrals, event.came_early)
}

async fn what_can_not_be_now_stops_its_key_and_costs_no_attempt(kind: Kind) {
    let ground = Ground::new(kind).await;
    let first = ground.commit(new(0, "a")).await;
    ground.run("UPDATE events SET deaths = 1").await;
    let holder = ground.holder().await;
    for deferrals in 0..3 {
        let acquired = holder.acquire().await;
        assert_eq!(facts(&acquired[0]), (1, deferrals, false));
        holder.conclude(&[(&acquired[0], later())]).await;
        assert_eq!((ground.state(first).await, ground.column("attempts", first).await), (2, 0));
        assert_eq!(ground.column("deaths", first).await, 0, "it lived");
        let behind = ground.commit(new(0, "a")).await;
        let other = ground.commit(new(0, "b")).await;
        let acquired = holder.acquire().await;
        assert_eq!(positions(&acquired), [other], "others do not wait");
        holder.conclude(&[(&acquired[0], SENT)]).await;
        assert_eq!(ground.state(behind).await, 3);
        make_due(&ground).await;
    }
    let listed = ground.store.list(&Filter::default(), None, 10).await.unwrap();
    let listed = listed.iter().find(|event| event.position == first).unwrap();
    assert_eq!((listed.reason.as_deref(), listed.deferrals), (Some("in progress"), 3));
    let acquired = holder.acquire().await;
    assert_eq!(positions(&holder.go_on(&[(&acquired[0], SENT)]).await).len(), 3, "its key goes on");
}

async fn a_reason_to_be_never_published_outlives_giving_back(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit(New { unfit: Some("no key"), ..new(0, "a") }).await;
    let holder = ground.holder().await;
    for how in [How::GivenBack, How::Waiting, How::GivenBack] {
        let acquired = holder.acquire().await;
        assert_eq!(acquired[0].event, Err("no key".into()));
        holder.conclude(&[(&acquired[0], how)]).await;
    }
}

async fn an_early_event_stops_nobody_and_comes_again(kind: Kind) {
    let ground = Ground::new(kind).await;
    let holder = ground.holder().await;
    let first = early_event(&ground, &holder).await;
    assert_eq!((ground.state(first).await, ground.column("attempts", first).await), (EARLY, 0));
    let behind = ground.commit(new(0, "a")).await;
    let acquired = holder.acquire().await;
    assert_eq!(positions(&acquired), [behind], "whom it waits for may come behind it");
    holder.conclude(&[(&acquired[0], SENT)]).await;
    assert_eq!(ground.number("SELECT COUNT(*) FROM blocked").await, 0);

    make_due(&ground).await;
    let acquired = holder.acquire().await;
    assert_eq!((positions(&acquired), facts(&acquired[0])), (vec![first], (1, 1, true)));
    let turn = Turn { again: Some(vec![]), ..holder.turn() };
    assert!(holder.apply(&turn).await.acquired[0].came_early, "told by the same turn again as well");
    let conclusion = Turn { conclusions: conclusions(&[(&acquired[0], early())]), ..holder.empty() };
    for _ in 0..2 {
        assert_eq!(holder.apply(&conclusion).await.concluded, [Guarded::Done]);
        assert_eq!(ground.column("deferrals", first).await, 2, "once");
    }
    make_due(&ground).await;
    let acquired = holder.acquire().await;
    holder.conclude(&[(&acquired[0], SENT)]).await;
}

async fn an_early_event_that_stopped_its_key_lets_it_go(kind: Kind) {
    let ground = Ground::new(kind).await;
    let first = ground.commit(new(0, "a")).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    holder.conclude(&[(&acquired[0], retry(HOUR))]).await;
    let behind = ground.commit_many(0, "a", 2).await;
    assert_eq!(holder.acquire().await, []);
    make_due(&ground).await;
    let acquired = holder.acquire().await;
    assert_eq!(positions(&acquired), [first]);
    assert_eq!(positions(&holder.go_on(&[(&acquired[0], early())]).await), behind);
    assert_eq!(ground.column("attempts", first).await, 1, "the refusal stays");
}

async fn an_early_event_waits_for_whoever_stops_its_key(kind: Kind) {
    let ground = Ground::new(kind).await;
    let holder = ground.holder().await;
    let first = early_event(&ground, &holder).await;
    let behind = ground.commit(new(0, "a")).await;
    let acquired = holder.acquire().await;
    holder.conclude(&[(&acquired[0], later())]).await;
    ground.run("UPDATE events SET due_at = 1 WHERE state = 7").await;
    assert_eq!(holder.acquire().await, [], "it may be the one that it waits for");
    assert_eq!(ground.state(first).await, EARLY);
    assert!(ground.column("due_at", first).await > 1, "it is not met at each look");

    make_due(&ground).await;
    let acquired = holder.acquire().await;
    assert_eq!(positions(&acquired), [behind]);
    make_due(&ground).await;
    let acquired = holder.go_on(&[(&acquired[0], SENT)]).await;
    assert_eq!((positions(&acquired), acquired[0].came_early), (vec![first], true));
}

async fn an_early_event_comes_after_those_that_are_ready(kind: Kind) {
    let ground = Ground::new(kind).await;
    let holder = ground.holder().await;
    let first = early_event(&ground, &holder).await;
    let ready = ground.commit_many(0, "b", 3).await;
    make_due(&ground).await;
    let two = Turn { wants: vec![holder.want(0, 2)], ..holder.empty() };
    assert_eq!(positions(&holder.apply(&two).await.acquired), ready[..2]);
    assert_eq!(positions(&holder.apply(&two).await.acquired), [first, ready[2]]);
}

async fn an_early_event_stays_early_through_outages_and_deaths(kind: Kind) {
    let ground = Ground::new(kind).await;
    let holder = ground.holder().await;
    let first = early_event(&ground, &holder).await;
    make_due(&ground).await;
    let acquired = holder.acquire().await;
    holder.conclude(&[(&acquired[0], How::GivenBack)]).await;
    let acquired = holder.acquire().await;
    assert_eq!(facts(&acquired[0]), (1, 1, true));

    // Its relay dies, and one that it may wait for stops its key.
    ground.commit(new(0, "a")).await;
    let behind = holder.acquire().await;
    holder.conclude(&[(&behind[0], later())]).await;
    let heir = ground.heir().await;
    assert_eq!(heir.acquire().await, []);
    assert_eq!((ground.state(first).await, ground.column("deaths", first).await), (EARLY, 1));
    make_due(&ground).await;
    let behind = heir.acquire().await;
    make_due(&ground).await;
    let acquired = heir.go_on(&[(&behind[0], SENT)]).await;
    assert_eq!((facts(&acquired[0]), acquired[0].deaths), ((2, 1, true), 1));
    heir.conclude(&[(&acquired[0], retry(HOUR))]).await;
    make_due(&ground).await;
    assert_eq!(facts(&heir.acquire().await[0]), (3, 1, false), "it stops its key now, like any other");
}

async fn an_early_event_comes_as_soon_as_whom_it_waits_for_is_sent(kind: Kind) {
    let ground = Ground::new(kind).await;
    let holder = ground.holder().await;
    let mut waiting = Vec::new();
    for (key, version) in [("a", 3), ("a", 2), ("b", 2)] {
        let position = ground.commit(new(0, key)).await;
        let attributes = format!(r#"{{"oncegate-version":"{version}","other":"2"}}"#);
        ground.run(&format!("UPDATE events SET attributes = '{attributes}' WHERE position = {position}")).await;
        let acquired = holder.acquire().await;
        holder.conclude(&[(&acquired[0], early())]).await;
        waiting.push(position);
    }
    let first = ground.commit(new(0, "a")).await;
    let acquired = holder.acquire().await;
    assert_eq!(positions(&acquired), [first]);
    let sent = |version| How::Sent { keep: HOUR, result: Some("applied"), frees: Some(version) };
    let acquired = holder.go_on(&[(&acquired[0], sent(2))]).await;
    assert_eq!(positions(&acquired), [waiting[1]], "not the one after, and not another key's");
    assert!(acquired[0].came_early);
    assert_eq!(positions(&holder.go_on(&[(&acquired[0], sent(3))]).await), [waiting[0]]);
    assert_eq!(ground.state(waiting[2]).await, EARLY);
}

async fn early_events_are_counted_listed_and_decided_about(kind: Kind) {
    use oncegate::outbox::store::Outbox as _;
    let ground = Ground::new(kind).await;
    let holder = ground.holder().await;
    let first = early_event(&ground, &holder).await;
    let backlog = ground.store.backlog(super::QUEUE, 9).await.unwrap();
    assert_eq!((backlog.unsent, backlog.waiting, backlog.blocking), (1, 1, 0));
    assert!(backlog.oldest.is_some());
    let listed = ground.store.list(&Filter::default(), None, 10).await.unwrap();
    assert_eq!((listed.len(), listed[0].state), (1, State::Early));
    let discard = Action::Discard { keep: HOUR };
    let filter = Filter { states: vec![State::Early], ..Filter::default() };
    let order = Order { action: discard, to: Which::All { filter, limit: 9 }, reason: "x".into(), mode: Mode::Carry };
    assert_eq!(ground.store.act(&order).await.unwrap().changed.len(), 1);
    assert_eq!(ground.state(first).await, 6);
}

async fn a_person_begins_anew(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit(new(0, "a")).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    holder.conclude(&[(&acquired[0], later())]).await;
    make_due(&ground).await;
    let acquired = holder.acquire().await;
    holder.conclude(&[(&acquired[0], parked())]).await;
    let filter = Filter { states: vec![State::Parked], ..Filter::default() };
    let to = Which::All { filter, limit: 9 };
    let order = Order { action: Action::Retry, to, reason: "x".into(), mode: Mode::Carry };
    assert_eq!(ground.store.act(&order).await.unwrap().changed.len(), 1);
    assert_eq!(facts(&holder.acquire().await[0]), (1, 0, false));
}

/// What a subscription's relay asks for.
fn delivering(holder: &Holder<'_>) -> Turn {
    Turn { late: Late::Waits, ..holder.turn() }
}

/// An event of key `a` that got its position long ago, and is committed now.
async fn commit_late(ground: &Ground, position: i64) {
    ground.run(&ground.insert(new(0, "a"), Some(position))).await;
}

async fn one_that_was_committed_late_waits_for_who_stops_its_key(kind: Kind) {
    let ground = Ground::new(kind).await;
    let holder = ground.holder().await;
    ground.run(&ground.insert(new(0, "a"), Some(1000))).await;
    let newer = holder.acquire().await;
    holder.conclude(&[(&newer[0], later())]).await;
    commit_late(&ground, 500).await;
    let other = ground.insert(new(0, "b"), Some(501));
    ground.run(&other).await;
    let acquired = holder.apply(&delivering(&holder)).await.acquired;
    assert_eq!(positions(&acquired), [501], "another key's");
    assert_eq!(ground.state(500).await, EARLY);
    holder.conclude(&[(&acquired[0], SENT)]).await;
    make_due(&ground).await;
    let acquired = holder.apply(&delivering(&holder)).await.acquired;
    assert_eq!(positions(&acquired), [1000], "who was first is tried again first");
    let turn = Turn { conclusions: conclusions(&[(&acquired[0], SENT)]), ..delivering(&holder) };
    holder.apply(&turn).await;
    make_due(&ground).await;
    assert_eq!(positions(&holder.apply(&delivering(&holder)).await.acquired), [500]);

    // Among events nothing is promised of commits that overlap.
    let ground = Ground::new(kind).await;
    let holder = ground.holder().await;
    ground.run(&ground.insert(new(0, "a"), Some(1000))).await;
    let newer = holder.acquire().await;
    holder.conclude(&[(&newer[0], later())]).await;
    commit_late(&ground, 500).await;
    assert_eq!(positions(&holder.acquire().await), [500]);
}

async fn one_that_was_committed_late_does_not_pass_what_a_dead_relay_had_in_hand(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.run(&ground.insert(new(0, "a"), Some(1000))).await;
    assert_eq!(positions(&ground.holder().await.acquire().await), [1000]);
    commit_late(&ground, 500).await;
    let heir = ground.heir().await;
    let acquired = heir.apply(&delivering(&heir)).await.acquired;
    assert_eq!((positions(&acquired), acquired[0].deaths), (vec![1000], 1), "it may have been delivered");
    let turn = Turn { conclusions: conclusions(&[(&acquired[0], later())]), ..delivering(&heir) };
    assert_eq!(heir.apply(&turn).await.acquired, []);
    assert_eq!(ground.state(500).await, EARLY);
    make_due(&ground).await;
    let acquired = heir.apply(&delivering(&heir)).await.acquired;
    let turn = Turn { conclusions: conclusions(&[(&acquired[0], SENT)]), ..delivering(&heir) };
    heir.apply(&turn).await;
    make_due(&ground).await;
    assert_eq!(positions(&heir.apply(&delivering(&heir)).await.acquired), [500], "nothing is passed over");
}
