//! Settling Unknown entries by a person's word.
//!
//! | step | a crash after it leaves |
//! |---|---|
//! | the entry is read: Unknown, and as the person saw it | nothing |
//! | what marks say of it is deleted | the entry as it was; its retries ask the ledger |
//! | one commit: the entry's end, its events, the decision's record | the settled entry, and who has settled it |
//!
//! Whoever else settles meanwhile (a late answer, a lookup, another person) and whoever takes the entry up again does so
//! by compare-and-set on the same nonce: one of them wins, and the others are told.

mod picked;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::desk::{Actor, Ending, EntryDesk, Filter, Listed, MAX_LISTED, Order, Shown, Stage, Version};
use super::ledger::{Guarded, Sealed, StoreError, To};
use super::marks::Marks;
use super::{OnEvents, Policy, context, emit};
use crate::chance;
use crate::committer::leave_out;
use crate::entry::{Answer, EntryId, Namespace, Nonce, StoredResponse};
use crate::outbox::desk::Mode;
use crate::outbox::event::EventId;
use crate::outbox::rule::Subject;

/// Entries that are settled in one transaction: bounds how long their rows are locked.
const AT_ONCE: usize = 32;

/// Tries of one transaction that conflicts with others, or whose end nobody has heard of.
const TRIES: u32 = 6;

/// The pause between two tries: what an entry's row is locked for lasts about as long.
const PAUSE: Duration = Duration::from_millis(200);

/// What a settler is made of.
#[derive(Clone)]
pub struct SettlerParts {
    /// The ledger, as people see it.
    pub desk: Arc<dyn EntryDesk>,
    /// The hints.
    pub marks: Arc<dyn Marks>,
    /// All policies by their route's name.
    pub policies: HashMap<Box<str>, Arc<Policy>>,
    /// Called after commits that carried events.
    pub on_events: OnEvents,
}

/// Carries out what people decide about Unknown entries.
#[derive(Debug, Clone)]
pub struct Settler(SettlerParts);

impl std::fmt::Debug for SettlerParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SettlerParts").field("routes", &self.policies.len()).finish_non_exhaustive()
    }
}

/// What a person says of an Unknown entry, and why.
#[derive(Debug, Clone)]
pub struct Word {
    /// What became of its request.
    pub outcome: Given,
    /// Who says so.
    pub actor: Actor,
    /// Why.
    pub reason: Box<str>,
}

/// What became of a request, by a person's word.
#[derive(Debug, Clone)]
pub enum Given {
    /// It happened; its retries get this answer.
    Completed(Arc<StoredResponse>),
    /// It did not: its key is new again.
    NotExecuted,
}

impl Given {
    /// As it is put on record.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::NotExecuted => "not_executed",
        }
    }
}

/// Why an entry was not settled.
#[derive(Debug, thiserror::Error)]
pub enum NotSettled {
    /// There is no entry, or not any more.
    #[error("there is no such entry")]
    Absent,
    /// It is in another state than Unknown.
    #[error("the entry is {}, not unknown", .0.as_str())]
    NotUnknown(Stage),
    /// It is Unknown, but not as it was seen.
    #[error("the entry has changed since it was seen")]
    Changed,
    /// Nothing hangs on its outcome.
    #[error("its route only observed the request: it was forwarded whatever the entry says, and no retry is held")]
    Observed,
    /// What its completion announces, and how long it is kept, is not known here.
    #[error("its route, {0}, is not configured here: a completion would announce nothing")]
    NoRoute(Box<str>),
    /// Settled without what its claim kept, it would announce nothing.
    #[error("what its claim kept of the request is sealed under a key that is not here")]
    Sealed,
    /// This version can't read it.
    #[error("a newer version has written it")]
    Unreadable,
    /// The store does not do it. Unless it says that the commit is unclear, nothing was written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An entry that was settled.
#[derive(Debug, Clone)]
pub struct Settled {
    /// As it was before.
    pub entry: Listed,
    /// The ids of what it announces.
    pub events: Vec<EventId>,
}

/// Which entries, of those that are Unknown.
#[derive(Debug, Clone)]
pub struct Many {
    /// What they have in common. Its state does not matter.
    pub filter: Filter,
    /// How many at most, the oldest.
    pub limit: u32,
    /// Whether it is done, or only said what would be.
    pub mode: Mode,
}

/// What became of many.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Settled, or to be settled.
    pub settled: Vec<Settled>,
    /// Left alone, and why.
    pub left: Vec<(Listed, NotSettled)>,
}

/// An order with what it came from.
struct Prepared {
    order: Order,
    events: Vec<EventId>,
}

impl Settler {
    /// Carries out what people decide with `parts`.
    #[must_use]
    pub const fn new(parts: SettlerParts) -> Self {
        Self(parts)
    }

    /// Settles one entry, if it still is as one of `seen` says.
    ///
    /// # Errors
    /// If it was not, and why.
    pub async fn settle(&self, id: EntryId, seen: &[Version], word: &Word) -> Result<Settled, NotSettled> {
        let shown = self.0.desk.show(id).await?.ok_or(NotSettled::Absent)?;
        if shown.listed.stage == Stage::Unknown && !seen.contains(&shown.listed.version()) {
            return Err(NotSettled::Changed);
        }
        let prepared = self.prepare(shown, word)?;
        let mut outcomes = self.carry_out(vec![prepared]).await;
        match (outcomes.settled.pop(), outcomes.left.pop()) {
            (Some(settled), _) => Ok(settled),
            (None, Some((_, why))) => Err(why),
            (None, None) => Err(NotSettled::Absent),
        }
    }

    /// Settles many, or says which they would be.
    ///
    /// # Errors
    /// If they can't be listed. What happened to each is told by its own.
    pub async fn settle_many(&self, many: &Many, word: &Word) -> Result<Outcomes, StoreError> {
        let filter = Filter { stage: Stage::Unknown, ..many.filter.clone() };
        let page = self.0.desk.list(&filter, None, many.limit.min(MAX_LISTED)).await?;
        let mut outcomes = Outcomes::default();
        for chunk in page.entries.chunks(AT_ONCE) {
            let mut prepared = Vec::new();
            for listed in chunk {
                match self.prepare_listed(listed, word).await {
                    Ok(one) => prepared.push(one),
                    Err(why) => outcomes.left.push((listed.clone(), why)),
                }
            }
            let done = self.go(prepared, many.mode).await;
            outcomes.settled.extend(done.settled);
            outcomes.left.extend(done.left);
        }
        Ok(outcomes)
    }

    async fn prepare_listed(&self, listed: &Listed, word: &Word) -> Result<Prepared, NotSettled> {
        let shown = self.0.desk.show(listed.id).await?.ok_or(NotSettled::Absent)?;
        if shown.listed.stage == Stage::Unknown && shown.listed.nonce != listed.nonce {
            return Err(NotSettled::Changed);
        }
        self.prepare(shown, word)
    }

    /// The order that `word` is for an entry: with the events of its completion, as if it had completed at once.
    fn prepare(&self, shown: Shown, word: &Word) -> Result<Prepared, NotSettled> {
        let Shown { listed, identity, context, .. } = shown;
        if listed.stage != Stage::Unknown {
            return Err(NotSettled::NotUnknown(listed.stage));
        }
        if Namespace::from_stored(&listed.namespace).is_observed() {
            return Err(NotSettled::Observed);
        }
        let mut ids = Vec::new();
        let to = match &word.outcome {
            Given::NotExecuted => Ending::NotExecuted,
            Given::Completed(response) => {
                let policy = self.0.policies.get(&listed.route);
                let policy = policy.ok_or_else(|| NotSettled::NoRoute(listed.route.clone()))?;
                let identity = identity.ok_or(NotSettled::Unreadable)?;
                let context = context.map_err(|Sealed| NotSettled::Sealed)?;
                let (kind, seed) = context::decode(context.as_ref());
                let answer = Answer::Response(Arc::clone(response));
                let subject =
                    Subject { entry: listed.id, origin: listed.origin, key: &identity.key, seed: seed.as_ref() };
                let events = emit::events(policy, &subject, &answer);
                ids.extend(events.iter().map(|event| event.event.id));
                let (retention, tombstone) = (policy.retention, policy.tombstones.of(kind));
                Ending::Completed(To::Completed { nonce: Nonce::random(), answer, retention, tombstone, events })
            }
        };
        let (id, actor, reason) = (chance::random(), word.actor.clone(), word.reason.clone());
        Ok(Prepared { order: Order { id, entry: listed, to, actor, reason }, events: ids })
    }

    /// Carries them out, or says what that would be.
    async fn go(&self, prepared: Vec<Prepared>, mode: Mode) -> Outcomes {
        match mode {
            Mode::Carry => self.carry_out(prepared).await,
            Mode::DryRun => {
                Outcomes { settled: prepared.into_iter().map(Prepared::settled).collect(), left: Vec::new() }
            }
        }
    }

    async fn carry_out(&self, prepared: Vec<Prepared>) -> Outcomes {
        for one in &prepared {
            self.clear_mark(one.order.entry.id).await;
        }
        let (mut orders, events): (Vec<_>, Vec<_>) = prepared.into_iter().map(|one| (one.order, one.events)).unzip();
        let told = match self.commit(&orders).await {
            // One of them can't be written: each by itself, with less of it if need be.
            Err(StoreError::Refused(_)) => {
                let mut told = Vec::new();
                for order in &mut orders {
                    told.push(self.commit_with_less(order).await);
                }
                told
            }
            Err(error) => orders.iter().map(|_| Err(again(&error))).collect(),
            Ok(guarded) => guarded.into_iter().map(Ok).collect(),
        };
        let mut outcomes = Outcomes::default();
        for ((order, events), told) in orders.into_iter().zip(events).zip(told) {
            match told {
                Ok(Guarded::Done) => outcomes.settled.push(self.done(order, events)),
                Ok(Guarded::Fenced) => {
                    let why = self.why_not(order.entry.id).await;
                    outcomes.left.push((order.entry, why));
                }
                Err(error) => outcomes.left.push((order.entry, error.into())),
            }
        }
        outcomes
    }

    /// Tries again what others were in the way of, and what nobody knows the end of: the orders' ids tell.
    async fn commit(&self, orders: &[Order]) -> Result<Vec<Guarded>, StoreError> {
        let mut tries = 1;
        let mut is_unclear = false;
        loop {
            let error = match self.0.desk.settle(orders).await {
                Ok(told) => return Ok(told),
                Err(error @ StoreError::Refused(_)) => return Err(error),
                Err(error) => error,
            };
            is_unclear |= matches!(error, StoreError::CommitUnknown(_));
            let may_try = is_unclear || matches!(error, StoreError::Conflict(_) | StoreError::Locked(_));
            if !may_try || tries == TRIES {
                return Err(if is_unclear { StoreError::CommitUnknown(error.to_string()) } else { error });
            }
            tries += 1;
            tokio::time::sleep(PAUSE.mul_f64(chance::between(0.5..1.5))).await;
        }
    }

    async fn commit_with_less(&self, order: &mut Order) -> Result<Guarded, StoreError> {
        loop {
            let refused = match self.commit(std::slice::from_ref(order)).await {
                Err(StoreError::Refused(refused)) => refused,
                told => return told.map(|told| told.first().copied().unwrap_or(Guarded::Fenced)),
            };
            let is_less = match &mut order.to {
                Ending::Completed(to) => leave_out(to),
                Ending::NotExecuted => false,
            };
            if !is_less {
                return Err(StoreError::Refused(refused));
            }
        }
    }

    /// An Unknown entry's mark is one that was left behind: of a process that died, or of a completion that the database
    /// lost. Deleting a mark is always right, and done before the commit: from then on a retry that believed it would be
    /// told something else than the ledger says.
    async fn clear_mark(&self, id: EntryId) {
        let cleared = match self.0.marks.get(id).await {
            Ok(Some(mark)) => self.0.marks.release(id, mark.nonce).await.map(drop),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = cleared {
            tracing::warn!(entry = ?id, %error, "mark of a settled entry was left to expire");
        }
    }

    fn done(&self, order: Order, events: Vec<EventId>) -> Settled {
        let Order { entry, to, actor, .. } = order;
        let outcome = match to {
            Ending::Completed(_) => "completed",
            Ending::NotExecuted => "not_executed",
        };
        tracing::warn!(entry = ?entry.id, route = %entry.route, actor = %actor.name, outcome, "a person settled an unknown outcome");
        metrics::counter!("oncegate_settled_by_hand_total", "route" => entry.route.to_string(), "outcome" => outcome)
            .increment(1);
        if !events.is_empty() {
            self.0.on_events.committed();
        }
        Settled { entry, events }
    }

    /// What has become of an entry that an order did not find as it was.
    async fn why_not(&self, id: EntryId) -> NotSettled {
        match self.0.desk.show(id).await {
            Ok(None) => NotSettled::Absent,
            Ok(Some(shown)) if shown.listed.stage == Stage::Unknown => NotSettled::Changed,
            Ok(Some(shown)) => NotSettled::NotUnknown(shown.listed.stage),
            Err(error) => error.into(),
        }
    }
}

impl Prepared {
    fn settled(self) -> Settled {
        Settled { entry: self.order.entry, events: self.events }
    }
}

/// The same error for each of several.
fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Conflict(text) => StoreError::Conflict(text.clone()),
        StoreError::Locked(text) => StoreError::Locked(text.clone()),
        StoreError::Refused(text) => StoreError::Refused(text.clone()),
        StoreError::Unavailable(text) => StoreError::Unavailable(text.clone()),
        StoreError::CommitUnknown(text) => StoreError::CommitUnknown(text.clone()),
    }
}
