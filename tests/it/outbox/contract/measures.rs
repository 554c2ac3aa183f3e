use std::time::Duration;

use oncegate::outbox::desk::{Action, Desk as _, Filter, Mode, Order, State, Which};
use oncegate::outbox::store::{Backlog, How, Outbox as _};

use super::{Ground, HOUR, QUEUE, SENT, new, parked, retry};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    reaping_is_bounded_and_never_takes_what_is_not_done,
    one_that_is_kept_longer_does_not_keep_the_others,
    the_backlog_counts_up_to_its_cap,
);

const LANES: [u32; 4] = [0, 1, 2, 3];

/// Whatever their times say: only sent and discarded ones leave, and only past their time.
async fn reaping_is_bounded_and_never_takes_what_is_not_done(kind: Kind) {
    let ground = Ground::new(kind).await;
    for key in ["ready", "retrying", "parked", "kept"] {
        ground.commit(new(0, key)).await;
    }
    ground.commit_many(1, "over", 5).await;
    let discarded = ground.commit(new(2, "discarded")).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let over = How::Sent { keep: Duration::ZERO, result: None, frees: None };
    let marks: Vec<_> = acquired
        .iter()
        .map(|event| match &*event.key {
            "retrying" => (event, retry(Duration::ZERO)),
            "parked" => (event, parked()),
            "kept" => (event, SENT),
            "over" => (event, over.clone()),
            _ => (event, How::GivenBack),
        })
        .collect();
    holder.conclude(&marks).await;
    let waiting = ground.commit(new(0, "parked")).await;
    assert_eq!(holder.acquire().await.len(), 3);
    let filter = Filter { key: Some("discarded".into()), states: vec![State::Ready], ..Filter::default() };
    ground.run(&format!("UPDATE events SET epoch = NULL WHERE position = {discarded}")).await;
    let action = Action::Discard { keep: Duration::ZERO };
    let to = Which::All { filter, limit: 1 };
    ground.store.act(&Order { action, to, reason: "x".into(), mode: Mode::Carry }).await.unwrap();
    ground.run("UPDATE events SET due_at = 1 WHERE state <= 4").await;

    let mut reaped = Vec::new();
    for _ in 0..5 {
        reaped.push(ground.store.reap(QUEUE, &LANES, 2).await.unwrap());
    }
    assert_eq!(reaped, [2, 2, 2, 0, 0]);
    assert_eq!(ground.number("SELECT COUNT(*) FROM events").await, 5);
    assert_eq!(ground.number("SELECT COUNT(*) FROM events WHERE state <= 4").await, 4, "all but one that is kept");
    assert_eq!(ground.state(waiting).await, 3);
    assert_eq!(ground.store.reap(QUEUE, &[], 2).await.unwrap(), 0);
}

async fn one_that_is_kept_longer_does_not_keep_the_others(kind: Kind) {
    let ground = Ground::new(kind).await;
    ground.commit_many(0, "a", 6).await;
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let over = How::Sent { keep: Duration::ZERO, result: None, frees: None };
    let mut marks: Vec<_> = acquired.iter().map(|event| (event, over.clone())).collect();
    marks[0].1 = SENT;
    holder.conclude(&marks).await;
    assert_eq!(ground.store.reap(QUEUE, &[1, 2, 3], 100).await.unwrap(), 0, "of other lanes");
    assert_eq!(ground.store.reap(QUEUE, &[0], 100).await.unwrap(), 5);
}

async fn the_backlog_counts_up_to_its_cap(kind: Kind) {
    let ground = Ground::new(kind).await;
    assert_eq!(ground.store.backlog(QUEUE, 10).await.unwrap(), Backlog::default());
    for key in ["retrying", "parked", "skipped", "sent"] {
        ground.commit(super::New { holds: u8::from(key != "skipped"), ..new(0, key) }).await;
    }
    let holder = ground.holder().await;
    let acquired = holder.acquire().await;
    let marks: Vec<_> = acquired
        .iter()
        .map(|event| match &*event.key {
            "retrying" => (event, retry(HOUR)),
            "sent" => (event, SENT),
            _ => (event, parked()),
        })
        .collect();
    holder.conclude(&marks).await;
    ground.commit_many(0, "retrying", 2).await;
    holder.acquire().await;
    ground.commit_many(3, "ready", 3).await;
    let backlog = ground.store.backlog(QUEUE, 100).await.unwrap();
    assert_eq!((backlog.unsent, backlog.waiting, backlog.parked, backlog.blocking), (6, 2, 2, 2));
    assert!(backlog.oldest.unwrap() > HOUR, "they were committed in 1970");
    let backlog = ground.store.backlog(QUEUE, 1).await.unwrap();
    assert_eq!((backlog.unsent, backlog.parked, backlog.blocking), (1, 1, 1));
    assert_eq!(ground.store.backlog("other", 10).await.unwrap(), Backlog::default());
}
