//! Events written in the transaction that completes their entries.

use bytes::Bytes;
use oncegate::committer::{Committer, Limits};
use oncegate::engine::ledger::{Batch, FromState, Guarded, Ledger as _, StoreError, To, Transition};
use oncegate::entry::{Answer, EntryId, Nonce, State};
use oncegate::outbox::event::{Attributes, Envelope, EventId, NewEvent, OnFailure};
use tokio_util::sync::CancellationToken;

use super::{Ground, completed, unknown};
use crate::servers::database::{Kind, on_each_database};
use crate::servers::outbox::{Written, written};

on_each_database!(
    events_come_with_their_completions_in_order_and_once,
    a_completion_that_was_fenced_out_announces_nothing,
    an_event_is_stored_as_it_is,
    one_that_can_not_be_stored_keeps_its_entry_from_being_completed,
    an_outcome_is_kept_whatever_becomes_of_its_events,
    more_events_than_fit_one_statement_are_written_in_order,
);

pub(super) fn event(origin: Nonce, name: &str) -> NewEvent {
    let event = Envelope {
        id: EventId::of(origin, name),
        queue: "default".into(),
        topic: "payments".into(),
        key: "A-1".into(),
        kind: "com.example.paid".into(),
        source: "/payments".into(),
        route: "create-payment".into(),
        content_type: "application/json".into(),
        traceparent: None,
        attributes: Attributes::new(),
        data: Bytes::from(format!("\"{name}\"")),
    };
    NewEvent { event, lane: 7, parked: None, on_failure: OnFailure::Hold }
}

/// The completion of `row` that announces `events`.
fn announcing((id, nonce): (EntryId, Nonce), events: Vec<NewEvent>) -> Transition {
    let mut to = completed(nonce, "paid");
    if let To::Completed { events: place, .. } = &mut to {
        *place = events.into();
    }
    Transition { id, nonce, from: FromState::Unfinished, to }
}

fn batch(transitions: Vec<Transition>) -> Batch {
    Batch { transitions, ..Batch::default() }
}

fn said(written: &[Written]) -> Vec<&str> {
    written.iter().map(|event| &*event.data).collect()
}

async fn events_come_with_their_completions_in_order_and_once(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (one, other, quiet) = (ground.won("one").await, ground.won("other").await, ground.won("quiet").await);
    let batch = batch(vec![
        announcing(other, vec![event(other.1, "b1"), event(other.1, "b2")]),
        announcing(quiet, Vec::new()),
        announcing(one, vec![event(one.1, "a1"), event(one.1, "a2")]),
    ]);
    for _ in 0..2 {
        // As after an unclear commit.
        assert_eq!(ground.apply(batch.clone()).await.transitions, [Guarded::Done; 3]);
        let written = written(&ground.database).await;
        assert_eq!(said(&written), ["\"b1\"", "\"b2\"", "\"a1\"", "\"a2\""]);
        assert_eq!(written[2].id, EventId::of(one.1, "a1").to_string());
    }
}

async fn a_completion_that_was_fenced_out_announces_nothing(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (mine, settled, gone) = (ground.won("mine").await, ground.won("settled").await, ground.won("gone").await);
    ground.transit(settled, FromState::InProgress, unknown()).await;
    let other = announcing((settled.0, settled.1), vec![event(settled.1, "by lookup")]);
    let To::Completed { answer, retention, tombstone, events, .. } = other.to.clone() else { panic!("a completion") };
    let to = To::Completed { nonce: Nonce::random(), answer, retention, tombstone, events };
    ground.apply(batch(vec![Transition { to, ..other }])).await;
    let late = vec![
        announcing(settled, vec![event(settled.1, "late")]),
        announcing(mine, vec![event(mine.1, "mine")]),
        announcing((gone.0, Nonce::random()), vec![event(gone.1, "stranger")]),
    ];
    let guarded = ground.apply(batch(late)).await.transitions;
    assert_eq!(guarded, [Guarded::Fenced, Guarded::Done, Guarded::Fenced]);
    assert_eq!(said(&written(&ground.database).await), ["\"by lookup\"", "\"mine\""]);
}

async fn an_event_is_stored_as_it_is(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    let mut odd = event(row.1, "odd");
    odd.parked = Some("nobody knows \u{e9}".into());
    odd.on_failure = OnFailure::Skip;
    odd.event.key = "\u{e9}".repeat(127).into();
    odd.event.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
    odd.event.data = Bytes::new();
    ground.apply(batch(vec![announcing(row, vec![odd.clone(), event(row.1, "plain")])])).await;
    let expected = |event: &NewEvent, state: &str, reason: &str, traceparent: &str, data: &str| Written {
        id: event.event.id.to_string(),
        queue: "default".to_owned(),
        lane: "7".to_owned(),
        key: event.event.key.to_string(),
        state: state.to_owned(),
        reason: reason.to_owned(),
        route: "create-payment".to_owned(),
        topic: "payments".to_owned(),
        kind: "com.example.paid".to_owned(),
        source: "/payments".to_owned(),
        content_type: "application/json".to_owned(),
        traceparent: traceparent.to_owned(),
        data: data.to_owned(),
    };
    let (trace, reason) = (odd.event.traceparent.as_deref().unwrap(), odd.parked.as_deref().unwrap());
    let plain = event(row.1, "plain");
    let rows = [expected(&odd, "1.0.0", reason, trace, ""), expected(&plain, "1.0.1", "-", "-", "\"plain\"")];
    assert_eq!(written(&ground.database).await, rows);
    let entry = ground.database.literal(&row.0.0);
    let timed =
        format!("events WHERE entry = {entry} AND created_at = changed_at AND epoch IS NULL AND due_at IS NULL");
    let same = format!("SELECT COUNT(*) FROM {timed} AND created_at = (SELECT changed_at FROM entries)");
    assert_eq!(ground.database.stranger().await.number(&same).await, 2);
}

fn unstorable(origin: Nonce) -> NewEvent {
    let mut event = event(origin, "unstorable");
    event.event.topic = "t".repeat(256).into();
    event
}

async fn one_that_can_not_be_stored_keeps_its_entry_from_being_completed(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    let refused = ground.store.apply(&batch(vec![announcing(row, vec![unstorable(row.1)])])).await;
    assert!(matches!(&refused, Err(StoreError::Refused(text)) if text.contains("topic")), "{refused:?}");
    assert!(matches!(ground.read(row.0).await.unwrap().state, State::InProgress { .. }));
}

async fn an_outcome_is_kept_whatever_becomes_of_its_events(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (poison, neighbour) = (ground.won("poison").await, ground.won("neighbour").await);
    let store = std::sync::Arc::new(ground.database.open());
    let (committer, stop) = (Committer::new(store, Limits::default()), CancellationToken::new());
    let poisoned = committer.transition(announcing(poison, vec![unstorable(poison.1)]));
    let sound = committer.transition(announcing(neighbour, vec![event(neighbour.1, "sound")]));
    tokio::spawn(committer.clone().run(stop.clone()));
    let (poisoned, sound) = tokio::join!(poisoned, sound);
    assert_eq!((poisoned.unwrap().0, sound.unwrap().0), (Guarded::Done, Guarded::Done));
    stop.cancel();
    for row in [poison, neighbour] {
        assert!(matches!(ground.read(row.0).await.unwrap().state, State::Completed { .. }));
    }
    assert_eq!(said(&written(&ground.database).await), ["\"sound\""]);
}

/// MariaDB takes no statement above 16 MiB: the event waits without its data, and the answer is kept.
#[tokio::test]
async fn an_event_whose_data_the_store_refuses_waits_for_a_person_without_it() {
    let ground = Ground::new(Kind::MySql).await;
    let row = ground.won("a").await;
    let mut large = event(row.1, "large");
    large.event.data = vec![b'x'; 17 << 20].into();
    let store = std::sync::Arc::new(ground.database.open());
    let (committer, stop) = (Committer::new(store, Limits::default()), CancellationToken::new());
    tokio::spawn(committer.clone().run(stop.clone()));
    let done = committer.transition(announcing(row, vec![large])).await.unwrap();
    assert_eq!(done.0, Guarded::Done);
    stop.cancel();
    let [event] = <[Written; 1]>::try_from(written(&ground.database).await).unwrap();
    assert_eq!((&*event.state, &*event.reason, &*event.data), ("1.0.1", "the store refused its data", ""));
    let State::Completed { answer, .. } = ground.read(row.0).await.unwrap().state else { panic!("not completed") };
    assert!(matches!(answer, Answer::Response(_)), "{answer:?}");
}

async fn more_events_than_fit_one_statement_are_written_in_order(kind: Kind) {
    let ground = Ground::new(kind).await;
    let row = ground.won("a").await;
    let names: Vec<String> = (0..600).map(|index| index.to_string()).collect();
    let events = names.iter().map(|name| event(row.1, name)).collect();
    ground.apply(batch(vec![announcing(row, events)])).await;
    let written = written(&ground.database).await;
    let expected: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    assert_eq!(said(&written), expected);
}
