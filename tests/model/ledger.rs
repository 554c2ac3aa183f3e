//! The ledger's and the instances' contracts in memory: their rules (`oncegate::engine::ledger`) and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use oncegate::clock::{Timestamp, millis};
use oncegate::engine::instances::{Instances, Peer, Renewed};
use oncegate::engine::ledger::{
    Applied, Batch, Claim, Claimed, DueLookup, FromState, Guarded, InProgress, Ledger, Reaped, Release, Released,
    StoreError, To, Transition,
};
use oncegate::entry::{Entry, EntryId, Identity, InstanceId, Nonce, State};

use crate::desk::Recorded;
use crate::events::Events;
use crate::world::{Failed, Shared};

#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) rows: BTreeMap<EntryId, Row>,
    pub(crate) decisions: Vec<Recorded>,
    instances: BTreeMap<InstanceId, Instance>,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) entry: Entry,
    pub(crate) identity: Identity,
    pub(crate) route: Box<str>,
    pub(crate) context: Option<Bytes>,
    pub(crate) evidence: Option<Bytes>,
}

#[derive(Debug)]
struct Instance {
    renewals: i64,
    is_alive: bool,
}

impl Tables {
    pub(crate) fn apply(&mut self, batch: &Batch, events: &mut Events, now: i64) -> Applied {
        Applied {
            now: Timestamp(now),
            transitions: batch.transitions.iter().map(|one| self.change(one, events, now)).collect(),
            releases: batch.releases.iter().map(|one| self.release(one)).collect(),
            claims: batch.claims.iter().map(|one| self.claim(one, now)).collect(),
        }
    }

    fn change(&mut self, transition: &Transition, events: &mut Events, now: i64) -> Guarded {
        let Some(row) = self.rows.get_mut(&transition.id) else { return Guarded::Fenced };
        let is_legal = match (&row.entry.state, transition.from) {
            (State::InProgress { .. }, FromState::InProgress | FromState::Unfinished)
            | (State::Unknown { .. }, FromState::Unknown | FromState::Unfinished) => true,
            (State::InProgress { .. }, FromState::Unknown)
            | (State::Unknown { .. }, FromState::InProgress)
            | (State::Completed { .. } | State::Tombstone { .. }, _) => false,
        };
        if row.entry.nonce == transition.nonce && is_legal {
            row.become_(&transition.to, now);
            row.entry.nonce = transition.nonce_after();
        } else {
            let is_as_asked = row.entry.nonce == transition.nonce_after()
                && matches!(
                    (&row.entry.state, &transition.to),
                    (State::InProgress { .. }, To::InProgress { .. })
                        | (State::Unknown { .. }, To::Unknown { .. })
                        | (State::Completed { .. }, To::Completed { .. })
                );
            if !is_as_asked {
                return Guarded::Fenced;
            }
        }
        if let To::Completed { events: announced, .. } = &transition.to {
            announced.iter().for_each(|event| events.commit(event));
        }
        Guarded::Done
    }

    fn release(&mut self, release: &Release) -> Guarded {
        let Some(row) = self.rows.get(&release.id) else { return Guarded::Done };
        let Entry { nonce, origin, attempt, state, .. } = &row.entry;
        let is_legal = match (release.of, state) {
            (Released::FirstAttempt, State::InProgress { .. } | State::Unknown { .. }) => *attempt == 1,
            (Released::Settled, State::Unknown { .. }) => true,
            // Nothing is kept for so short a time here.
            (Released::Forgotten | Released::Settled | Released::FirstAttempt, _) => false,
        };
        if *nonce == release.nonce && is_legal {
            self.rows.remove(&release.id);
            return Guarded::Done;
        }
        // Gone before, and another claim has made it anew.
        let is_anew = *attempt == 1 && *origin != release.nonce && *nonce != release.nonce;
        if is_anew && release.of == Released::FirstAttempt { Guarded::Done } else { Guarded::Fenced }
    }

    fn claim(&mut self, claim: &Claim, now: i64) -> Claimed {
        if let Some(row) = self.rows.get(&claim.id) {
            let is_mine = row.entry.nonce == claim.nonce && matches!(row.entry.state, State::InProgress { .. });
            return if is_mine { Claimed::Won } else { Claimed::Existing(Box::new(row.entry.clone())) };
        }
        if !self.is_alive(claim.instance) {
            return Claimed::NotAlive;
        }
        let entry = Entry {
            id: claim.id,
            nonce: claim.nonce,
            origin: claim.nonce,
            attempt: 1,
            fingerprint: claim.fingerprint,
            state: State::InProgress { instance: claim.instance },
            started_at: Timestamp(now),
            changed_at: Timestamp(now),
        };
        let (identity, route, context) = (claim.identity.clone(), claim.route.clone(), claim.context.clone());
        self.rows.insert(claim.id, Row { entry, identity, route, context, evidence: None });
        Claimed::Won
    }

    /// On what was made under `origin`; where there is none of it, on what the key has by now.
    fn keep_evidence(&mut self, id: EntryId, origin: Nonce, evidence: &Bytes) {
        let mut of_origin = 0;
        for decision in self.decisions.iter_mut().filter(|one| one.entry == id && one.origin == origin) {
            decision.evidence.get_or_insert_with(|| evidence.clone());
            of_origin += 1;
        }
        if let Some(row) = self.rows.get_mut(&id).filter(|row| row.entry.origin == origin || of_origin == 0) {
            row.evidence.get_or_insert_with(|| evidence.clone());
        }
    }

    /// Whether an answer that came too late is kept for a person.
    pub(crate) fn has_evidence(&self, id: EntryId) -> bool {
        let decided = self.decisions.iter().filter(|one| one.entry == id).any(|one| one.evidence.is_some());
        decided || self.rows.get(&id).is_some_and(|row| row.evidence.is_some())
    }

    fn is_alive(&self, id: InstanceId) -> bool {
        self.instances.get(&id).is_some_and(|instance| instance.is_alive)
    }

    fn orphan(&mut self, limit: u32, now: i64) -> u64 {
        let alive: Vec<_> = self.instances.iter().filter(|(_, one)| one.is_alive).map(|(id, _)| *id).collect();
        let is_orphan = |entry: &Entry| match entry.state {
            State::InProgress { instance } => !alive.contains(&instance),
            State::Unknown { .. } | State::Completed { .. } | State::Tombstone { .. } => false,
        };
        let mut orphans = 0;
        for row in self.rows.values_mut().filter(|row| is_orphan(&row.entry)).take(limit as usize) {
            row.become_(&To::Unknown { next_lookup: Some(Duration::ZERO), lookups: 0 }, now);
            orphans += 1;
        }
        orphans
    }

    fn due_lookups(&self, limit: u32, now: i64) -> Vec<DueLookup> {
        let due_at = |entry: &Entry| match entry.state {
            State::Unknown { next_lookup, .. } => next_lookup.filter(|due| due.0 <= now),
            State::InProgress { .. } | State::Completed { .. } | State::Tombstone { .. } => None,
        };
        let mut due: Vec<_> = self.rows.values().filter_map(|row| Some((due_at(&row.entry)?, row))).collect();
        due.sort_by_key(|(due, row)| (*due, row.entry.id));
        due.into_iter()
            .take(limit as usize)
            .map(|(_, row)| DueLookup {
                entry: row.entry.clone(),
                identity: row.identity.clone(),
                route: row.route.clone(),
                context: Ok(row.context.clone()),
            })
            .collect()
    }

    fn in_progress(&self, of: InstanceId, until: i64, after: Option<InProgress>, limit: u32) -> Vec<InProgress> {
        let is_own = |entry: &Entry| matches!(entry.state, State::InProgress { instance } if instance == of);
        let own = self.rows.values().map(|row| &row.entry).filter(|entry| is_own(entry));
        let mut own: Vec<_> =
            own.map(|entry| InProgress { id: entry.id, nonce: entry.nonce, since: entry.started_at }).collect();
        own.retain(|row| row.since.0 <= until);
        own.retain(|row| after.is_none_or(|after| (row.since, row.id) > (after.since, after.id)));
        own.sort_by_key(|row| (row.since, row.id));
        own.truncate(limit as usize);
        own
    }

    fn renew(&mut self, id: InstanceId, now: i64) -> Renewed {
        let Some(own) = self.instances.get_mut(&id).filter(|one| one.is_alive) else { return Renewed::Expired };
        own.renewals += 1;
        let others = self.instances.iter().filter(|(other, one)| **other != id && one.is_alive);
        let peers = others.map(|(id, one)| Peer { id: *id, renewals: one.renewals, dead: false }).collect();
        Renewed::Alive { now: Timestamp(now), peers }
    }

    fn end(&mut self, id: InstanceId, renewals: Option<i64>) -> bool {
        let found = self.instances.get_mut(&id);
        let found = found.filter(|one| one.is_alive && renewals.is_none_or(|renewals| renewals == one.renewals));
        found.is_some_and(|one| std::mem::replace(&mut one.is_alive, false))
    }
}

impl Row {
    fn become_(&mut self, to: &To, now: i64) {
        let entry = &mut self.entry;
        let now = Timestamp(now);
        let was = std::mem::discriminant(&entry.state);
        entry.state = match to {
            To::InProgress { instance, .. } => {
                entry.attempt += 1;
                entry.started_at = now;
                State::InProgress { instance: *instance }
            }
            To::Unknown { next_lookup, lookups } => {
                State::Unknown { next_lookup: next_lookup.map(|after| now.after(after)), lookups: *lookups }
            }
            To::Completed { answer, retention, tombstone, .. } => {
                self.context = None;
                let expires = now.after(*retention);
                State::Completed { answer: answer.clone(), expires, tombstone_ms: tombstone.map(millis) }
            }
        };
        if std::mem::discriminant(&entry.state) != was {
            entry.changed_at = now;
        }
    }
}

/// A process's connection to the database.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) world: Shared,
    pub(crate) process: u32,
}

pub(crate) fn failed(failed: Failed) -> StoreError {
    let text = "by the schedule".to_owned();
    match failed {
        Failed::Away => StoreError::Unavailable(text),
        Failed::Conflict => StoreError::Conflict(text),
        Failed::Unclear => StoreError::CommitUnknown(text),
    }
}

impl Store {
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&mut crate::world::World) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        self.world.call(self.process, what, work).map(|told| told.map_err(failed)).boxed()
    }
}

impl Ledger for Store {
    fn apply<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Applied, StoreError>> {
        let batch = batch.clone();
        self.ask("apply", move |world| world.tables.apply(&batch, &mut world.events, world.now))
    }

    fn read(&self, id: EntryId) -> BoxFuture<'_, Result<(Option<Entry>, Timestamp), StoreError>> {
        self.ask("read", move |world| (world.tables.rows.get(&id).map(|row| row.entry.clone()), Timestamp(world.now)))
    }

    fn keep_evidence(&self, id: EntryId, origin: Nonce, evidence: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        let world = self.world.clone();
        let asked = self.ask("keep evidence", move |world| world.tables.keep_evidence(id, origin, &evidence));
        async move {
            let told = asked.await;
            world.lock().evidence_lost |= told.is_err();
            told
        }
        .boxed()
    }

    fn due_lookups(&self, limit: u32) -> BoxFuture<'_, Result<Vec<DueLookup>, StoreError>> {
        self.ask("due lookups", move |world| world.tables.due_lookups(limit, world.now))
    }

    fn orphan(&self, limit: u32) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.ask("orphan", move |world| world.tables.orphan(limit, world.now))
    }

    fn in_progress(
        &self,
        instance: InstanceId,
        age: Duration,
        after: Option<InProgress>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<InProgress>, StoreError>> {
        self.ask("in progress", move |world| world.tables.in_progress(instance, world.now - millis(age), after, limit))
    }

    /// Nothing is kept for so short a time here.
    fn reap(&self, _: u32) -> BoxFuture<'_, Result<Reaped, StoreError>> {
        std::future::ready(Ok(Reaped::default())).boxed()
    }
}

impl Instances for Store {
    fn register<'a>(&'a self, id: InstanceId, _: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.ask("register", move |world| {
            world.tables.instances.insert(id, Instance { renewals: 0, is_alive: true });
        })
    }

    fn renew(&self, id: InstanceId) -> BoxFuture<'_, Result<Renewed, StoreError>> {
        self.ask("renew", move |world| world.tables.renew(id, world.now))
    }

    fn expire(&self, peer: Peer) -> BoxFuture<'_, Result<bool, StoreError>> {
        self.ask("expire", move |world| world.tables.end(peer.id, Some(peer.renewals)))
    }

    fn retire(&self, id: InstanceId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.ask("retire", move |world| {
            world.tables.end(id, None);
        })
    }

    /// Nobody ended long ago.
    fn forget(&self, _: Duration) -> BoxFuture<'_, Result<u64, StoreError>> {
        std::future::ready(Ok(0)).boxed()
    }
}
