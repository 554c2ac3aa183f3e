//! Settling Unknown entries by asking the upstream.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::Engine;
use super::ledger::{DueLookup, FromState, Guarded, Release, Released, To, Transition};
use super::policy::{Found, KeyKind, LookupPolicy, OnUnknown, Policy};
use crate::clock::{self, Timestamp};
use crate::committer::CommitError;
use crate::entry::{Answer, Entry, Identity, Nonce, State};

/// An Unknown entry and how to ask about it.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) entry: &'a Entry,
    pub(super) identity: &'a Identity,
    pub(super) kind: KeyKind,
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
        let Question { entry, identity, lookup, policy, .. } = question;
        let asked = clock::now();
        let lookups = lookups_of(entry);
        // Taken before asking: what is absent now was perhaps absent only because it was too early. Counted
        // from when it became Unknown, not from the claim: until then the call could still be begun.
        let age = now.since(entry.changed_at);
        let found = lookup.lookup.lookup(entry.id, identity).await;
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
        let Question { entry, policy, kind, .. } = question;
        let (nonce, tombstone) = (Nonce::random(), policy.tombstones.of(kind));
        let to = To::Completed { nonce, answer: answer.clone(), retention: policy.retention, tombstone };
        let (Guarded::Done, now) = self.settle_to(entry, to).await? else { return Ok(Settled::Moved) };
        tracing::info!(entry = ?entry.id, route = %policy.route, "lookup settled an unknown outcome: completed");
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
        let next_lookup = match policy.map(|policy| (policy, &policy.on_unknown)) {
            Some((policy, OnUnknown::Lookup(lookup))) => {
                let kind = KeyKind::from_context(due.context.as_deref());
                let question = Question { entry: &due.entry, identity: &due.identity, kind, policy, lookup };
                return self.look_up(question, self.ownership.database_now_at_least()).await.map(drop);
            }
            // Nothing settles it but a retry or a person: no need to come by again.
            Some((_, OnUnknown::Hold | OnUnknown::Forward)) => None,
            // A route of another gateway on this store: that one shall ask.
            None => Some(FOREIGN_ROUTE),
        };
        self.settle_to(&due.entry, To::Unknown { next_lookup, lookups: lookups_of(&due.entry) }).await.map(drop)
    }
}

/// Lookups made so far.
fn lookups_of(entry: &Entry) -> u32 {
    match entry.state {
        State::Unknown { lookups, .. } => lookups,
        State::InProgress { .. } | State::Completed { .. } | State::Tombstone { .. } => 0,
    }
}

/// When an entry of a route that is not configured here is looked at again.
const FOREIGN_ROUTE: Duration = Duration::from_secs(60);

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
            absent_means_not_executed_after: absent_after.map(Duration::from_secs),
            first: Duration::from_secs(1),
            max: Duration::from_secs(300),
        }
    }

    fn again(seconds: u64, lookups: u32) -> Decision {
        Decision::AskAgain { after: Duration::from_secs(seconds), lookups }
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
