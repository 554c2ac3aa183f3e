//! Encryption at rest of what a service's own transaction writes.

use std::collections::BTreeSet;

use axum::Router;
use axum::routing::post;
use oncegate::layer::Operation;
use oncegate::{Oncegate, SetupError};

use super::{Answer, SECRET, Shop, request};
use crate::servers::database::{Database, Kind, on_each_database};

on_each_database!(what_a_handlers_transaction_stores_is_sealed_and_replayed);

const OLD: &str = "the older encryption secret of the tests";
const NEW: &str = "the newer encryption secret of the tests";

async fn what_a_handlers_transaction_stores_is_sealed_and_replayed(kind: Kind) {
    const SAID: &str = "order of call";
    let clear = Shop::new(kind).await;
    clear.order("a", "commit").await;
    let expected = ["entries", "events"].map(ToOwned::to_owned);
    assert_eq!(clear.database.tables_with(SAID).await, BTreeSet::from(expected), "this looks where it lies");

    let database = Database::create(kind).await;
    let shared = database.shared();
    let oncegate = Oncegate::setup(&database.url, SECRET).seal_under(OLD).open().await.unwrap();
    let shop = Shop::of(database, oncegate, |operation| operation).await;
    let first = shop.order("a", "commit").await;
    assert!(first.body.contains(SAID) && shop.order("a", "commit").await.is_replay());
    assert_eq!(shop.database.tables_with(SAID).await, BTreeSet::new());

    let rotated = Oncegate::setup(&shared.url, SECRET).seal_under(NEW).seal_under(OLD).open().await.unwrap();
    let without = Oncegate::setup(&shared.url, SECRET).seal_under(NEW).open().await.unwrap();
    let ask = async |oncegate: &Oncegate| {
        let layer = oncegate.layer(Operation::new("create-order").unwrap()).await.unwrap();
        Answer::to(Router::new().route("/orders", post(async || "again")).layer(layer), request("a", "-")).await
    };
    let replayed = ask(&rotated).await;
    assert_eq!((replayed.is_replay(), replayed.body), (true, first.body));
    assert!(ask(&without).await.is_problem("unavailable"));
}

#[tokio::test]
async fn a_short_encryption_secret_is_refused_before_the_store_is_touched() {
    let refused = Oncegate::setup("postgres://127.0.0.1:1/nowhere", SECRET).seal_under("short").open().await;
    assert!(matches!(refused, Err(SetupError::Sealer(_))));
}
