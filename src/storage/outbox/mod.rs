//! The outbox in a database: the contract of [`crate::outbox::store`], each statement once.
//!
//! Locks are taken in one order: lanes by number, then events by position. Whoever changes events that exist
//! (a relay's turn, a person) holds their lanes' rows, so that no two of them can wait for each other in a
//! circle, and a lane can't change hands in between.

mod acquire;
mod act;
mod backlog;
mod bury;
mod choose;
mod conclude;
mod fetch;
mod free;
mod lanes;
mod line;
mod listed;
mod reap;
mod record;
mod relays;
mod rows;
mod turn;
mod wake;

pub(super) use listed::read_state;
pub(super) use record::{attributes, data};

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::Store;
use super::transaction::within;
use crate::engine::desk::Actor;
use crate::engine::ledger::StoreError;
use crate::outbox::desk::{Acted, Desk, Filter, Listed, Order, Parked, Seen, Shown};
use crate::outbox::event::EventId;
use crate::outbox::store::{Backlog, Lane, Leased, Outbox, RelayId, Taking, Turn, Turned, Woken};

/// An event's state as stored.
mod stored {
    pub(super) const READY: i64 = 1;
    pub(super) const RETRYING: i64 = 2;
    pub(super) const WAITING: i64 = 3;
    pub(super) const PARKED: i64 = 4;
    pub(super) const SENT: i64 = 5;
    pub(super) const DISCARDED: i64 = 6;
    pub(super) const EARLY: i64 = 7;
}

impl Outbox for Store {
    fn open<'a>(&'a self, queue: &'a str, wanted: u32) -> BoxFuture<'a, Result<u32, StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let work = within(self.statement_timeout, lanes::make(&mut transaction.conn(), queue, wanted)).await;
            transaction.end(work).await
        })
    }

    fn lease<'a>(
        &'a self,
        queue: &'a str,
        relay: RelayId,
        lease: Duration,
        taking: Taking,
        trouble: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Leased, StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let work = lanes::lease(&mut transaction, queue, relay, lease, taking, trouble);
            let work = within(self.statement_timeout, work).await;
            transaction.end(work).await
        })
    }

    fn release<'a>(
        &'a self,
        queue: &'a str,
        relay: RelayId,
        lanes: &'a [Lane],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let work = within(self.statement_timeout, lanes::release(&mut transaction, queue, relay, lanes)).await;
            transaction.end(work).await
        })
    }

    fn retire<'a>(&'a self, queue: &'a str, relay: RelayId) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let work = within(self.statement_timeout, lanes::retire(&mut transaction, queue, relay)).await;
            transaction.end(work).await
        })
    }

    fn turn<'a>(&'a self, turn: &'a Turn) -> BoxFuture<'a, Result<Turned, StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let work = within(self.statement_timeout, turn::take(&mut transaction, turn)).await;
            // Events wait for the second, and nothing depends on whether a crash of the database forgets it.
            if turn.conclusions.is_empty() {
                transaction.end_without_flush(work).await
            } else {
                transaction.end(work).await
            }
        })
    }

    fn backlog<'a>(&'a self, queue: &'a str, cap: u32) -> BoxFuture<'a, Result<Backlog, StoreError>> {
        Box::pin(backlog::count(self, queue, cap))
    }

    fn reap<'a>(&'a self, queue: &'a str, lanes: &'a [u32], limit: u32) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let work = within(self.statement_timeout, reap::reap(&mut transaction, queue, lanes, limit)).await;
            transaction.end(work).await
        })
    }

    fn notify<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(wake::notify(self, queue))
    }

    fn listen(&self, woken: Box<dyn FnMut(Woken) + Send>) -> BoxFuture<'_, ()> {
        Box::pin(wake::listen(self, woken))
    }
}

impl Desk for Store {
    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        before: Option<i64>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Listed>, StoreError>> {
        Box::pin(listed::list(self, filter, before, limit))
    }

    fn show(&self, id: EventId) -> BoxFuture<'_, Result<Option<Shown>, StoreError>> {
        Box::pin(listed::show(self, id))
    }

    fn relays(&self) -> BoxFuture<'_, Result<Vec<Seen>, StoreError>> {
        Box::pin(relays::seen(self))
    }

    fn parked(&self, cap: u32) -> BoxFuture<'_, Result<Parked, StoreError>> {
        Box::pin(backlog::parked(self, cap))
    }

    fn act_by<'a>(&'a self, order: &'a Order, by: Option<&'a Actor>) -> BoxFuture<'a, Result<Acted, StoreError>> {
        Box::pin(async move {
            let mut transaction = self.begin().await?;
            let work = within(self.statement_timeout, act::act(&mut transaction, order, by)).await;
            transaction.end(work).await
        })
    }
}
