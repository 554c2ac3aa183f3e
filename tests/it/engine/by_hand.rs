//! A person's word, where somebody else comes in between: the desk is a real store's, which does something else first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use oncegate::engine::OnEvents;
use oncegate::engine::by_hand::{Given, Many, NotSettled, Settler, SettlerParts, Word};
use oncegate::engine::desk::{Actor, Decision, EntryDesk, Filter, Order, Page, Place, Shown, Stage, Unsettled};
use oncegate::engine::ledger::{Guarded, StoreError};
use oncegate::entry::{EntryId, StoredResponse};
use oncegate::outbox::desk::Mode;
use oncegate::storage::Store;

use super::{memory, policy};
use crate::servers::database::{Database, Kind, fresh, on_each_database};

on_each_database!(
    what_changed_between_the_list_and_the_look_is_left_alone,
    what_changed_between_the_look_and_the_commit_is_left_alone,
    no_more_are_settled_than_was_said,
);

const UNKNOWN: i64 = 2;

/// When somebody else takes the entry up again: forwards it under a nonce of its own, and loses its answer as well.
#[derive(Clone, Copy, PartialEq)]
enum Meddling {
    Never,
    BeforeTheLook,
    BeforeTheCommit,
}

/// A store, before which somebody else is once.
struct Desk {
    store: Arc<Store>,
    database: Database,
    meddling: Meddling,
    is_done: AtomicBool,
}

impl Desk {
    async fn meddle(&self, at: Meddling) {
        if self.meddling == at && !self.is_done.swap(true, Ordering::SeqCst) {
            let nonce = self.database.literal(&[0xee; 16]);
            let sql = format!("UPDATE entries SET nonce = {nonce}, attempt = 2 WHERE state = {UNKNOWN}");
            assert!(self.database.stranger().await.run(&sql).await > 0);
        }
    }
}

impl EntryDesk for Desk {
    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        after: Option<Place>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.store.list(filter, after, limit)
    }

    fn find<'a>(&'a self, ids: &'a [EntryId]) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.store.find(ids)
    }

    fn show(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Shown>, StoreError>> {
        Box::pin(async move {
            self.meddle(Meddling::BeforeTheLook).await;
            EntryDesk::show(&*self.store, id).await
        })
    }

    fn decisions(
        &self,
        of: Option<EntryId>,
        before: Option<i64>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<Decision>, StoreError>> {
        self.store.decisions(of, before, limit)
    }

    fn unsettled(&self, cap: u32) -> BoxFuture<'_, Result<Unsettled, StoreError>> {
        self.store.unsettled(cap)
    }

    fn settle<'a>(&'a self, orders: &'a [Order]) -> BoxFuture<'a, Result<Vec<Guarded>, StoreError>> {
        Box::pin(async move {
            self.meddle(Meddling::BeforeTheCommit).await;
            self.store.settle(orders).await
        })
    }
}

struct Ground {
    database: Database,
    settler: Settler,
    store: Arc<Store>,
}

impl Ground {
    /// With so many unknown entries of the route `pay`, the first one's id all ones.
    async fn new(kind: Kind, entries: u8, meddling: Meddling) -> Self {
        let (database, store) = fresh(kind).await;
        let store = Arc::new(store);
        for id in 1..=entries {
            let literal = |byte: u8, length: usize| database.literal(&vec![byte; length]);
            let (row, nonce, print, context) =
                (literal(id, 32), literal(id, 16), literal(1, 37), database.literal(b"h"));
            let sql = format!(
                "INSERT INTO entries (id, namespace, scope, idempotency_key, route, state, nonce, origin, attempt, \
                 instance, fingerprint, context, lookups, created_at, started_at, changed_at) VALUES ({row}, 'pay', \
                 'global', 'order-{id}', 'pay', {UNKNOWN}, {nonce}, {nonce}, 1, {nonce}, {print}, {context}, 0, 1000, \
                 1000, {id}000)"
            );
            database.stranger().await.run(&sql).await;
        }
        let desk =
            Desk { store: Arc::clone(&store), database: database.shared(), meddling, is_done: AtomicBool::new(false) };
        let policies = [("pay".into(), Arc::new(policy()))].into();
        let parts = SettlerParts { desk: Arc::new(desk), marks: memory(), policies, on_events: OnEvents::default() };
        Self { database, settler: Settler::new(parts), store }
    }

    async fn count(&self, sql: &str) -> i64 {
        self.database.stranger().await.number(&format!("SELECT COUNT(*) FROM {sql}")).await
    }

    /// Nothing has become of the entries.
    async fn are_untouched(&self, entries: i64) {
        assert_eq!(self.count(&format!("entries WHERE state = {UNKNOWN} AND attempt = 2")).await, entries);
        assert_eq!(self.count("entry_actions").await, 0);
    }
}

fn words() -> [Word; 2] {
    let response =
        StoredResponse { status: http::StatusCode::OK, headers: http::HeaderMap::new(), body: bytes::Bytes::new() };
    [Given::NotExecuted, Given::Completed(Arc::new(response))].map(|outcome| {
        let actor = Actor { name: "ann".into(), authority: "token".into() };
        Word { outcome, actor, reason: "seen at the bank".into() }
    })
}

fn many(limit: u32) -> Many {
    let filter = Filter { route: Some("pay".into()), older_than: Duration::from_secs(1), ..Filter::of(Stage::Unknown) };
    Many { filter, limit, mode: Mode::Carry }
}

async fn what_changed_between_the_list_and_the_look_is_left_alone(kind: Kind) {
    for word in words() {
        let ground = Ground::new(kind, 2, Meddling::BeforeTheLook).await;
        let outcomes = ground.settler.settle_many(&many(10), &word).await.unwrap();
        assert!(outcomes.settled.is_empty(), "{outcomes:?}");
        let why: Vec<_> = outcomes.left.iter().map(|(_, why)| matches!(why, NotSettled::Changed)).collect();
        assert_eq!(why, [true, true], "{outcomes:?}");
        ground.are_untouched(2).await;
    }
}

async fn what_changed_between_the_look_and_the_commit_is_left_alone(kind: Kind) {
    for word in words() {
        let ground = Ground::new(kind, 1, Meddling::BeforeTheCommit).await;
        let seen = EntryDesk::show(&*ground.store, EntryId([1; 32])).await.unwrap().unwrap().listed.version();
        let told = ground.settler.settle(EntryId([1; 32]), &[seen], &word).await;
        assert!(matches!(told, Err(NotSettled::Changed)), "{told:?}");
        ground.are_untouched(1).await;
        let ground = Ground::new(kind, 2, Meddling::BeforeTheCommit).await;
        let outcomes = ground.settler.settle_many(&many(10), &word).await.unwrap();
        assert_eq!((outcomes.settled.len(), outcomes.left.len()), (0, 2), "{outcomes:?}");
        ground.are_untouched(2).await;
    }
}

async fn no_more_are_settled_than_was_said(kind: Kind) {
    let [not_executed, _] = words();
    let ground = Ground::new(kind, 40, Meddling::Never).await;
    let outcomes = ground.settler.settle_many(&many(35), &not_executed).await.unwrap();
    assert_eq!((outcomes.settled.len(), outcomes.left.len()), (35, 0));
    let left = format!("entries WHERE state = {UNKNOWN} AND changed_at >= 36000");
    assert_eq!((ground.count("entries").await, ground.count(&left).await), (5, 5), "the oldest come first");
    let dry = Many { mode: Mode::DryRun, ..many(2) };
    assert_eq!(ground.settler.settle_many(&dry, &not_executed).await.unwrap().settled.len(), 2);
    assert_eq!((ground.count("entries").await, ground.count("entry_actions").await), (5, 35));
}
