use oncegate::engine::ledger::StoreError;
use oncegate::inbox::store::{Deposits as _, MAX_DEPOSIT, NewDelivery};
use oncegate::outbox::event::NewEvent;

use super::Ground;
use crate::deliveries::delivery;
use crate::servers::database::{Kind, on_each_database};

on_each_database!(
    a_delivery_comes_out_as_it_went_in,
    what_is_there_already_is_passed_over,
    the_same_id_with_another_content_is_another_delivery,
    many_come_in_their_order,
    more_than_one_statement_takes_are_kept_all_the_same,
    one_that_can_not_be_stored_keeps_none,
    what_can_not_be_delivered_waits_for_its_turn,
    two_who_received_the_same_keep_each_once,
);

fn numbered(count: usize) -> Vec<NewDelivery> {
    (0..count).map(|n| delivery(&format!("m-{n}"), "order-7", b"{}")).collect()
}

async fn a_delivery_comes_out_as_it_went_in(kind: Kind) {
    let ground = Ground::new(kind).await;
    let odd = delivery("m-\"1\"", "order \u{fc}", b"\0\xff");
    assert_eq!(ground.deposit(std::slice::from_ref(&odd)).await, 1);
    let acquired = ground.acquire().await;
    let outgoing = acquired[0].event.clone().unwrap();
    assert_eq!(outgoing.event, odd.event.event);
    assert_eq!((&*acquired[0].key, acquired[0].attempts, acquired[0].deferrals), ("order \u{fc}", 1, 0));
}

async fn what_is_there_already_is_passed_over(kind: Kind) {
    let ground = Ground::new(kind).await;
    let all = numbered(5);
    assert_eq!(ground.deposit(&all[..3]).await, 3);
    assert_eq!(ground.deposit(&all).await, 2);
    assert_eq!(ground.deposit(&[&all[..], &all[..1]].concat()).await, 0);
    assert_eq!(ground.deposit(&[]).await, 0);
    let twice = delivery("m-9", "order-7", b"{}");
    assert_eq!(ground.deposit(&[twice.clone(), twice]).await, 1, "twice in one batch");
    assert_eq!(ground.count().await, 6);
}

async fn the_same_id_with_another_content_is_another_delivery(kind: Kind) {
    let ground = Ground::new(kind).await;
    let both = [delivery("m-1", "order-7", b"{}"), delivery("m-1", "order-7", b"[]")];
    assert_eq!(ground.deposit(&both).await, 2, "the engine tells what it thinks of that");
}

async fn many_come_in_their_order(kind: Kind) {
    let ground = Ground::new(kind).await;
    let all = numbered(MAX_DEPOSIT);
    assert_eq!(ground.deposit(&all).await, MAX_DEPOSIT);
    let acquired = ground.acquire().await;
    let ids: Vec<_> = acquired.iter().map(|event| event.event.as_ref().unwrap().event.id).collect();
    let expected: Vec<_> = all.iter().map(|delivery| delivery.event.event.id).collect();
    assert_eq!(ids, expected);
    let too_many = ground.store.deposit(&numbered(MAX_DEPOSIT + 1), None).await;
    assert!(matches!(too_many, Err(StoreError::Refused(_))), "{too_many:?}");
}

async fn more_than_one_statement_takes_are_kept_all_the_same(kind: Kind) {
    let ground = Ground::new(kind).await;
    let large = vec![b'x'; 3 << 20];
    let all: Vec<_> = (0..9).map(|n| delivery(&format!("m-{n}"), "order-7", &large)).collect();
    assert_eq!(ground.deposit(&all).await, 9);
    let acquired = ground.acquire().await;
    let ids: Vec<_> = acquired.iter().map(|event| event.event.as_ref().unwrap().event.id).collect();
    assert!(all.iter().map(|delivery| delivery.event.event.id).eq(ids));
}

async fn one_that_can_not_be_stored_keeps_none(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (good, bad) = (delivery("m-1", "order-7", b"{}"), delivery("m-2", &"k".repeat(256), b"{}"));
    let refused = ground.store.deposit(&[good.clone(), bad], None).await;
    assert!(matches!(&refused, Err(StoreError::Refused(reason)) if reason.contains("key")), "{refused:?}");
    assert_eq!(ground.count().await, 0);
    assert_eq!(ground.deposit(&[good]).await, 1, "alone it is kept");
}

async fn what_can_not_be_delivered_waits_for_its_turn(kind: Kind) {
    let ground = Ground::new(kind).await;
    let first = delivery("m-1", "order-7", b"{}");
    let unfit = delivery("m-2", "order-7", b"no json");
    let unfit = NewDelivery { event: NewEvent { parked: Some("no key".into()), ..unfit.event }, ..unfit };
    ground.deposit(&[first, unfit]).await;
    let acquired = ground.acquire().await;
    assert_eq!(acquired.len(), 2, "in its place");
    assert_eq!((acquired[0].event.is_ok(), &acquired[1].event), (true, &Err("no key".into())));
}

async fn two_who_received_the_same_keep_each_once(kind: Kind) {
    let ground = Ground::new(kind).await;
    let other = ground.database.open();
    let all = numbered(300);
    let (one, two) = tokio::join!(ground.store.deposit(&all, None), other.deposit(&all, None));
    assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
    assert_eq!(ground.count().await, 300);
}
