//! Observing: decides and counts, alters nothing, lends nothing.

use std::sync::Arc;

use oncegate::engine::{Arrived, Policy};
use oncegate::entry::{Outcome, State};

use super::upstream::{Upstream, answer};
use super::{Arrival, Gateway, Setup, gateway, identity, policy, request, under, until};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(observing_follows_a_request_and_lends_its_entry_to_nobody);

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
