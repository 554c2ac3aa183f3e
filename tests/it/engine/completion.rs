//! Handlers that finish the entry in a transaction of their own: the row decides.

use oncegate::engine::ledger::{FromState, Guarded, StoreError, To, Transition};
use oncegate::engine::{Arrived, Attempt, Executed, Recorded};
use oncegate::sealer::Sealer;
use oncegate::storage::apply_on;

use super::upstream::{Upstream, answer};
use super::{HOUR, Setup, assert_replay, gateway, on, patient, request, soon, under};
use crate::servers::database::{Database, Kind, Stranger, on_each_database};

on_each_database!(a_handler_that_committed_is_replayed, a_handler_that_rolled_back_did_not_happen);

async fn complete_in(connection: &mut Stranger, attempt: &Attempt) -> Result<Guarded, StoreError> {
    let (id, nonce) = (attempt.id, attempt.nonce);
    let to = To::Completed { nonce, answer: answer("paid"), retention: HOUR, tombstone: None, events: [].into() };
    let transition = Transition { id, nonce, from: FromState::Unfinished, to };
    match connection {
        Stranger::Sqlite(connection) => apply_on(connection, &Sealer::default(), &transition).await,
        Stranger::Postgres(connection) => apply_on(connection, &Sealer::default(), &transition).await,
        Stranger::MySql(connection) => apply_on(connection, &Sealer::default(), &transition).await,
    }
}

/// Runs a handler that completes the entry in its own transaction and ends that with `end`.
async fn handle(kind: Kind, end: &'static str) -> (Database, super::Gateway, super::Told) {
    let (database, gateway) = gateway(kind, Setup::default()).await;
    let upstream = Upstream::default();
    let (run, mut held) = upstream.held();
    let sent = gateway.send(request("a", "1"), run);
    let attempt = held.begun().await;
    let mut connection = database.stranger().await;
    connection.run("BEGIN").await;
    assert_eq!(complete_in(&mut connection, &attempt).await.unwrap(), Guarded::Done);
    connection.run(end).await;
    held.ends(Executed::InTransaction { answer: "handled" });
    let told = soon(sent).await.unwrap();
    (database, gateway, told)
}

async fn a_handler_that_committed_is_replayed(kind: Kind) {
    let (database, gateway, told) = handle(kind, "COMMIT").await;
    assert!(matches!(told, Arrived::Executed { answer: "handled", recorded: Recorded::Completed(_) }), "{told:?}");
    let upstream = Upstream::default();
    assert_replay(&gateway.arrive(request("a", "1"), upstream.never()).await, "paid");
    let other = on(&database, Setup::default()).await;
    assert_replay(&soon(other.arrive(patient(request("a", "1")), upstream.never())).await, "paid");
    assert_eq!(upstream.calls(), 0);
}

async fn a_handler_that_rolled_back_did_not_happen(kind: Kind) {
    let (_database, gateway, told) = handle(kind, "ROLLBACK").await;
    assert!(matches!(told, Arrived::Executed { answer: "handled", recorded: Recorded::Released }), "{told:?}");
    let upstream = Upstream::default();
    let policy = std::sync::Arc::new(super::policy());
    let told = gateway.arrive(under(&policy, "a", "1"), upstream.pays()).await;
    assert!(matches!(told, Arrived::Executed { answer: "paid", .. }), "{told:?}");
}
