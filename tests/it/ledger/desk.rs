//! Entries as people see them, and what people decide about them.

use bytes::Bytes;
use oncegate::engine::desk::{Actor, Ending, EntryDesk as _, Filter, Listed, Order, Stage};
use oncegate::engine::instances::Instances as _;
use oncegate::engine::ledger::{FromState, Guarded, Ledger as _, Released, To};
use oncegate::entry::{Answer, EntryId, Nonce, StoredResponse};

use super::emission::event;
use super::{Ground, HOUR, completed, expired, response, unknown};
use crate::servers::database::{Kind, on_each_database};
use crate::servers::outbox::written;

on_each_database!(
    entries_are_listed_by_state_in_pages,
    lists_are_of_what_is_asked_for,
    an_entry_is_shown_whole,
    a_person_settles_an_unknown_entry_with_its_events_and_a_record,
    a_person_releases_an_unknown_entry,
    an_order_that_is_applied_again_tells_the_same,
    only_an_unknown_entry_that_is_as_it_was_seen_is_settled,
    of_two_people_one_settles,
    one_that_is_not_there_any_more_keeps_nobody_elses_order,
    a_late_answer_is_kept_where_people_find_it,
    what_is_unknown_is_counted_up_to_a_cap,
);

impl Ground {
    async fn unknown(&self, key: &str) -> (EntryId, Nonce) {
        let row = self.won(key).await;
        assert_eq!(self.transit(row, FromState::InProgress, unknown()).await, Guarded::Done);
        row
    }

    async fn seen(&self, id: EntryId) -> Listed {
        self.store.show(id).await.unwrap().unwrap().listed
    }

    async fn keys(&self, filter: &Filter) -> Vec<String> {
        let page = self.store.list(filter, None, 100).await.unwrap();
        page.entries.iter().map(|entry| entry.key.to_string()).collect()
    }

    async fn settle(&self, order: &Order) -> Guarded {
        self.store.settle(std::slice::from_ref(order)).await.unwrap()[0]
    }
}

fn order(entry: Listed, to: Ending) -> Order {
    let actor = Actor { name: "ann\0".into(), authority: "token".into() };
    Order { id: rand::random(), entry, to, actor, reason: "seen at the bank".into() }
}

fn paid(origin: Nonce) -> Ending {
    let mut to = completed(Nonce::random(), "paid");
    if let To::Completed { events, .. } = &mut to {
        *events = [event(origin, "paid")].into();
    }
    Ending::Completed(to)
}

async fn entries_are_listed_by_state_in_pages(kind: Kind) {
    let ground = Ground::new(kind).await;
    for number in 0..5 {
        ground.unknown(&format!("u{number}")).await;
        let row = ground.won(&format!("c{number}")).await;
        ground.transit(row, FromState::Unfinished, completed(row.1, "paid")).await;
        let row = ground.won(&format!("t{number}")).await;
        ground.transit(row, FromState::Unfinished, expired(row.1, Some(HOUR))).await;
    }
    ground.store.reap(10).await.unwrap();
    ground.won("p").await;
    for (stage, first) in [(Stage::Unknown, 'u'), (Stage::Completed, 'c'), (Stage::Tombstone, 't')] {
        let (mut keys, mut after) = (Vec::new(), None);
        loop {
            let page = ground.store.list(&Filter::of(stage), after, 2).await.unwrap();
            assert!(page.entries.iter().all(|entry| entry.stage == stage && entry.changed_at <= page.now));
            keys.extend(page.entries.iter().map(|entry| entry.key.to_string()));
            after = page.entries.last().map(Listed::place);
            if page.entries.len() < 2 {
                break;
            }
        }
        keys.sort_unstable();
        assert_eq!(keys, (0..5).map(|number| format!("{first}{number}")).collect::<Vec<_>>(), "{stage:?}");
    }
    assert_eq!(ground.keys(&Filter::of(Stage::InProgress)).await, ["p"]);
    let oldest = ground.store.list(&Filter::of(Stage::Unknown), None, 5).await.unwrap().entries;
    assert!(oldest.is_sorted_by_key(|entry| entry.changed_at), "{oldest:?}");
}

async fn lists_are_of_what_is_asked_for(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (one, _) = (ground.unknown("one").await, ground.unknown("other").await);
    let all = Filter::of(Stage::Unknown);
    let some = |text: &str| Some(Box::<str>::from(text));
    for (filter, count) in [
        (Filter { key: some("one"), ..all.clone() }, 1),
        (Filter { key: some("ONE"), ..all.clone() }, 0),
        (Filter { namespace: some("payments"), route: some("create-payment"), ..all.clone() }, 2),
        (Filter { namespace: some("refunds"), ..all.clone() }, 0),
        (Filter { scope: some("tenant:acme"), ..all.clone() }, 2),
        (Filter { scope: some("global"), ..all.clone() }, 0),
        (Filter { older_than: HOUR, ..all.clone() }, 0),
        (Filter { contradicted: true, ..all.clone() }, 0),
    ] {
        assert_eq!(ground.keys(&filter).await.len(), count, "{filter:?}");
    }
    let hour_ago = "UPDATE entries SET changed_at = changed_at - 3600001 WHERE idempotency_key = 'one'";
    ground.database.stranger().await.run(hour_ago).await;
    assert_eq!(ground.keys(&Filter { older_than: HOUR, ..all.clone() }).await, ["one"]);
    ground.store.keep_evidence(one.0, one.1, response("late").encode()).await.unwrap();
    assert_eq!(ground.keys(&Filter { contradicted: true, ..all }).await, ["one"]);
    let found = ground.store.find(&[EntryId([7; 32]), one.0]).await.unwrap();
    assert_eq!(found.entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [one.0]);
    assert!(ground.store.find(&[]).await.unwrap().now >= found.now);
}

async fn an_entry_is_shown_whole(kind: Kind) {
    let ground = Ground::new(kind).await;
    assert_eq!(ground.store.show(EntryId([7; 32])).await.unwrap(), None);
    let row = ground.won("a").await;
    let shown = ground.store.show(row.0).await.unwrap().unwrap();
    assert_eq!((&*shown.listed.key, &*shown.listed.scope, shown.listed.attempt), ("a", "tenant:acme", 1));
    assert_eq!(shown.identity.as_ref(), Some(&ground.claim("a").identity));
    assert_eq!(shown.context, Ok(ground.claim("a").context));
    let instance = shown.instance.unwrap();
    assert_eq!((&*instance.name, instance.alive), ("test", true));
    ground.store.retire(ground.instance).await.unwrap();
    assert!(!ground.store.show(row.0).await.unwrap().unwrap().instance.unwrap().alive);
    ground.transit(row, FromState::Unfinished, completed(row.1, "paid")).await;
    let shown = ground.store.show(row.0).await.unwrap().unwrap();
    assert_eq!(shown.answer, Some(Answer::Response(response("paid").into())));
    assert_eq!((shown.listed.stage, shown.listed.status, shown.evidence), (Stage::Completed, Some(201), None));
}

async fn a_person_settles_an_unknown_entry_with_its_events_and_a_record(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.unknown("a").await;
    let order = order(ground.seen(row.0).await, paid(row.1));
    assert_eq!(ground.settle(&order).await, Guarded::Done);
    let shown = ground.store.show(row.0).await.unwrap().unwrap();
    assert_eq!(shown.answer, Some(Answer::Response(response("paid").into())));
    assert_ne!(shown.listed.nonce, row.1, "a late finisher must be told apart");
    assert_eq!(written(&ground.database).await.len(), 1);
    let decided = ground.store.decisions(Some(row.0), None, 10).await.unwrap();
    let [decision] = &decided[..] else { panic!("{decided:?}") };
    assert_eq!((&*decision.outcome, decision.status, decision.attempt), ("completed", Some(201), 1));
    assert_eq!((&*decision.actor.name, &*decision.actor.authority), ("ann\u{fffd}", "token"));
    assert_eq!((&*decision.reason, &*decision.key, &*decision.scope), ("seen at the bank", "a", "tenant:acme"));
    assert_eq!(decision.unknown_since, order.entry.changed_at);
    // The late finisher: fenced.
    let late = ground.transit(row, FromState::Unfinished, completed(row.1, "late")).await;
    assert_eq!((late, ground.store.show(row.0).await.unwrap().unwrap().answer), (Guarded::Fenced, shown.answer));
}

async fn a_person_releases_an_unknown_entry(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.unknown("a").await;
    let order = order(ground.seen(row.0).await, Ending::NotExecuted);
    assert_eq!(ground.settle(&order).await, Guarded::Done);
    assert_eq!(ground.read(row.0).await, None);
    let decided = ground.store.decisions(None, None, 10).await.unwrap();
    assert_eq!((decided.len(), &*decided[0].outcome, decided[0].status), (1, "not_executed", None));
    assert!(ground.store.decisions(None, Some(decided[0].number), 10).await.unwrap().is_empty());
    assert_eq!(ground.transit(row, FromState::Unfinished, completed(row.1, "late")).await, Guarded::Fenced);
    ground.won("a").await;
}

/// As after a commit whose end nobody has heard of.
async fn an_order_that_is_applied_again_tells_the_same(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (one, other) = (ground.unknown("one").await, ground.unknown("other").await);
    let orders = [order(ground.seen(one.0).await, paid(one.1)), order(ground.seen(other.0).await, Ending::NotExecuted)];
    for _ in 0..3 {
        assert_eq!(ground.store.settle(&orders).await.unwrap(), [Guarded::Done, Guarded::Done]);
    }
    assert_eq!(ground.store.decisions(None, None, 10).await.unwrap().len(), 2);
    assert_eq!(written(&ground.database).await.len(), 1);
    // Whatever has become of the key meanwhile.
    let again = ground.won("other").await;
    assert_eq!(ground.settle(&orders[1]).await, Guarded::Done);
    assert_eq!(ground.read(again.0).await.unwrap().nonce, again.1);
}

async fn only_an_unknown_entry_that_is_as_it_was_seen_is_settled(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    let endings = || [paid(row.1), Ending::NotExecuted];
    // Its owner may still be executing.
    for to in endings() {
        assert_eq!(ground.settle(&order(ground.seen(row.0).await, to)).await, Guarded::Fenced);
    }
    // The rescuer may be about to make it unknown: then it is.
    ground.store.retire(ground.instance).await.unwrap();
    let before = ground.seen(row.0).await;
    assert_eq!(ground.store.orphan(10).await.unwrap(), 1);
    let unknown = ground.seen(row.0).await;
    assert_ne!(before.version(), unknown.version());
    // Somebody has forwarded it again.
    let live = Ground { instance: oncegate::entry::InstanceId::random(), ..ground };
    live.store.register(live.instance, "live").await.unwrap();
    let again = To::InProgress { nonce: Nonce::random(), instance: live.instance };
    assert_eq!(live.transit(row, FromState::Unknown, again.clone()).await, Guarded::Done);
    for to in endings() {
        assert_eq!(live.settle(&order(unknown.clone(), to)).await, Guarded::Fenced);
    }
    let To::InProgress { nonce, .. } = again else { unreachable!() };
    live.transit((row.0, nonce), FromState::InProgress, super::unknown()).await;
    for to in endings() {
        assert_eq!(live.settle(&order(unknown.clone(), to)).await, Guarded::Fenced, "of the attempt before");
    }
    // It is completed.
    live.transit((row.0, nonce), FromState::Unknown, completed(nonce, "paid")).await;
    for to in endings() {
        assert_eq!(live.settle(&order(live.seen(row.0).await, to)).await, Guarded::Fenced);
    }
    assert!(live.store.decisions(None, None, 10).await.unwrap().is_empty());
    assert!(written(&live.database).await.is_empty());
}

async fn of_two_people_one_settles(kind: Kind) {
    let ground = Ground::new(kind).await;
    for number in 0..8 {
        let row = ground.unknown(&format!("k{number}")).await;
        let seen = ground.seen(row.0).await;
        let other = ground.database.open();
        let (one, two) = (order(seen.clone(), paid(row.1)), order(seen, Ending::NotExecuted));
        let settle = async |store: &oncegate::storage::Store, order: &Order| loop {
            // Conflicts are tried again.
            match store.settle(std::slice::from_ref(order)).await {
                Ok(told) => return told[0],
                Err(error) => drop(error),
            }
        };
        let (first, second) = tokio::join!(settle(&ground.store, &one), settle(&other, &two));
        assert_ne!(first, second, "{number}");
        let decided = ground.store.decisions(Some(row.0), None, 10).await.unwrap();
        let outcome = if first == Guarded::Done { "completed" } else { "not_executed" };
        assert_eq!(decided.iter().map(|decision| &*decision.outcome).collect::<Vec<_>>(), [outcome]);
        assert_eq!(ground.read(row.0).await.is_some(), first == Guarded::Done);
    }
}

async fn one_that_is_not_there_any_more_keeps_nobody_elses_order(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (gone, there) = (ground.unknown("gone").await, ground.unknown("there").await);
    let orders = [gone, there].map(|row| (row, Ending::NotExecuted));
    let mut given = Vec::new();
    for (row, to) in orders {
        given.push(order(ground.seen(row.0).await, to));
    }
    assert_eq!(ground.release(gone, Released::Settled).await, Guarded::Done);
    assert_eq!(ground.store.settle(&given).await.unwrap(), [Guarded::Fenced, Guarded::Done]);
    let decided = ground.store.decisions(None, None, 10).await.unwrap();
    assert_eq!(decided.iter().map(|decision| decision.entry).collect::<Vec<_>>(), [there.0]);
}

async fn a_late_answer_is_kept_where_people_find_it(kind: Kind) {
    let ground = Ground::new(kind).await;
    let late: Bytes = response("late").encode();
    let said = |evidence: &Option<StoredResponse>| evidence.as_ref().map(|response| response.body.clone());
    let (completed, released) = (ground.unknown("completed").await, ground.unknown("released").await);
    ground.settle(&order(ground.seen(completed.0).await, paid(completed.1))).await;
    ground.settle(&order(ground.seen(released.0).await, Ending::NotExecuted)).await;
    // The key runs again, and what was settled as not executed was executed after all.
    let again = ground.won("released").await;
    for row in [completed, released] {
        ground.store.keep_evidence(row.0, row.1, late.clone()).await.unwrap();
        ground.store.keep_evidence(row.0, row.1, response("later").encode()).await.unwrap();
        let decided = ground.store.decisions(Some(row.0), None, 10).await.unwrap();
        assert_eq!(said(&decided[0].evidence), Some("late".into()), "the first stays");
    }
    let evidence = async |row: (EntryId, Nonce)| ground.store.show(row.0).await.unwrap().unwrap().evidence;
    assert_eq!(said(&evidence(completed).await), Some("late".into()));
    assert_eq!(said(&evidence(again).await), None, "it is not about what runs now");
    // Nobody has decided, and the entry is gone: then what the key has now may be a second execution.
    let gone = ground.unknown("gone").await;
    ground.release(gone, Released::Settled).await;
    let rerun = ground.won("gone").await;
    ground.store.keep_evidence(gone.0, gone.1, late).await.unwrap();
    assert_eq!(said(&evidence(rerun).await), Some("late".into()));
}

async fn what_is_unknown_is_counted_up_to_a_cap(kind: Kind) {
    let ground = Ground::new(kind).await;
    let none = ground.store.unsettled(10).await.unwrap();
    assert_eq!((none.count, none.oldest), (0, None));
    for number in 0..5 {
        ground.unknown(&format!("u{number}")).await;
        ground.won(&format!("p{number}")).await;
        let row = ground.won(&format!("c{number}")).await;
        ground.transit(row, FromState::Unfinished, completed(row.1, "paid")).await;
    }
    let all = ground.store.unsettled(10).await.unwrap();
    assert!(all.count == 5 && all.oldest.is_some_and(|oldest| oldest < HOUR), "{all:?}");
    assert_eq!(ground.store.unsettled(3).await.unwrap().count, 3);
}
