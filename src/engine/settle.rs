//! Settling Unknown entries by asking the upstream.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::ledger::{DueLookup, FromState, Guarded, Release, Released, To, Transition};
use super::policy::{Found, KeyKind, LookupPolicy, OnUnknown, Policy};
use super::{Engine, context, emit};
use crate::clock::{self, Timestamp};
use crate::committer::CommitError;
use crate::entry::{Answer, Entry, Identity, Nonce, State};
use crate::outbox::rule::Subject;
use crate::outbox::seed::Seed;

/// An Unknown entry and how to ask about it.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) entry: &'a Entry,
    pub(super) identity: &'a Identity,
    pub(super) kind: KeyKind,
    /// What is known of the request.
    pub(super) seed: Option<&'a Seed>,
    pub(super) policy: &'a Policy,
    pub(super) lookup: &'a LookupPolicy,
}

/// What asking came to.
pub(super) enum Settled {
    /// It happened.
    Completed(Arc<Entry>),
    /// It did not, by the route's declaration: the key is new again.
    Released,
    /// Still nobody knows.
    Still {
        /// When it is asked again.
        retry_after: Duration,
    },
    /// Somebody else has settled it meanwhile.
    Moved,
}

/// What to do with what a lookup found.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Complete(Answer),
    Release,
    AskAgain { after: Duration, lookups: u32 },
}

/// "Absent" is believed only where the route declares it, and only after the first call can no longer be on
/// its way.
fn decide(found: Found, lookup: &LookupPolicy, age: Duration, lookups: u32) -> Decision {
    match found {
        Found::Completed(answer) => Decision::Complete(answer),
        Found::Absent if lookup.absent_means_not_executed_after.is_some_and(|after| age >= after) => Decision::Release,
        Found::Absent | Found::Undecided => {
            Decision::AskAgain { after: lookup.next_after(lookups), lookups: lookups.saturating_add(1) }
        }
    }
}

impl Engine {
    /// Asks the upstream about an Unknown entry and settles it if the answer says so, under a new nonce:
    /// from then on a late finisher is told apart.
    pub(super) async fn look_up(&self, question: Question<'_>, now: Timestamp) -> Result<Settled, CommitError> {
        let Question { entry, identity, lookup, policy, kind, .. } = question;
        let asked = clock::now();
        let lookups = lookups_of(entry);
        // Taken before asking: what is absent now was perhaps absent only because it was too early. Counted
        // from when it became Unknown, not from the claim: until then the call could still be begun.
        let age = now.since(entry.changed_at);
        let found = match lookup.business_keys_only && kind == KeyKind::Header {
            true => Found::Undecided,
            false => lookup.lookup.lookup(entry.id, identity).await,
        };
        metrics::histogram!("oncegate_lookup_duration_seconds", "route" => policy.route.to_string())
            .record(asked.elapsed().as_secs_f64());
        match decide(found, lookup, age, lookups) {
            Decision::Complete(answer) => self.settle_completed(question, answer).await,
            Decision::Release => {
                tracing::warn!(entry = ?entry.id, route = %policy.route, "lookup says not executed: the key may run again");
                let release = Release { id: entry.id, nonce: entry.nonce, of: Released::Settled };
                Ok(match self.committer.release(release).await? {
                    (Guarded::Done, _) => Settled::Released,
                    (Guarded::Fenced, _) => Settled::Moved,
                })
            }
            Decision::AskAgain { after, lookups } => {
                let to = To::Unknown { next_lookup: Some(after), lookups };
                Ok(match self.settle_to(entry, to).await? {
                    (Guarded::Done, _) => Settled::Still { retry_after: after.max(Duration::from_secs(1)) },
                    (Guarded::Fenced, _) => Settled::Moved,
                })
            }
        }
    }

    async fn settle_completed(&self, question: Question<'_>, answer: Answer) -> Result<Settled, CommitError> {
        let Question { entry, identity, policy, kind, seed, .. } = question;
        let (nonce, tombstone) = (Nonce::random(), policy.tombstones.of(kind));
        let subject = Subject { entry: entry.id, origin: entry.origin, key: &identity.key, seed };
        let events = emit::events(policy, &subject, &answer);
        let announces = !events.is_empty();
        let to = To::Completed { nonce, answer: answer.clone(), retention: policy.retention, tombstone, events };
        let (Guarded::Done, now) = self.settle_to(entry, to).await? else { return Ok(Settled::Moved) };
        tracing::info!(entry = ?entry.id, route = %policy.route, "lookup settled an unknown outcome: completed");
        if announces {
            self.on_events.committed();
        }
        let expires = now.after(policy.retention);
        let state = State::Completed { answer, expires, tombstone_ms: tombstone.map(clock::millis) };
        let settled = Arc::new(Entry { nonce, state, changed_at: now, ..entry.clone() });
        self.cache.keep(Arc::clone(&settled));
        Ok(Settled::Completed(settled))
    }

    async fn settle_to(&self, entry: &Entry, to: To) -> Result<(Guarded, Timestamp), CommitError> {
        self.committer.transition(Transition { id: entry.id, nonce: entry.nonce, from: FromState::Unknown, to }).await
    }

    /// One round of lookups in the background; says how many entries were due.
    pub(super) async fn look_up_due(&self) -> Result<usize, super::StoreError> {
        let due = self.ledger.due_lookups(self.options.sweep_limit).await?;
        let count = due.len();
        let asked = due.into_iter().map(|due| async move {
            if let Err(error) = self.look_up_one(&due).await {
                tracing::warn!(entry = ?due.entry.id, %error, "lookup could not be recorded");
            }
        });
        futures_util::stream::iter(asked).buffer_unordered(self.options.lookups).collect::<()>().await;
        Ok(count)
    }

    async fn look_up_one(&self, due: &DueLookup) -> Result<(), CommitError> {
        let policy = self.policies.get(&due.route);
        // Before the route's policy is asked: it may be another one since, one that enforces.
        if due.identity.namespace.is_observed() {
            return self.let_go(&due.entry, policy.map_or(OBSERVED_KEPT, |policy| policy.retention)).await;
        }
        let next_lookup = match policy.map(|policy| (policy, &policy.on_unknown)) {
            Some((policy, OnUnknown::Lookup(lookup))) => {
                // Settled without it, it would announce nothing. It waits for the key.
                let Ok(context) = &due.context else { return self.put_off(&due.entry).await };
                let (kind, seed) = context::decode(context.as_ref());
                let (entry, identity, seed) = (&due.entry, &due.identity, seed.as_ref());
                let question = Question { entry, identity, kind, seed, policy, lookup };
                return self.look_up(question, self.ownership.database_now_at_least()).await.map(drop);
            }
            // Nothing settles it but a retry or a person: no need to come by again.
            Some((_, OnUnknown::Hold | OnUnknown::Forward)) => None,
            // A route of another gateway on this store: that one shall ask.
            None => Some(FOREIGN_ROUTE),
        };
        self.settle_to(&due.entry, To::Unknown { next_lookup, lookups: lookups_of(&due.entry) }).await.map(drop)
    }

    /// Others must not wait behind it.
    async fn put_off(&self, entry: &Entry) -> Result<(), CommitError> {
        let to = To::Unknown { next_lookup: Some(SEALED_CONTEXT), lookups: lookups_of(entry) };
        self.settle_to(entry, to).await.map(drop)
    }

    /// Ends the time of an entry that was only observed. Its request was forwarded whatever the entry said, and so will
    /// the next one be: it is kept as long as an answer would be, to tell what `enforce` would have done.
    async fn let_go(&self, entry: &Entry, retention: Duration) -> Result<(), CommitError> {
        let age = self.ownership.database_now_at_least().since(entry.changed_at);
        if age < retention {
            let to = To::Unknown { next_lookup: Some(retention - age), lookups: 0 };
            return self.settle_to(entry, to).await.map(drop);
        }
        let release = Release { id: entry.id, nonce: entry.nonce, of: Released::Settled };
        self.committer.release(release).await.map(drop)
    }
}

/// When an entry of `policy` that has just become Unknown is looked at next, if nobody asks for it; `None`: never.
pub(super) fn first_look(policy: &Policy) -> Option<Duration> {
    match &policy.on_unknown {
        _ if policy.namespace.is_observed() => Some(policy.retention),
        OnUnknown::Lookup(lookup) => Some(lookup.first),
        OnUnknown::Hold | OnUnknown::Forward => None,
    }
}

/// Lookups made so far.
fn lookups_of(entry: &Entry) -> u32 {
    match entry.state {
        State::Unknown { lookups, .. } => lookups,
        State::InProgress { .. } | State::Completed { .. } | State::Tombstone { .. } => 0,
    }
}

/// Whether an Unknown entry was asked about so lately that its upstream has nothing new to say: of many retries
/// that come at once, one asks.
pub(super) fn asked_lately(entry: &Entry, lookup: &LookupPolicy, now: Timestamp) -> bool {
    let State::Unknown { next_lookup: Some(due), lookups: made @ 1.. } = entry.state else { return false };
    let asked = Timestamp(due.0.saturating_sub(clock::millis(lookup.next_after(made - 1))));
    now.since(asked) < lookup.first.min(SOONEST)
}

/// The least time between two lookups of one entry that retries ask for.
const SOONEST: Duration = Duration::from_secs(1);

/// When an entry of a route that is not configured here is looked at again.
const FOREIGN_ROUTE: Duration = Duration::from_secs(60);

/// When an entry is looked at again whose context does not open here.
const SEALED_CONTEXT: Duration = Duration::from_secs(60);

/// How long an entry of a route that is not configured here, and only observed, is kept: as long as answers are by
/// default.
const OBSERVED_KEPT: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::EntryId;
    use futures_util::future::BoxFuture;

    struct Never;

    impl super::super::policy::Lookup for Never {
        fn lookup<'a>(&'a self, _: EntryId, _: &'a Identity) -> BoxFuture<'a, Found> {
            Box::pin(async { Found::Undecided })
        }
    }

    fn lookup(absent_after: Option<u64>) -> LookupPolicy {
        LookupPolicy {
            lookup: Arc::new(Never),
            business_keys_only: false,
            absent_means_not_executed_after: absent_after.map(Duration::from_secs),
            first: Duration::from_secs(1),
            max: Duration::from_secs(300),
        }
    }

    fn again(seconds: u64, lookups: u32) -> Decision {
        Decision::AskAgain { after: Duration::from_secs(seconds), lookups }
    }

    #[test]
    fn an_entry_that_was_just_asked_about_is_not_asked_about_again() {
        let entry = |next_lookup, lookups| Entry {
            id: EntryId([1; 32]),
            nonce: Nonce([1; 16]),
            origin: Nonce([1; 16]),
            attempt: 1,
            fingerprint: crate::entry::Fingerprint {
                version: 1,
                secret: crate::entry::fingerprint::SecretId([1; 4]),
                digest: [0; 32],
            },
            state: State::Unknown { next_lookup, lookups },
            started_at: Timestamp(0),
            changed_at: Timestamp(0),
        };
        // The third lookup was made at 10 s: the fourth is due 4 s later.
        let third = entry(Some(Timestamp(14_000)), 3);
        let lookup = lookup(None);
        assert!(asked_lately(&third, &lookup, Timestamp(10_999)));
        assert!(!asked_lately(&third, &lookup, Timestamp(11_000)));
        assert!(!asked_lately(&entry(Some(Timestamp(1_000)), 0), &lookup, Timestamp(0)), "never asked");
        assert!(!asked_lately(&entry(None, 3), &lookup, Timestamp(0)));
    }

    #[test]
    fn absent_is_believed_only_where_declared_and_only_after_its_time() {
        let age = Duration::from_secs;
        assert_eq!(decide(Found::Absent, &lookup(None), age(1_000_000), 0), again(1, 1));
        assert_eq!(decide(Found::Absent, &lookup(Some(60)), age(59), 0), again(1, 1));
        assert_eq!(decide(Found::Absent, &lookup(Some(60)), age(60), 0), Decision::Release);
        assert_eq!(decide(Found::Undecided, &lookup(Some(60)), age(1_000_000), 0), again(1, 1));
    }

    #[test]
    fn lookups_back_off_to_their_slowest_and_stay_there() {
        for (lookups, seconds) in [(0, 1), (1, 2), (8, 256), (9, 300), (40, 300), (u32::MAX, 300)] {
            assert_eq!(
                decide(Found::Undecided, &lookup(None), Duration::ZERO, lookups),
                again(seconds, lookups.saturating_add(1))
            );
        }
    }
}
