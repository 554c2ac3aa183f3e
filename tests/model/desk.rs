//! People who settle: the desk's contract in memory, and what a person says, who may be wrong.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::{HeaderMap, StatusCode};
use oncegate::clock::Timestamp;
use oncegate::engine::by_hand::{Given, Settler, Word};
use oncegate::engine::desk::{
    Actor, Decision, Ending, EntryDesk, Filter, Listed, Order, Page, Place, Shown, Stage, Unsettled,
};
use oncegate::engine::ledger::{Batch, FromState, Guarded, Release, Released, StoreError, Transition};
use oncegate::entry::{EntryId, Nonce, State, StoredResponse};

use crate::ledger::{Row, Store};
use crate::requests::{KEYS, id};
use crate::world::World;

/// A decision on record.
#[derive(Debug)]
pub(crate) struct Recorded {
    id: [u8; 16],
    pub(crate) entry: EntryId,
    pub(crate) origin: Nonce,
    pub(crate) evidence: Option<Bytes>,
}

/// What a person answers with who says that a request has completed.
pub(crate) fn by_hand(key: usize) -> Bytes {
    format!(r#"{{"key":{key},"by":"hand"}}"#).into()
}

/// A person looks at an entry and, if it is Unknown, says what became of it.
pub(crate) async fn decide(store: Store, settler: Settler, key: usize, has_completed: bool) {
    let Ok(Some(shown)) = store.show(id(key)).await else { return };
    if shown.listed.stage != Stage::Unknown {
        return;
    }
    let response = StoredResponse { status: StatusCode::CREATED, headers: HeaderMap::new(), body: by_hand(key) };
    let outcome = if has_completed { Given::Completed(Arc::new(response)) } else { Given::NotExecuted };
    let actor = Actor { name: "ann".into(), authority: "a token".into() };
    // What it came to is seen in the rows.
    drop(settler.settle(id(key), &[shown.listed.version()], &Word { outcome, actor, reason: "".into() }).await);
}

fn shown(row: &Row) -> Shown {
    let (entry, identity) = (&row.entry, &row.identity);
    let stage = match entry.state {
        State::InProgress { .. } => Stage::InProgress,
        State::Unknown { .. } => Stage::Unknown,
        State::Completed { .. } => Stage::Completed,
        State::Tombstone { .. } => Stage::Tombstone,
    };
    let listed = Listed {
        id: entry.id,
        nonce: entry.nonce,
        origin: entry.origin,
        namespace: identity.namespace.as_str().into(),
        scope: identity.scope.to_string().into(),
        key: identity.key.as_str().into(),
        route: row.route.clone(),
        stage,
        attempt: entry.attempt,
        created_at: entry.started_at,
        started_at: entry.started_at,
        changed_at: entry.changed_at,
        due_at: None,
        lookups: 0,
        status: None,
        contradicted: row.evidence.is_some(),
    };
    let (identity, context) = (Some(identity.clone()), Ok(row.context.clone()));
    Shown { listed, identity, context, answer: None, tombstone_ms: None, instance: None, evidence: None }
}

impl World {
    fn carry_out_order(&mut self, order: &Order) -> Guarded {
        if self.tables.decisions.iter().any(|decision| decision.id == order.id) {
            return Guarded::Done;
        }
        let Listed { id: entry, nonce, origin, .. } = order.entry;
        let is_as_seen = self
            .tables
            .rows
            .get(&entry)
            .is_some_and(|row| row.entry.nonce == nonce && matches!(row.entry.state, State::Unknown { .. }));
        if !is_as_seen {
            return Guarded::Fenced;
        }
        let mut batch = Batch::default();
        let key = (0..KEYS).find(|key| id(*key) == entry).unwrap();
        match &order.to {
            Ending::Completed(to) => {
                batch.transitions.push(Transition { id: entry, nonce, from: FromState::Unknown, to: to.clone() });
            }
            Ending::NotExecuted => {
                batch.releases.push(Release { id: entry, nonce, of: Released::Settled });
                self.upstream.stories[key].is_let_go();
            }
        }
        self.tables.apply(&batch, &mut self.events, self.now);
        self.tables.decisions.push(Recorded { id: order.id, entry, origin, evidence: None });
        Guarded::Done
    }
}

impl EntryDesk for Store {
    fn list<'a>(&'a self, _: &'a Filter, _: Option<Place>, _: u32) -> BoxFuture<'a, Result<Page, StoreError>> {
        std::future::ready(Ok(Page { entries: Vec::new(), now: Timestamp(0) })).boxed()
    }

    fn find<'a>(&'a self, _: &'a [EntryId]) -> BoxFuture<'a, Result<Page, StoreError>> {
        std::future::ready(Ok(Page { entries: Vec::new(), now: Timestamp(0) })).boxed()
    }

    fn show(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Shown>, StoreError>> {
        self.ask("show", move |world| world.tables.rows.get(&id).map(shown))
    }

    fn decisions(
        &self,
        _: Option<EntryId>,
        _: Option<i64>,
        _: u32,
    ) -> BoxFuture<'_, Result<Vec<Decision>, StoreError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn unsettled(&self, _: u32) -> BoxFuture<'_, Result<Unsettled, StoreError>> {
        std::future::ready(Ok(Unsettled { count: 0, oldest: None })).boxed()
    }

    fn settle<'a>(&'a self, orders: &'a [Order]) -> BoxFuture<'a, Result<Vec<Guarded>, StoreError>> {
        let orders = orders.to_vec();
        self.ask("settle", move |world| orders.iter().map(|order| world.carry_out_order(order)).collect())
    }
}
