//! The outbox and the broker: what is announced, and where it arrives.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use oncegate::broker::{CONFIRMED, Ordering, PublishError, Published, Publisher};
use oncegate::engine::ledger::{Guarded, StoreError};
use oncegate::outbox::event::{EventId, NewEvent, Outgoing};
use oncegate::outbox::store::{Backlog, How, Lane, Leased, Outbox, RelayId, Taking, Turn, Turned, Woken};
use rand::RngExt as _;
use rand::rngs::SmallRng;

use crate::ledger::Store;
use crate::outbox::{State, Table};
use crate::requests::LANES;
use crate::world::{Shared, World};

pub(crate) const QUEUE: &str = "default";

/// What is announced, and what the broker has of it.
pub(crate) struct Events {
    table: Table,
    pub(crate) ordering: Ordering,
    new: BTreeMap<i64, NewEvent>,
    ids: BTreeSet<EventId>,
    keys: BTreeMap<Box<str>, u8>,
    /// What the broker has and has said so, in the order in which it came: position and epoch.
    receipts: Vec<(i64, i64)>,
    /// The receipt that made an event sent.
    sent_by: BTreeMap<i64, usize>,
}

impl Events {
    pub(crate) fn new(rng: &mut SmallRng) -> Self {
        let ordering = if rng.random_bool(0.5) { Ordering::ByCall } else { Ordering::OneByOne };
        Self {
            table: Table::new(LANES),
            ordering,
            new: BTreeMap::new(),
            ids: BTreeSet::new(),
            keys: BTreeMap::new(),
            receipts: Vec::new(),
            sent_by: BTreeMap::new(),
        }
    }

    /// Lies in the outbox from now on, unless it does already.
    pub(crate) fn commit(&mut self, event: &NewEvent) {
        if !self.ids.insert(event.event.id) {
            return;
        }
        let position = i64::try_from(self.new.len()).unwrap() + 1;
        let next = u8::try_from(self.keys.len()).unwrap();
        let key = *self.keys.entry(event.event.key.clone()).or_insert(next);
        self.table.insert(position, key, event.on_failure);
        self.new.insert(position, event.clone());
    }

    /// The database ends and comes back: what was not to be durable is forgotten.
    pub(crate) fn crash(&mut self) {
        self.table.crash();
    }

    pub(crate) fn ids(&self) -> &BTreeSet<EventId> {
        &self.ids
    }

    pub(crate) fn get(&self, id: EventId) -> Option<&NewEvent> {
        self.new.values().find(|event| event.event.id == id)
    }

    /// An event that nobody has confirmed and concluded.
    pub(crate) fn unsent(&self) -> Option<String> {
        let unsent = self.table.rows.iter().find(|(_, row)| row.state != State::Sent);
        unsent.map(|(position, row)| format!("event {position}: {row:?}"))
    }

    fn turn(&mut self, turn: &Turn, now: i64) -> (Turned, Vec<String>) {
        self.table.now = now;
        let mut turned = self.table.turn(turn);
        let mut wrongs = Vec::new();
        for (conclusion, done) in turn.conclusions.iter().zip(&turned.concluded) {
            if matches!(conclusion.how, How::Sent { .. }) && *done == Guarded::Done {
                wrongs.extend(self.sent(conclusion.position, conclusion.lane.epoch));
            }
        }
        for acquired in &mut turned.acquired {
            let event = &self.new[&acquired.position].event;
            (acquired.id, acquired.key) = (Some(event.id), event.key.clone());
            if let Ok(outgoing) = &mut acquired.event {
                outgoing.event = event.clone();
            }
        }
        (turned, wrongs)
    }

    /// It counts as sent. So whoever reads the key's events and believes the last one ends with the right one.
    fn sent(&mut self, position: i64, epoch: i64) -> Option<String> {
        if self.sent_by.contains_key(&position) {
            return None;
        }
        let Some(receipt) = self.receipts.iter().rposition(|receipt| *receipt == (position, epoch)) else {
            return Some(format!("event {position} counts as sent, and the broker has not confirmed it"));
        };
        let key = self.table.rows[&position].key;
        for (earlier, row) in self.table.rows.range(..position).filter(|(_, row)| row.key == key) {
            if self.sent_by.get(earlier).is_none_or(|sent_by| *sent_by >= receipt) {
                return Some(format!(
                    "event {position} counts as sent, and {earlier} does not come before it: {row:?}"
                ));
            }
        }
        self.sent_by.insert(position, receipt);
        None
    }
}

impl World {
    fn publish(&mut self, event: &Outgoing) -> Published {
        if !self.is_calm && self.rng.random_bool(0.05) {
            return Err(PublishError::Refused("by the schedule".to_owned()));
        }
        if self.events.new.get(&event.sequence).is_none_or(|new| new.event != event.event) {
            self.wrong(format!("event {} is not published as it was committed: {event:?}", event.sequence));
        }
        self.events.receipts.push((event.sequence, event.epoch));
        CONFIRMED
    }
}

impl Outbox for Store {
    fn open<'a>(&'a self, _: &'a str, _: u32) -> BoxFuture<'a, Result<u32, StoreError>> {
        std::future::ready(Ok(LANES)).boxed()
    }

    fn lease<'a>(
        &'a self,
        _: &'a str,
        relay: RelayId,
        lease: Duration,
        taking: Taking,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Leased, StoreError>> {
        self.ask("lease lanes", move |world| {
            world.events.table.now = world.now;
            world.events.table.lease(relay, lease, taking)
        })
    }

    fn release<'a>(&'a self, _: &'a str, relay: RelayId, lanes: &'a [Lane]) -> BoxFuture<'a, Result<(), StoreError>> {
        let lanes = lanes.to_vec();
        self.ask("release lanes", move |world| world.events.table.release(relay, &lanes))
    }

    fn retire<'a>(&'a self, _: &'a str, relay: RelayId) -> BoxFuture<'a, Result<(), StoreError>> {
        self.ask("retire relay", move |world| world.events.table.retire(relay))
    }

    fn turn<'a>(&'a self, turn: &'a Turn) -> BoxFuture<'a, Result<Turned, StoreError>> {
        let turn = turn.clone();
        self.ask("turn", move |world| {
            let (turned, wrongs) = world.events.turn(&turn, world.now);
            wrongs.into_iter().for_each(|wrong| world.wrong(wrong));
            turned
        })
    }

    fn backlog<'a>(&'a self, _: &'a str, _: u32) -> BoxFuture<'a, Result<Backlog, StoreError>> {
        std::future::ready(Ok(Backlog::default())).boxed()
    }

    fn reap<'a>(&'a self, _: &'a str, _: &'a [u32], _: u32) -> BoxFuture<'a, Result<u64, StoreError>> {
        std::future::ready(Ok(0)).boxed()
    }

    fn notify<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn listen(&self, _: Box<dyn FnMut(Woken) + Send>) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// A process's connection to the broker.
pub(crate) struct BrokerClient {
    pub(crate) world: Shared,
    pub(crate) process: u32,
    pub(crate) ordering: Ordering,
}

impl Publisher for BrokerClient {
    fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published> {
        let asked = self.world.call(self.process, "publish", move |world| world.publish(&event));
        let lost = || Err(PublishError::Unavailable("by the schedule".to_owned()));
        asked.map(move |told| told.unwrap_or_else(|_| lost())).boxed()
    }

    fn ordering(&self) -> Ordering {
        self.ordering
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}
