//! Transitions inside a caller's own transaction.

use oncegate::engine::ledger::{FromState, Guarded, Transition};
use oncegate::entry::{EntryId, Nonce, State};
use oncegate::sealer::Sealer;
use oncegate::storage::{TxConnection, apply_on};
use sqlx::Executor;

use super::{Ground, completed};
use crate::servers::database::{Kind, Stranger, on_each_database};

on_each_database!(a_transition_commits_and_rolls_back_with_the_callers_rows);

async fn a_transition_commits_and_rolls_back_with_the_callers_rows(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.database.stranger().await.run("CREATE TABLE payments (id INTEGER)").await;
    let (kept, undone, fenced) = (ground.won("kept").await, ground.won("undone").await, ground.won("fenced").await);

    assert_eq!(pay(&ground, kept, true).await, Guarded::Done);
    assert_eq!(pay(&ground, undone, false).await, Guarded::Done);
    assert_eq!(pay(&ground, (fenced.0, Nonce::random()), true).await, Guarded::Fenced);

    assert!(matches!(ground.read(kept.0).await.unwrap().state, State::Completed { .. }));
    assert!(matches!(ground.read(undone.0).await.unwrap().state, State::InProgress { .. }));
    assert!(matches!(ground.read(fenced.0).await.unwrap().state, State::InProgress { .. }));
    let paid = ground.database.stranger().await.number("SELECT COUNT(*) FROM payments").await;
    assert_eq!(paid, 2, "the caller's rows go the same way");
}

async fn pay(ground: &Ground, row: (EntryId, Nonce), commit: bool) -> Guarded {
    let transition = Transition { id: row.0, nonce: row.1, from: FromState::Unfinished, to: completed(row.1, "paid") };
    match ground.database.stranger().await {
        Stranger::Sqlite(mut connection) => pay_on(&mut connection, &transition, commit).await,
        Stranger::Postgres(mut connection) => pay_on(&mut connection, &transition, commit).await,
        Stranger::MySql(mut connection) => pay_on(&mut connection, &transition, commit).await,
    }
}

async fn pay_on<C>(connection: &mut C, transition: &Transition, commit: bool) -> Guarded
where
    C: TxConnection + sqlx::Connection,
    for<'c> &'c mut C: Executor<'c, Database = C::Database>,
{
    let mut transaction = connection.begin().await.unwrap();
    let connection: &mut C = &mut transaction;
    connection.execute("INSERT INTO payments VALUES (1)").await.unwrap();
    let guarded = apply_on(connection, &Sealer::default(), transition).await.unwrap();
    if commit {
        transaction.commit().await.unwrap();
    } else {
        transaction.rollback().await.unwrap();
    }
    guarded
}
