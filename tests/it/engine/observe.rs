//! Observing: decides and counts, alters nothing, lends nothing.

use std::sync::Arc;

use oncegate::engine::policy::Found;
use oncegate::engine::{Arrived, Policy};
use oncegate::entry::{Outcome, State};

use super::lookup::Oracle;
use super::upstream::{Upstream, answer};
use super::{Arrival, Gateway, HOUR, SECOND, Setup, expire, gateway, identity, policy, request, under, until};
use crate::servers::database::{Database, Kind, on_each_database};

on_each_database!(
    observing_follows_a_request_and_lends_its_entry_to_nobody,
    what_is_unknown_of_an_observed_request_leaves_when_its_answer_would,
    an_observed_request_is_never_looked_up,
);

fn observed(key: &str, body: &'static str) -> Arrival {
    let plain = policy();
    under(&Arc::new(Policy { namespace: plain.namespace.observed(), ..plain }), key, body)
}

async fn state(gateway: &Gateway, key: &str) -> Option<State> {
    let identity = oncegate::entry::Identity { namespace: policy().namespace.observed(), ..identity(key) };
    gateway.engine.entry(identity.id()).await.unwrap().map(|entry| entry.state)
}

async fn observing_follows_a_request_and_lends_its_entry_to_nobody(kind: Kind) {
    let (_database, gateway) = gateway(kind, Setup::default()).await;
    gateway.engine.observe(observed("a", "1")).send(Outcome::Completed(answer("seen"))).unwrap();
    until("recorded", || async { matches!(state(&gateway, "a").await, Some(State::Completed { .. })) }).await;
    drop(gateway.engine.observe(observed("b", "1")));
    until("unknown", || async { matches!(state(&gateway, "b").await, Some(State::Unknown { .. })) }).await;
    gateway.engine.observe(observed("c", "1")).send(Outcome::NotExecuted).unwrap();
    until("followed and released", || async { state(&gateway, "c").await.is_none() }).await;
    // What is a duplicate is followed no further.
    let duplicate = gateway.engine.observe(observed("a", "2"));
    until("decided", || async { duplicate.is_closed() }).await;

    let upstream = Upstream::default();
    for key in ["a", "b", "c"] {
        assert_eq!(gateway.entry(key).await, None);
        let told = gateway.arrive(request(key, "1"), upstream.pays()).await;
        assert!(matches!(told, Arrived::Executed { answer: "paid", .. }), "{told:?}");
    }
    assert_eq!(upstream.calls(), 3);
    gateway.engine.drain().await.unwrap();
}

/// Lets time pass for the Unknown entries.
async fn age(database: &Database, milliseconds: u128) {
    let sql = format!(
        "UPDATE entries SET changed_at = changed_at - {milliseconds}, due_at = due_at - {milliseconds} WHERE state = 2"
    );
    database.stranger().await.run(&sql).await;
}

async fn what_is_unknown_of_an_observed_request_leaves_when_its_answer_would(kind: Kind) {
    // Of the one route this gateway knows how long answers are kept; of the other, only that it was observed.
    let route =
        |name: &str| Arc::new(Policy { route: name.into(), namespace: policy().namespace.observed(), ..policy() });
    let (here, elsewhere) = (route("here"), route("elsewhere"));
    let (database, gateway) = gateway(kind, Setup { policies: vec![here.clone()], ..Setup::default() }).await;
    gateway.arrive(request("enforced", "1"), Upstream::default().loses_it()).await;
    for arrival in [under(&here, "here", "1"), under(&elsewhere, "elsewhere", "1")] {
        drop(gateway.engine.observe(arrival));
    }
    for key in ["here", "elsewhere"] {
        until("unknown", || async { matches!(state(&gateway, key).await, Some(State::Unknown { .. })) }).await;
    }
    let left = async || {
        gateway.house.lookup_step().await.unwrap();
        (state(&gateway, "here").await.is_none(), state(&gateway, "elsewhere").await.is_none())
    };
    age(&database, (HOUR - SECOND * 60).as_millis()).await;
    assert_eq!(left().await, (false, false));
    age(&database, (SECOND * 60).as_millis()).await;
    assert_eq!(left().await, (true, false));
    age(&database, (HOUR * 24).as_millis()).await;
    assert_eq!(left().await, (true, true));
    assert!(gateway.is_unknown("enforced").await, "what is enforced waits for its outcome");
}

/// Nor by the policy of a route that enforces by now, under the same name.
async fn an_observed_request_is_never_looked_up(kind: Kind) {
    let oracle = Oracle::says(Found::Completed(answer("found")));
    let setup = Setup { policies: vec![oracle.policy(SECOND, None)], ..Setup::default() };
    let (database, gateway) = gateway(kind, setup).await;
    let _outcome = gateway.engine.observe(observed("a", "1"));
    until("claimed", || async { state(&gateway, "a").await.is_some() }).await;
    let Some(State::InProgress { instance }) = state(&gateway, "a").await else { panic!("not in progress") };
    // A rescuer finds what a process that died had under way.
    expire(&database, instance).await;
    gateway.house.sweep_step().await.unwrap();
    for _ in 0..2 {
        gateway.house.lookup_step().await.unwrap();
        assert!(matches!(state(&gateway, "a").await, Some(State::Unknown { .. })));
    }
    age(&database, HOUR.as_millis()).await;
    gateway.house.lookup_step().await.unwrap();
    assert_eq!((state(&gateway, "a").await, oracle.asked()), (None, 0));
}
