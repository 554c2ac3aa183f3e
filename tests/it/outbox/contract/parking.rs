use std::num::NonZeroU32;

use oncegate::engine::ledger::Guarded;
use oncegate::outbox::desk::{Action, Desk as _, Filter, Listed, Mode, Order, State, Which};
use oncegate::outbox::event::{Envelope, EventId};
use oncegate::outbox::lane::{DEFAULT_LANES, lane_of};
use oncegate::outbox::store::{Acquired, DeadLetter, How, Outbox as _, Parking, Turn, Turned};

use super::{Ground, HOUR, Holder, New, QUEUE, conclusions, new, parked};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    what_came_of_an_event_is_on_record,
    a_parked_event_is_copied_to_the_dead_letters,
    what_is_only_refused_or_sent_is_not_copied,
    one_that_nobody_can_publish_is_copied,
    a_turn_that_is_applied_again_makes_no_second_copy,
    a_redrive_makes_another_copy,
    a_queue_that_nobody_has_opened_is_opened,
);

const DEAD: &str = "dead-letters";

fn parking() -> Parking {
    let dead_letter = Some(DeadLetter { queue: DEAD.into(), topic: "payments.dead".into() });
    Parking { result: Some("rejected"), dead_letter }
}

fn burying(holder: &Holder<'_>, of: &[(&Acquired, How)]) -> Turn {
    Turn { conclusions: conclusions(of), parking: parking(), ..holder.empty() }
}

async fn everything(ground: &Ground, queue: &str) -> Vec<Listed> {
    let filter = Filter { states: State::ALL.to_vec(), queue: Some(queue.into()), ..Filter::default() };
    ground.store.list(&filter, None, 100).await.unwrap()
}

fn original(acquired: &Acquired) -> Envelope {
    acquired.event.clone().unwrap().event
}

fn done(turned: &Turned) {
    assert!(turned.concluded.iter().all(|guarded| *guarded == Guarded::Done), "{turned:?}");
}

async fn what_came_of_an_event_is_on_record(kind: Kind) {
    let ground = Ground::new(kind).await;
    for key in ["a", "b", "c", "d"] {
        ground.commit(new(0, key)).await;
    }
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let conflict = How::Parked { reason: "another message".into(), result: Some("conflict") };
    let hows = [
        How::Sent { keep: HOUR, result: Some("applied"), frees: None },
        How::Sent { keep: HOUR, result: None, frees: None },
        conflict,
        parked(),
    ];
    let of: Vec<_> = acquired.iter().zip(hows).collect();
    done(&holder.apply(&burying(&holder, &of)).await);
    let results: Vec<_> = everything(&ground, QUEUE).await.iter().map(|event| event.result.clone()).collect();
    let result = |word: &str| Some(Box::from(word));
    assert_eq!(results, [result("rejected"), result("conflict"), None, result("applied")], "the newest first");

    let states = vec![State::Sent, State::Parked];
    let filter = Filter { states, result: result("conflict"), ..Filter::default() };
    assert_eq!(ground.store.list(&filter, None, 9).await.unwrap().len(), 1);
    let to = Which::All { filter, limit: 9 };
    let retry = Order { action: Action::Retry, to, reason: "x".into(), mode: Mode::Carry };
    assert_eq!(ground.store.act(&retry).await.unwrap().changed.len(), 1);
    assert_eq!(
        ground.number("SELECT COUNT(*) FROM events WHERE state = 1 AND result IS NULL AND queue = 'default'").await,
        1
    );
}

async fn a_parked_event_is_copied_to_the_dead_letters(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.store.open(DEAD, 5).await.unwrap();
    let position = ground.commit(new(0, "order-7")).await;
    ground.run("UPDATE events SET attributes = '{\"subject\":\"order 7\"}', deaths = 1").await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    done(&holder.apply(&burying(&holder, &[(&acquired[0], parked())])).await);
    assert_eq!(ground.state(position).await, 4, "the original waits for a person");

    let copies = everything(&ground, DEAD).await;
    let copy = ground.store.show(id(&copies[0])).await.unwrap().unwrap();
    let original = original(&acquired[0]);
    assert_eq!((copies.len(), id(&copies[0])), (1, original.id.dead_letter(0)));
    let lane = lane_of("order-7", NonZeroU32::new(5).unwrap());
    assert_eq!((copies[0].lane, copies[0].state, &*copies[0].topic), (lane, State::Ready, "payments.dead"));
    assert_eq!((&*copies[0].key, &copies[0].kind, &copy.data), ("order-7", &original.kind, &original.data));
    let said = |name: &str| copy.listed.attributes.get(name).map(|value| &**value);
    assert_eq!((said("subject"), said("oncegatereason")), (Some("order 7"), Some("too large")));
    assert_eq!((said("oncegateattempts"), said("oncegateresult")), (Some("1"), Some("rejected")));
    assert_eq!(said("oncegatedelivery"), Some(&*original.id.to_string()));

    let relay = oncegate::outbox::store::RelayId::random();
    let lanes = ground.store.lease(DEAD, relay, HOUR, oncegate::outbox::store::Taking::Share, None).await.unwrap().held;
    let want = |lane| super::Want { lane, limit: 9, retries: super::Retries::Leave, reach: super::Reach::WHOLE };
    let wants = lanes.into_iter().map(want).collect();
    let turn = Turn { queue: DEAD.into(), relay, wants, ..holder.empty() };
    let taken = ground.store.turn(&turn).await.unwrap().acquired;
    assert_eq!(taken.len(), 1, "it goes its way like any other event");
    assert_eq!(taken[0].event.as_ref().unwrap().event.attributes, copy.listed.attributes);
}

async fn what_is_only_refused_or_sent_is_not_copied(kind: Kind) {
    let ground = Ground::new(kind).await;
    for key in ["a", "b", "c", "d"] {
        ground.commit(new(0, key)).await;
    }
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let hows = [super::SENT, super::retry(HOUR), How::GivenBack, parked()];
    let of: Vec<_> = acquired.iter().zip(hows).collect();
    // The last one is not in hand any more.
    ground.run(&format!("UPDATE events SET state = 6, epoch = NULL WHERE position = {}", acquired[3].position)).await;
    let turned = holder.apply(&burying(&holder, &of)).await;
    assert_eq!(turned.concluded[3], Guarded::Fenced);
    assert_eq!(everything(&ground, DEAD).await, []);
}

async fn one_that_nobody_can_publish_is_copied(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit(New { unfit: Some("no key"), ..new(0, "") }).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let reason = acquired[0].event.clone().unwrap_err();
    done(&holder.apply(&burying(&holder, &[(&acquired[0], How::Parked { reason, result: None })])).await);
    let copies = everything(&ground, DEAD).await;
    let shown = ground.store.show(id(&copies[0])).await.unwrap().unwrap();
    assert_eq!(shown.listed.attributes.get("oncegatereason").map(|reason| &**reason), Some("no key"));
}

async fn a_turn_that_is_applied_again_makes_no_second_copy(kind: Kind) {
    let ground = Ground::new(kind).await;
    for key in ["a", "b", "c"] {
        ground.commit(new(0, key)).await;
    }
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let of: Vec<_> = acquired.iter().map(|event| (event, parked())).collect();
    let turn = burying(&holder, &of);
    done(&holder.apply(&turn).await);
    done(&holder.apply(&Turn { again: Some(super::positions(&acquired)), ..turn }).await);
    assert_eq!(everything(&ground, DEAD).await.len(), 3);
}

async fn a_redrive_makes_another_copy(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit(new(0, "a")).await;
    let holder = ground.holder().await;
    let mut ids = Vec::new();
    for round in 0..3 {
        let acquired = holder.acquire().await;
        done(&holder.apply(&burying(&holder, &[(&acquired[0], parked())])).await);
        let copies = everything(&ground, DEAD).await;
        assert_eq!(copies.len(), round + 1);
        ids.push(id(&copies[0]));
        let event = original(&acquired[0]).id;
        let to = Which::Ids(vec![event]);
        let order = Order { action: Action::Retry, to, reason: "fixed".into(), mode: Mode::Carry };
        assert_eq!(ground.store.act(&order).await.unwrap().changed.len(), 1);
        assert_eq!(ids[round], event.dead_letter(u32::try_from(round).unwrap()));
    }
}

async fn a_queue_that_nobody_has_opened_is_opened(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit(new(0, "a")).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    done(&holder.apply(&burying(&holder, &[(&acquired[0], parked())])).await);
    assert_eq!(ground.store.open(DEAD, 2).await.unwrap(), DEFAULT_LANES.get());
    assert_eq!(everything(&ground, DEAD).await[0].lane, lane_of("a", DEFAULT_LANES));
}

fn id(event: &Listed) -> EventId {
    EventId(u128::from_str_radix(&event.id, 16).unwrap().to_be_bytes())
}

/// Its original was just small enough.
#[tokio::test]
async fn a_copy_that_is_too_large_is_not_written_and_stops_nobody() {
    let ground = Ground::new(Kind::MySql).await;
    let large = ground.commit(new(0, "a")).await;
    let small = ground.commit(new(0, "b")).await;
    let fill = "UPDATE events SET data = REPEAT('d', @@max_allowed_packet - 450) WHERE event_key = 'a'";
    assert_eq!(ground.run(fill).await, 1);
    let holder = ground.holder().await;
    let acquired = holder.apply(&Turn { bytes: 1 << 30, ..holder.turn() }).await.acquired;
    assert_eq!(super::positions(&acquired), [large, small]);
    let of: Vec<_> = acquired.iter().map(|event| (event, parked())).collect();
    done(&holder.apply(&burying(&holder, &of)).await);
    assert_eq!((ground.state(large).await, ground.state(small).await), (4, 4), "both wait for a person");
    let copies = everything(&ground, DEAD).await;
    assert_eq!(copies.iter().map(|copy| &*copy.key).collect::<Vec<_>>(), ["b"]);
}
