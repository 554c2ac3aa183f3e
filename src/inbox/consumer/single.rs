//! One message, until it has ended.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::tries::Tries;
use super::{Consumer, Ending, Item};
use crate::broker::subscriber::Received;
use crate::engine::ledger::StoreError;
use crate::entry::EntryId;
use crate::inbox::handler::{DeadLetter, Delivery, Handler, HandlerError, Reason};
use crate::inbox::message::Message;
use crate::inbox::transaction::{Begun, Receipt};
use crate::storage::{CallerTransaction as _, TxPool, end_attempts};

/// What came of one try.
enum Tried {
    Ended(Ending),
    GiveUp(Reason),
    /// As often as it may be, before this.
    UsedUp,
    /// Counted.
    Again(String),
    /// Not counted.
    NotNow(String),
}

impl From<HandlerError> for Tried {
    fn from(error: HandlerError) -> Self {
        match error {
            HandlerError::Retry(reason) => Self::Again(reason),
            HandlerError::Reject(reason) => Self::GiveUp(Reason::Rejected(reason)),
            HandlerError::Unavailable(reason) => Self::NotNow(reason),
        }
    }
}

impl<P: TxPool, H: Handler<P::Connection>> Consumer<P, H> {
    /// Tries until it ends; `None` if it is stopped before.
    pub(super) async fn handle_one(&self, item: &Item, stop: &CancellationToken) -> Option<Ending> {
        let mut tries = Tries::of(&self.inbox, item);
        let reason = match &item.message {
            Ok(message) => match self.try_until_it_ends(&item.received, message, &mut tries, stop).await? {
                Ok(ending) => return Some(ending),
                Err(reason) => reason,
            },
            Err(error) => Reason::Unidentified(*error),
        };
        let reason_name = reason.as_str();
        let place = &*item.received.place;
        tracing::error!(%reason, place, consumer = self.inbox.consumer(), "a message is given up");
        let dead = DeadLetter { received: &item.received, reason: &reason, attempts: tries.made };
        let mut outages = 0;
        while let Err(error) = self.bury_in_time(&dead, &tries).await {
            let pause = self.outage(&mut outages, &error.to_string());
            stop.run_until_cancelled(tokio::time::sleep(pause)).await?;
        }
        Some(Ending::DeadLettered(reason_name))
    }

    /// How it has ended, or why it is given up; `None` if it is stopped before.
    async fn try_until_it_ends(
        &self,
        received: &Received,
        message: &Message,
        tries: &mut Tries,
        stop: &CancellationToken,
    ) -> Option<Result<Ending, Reason>> {
        let mut outages = 0;
        loop {
            let tried = tokio::time::timeout(self.policy.timeout, self.try_next(received, message, tries)).await;
            let tried = match tried {
                Ok(tried) => tried,
                Err(_elapsed) => self.after_too_long(message, tries).await,
            };
            let pause = match tried {
                Tried::Ended(ending) => return Some(Ok(ending)),
                Tried::UsedUp => {
                    let last = "the process ended in the middle of it".to_owned();
                    return Some(Err(Reason::AttemptsUsedUp { attempts: tries.made, last }));
                }
                Tried::GiveUp(reason) => {
                    tries.made += 1;
                    return Some(Err(reason));
                }
                Tried::Again(last) => {
                    tries.made += 1;
                    let attempts = tries.made;
                    if attempts >= self.policy.attempts.get() {
                        return Some(Err(Reason::AttemptsUsedUp { attempts, last }));
                    }
                    self.will_try_again(message, attempts, &last);
                    self.policy.backoff.pause(attempts, rand::random())
                }
                Tried::NotNow(reason) => self.outage(&mut outages, &reason),
            };
            stop.run_until_cancelled(tokio::time::sleep(pause)).await?;
        }
    }

    /// What was too slow may have been the commit. The next try would find that out; before there is none, it is asked.
    async fn after_too_long(&self, message: &Message, tries: &Tries) -> Tried {
        let is_last = tries.made.saturating_add(1) >= self.policy.attempts.get();
        if is_last {
            match tokio::time::timeout(self.policy.timeout, self.is_recorded(message)).await {
                Ok(Ok(true)) => return Tried::Ended(Ending::Duplicate),
                Ok(Ok(false)) => {}
                Ok(Err(error)) => return Tried::NotNow(format!("it took too long, and its end is not known: {error}")),
                Err(_elapsed) => return Tried::NotNow("it took too long, and its end is not known".to_owned()),
            }
        }
        Tried::Again("it took too long".to_owned())
    }

    /// Whether the message was handled, by a question that leaves nothing behind.
    async fn is_recorded(&self, message: &Message) -> Result<bool, StoreError> {
        let mut tx = self.pool.begin().await?;
        let begun = self.inbox.begin(tx.connection(), message).await;
        roll_back::<P>(tx).await;
        match begun {
            Ok(begun) => Ok(matches!(begun, Begun::Duplicate)),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    async fn try_next(&self, received: &Received, message: &Message, tries: &mut Tries) -> Tried {
        if self.inbox.seen(message).await {
            return Tried::Ended(Ending::Duplicate);
        }
        if tries.made >= self.policy.attempts.get() {
            return Tried::UsedUp;
        }
        match tries.begin(&self.inbox).await {
            Ok(attempt) => self.try_once(received, message, attempt, tries).await,
            Err(error) => HandlerError::from(error).into(),
        }
    }

    async fn try_once(&self, received: &Received, message: &Message, attempt: u32, tries: &Tries) -> Tried {
        let mut tx = match self.pool.begin().await {
            Ok(tx) => tx,
            Err(error) => return HandlerError::from(error).into(),
        };
        let tried = match self.inbox.begin(tx.connection(), message).await {
            Ok(Begun::First(receipt)) => {
                let delivery = Delivery { received, message, previous: receipt.previous(), attempt };
                match self.call(tx.connection(), &delivery).await {
                    Ok(()) => {
                        let committed = self.commit(tx, vec![receipt], tries.on_record()).await;
                        return committed.map_or_else(Tried::from, |()| Tried::Ended(Ending::Applied));
                    }
                    Err(error) => error.into(),
                }
            }
            Ok(Begun::Duplicate) => Tried::Ended(Ending::Duplicate),
            Ok(Begun::Stale { .. }) => Tried::Ended(Ending::Stale),
            Ok(Begun::Conflict) => Tried::GiveUp(Reason::Conflict),
            Err(error) => HandlerError::from(error).into(),
        };
        // Before any pause: what is locked here must not wait for it.
        match tried {
            Tried::Ended(_) if !tries.on_record().is_empty() => {
                if let Err(error) = self.commit(tx, Vec::new(), tries.on_record()).await {
                    return error.into();
                }
            }
            Tried::Ended(_) | Tried::GiveUp(_) | Tried::UsedUp | Tried::Again(_) | Tried::NotNow(_) => {
                roll_back::<P>(tx).await;
            }
        }
        if let Tried::Ended(Ending::Duplicate) = tried {
            self.inbox.remember(message).await;
        }
        tried
    }

    /// Commits what was done, and with it that nobody has to know any more how often `noted` were tried.
    pub(super) async fn commit(
        &self,
        mut tx: P::Transaction,
        receipts: Vec<Receipt>,
        noted: &[EntryId],
    ) -> Result<(), HandlerError> {
        if let Err(error) = end_attempts(tx.connection(), noted).await {
            roll_back::<P>(tx).await;
            return Err(error);
        }
        Ok(self.inbox.commit(tx, receipts).await?)
    }

    /// A panic is a failure like any other.
    pub(super) async fn call(&self, tx: &mut P::Connection, delivery: &Delivery<'_>) -> Result<(), HandlerError> {
        let handled = AssertUnwindSafe(self.handler.handle(tx, delivery)).catch_unwind().await;
        handled.unwrap_or_else(|_| Err(HandlerError::Retry("the handler has panicked".to_owned())))
    }

    async fn bury_in_time(&self, dead: &DeadLetter<'_>, tries: &Tries) -> Result<(), HandlerError> {
        let buried = tokio::time::timeout(self.policy.timeout, self.bury(dead, tries)).await;
        buried.unwrap_or_else(|_| Err(HandlerError::Retry("it took too long".to_owned())))
    }

    /// Keeps the message for a person. Sent again, it begins anew.
    async fn bury(&self, dead: &DeadLetter<'_>, tries: &Tries) -> Result<(), HandlerError> {
        let mut tx = self.pool.begin().await?;
        let kept = AssertUnwindSafe(self.handler.dead_letter(tx.connection(), dead)).catch_unwind().await;
        match kept.unwrap_or_else(|_| Err(HandlerError::Retry("the handler has panicked".to_owned()))) {
            Ok(()) => self.commit(tx, Vec::new(), tries.on_record()).await,
            Err(error) => {
                roll_back::<P>(tx).await;
                Err(error)
            }
        }
    }

    fn will_try_again(&self, message: &Message, attempt: u32, reason: &str) {
        let consumer = self.inbox.consumer();
        tracing::warn!(?message, attempt, reason, consumer, "a message was not handled, and is tried again");
        metrics::counter!("oncegate_inbox_retries_total", "consumer" => self.inbox.label()).increment(1);
    }

    /// The pause of an outage, which is told once.
    pub(super) fn outage(&self, outages: &mut u32, reason: &str) -> Duration {
        *outages = outages.saturating_add(1);
        if *outages == 1 {
            tracing::warn!(reason, consumer = self.inbox.consumer(), "messages wait until this is over");
        }
        self.policy.outage.pause(*outages, rand::random())
    }
}

/// Where that fails, the connection is closed, and the database rolls back.
pub(super) async fn roll_back<P: TxPool>(tx: P::Transaction) {
    if let Err(error) = tx.roll_back().await {
        tracing::debug!(%error, "a rollback was not answered");
    }
}
