//! How long records are kept.

use std::time::Duration;

use super::{Ground, message};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(records_leave_after_the_retention_and_never_before, many_records_leave_in_several_transactions);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn records_leave_after_the_retention_and_never_before(kind: Kind) {
    let ground = Ground::with(kind, |setup| setup.retention(DAY)).await;
    let stock = ground.inbox.of("stock").unwrap();
    for key in ["old", "young"] {
        ground.handle(&message(key)).await;
        ground.handle_in(&stock, &message(key)).await.unwrap();
    }
    let age = |seconds: i64| {
        format!("UPDATE inbox SET recorded_at = recorded_at - {} WHERE message_key = 'old'", seconds * 1_000)
    };
    let mut stranger = ground.database.stranger().await;
    stranger.run(&age(24 * 60 * 60 - 60)).await;
    assert_eq!(ground.inbox.forget().await.unwrap(), 0);
    assert_eq!(ground.handle(&message("old")).await, "duplicate");
    stranger.run(&age(61)).await;
    assert_eq!(ground.inbox.forget().await.unwrap(), 1);
    assert_eq!(ground.handle(&message("young")).await, "duplicate");
    assert_eq!(ground.handle_in(&stock, &message("old")).await.unwrap(), "duplicate", "another consumer's own time");
    assert_eq!(ground.handle(&message("old")).await, "first", "it is new again");
    assert_eq!(ground.inbox.forget().await.unwrap(), 0);
}

async fn many_records_leave_in_several_transactions(kind: Kind) {
    const RECORDS: u64 = 1_234;
    let ground = Ground::with(kind, |setup| setup.retention(DAY)).await;
    let messages: Vec<_> = (0..RECORDS).map(|number| message(&number.to_string())).collect();
    let mut tx = ground.pool.begin().await;
    drop(tx.begin_many(&ground.inbox, &messages).await.unwrap());
    tx.commit(&ground.inbox, Vec::new()).await.unwrap();
    ground.handle(&message("young")).await;
    let mut stranger = ground.database.stranger().await;
    stranger.run("UPDATE inbox SET recorded_at = 0 WHERE message_key <> 'young'").await;
    assert_eq!(ground.inbox.forget().await.unwrap(), RECORDS);
    assert_eq!(ground.rows().await, [1, 0]);
}
