//! The line of calls to a publisher, for brokers that take events in the order of the calls.
//!
//! Every call that joins the line has a [`Waiter`], and a waiter tells its caller something, whatever happens:
//! one that is dropped says that the publisher has ended.
//!
//! **Why calls can be turned away.** A connection breaks, and an event fails with it. Its caller hears of that a
//! moment later, and in that moment may call with the next event of the same key. Were that one sent, over a
//! connection that has just come back, it would reach the broker before the earlier one. So a call fails as long
//! as somebody has not heard yet that an earlier one did; and what joined before the line was broken off, and has
//! not been sent, fails too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::oneshot;

use super::{Answer, PublishError, Published};

/// Hands out places.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiters(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Failures of the connection that their callers have not heard of yet.
    unheard: AtomicUsize,
    /// How often the line has been broken off.
    breaks: AtomicU64,
}

/// The duty to tell a caller what came of its event.
#[derive(Debug)]
pub(super) struct Waiter {
    line: Waiters,
    /// [`State::breaks`] when it joined.
    breaks: u64,
    /// `None` once told.
    caller: Option<oneshot::Sender<Told>>,
}

/// What a caller is told, and the sign that it has not heard it yet.
type Told = (Published, Option<Unheard>);

/// Lasts until a caller has heard of a failure, or has stopped listening.
#[derive(Debug)]
struct Unheard(Waiters);

impl Waiters {
    /// A place in the line, or what to answer at once.
    pub(super) fn join(&self) -> Result<(Waiter, Answer), Answer> {
        // Before the look at the failures, as they are told before the break: who joins in between either carries
        // the old number or sees the failure.
        let breaks = self.0.breaks.load(Ordering::SeqCst);
        if self.0.unheard.load(Ordering::SeqCst) > 0 {
            let unheard = Unheard::new(self);
            return Err(Box::pin(async move {
                drop(unheard);
                Err(PublishError::Unavailable("an event before it failed just now".to_owned()))
            }));
        }
        let (caller, told) = oneshot::channel();
        let answer = async move {
            // The sign goes with the tuple: this caller has heard.
            told.await.map_or_else(|_| Err(ended()), |(published, _unheard): Told| published)
        };
        Ok((Waiter { line: self.clone(), breaks, caller: Some(caller) }, Box::pin(answer)))
    }

    /// Tells `waiter` that the connection has failed, and breaks the line off: whoever is in it, and has not been
    /// sent, [`Waiter::is_too_late`].
    pub(super) fn break_off(&self, mut waiter: Waiter, failure: PublishError) {
        waiter.tell_once(Err(failure), Some(Unheard::new(self)));
        self.0.breaks.fetch_add(1, Ordering::SeqCst);
    }
}

impl Waiter {
    /// Whether the line has been broken off since it joined: it must fail, not be sent.
    pub(super) fn is_too_late(&self) -> bool {
        self.breaks != self.line.0.breaks.load(Ordering::SeqCst)
    }

    /// Tells the caller what came of its event, and breaks the line off where the connection has failed.
    pub(super) fn conclude(self, published: Published) {
        match published {
            Err(failure @ (PublishError::Unavailable(_) | PublishError::TopicUnavailable(_))) => {
                self.line.clone().break_off(self, failure);
            }
            other => self.tell(other),
        }
    }

    /// Tells the caller, should it still listen.
    pub(super) fn tell(mut self, published: Published) {
        let unheard = matches!(published, Err(PublishError::Unavailable(_))).then(|| Unheard::new(&self.line));
        self.tell_once(published, unheard);
    }

    fn tell_once(&mut self, published: Published, unheard: Option<Unheard>) {
        let Some(caller) = self.caller.take() else { return };
        // Nobody listens: the sign is dropped here, with what would have been told.
        drop(caller.send((published, unheard)));
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.caller.is_some() {
            let unheard = Unheard::new(&self.line);
            self.tell_once(Err(ended()), Some(unheard));
        }
    }
}

impl Unheard {
    fn new(line: &Waiters) -> Self {
        line.0.unheard.fetch_add(1, Ordering::SeqCst);
        Self(line.clone())
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        self.0.0.unheard.fetch_sub(1, Ordering::SeqCst);
    }
}

fn ended() -> PublishError {
    PublishError::Unavailable("the publisher has ended".to_owned())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::broker::CONFIRMED;

    fn unavailable() -> Published {
        Err(PublishError::Unavailable("gone".to_owned()))
    }

    fn joined(line: &Waiters) -> (Waiter, Answer) {
        line.join().unwrap_or_else(|_| panic!("turned away"))
    }

    #[tokio::test]
    async fn each_caller_is_told_its_own_result_even_by_a_waiter_that_is_dropped() {
        let line = Waiters::default();
        let ((one, first), (two, second)) = (joined(&line), joined(&line));
        two.tell(CONFIRMED);
        drop(one);
        assert_eq!(second.await, CONFIRMED);
        assert_eq!(first.await, Err(ended()));
    }

    #[tokio::test]
    async fn calls_fail_until_everybody_has_heard_that_an_earlier_one_did() {
        let line = Waiters::default();
        let (waiter, failed) = joined(&line);
        waiter.tell(unavailable());
        let Err(turned_away) = line.join() else { panic!("the first caller has not heard yet") };
        assert_eq!(failed.await, unavailable());
        // The one that was turned away in between may have come before the next one.
        let Err(also) = line.join() else { panic!("the second caller has not heard yet") };
        assert!(matches!(turned_away.now_or_never(), Some(Err(PublishError::Unavailable(_)))));
        drop(also);
        drop(joined(&line));
    }

    #[tokio::test]
    async fn who_does_not_listen_holds_nobody_up() {
        let line = Waiters::default();
        let ((one, first), (two, second)) = (joined(&line), joined(&line));
        drop(first);
        one.tell(unavailable());
        two.tell(unavailable());
        drop(second);
        drop(joined(&line));
    }

    #[tokio::test]
    async fn who_was_in_the_line_when_it_broke_off_is_too_late() {
        let line = Waiters::default();
        let ((first, failed), (second, _answer)) = (joined(&line), joined(&line));
        assert!(!second.is_too_late());
        line.break_off(first, PublishError::Unavailable("gone".to_owned()));
        assert!(second.is_too_late());
        assert_eq!(failed.await, unavailable());
        assert!(!joined(&line).0.is_too_late());
    }

    #[tokio::test]
    async fn a_refused_event_holds_nobody_up() {
        let line = Waiters::default();
        let (waiter, refused) = joined(&line);
        waiter.tell(Err(PublishError::Refused("full".to_owned())));
        drop(joined(&line));
        assert!(refused.await.is_err());
    }
}
