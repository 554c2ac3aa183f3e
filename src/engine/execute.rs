//! One execution, in a task of its own: secure the entry, run, record the outcome, answer.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::arrive::{Arrival, Arrived, Recorded, Verdict, held_retry};
use super::flights::Leading;
use super::record::Tenure;
use super::secure::Secured;
use super::{Engine, emit};
use crate::clock::Timestamp;
use crate::entry::{Answer, EntryId, InstanceId, Key, Nonce, Outcome};
use crate::outbox::event::NewEvent;
use crate::outbox::rule::Subject;

/// An outcome that comes after the caller's answer.
pub type Late = BoxFuture<'static, Outcome>;

/// What an execution came to, and what its caller gets.
pub enum Executed<A> {
    /// The outcome is known: it is recorded, then the caller is answered.
    Finished {
        /// What is recorded.
        outcome: Outcome,
        /// What the caller gets.
        answer: A,
    },
    /// It took too long: Unknown is recorded, the caller is answered, and the exchange is still listened to
    /// for a bounded time, so that its real answer is not thrown away.
    TimedOut {
        /// What the caller gets.
        answer: A,
        /// The rest of the exchange.
        late: Late,
    },
    /// The answer is passed on as it comes: the caller is answered at once, and the outcome is recorded when
    /// the answer has ended. A crash in between leaves the entry Unknown.
    Streaming {
        /// What the caller gets.
        answer: A,
        /// Ready when the answer has ended.
        finish: Late,
    },
    /// The handler finished the entry in a transaction of its own, if that committed: the row decides.
    InTransaction {
        /// What the caller gets.
        answer: A,
    },
}

impl<A> Executed<A> {
    /// The same, with another answer made of this one's.
    pub fn map<B>(self, make: impl FnOnce(A) -> B) -> Executed<B> {
        match self {
            Self::Finished { outcome, answer } => Executed::Finished { outcome, answer: make(answer) },
            Self::TimedOut { answer, late } => Executed::TimedOut { answer: make(answer), late },
            Self::Streaming { answer, finish } => Executed::Streaming { answer: make(answer), finish },
            Self::InTransaction { answer } => Executed::InTransaction { answer: make(answer) },
        }
    }
}

impl<A> std::fmt::Debug for Executed<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Finished { outcome, .. } => {
                f.debug_struct("Finished").field("outcome", outcome).finish_non_exhaustive()
            }
            Self::TimedOut { .. } => f.write_str("TimedOut"),
            Self::Streaming { .. } => f.write_str("Streaming"),
            Self::InTransaction { .. } => f.write_str("InTransaction"),
        }
    }
}

/// The right to execute, given to whoever runs: after the commit, the row carries its nonce.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The entry.
    pub id: EntryId,
    /// The nonce that the row carries.
    pub nonce: Nonce,
    /// The number of this execution, from 1. Above 1 an earlier one ended Unknown.
    pub number: u32,
    /// The nonce of the claim that created the entry: the same for every attempt. Event ids derive from it.
    pub origin: Nonce,
    pub(super) dispatched: Arc<AtomicBool>,
    pub(super) engine: Arc<Engine>,
    /// Whose lease vouches for it.
    pub(super) instance: InstanceId,
    pub(super) arrival: Arc<Arrival>,
}

/// The lease ran out, or is about to, before anything was sent: nothing may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this process was suspended or cut off from its store for too long to begin the execution")]
pub struct LeaseLost;

impl Attempt {
    /// Must be called before the first effect (the first byte to the upstream). From then on a panic makes
    /// the entry Unknown; before, it is released.
    ///
    /// # Errors
    /// If the lease does not last as long as the execution may take, or the instance that claimed has been
    /// expired since, even if this process is another instance by now. Nothing may be sent then.
    pub fn dispatch(&self) -> Result<(), LeaseLost> {
        if !self.engine.ownership.lasts_for(self.instance, self.arrival.policy.budget) {
            return Err(LeaseLost);
        }
        self.dispatched.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether what was [dispatched](Self::dispatch) and has not begun yet still may: the lease that vouches for it has
    /// not run out meanwhile, as it does while a process is suspended.
    #[must_use]
    pub fn may_begin(&self) -> bool {
        self.engine.ownership.lasts_for(self.instance, Duration::ZERO)
    }

    /// The client's key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.arrival.identity.key
    }

    /// The request's trace, where its door has looked for it.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.arrival.seed.traceparent()
    }

    /// What the route announces if this execution came to `answer`.
    #[must_use]
    pub fn events(&self, answer: &Answer) -> Arc<[NewEvent]> {
        let Arrival { id, policy, seed, .. } = &*self.arrival;
        let subject = Subject { entry: *id, origin: self.origin, key: self.key(), seed: Some(seed) };
        emit::events(policy, &subject, answer)
    }
}

/// What the execution's task tells the request that started it.
pub(super) enum Told<A, F> {
    /// The end.
    Arrived(Arrived<A>),
    /// Another process is on it; the request may look again, and needs its `run` back.
    Elsewhere(F),
}

/// One execution before it begins.
pub(super) struct Execution<A, F> {
    pub(super) engine: Arc<Engine>,
    pub(super) arrival: Arc<Arrival>,
    pub(super) flight: Leading,
    pub(super) run: F,
    pub(super) tell: oneshot::Sender<Told<A, F>>,
}

impl<A, F, R> Execution<A, F>
where
    A: Send + 'static,
    F: FnOnce(Attempt) -> R + Send + 'static,
    R: Future<Output = Executed<A>> + Send + 'static,
{
    /// From the claim to the recorded outcome.
    ///
    /// What a crash leaves behind, by the last step done: mark only, a mark that expires; claim, an entry in
    /// progress that the rescuer makes Unknown; run, the same; commit of the outcome, the finished entry (a
    /// mark that says "in progress" expires). Nothing else is written anywhere.
    pub(super) async fn fly(self) {
        let Self { engine, arrival, flight, run, tell } = self;
        let claimed = match engine.secure(&arrival, &flight).await {
            Secured::Won(claimed) => claimed,
            Secured::CommitLost(claimed) => {
                let tell = |_| {
                    drop(tell.send(Told::Arrived(Arrived::Told(Verdict::Held {
                        retry_after: held_retry(None, Timestamp(0)),
                    }))))
                };
                return Tenure::new(engine, arrival, flight, claimed).conclude_lost(tell).await;
            }
            Secured::Told(verdict) => {
                // Ended before the caller looks again, or it would find its own flight.
                drop(flight);
                let told = match verdict {
                    Verdict::InProgress { .. } => Told::Elsewhere(run),
                    verdict => Told::Arrived(Arrived::Told(verdict)),
                };
                drop(tell.send(told));
                return;
            }
        };
        let tenure = Tenure::new(engine, arrival, flight, claimed);
        let executed = run(tenure.attempt()).await;
        // A caller that has gone needs no answer.
        let tell = |answer, recorded| drop(tell.send(Told::Arrived(Arrived::Executed { answer, recorded })));
        match executed {
            Executed::Finished { outcome, answer } => tenure.conclude(outcome, |recorded| tell(answer, recorded)).await,
            Executed::TimedOut { answer, late } => {
                tenure.conclude_later(late, |recorded| tell(answer, recorded)).await;
            }
            Executed::Streaming { answer, finish } => {
                tell(answer, Recorded::Streaming);
                let outcome = finish.await;
                tenure.conclude(outcome, |_| {}).await;
            }
            Executed::InTransaction { answer } => tenure.conclude_from_row(|recorded| tell(answer, recorded)).await,
        }
    }
}
