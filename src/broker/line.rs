//! The line in which events wait for the task that owns a publisher's connection.
//!
//! The call of `publish` puts the event in line, and the future only waits for its result. So the order of the
//! calls is the order of the line, and a caller that goes away cancels nothing. The future ends soon after its
//! deadline even if the task is stuck. Why the line is broken off when an event fails is told in
//! [`waiters`](super::waiters).

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use super::waiters::{Waiter, Waiters};
use crate::broker::{PublishError, Published};
use crate::clock::{self, Instant};
use crate::outbox::event::{EventId, Outgoing};

/// How much longer than to the deadline the future waits for the task, which knows the reason, and must have given
/// up the connection before the caller can try again.
const GRACE: Duration = Duration::from_secs(1);

/// An event in line, and who waits for its result.
pub(super) struct Job {
    pub(super) event: Outgoing,
    /// When its caller gives it up.
    pub(super) deadline: Instant,
    waiter: Waiter,
}

impl Job {
    /// Tells its caller. Where it is unavailable, those that are in line now are [`Self::is_too_late`].
    pub(super) fn conclude(self, result: Published) {
        self.waiter.conclude(result);
    }

    pub(super) fn unavailable(self, reason: &str) {
        self.conclude(Err(PublishError::Unavailable(reason.to_owned())));
    }

    /// Tells its caller that it has not come in line: those that are there are before it.
    fn turn_away(self, reason: &str) {
        self.waiter.tell(Err(PublishError::Unavailable(reason.to_owned())));
    }

    /// Whether its caller waits no more; to publish it now would only make a copy.
    pub(super) fn is_over(&self) -> bool {
        self.deadline <= clock::now()
    }

    /// The job, if it is still to be published: in time, and with nothing before it that has failed.
    pub(super) fn still_wanted(self, time_limit: Duration) -> Option<Self> {
        if self.waiter.is_too_late() {
            self.unavailable("an event before it failed just now");
        } else if self.is_over() {
            self.unavailable(&not_in_time(time_limit));
        } else {
            return Some(self);
        }
        None
    }
}

/// Ends what waits in line: the connection is lost, and an event behind a lost one of its key must not pass it
/// on the next connection.
pub(super) fn fail_all(jobs: &mut mpsc::Receiver<Job>, reason: &str) {
    while let Ok(job) = jobs.try_recv() {
        job.unavailable(reason);
    }
}

/// The line, and the task that works it off.
pub(super) struct Line {
    /// How long a broker may take for an event.
    time_limit: Duration,
    /// How many events may wait in line.
    room: usize,
    /// Makes the task; again, should it have panicked.
    start: Box<dyn Fn(mpsc::Receiver<Job>) -> BoxFuture<'static, ()> + Send + Sync>,
    waiters: Waiters,
    state: Mutex<State>,
}

enum State {
    /// Nothing has been published.
    Idle,
    /// The task runs, and cancels the token when it ends.
    Running(mpsc::Sender<Job>, CancellationToken),
    /// Nothing more is taken.
    Closed(Option<CancellationToken>),
}

impl Line {
    pub(super) fn new(
        time_limit: Duration,
        room: usize,
        start: impl Fn(mpsc::Receiver<Job>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        let (waiters, state) = (Waiters::default(), Mutex::new(State::Idle));
        Self { time_limit, room: room.max(1), start: Box::new(start), waiters, state }
    }

    /// Takes the event's place in line. See [`crate::broker::Publisher::publish`].
    pub(super) fn publish(&self, event: Outgoing) -> BoxFuture<'static, Published> {
        let (waiter, answer) = match self.waiters.join() {
            Ok(joined) => joined,
            Err(turned_away) => return turned_away,
        };
        let deadline = clock::now() + self.time_limit;
        self.enter(Job { event, deadline, waiter });
        let time_limit = self.time_limit;
        let answer = async move {
            let in_time = timeout_at(deadline + GRACE, answer).await;
            in_time.unwrap_or_else(|_| Err(PublishError::Unavailable(not_in_time(time_limit))))
        };
        answer.boxed()
    }

    fn enter(&self, job: Job) {
        let mut state = self.state();
        let job = match &*state {
            State::Idle => job,
            State::Running(line, _) => match line.try_send(job) {
                Ok(()) => return,
                Err(mpsc::error::TrySendError::Full(job)) => {
                    return job.turn_away("too many events wait for it already");
                }
                // The task has panicked.
                Err(mpsc::error::TrySendError::Closed(job)) => job,
            },
            State::Closed(_) => return job.turn_away("the publisher is closed"),
        };
        let (line, jobs) = mpsc::channel(self.room);
        let (task, ended) = ((self.start)(jobs), CancellationToken::new());
        let guard = ended.clone().drop_guard();
        tokio::spawn(async move {
            task.await;
            drop(guard);
        });
        // There is room for one.
        drop(line.try_send(job));
        *state = State::Running(line, ended);
    }

    /// Takes no more, and waits until the task has come to the end of the line.
    pub(super) async fn close(&self) {
        let ended = {
            let mut state = self.state();
            let ended = match std::mem::replace(&mut *state, State::Closed(None)) {
                State::Idle => None,
                State::Running(_, ended) => Some(ended),
                State::Closed(ended) => ended,
            };
            *state = State::Closed(ended.clone());
            ended
        };
        if let Some(ended) = ended {
            ended.cancelled().await;
        }
    }

    /// Whole after every step, so a panic elsewhere does not spoil it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why an event that was not confirmed by its deadline has failed.
pub(super) fn not_in_time(time_limit: Duration) -> String {
    format!("no confirm within {} ms", time_limit.as_millis())
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("time_limit", &self.time_limit).field("room", &self.room).finish_non_exhaustive()
    }
}

/// Events that were under way when the broker closed the connection over one of them. It does not say over
/// which, so they are published one by one when they come again: then it is the one that is under way.
#[derive(Debug, Default)]
pub(super) struct Suspects(HashSet<EventId>);

impl Suspects {
    /// Replaces those of the last time: who has not come again by now is no neighbour any more.
    pub(super) fn replace(&mut self, ids: impl Iterator<Item = EventId>) {
        self.0 = ids.collect();
    }

    pub(super) fn contains(&self, id: EventId) -> bool {
        self.0.contains(&id)
    }

    /// It has a result of its own.
    pub(super) fn clear(&mut self, id: EventId) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;
    use crate::broker::CONFIRMED;
    use crate::broker::cloud_events::tests::outgoing;

    const LIMIT: Duration = Duration::from_secs(10);

    fn is_unavailable(answer: Option<Published>) -> bool {
        matches!(answer, Some(Err(PublishError::Unavailable(_))))
    }

    /// A line whose first event finds nobody, and the sign that it has its result.
    fn failing_once() -> (Line, Arc<Notify>) {
        let failed = Arc::new(Notify::new());
        let sign = Arc::clone(&failed);
        let line = Line::new(LIMIT, 8, move |mut jobs| {
            let sign = Arc::clone(&sign);
            let work = async move {
                let mut tries = 0;
                while let Some(job) = jobs.recv().await {
                    let Some(job) = job.still_wanted(LIMIT) else { continue };
                    tries += 1;
                    if tries > 1 {
                        job.conclude(CONFIRMED);
                        continue;
                    }
                    job.unavailable("gone");
                    fail_all(&mut jobs, "gone");
                    sign.notify_one();
                }
            };
            work.boxed()
        });
        (line, failed)
    }

    #[tokio::test]
    async fn a_later_event_does_not_pass_one_whose_caller_has_not_heard_that_it_failed() {
        let (line, failed) = failing_once();
        let first = line.publish(outgoing("", b""));
        failed.notified().await;
        let second = line.publish(outgoing("", b""));
        assert!(is_unavailable(Some(second.await)), "the first one has not been heard of");
        assert!(is_unavailable(Some(first.await)));
        assert_eq!(line.publish(outgoing("", b"")).await, CONFIRMED);
    }

    #[tokio::test]
    async fn who_stands_behind_one_that_is_overdue_fails_with_it() {
        let (waiters, (sender, mut jobs)) = (Waiters::default(), mpsc::channel(2));
        let now = clock::now();
        let mut answers = Vec::new();
        for deadline in [now, now + LIMIT] {
            let (waiter, answer) = waiters.join().unwrap_or_else(|_| panic!("turned away"));
            drop(sender.try_send(Job { event: outgoing("", b""), deadline, waiter }));
            answers.push(answer);
        }
        for answer in answers {
            assert!(jobs.recv().await.unwrap().still_wanted(LIMIT).is_none());
            assert!(is_unavailable(answer.now_or_never()));
        }
    }

    #[tokio::test]
    async fn who_finds_no_room_is_not_passed_by_who_finds_some() {
        let line = Line::new(LIMIT, 1, |jobs| {
            let work = async move {
                let _jobs = jobs;
                std::future::pending::<()>().await;
            };
            work.boxed()
        });
        let _in_line = line.publish(outgoing("", b""));
        let (no_room, behind) = (line.publish(outgoing("", b"")), line.publish(outgoing("", b"")));
        assert_eq!(
            behind.await.unwrap_err().to_string(),
            "the broker is not available: an event before it failed just now"
        );
        assert!(is_unavailable(no_room.now_or_never()));
    }
}
