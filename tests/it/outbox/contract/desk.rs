use std::time::Duration;

use oncegate::outbox::desk::{Acted, Action, Desk as _, Filter, Listed, Mode, Of, Order, State, Which};
use oncegate::outbox::event::EventId;
use oncegate::outbox::store::How;

use super::{Ground, HOUR, New, SENT, new, parked, positions, retry};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    two_people_who_retry_at_once_retry_each_once,
    a_retried_event_keeps_its_id_and_its_place_and_begins_anew,
    each_redrive_is_another_copy_of_the_same_event,
    a_retried_event_that_nobody_could_publish_is_published_as_it_is,
    a_discarded_event_lets_those_behind_it_go,
    what_is_in_hand_is_left_alone,
    a_dry_run_changes_nothing,
    lists_are_filtered_bounded_and_newest_first,
    a_delivery_is_found_by_its_business_key,
    an_event_is_shown_with_what_people_did,
    what_is_sent_again_is_named,
    what_is_parked_is_counted_up_to_a_cap,
);

const DISCARD: Action = Action::Discard { keep: HOUR };

fn all(states: &[State], limit: u32) -> Which {
    Which::All { filter: Filter { states: states.to_vec(), ..Filter::default() }, limit }
}

fn order(action: Action, to: Which) -> Order {
    Order { action, to, reason: "asked for".into(), mode: Mode::Carry }
}

fn changed(acted: &Acted) -> Vec<i64> {
    acted.changed.iter().map(|event| event.position).collect()
}

fn id(event: &Listed) -> EventId {
    EventId(u128::from_str_radix(&event.id, 16).unwrap().to_be_bytes())
}

/// Events of as many keys that are parked.
async fn park(ground: &Ground, count: usize) -> Vec<i64> {
    for key in 0..count {
        ground.commit(new(0, &format!("parked-{key}"))).await;
    }
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let marks: Vec<_> = acquired.iter().map(|event| (event, parked())).collect();
    holder.conclude(&marks).await;
    positions(&acquired)
}

async fn two_people_who_retry_at_once_retry_each_once(kind: Kind) {
    let ground = Ground::new(kind).await;
    let events = park(&ground, 9).await;
    let other = ground.database.open();
    let order = order(Action::Retry, all(&[State::Parked], 100));
    let act = async |store: &oncegate::storage::Store| loop {
        // Locked out by the other one: nothing was done.
        if let Ok(acted) = store.act(&order).await {
            return changed(&acted);
        }
    };
    let (one, two) = tokio::join!(act(&ground.store), act(&other));
    let mut both = [one, two].concat();
    both.sort_unstable();
    assert_eq!(both, events, "each by one of them");
    assert_eq!(ground.number("SELECT COUNT(*) FROM event_actions").await, 9);
    assert_eq!(ground.number("SELECT COUNT(*) FROM events WHERE state = 1 AND attempts = 0").await, 9);
}

async fn a_retried_event_keeps_its_id_and_its_place_and_begins_anew(kind: Kind) {
    let ground = Ground::new(kind).await;
    let event = park(&ground, 1).await[0];
    let behind = ground.commit_many(0, "parked-0", 2).await;
    let heir = ground.heir().await;
    assert_eq!(heir.acquire().await, []);
    let before = ground.store.list(&Filter::default(), None, 10).await.unwrap();
    let listed = before.iter().find(|listed| listed.position == event).unwrap();
    assert_eq!((listed.state, listed.reason.as_deref()), (State::Parked, Some("too large")));

    let acted = ground.store.act(&order(Action::Retry, Which::Ids(vec![id(listed)]))).await.unwrap();
    assert_eq!(acted, Acted { changed: vec![listed.clone()], left: vec![] }, "as it was");
    let acquired = heir.acquire().await;
    assert_eq!((positions(&acquired), acquired[0].attempts), (vec![event], 1), "those behind it wait still");
    assert_eq!(acquired[0].event.as_ref().unwrap().event.id, id(listed));
    let acquired = heir.go_on(&[(&acquired[0], SENT)]).await;
    assert_eq!(positions(&acquired), behind);
}

/// For brokers that pass over copies of what they have: a person wants it there once more.
async fn each_redrive_is_another_copy_of_the_same_event(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit(new(0, "a")).await;
    let holder = ground.holder().await;
    for redrives in 0..3 {
        // Also when it comes again by itself.
        for how in [How::GivenBack, SENT] {
            let acquired = holder.acquire().await;
            let outgoing = acquired[0].event.as_ref().unwrap();
            let copy = if redrives == 0 { String::new() } else { format!(".{redrives}") };
            assert_eq!((acquired[0].redrives, outgoing.redrives), (redrives, redrives));
            assert_eq!(outgoing.copy_id(), format!("{}{copy}", outgoing.event.id));
            holder.conclude(&[(&acquired[0], how)]).await;
        }
        let again = order(Action::Retry, all(&[State::Sent], 9));
        assert_eq!(ground.store.act(&again).await.unwrap().changed.len(), 1);
    }
}

/// It says what is known. One that can't be read still can't.
async fn a_retried_event_that_nobody_could_publish_is_published_as_it_is(kind: Kind) {
    let ground = Ground::new(kind).await;
    let unfit = ground.commit(New { unfit: Some("no JSON"), ..new(0, "a") }).await;
    let broken = ground.commit(new(0, "b")).await;
    ground.run(&format!("UPDATE events SET topic = {} WHERE position = {broken}", ground.nonsense())).await;
    let list = async || ground.store.list(&Filter::default(), None, 10).await.unwrap();
    let listed = list().await.pop().unwrap();
    assert_eq!((listed.position, listed.state, listed.reason.as_deref()), (unfit, State::Ready, Some("no JSON")));
    let holder = ground.holder().await;
    for (is_fit, attempts) in [(false, 1), (true, 1)] {
        let acquired = holder.acquire().await;
        assert_eq!(positions(&acquired), [unfit, broken]);
        assert_eq!((acquired[0].event.is_ok(), acquired[0].attempts), (is_fit, attempts));
        assert!(acquired[1].event.as_ref().is_err_and(|reason| reason.contains("can't be read")));
        holder.conclude(&[(&acquired[0], parked()), (&acquired[1], parked())]).await;
        let listed = list().await;
        let states: Vec<_> = listed.iter().map(|event| (event.state, event.attempts)).collect();
        assert_eq!(states, [(State::Parked, 1); 2]);
        assert_eq!(ground.store.act(&order(Action::Retry, all(&[State::Parked], 9))).await.unwrap().changed.len(), 2);
    }
}

async fn a_discarded_event_lets_those_behind_it_go(kind: Kind) {
    let ground = Ground::new(kind).await;
    let event = park(&ground, 1).await[0];
    let behind = ground.commit_many(0, "parked-0", 3).await;
    let heir = ground.heir().await;
    assert_eq!(heir.acquire().await, []);
    let acted = ground.store.act(&order(DISCARD, all(&[State::Parked], 9))).await.unwrap();
    assert_eq!(changed(&acted), [event]);
    assert_eq!(ground.state(event).await, 6);
    let acquired = heir.acquire().await;
    assert_eq!(positions(&acquired), behind[..1]);
    let acquired = heir.go_on(&[(&acquired[0], retry(HOUR))]).await;
    assert_eq!(acquired, []);

    // One in the middle of the line, then its head.
    let middle = Filter { states: vec![State::Waiting], ..Filter::default() };
    let one = order(DISCARD, Which::All { filter: middle, limit: 1 });
    assert_eq!(changed(&ground.store.act(&one).await.unwrap()), behind[1..2]);
    assert_eq!(heir.acquire().await, []);
    let head = order(DISCARD, all(&[State::Retrying], 9));
    assert_eq!(changed(&ground.store.act(&head).await.unwrap()), behind[..1]);
    assert_eq!(positions(&heir.acquire().await), behind[2..]);
}

async fn what_is_in_hand_is_left_alone(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit(new(0, "a")).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let discard = order(DISCARD, all(&[State::Ready], 9));
    let acted = ground.store.act(&discard).await.unwrap();
    assert_eq!((acted.changed.len(), acted.left.len()), (0, 1));
    assert_eq!(acted.left[0].in_hand, Some(holder.lane(0).epoch));
    holder.conclude(&[(&acquired[0], How::GivenBack)]).await;
    assert_eq!(ground.store.act(&discard).await.unwrap().changed.len(), 1);
}

async fn a_dry_run_changes_nothing(kind: Kind) {
    let ground = Ground::new(kind).await;
    let events = park(&ground, 3).await;
    let order = Order { mode: Mode::DryRun, ..order(DISCARD, all(&[State::Parked], 2)) };
    assert_eq!(changed(&ground.store.act(&order).await.unwrap()), events[..2], "the oldest first");
    assert_eq!(ground.number("SELECT COUNT(*) FROM events WHERE state = 4").await, 3);
    assert_eq!(ground.number("SELECT COUNT(*) FROM event_actions").await, 0);
}

/// With versions its entry is of key and version, and it may be ordered by another one.
async fn a_delivery_is_found_by_its_business_key(kind: Kind) {
    let ground = Ground::new(kind).await;
    let keys = ["order-7", "order-70", "ORDER-7", "a \"b\" 100% \u{fc}"];
    let mut places = Vec::new();
    for key in keys {
        let position = ground.commit(new(0, "shop")).await;
        places.push(position);
        let attributes = serde_json::json!({ "oncegate-key": key, "said": "\"oncegate-key\":\"order-70\"" });
        let attributes = ground.database.literal(attributes.to_string().as_bytes());
        let attributes =
            if kind == Kind::Postgres { format!("CONVERT_FROM({attributes}, 'UTF8')") } else { attributes };
        let attributes = if kind == Kind::Sqlite { format!("CAST({attributes} AS TEXT)") } else { attributes };
        ground
            .run(&format!("UPDATE events SET queue = 'sub:x', attributes = {attributes} WHERE position = {position}"))
            .await;
    }
    for (place, key) in places.into_iter().zip(keys) {
        let filter = Filter { of: Of::Deliveries, key: Some(key.into()), ..Filter::default() };
        let listed = ground.store.list(&filter, None, 10).await.unwrap();
        assert_eq!(listed.iter().map(|event| event.position).collect::<Vec<_>>(), [place], "{key}");
        let to = Which::All { filter, limit: 9 };
        let found = ground.store.act(&Order { mode: Mode::DryRun, ..order(DISCARD, to) }).await.unwrap();
        assert_eq!(changed(&found), [place], "{key}");
    }
}

async fn lists_are_filtered_bounded_and_newest_first(kind: Kind) {
    let ground = Ground::new(kind).await;
    let parked = park(&ground, 2).await;
    let ready = ground.commit_many(1, "ready", 3).await;
    let list = async |filter: Filter, before, limit| {
        let listed = ground.store.list(&filter, before, limit).await.unwrap();
        listed.into_iter().map(|event| event.position).collect::<Vec<_>>()
    };
    let newest = |events: &[i64]| events.iter().rev().copied().collect::<Vec<_>>();
    let everything = newest(&[&parked[..], &ready].concat());
    assert_eq!(list(Filter::default(), None, 10).await, everything);
    assert_eq!(list(Filter::default(), None, 2).await, everything[..2]);
    assert_eq!(list(Filter::default(), Some(everything[1]), 10).await, everything[2..]);
    let of = |states: &[State]| Filter { states: states.to_vec(), ..Filter::default() };
    assert_eq!(list(of(&[State::Parked]), None, 10).await, newest(&parked));
    assert_eq!(list(of(&[State::Sent, State::Discarded]), None, 10).await, Vec::<i64>::new());
    assert_eq!(list(Filter { key: Some("ready".into()), ..of(&[]) }, None, 10).await, newest(&ready));
    assert_eq!(list(Filter { key: Some("parked-1".into()), ..of(&[]) }, None, 10).await, parked[1..]);
    assert_eq!(list(Filter { queue: Some("default".into()), ..of(&[]) }, None, 10).await, everything);
    assert_eq!(list(Filter { queue: Some("other".into()), ..of(&[]) }, None, 10).await, Vec::<i64>::new());
    assert_eq!(list(Filter { route: Some("other".into()), ..of(&[]) }, None, 10).await, Vec::<i64>::new());
}

async fn an_event_is_shown_with_what_people_did(kind: Kind) {
    let ground = Ground::new(kind).await;
    park(&ground, 1).await;
    let listed = ground.store.list(&Filter::default(), None, 1).await.unwrap().remove(0);
    let mut retry = order(Action::Retry, Which::Ids(vec![id(&listed)]));
    retry.reason = "fixed the \0 topic".into();
    ground.store.act(&retry).await.unwrap();
    ground.store.act(&order(DISCARD, Which::Ids(vec![id(&listed)]))).await.unwrap();
    let shown = ground.store.show(id(&listed)).await.unwrap().unwrap();
    assert_eq!((shown.listed.state, shown.listed.reason.as_deref()), (State::Discarded, Some("asked for")));
    assert!(shown.listed.due_at.is_some());
    let actions: Vec<_> = shown.actions.iter().map(|taken| (&*taken.action, taken.state, &*taken.reason)).collect();
    let fixed = "fixed the \u{fffd} topic";
    assert_eq!(actions, [("retry", State::Parked, fixed), ("discard", State::Ready, "asked for")]);
    assert_eq!((&shown.data[..], &*shown.source, &*shown.entry), (&b"d"[..], "/payments", &*"07".repeat(32)));
    assert_eq!(ground.store.show(EventId([1; 16])).await.unwrap(), None);
}

async fn what_is_sent_again_is_named(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit(New { holds: 0, ..new(0, "a") }).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    holder.conclude(&[(&acquired[0], How::Sent { keep: Duration::ZERO, result: None, frees: None })]).await;
    let retry = |states: &[State]| order(Action::Retry, all(states, 9));
    assert_eq!(changed(&ground.store.act(&retry(&[])).await.unwrap()), Vec::<i64>::new());
    assert_eq!(changed(&ground.store.act(&retry(&[State::Sent])).await.unwrap()), positions(&acquired));
    assert_eq!(positions(&holder.acquire().await), positions(&acquired));
}

async fn what_is_parked_is_counted_up_to_a_cap(kind: Kind) {
    let ground = Ground::new(kind).await;
    let counted = async |cap| {
        let parked = ground.store.parked(cap).await.unwrap();
        (parked.events, parked.deliveries)
    };
    assert_eq!(counted(10).await, (0, 0));
    let parked = park(&ground, 9).await;
    ground.commit_many(1, "ready", 3).await;
    assert_eq!(counted(10).await, (9, 0));
    // Names on both sides of where deliveries are, and just beside.
    let queues = ["sub:a", "sub:zz", "sub:", "sub", "sub;", "zebra", "SUB:a"];
    for (position, queue) in parked.iter().zip(queues) {
        ground.run(&format!("UPDATE events SET queue = '{queue}' WHERE position = {position}")).await;
    }
    assert_eq!(counted(10).await, (6, 3));
    assert_eq!(counted(2).await, (2, 2));
}
