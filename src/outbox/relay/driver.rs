//! Moves what the machine asks for between the outbox and the publisher.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::machine::{LaneCall, Machine, Ticket};
use super::meters::Meters;
use super::options::RelayOptions;
use super::wake::Wake;
use crate::broker::{PublishError, Published, Publisher};
use crate::chance;
use crate::clock::{self, Instant};
use crate::engine::ledger::StoreError;
use crate::outbox::event::Outgoing;
use crate::outbox::store::{Lane, Leased, Outbox, RelayId, Turn, Turned};

/// How long a relay that has given up may take to write down what it gives back: a database that does not answer
/// sees its lease run out.
const FAREWELL: Duration = Duration::from_secs(5);

/// Publishes one queue's events, as one of the relays that share its lanes.
///
/// Dropped in the middle of anything, it leaves what a crash would: its lanes run out, and what it had in hand is
/// published again by the next one.
pub struct Relay {
    queue: Box<str>,
    id: RelayId,
    options: RelayOptions,
    outbox: Arc<dyn Outbox>,
    publisher: Arc<dyn Publisher>,
    wake: Wake,
    machine: Machine,
    meters: Meters,
    /// Calls of the publisher that have not ended.
    calls: FuturesUnordered<BoxFuture<'static, Ended>>,
    turn: Option<BoxFuture<'static, TurnEnd>>,
    lane_call: Option<BoxFuture<'static, LaneAnswer>>,
}

/// A call of the publisher that has ended.
struct Ended {
    ticket: Ticket,
    begun: Instant,
    result: Published,
}

/// What the outbox said about lanes.
enum LaneAnswer {
    Leased { begun: Instant, result: Result<Leased, StoreError> },
    Released { lanes: Vec<Lane>, result: Result<(), StoreError> },
    Retired { result: Result<(), StoreError> },
}

/// A turn, and what came of it.
type TurnEnd = (Arc<Turn>, Result<Turned, StoreError>);

/// What a step waited for.
enum Happened {
    Published(Ended),
    Turned(Arc<Turn>, Result<Turned, StoreError>),
    Answered(LaneAnswer),
    Woken,
    TimePassed,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("queue", &self.queue).field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl Relay {
    /// A relay of `queue`, which must have been [opened](Outbox::open). It holds nothing before it runs.
    #[must_use]
    pub fn new(
        queue: &str,
        outbox: Arc<dyn Outbox>,
        publisher: Arc<dyn Publisher>,
        wake: Wake,
        options: RelayOptions,
    ) -> Self {
        let id = RelayId::random();
        let machine = Machine::new(queue.into(), id, options.clone(), publisher.ordering(), clock::now());
        Self {
            queue: queue.into(),
            id,
            meters: Meters::new(queue),
            options,
            outbox,
            publisher,
            wake,
            machine,
            calls: FuturesUnordered::new(),
            turn: None,
            lane_call: None,
        }
    }

    /// Publishes until `stop`, then lets go of everything: what is under way is awaited for as long as
    /// [`RelayOptions::drain`] allows. The publisher is left open.
    pub async fn run(mut self, stop: CancellationToken) {
        let (wake, outbox, queue) = (self.wake.clone(), Arc::clone(&self.outbox), self.queue.clone());
        let telling = wake.tell_others(&*outbox, &queue);
        let running = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = self.work() => {}
            }
            self.drain().await;
        };
        tokio::select! {
            biased;
            () = running => {}
            () = telling => {}
        }
        // The others may take what was let go.
        if let Err(error) = outbox.notify(&queue).await {
            tracing::debug!(queue, %error, "other relays were not woken");
        }
    }

    async fn work(&mut self) {
        while !self.machine.is_done() {
            self.step().await;
        }
    }

    /// Gives back what is not published, awaits what is, and lets go of the lanes.
    async fn drain(&mut self) {
        self.machine.stop(clock::now());
        if tokio::time::timeout(self.options.drain, self.work()).await.is_ok() {
            return;
        }
        tracing::warn!(queue = %self.queue, "events under way at the end of the drain time may be published twice");
        self.machine.give_up(clock::now());
        if tokio::time::timeout(FAREWELL, self.work()).await.is_err() {
            tracing::warn!(queue = %self.queue, "lanes are not released; their lease runs out");
        }
    }

    /// Does all that can be done now, then waits for one thing to happen.
    pub async fn step(&mut self) {
        let now = self.act();
        match self.next(now).await {
            Happened::Published(ended) => self.published(ended),
            Happened::Turned(turn, result) => self.turned(&turn, result),
            Happened::Answered(answer) => self.answered(answer),
            Happened::Woken => self.machine.woken(),
            Happened::TimePassed => {}
        }
        // What has happened as well needs no step of its own.
        while let Some(Some(ended)) = self.calls.next().now_or_never() {
            self.published(ended);
        }
    }

    /// What is due by the time that it returns has been asked for.
    fn act(&mut self) -> Instant {
        let now = clock::now();
        self.machine.tick(now);
        if self.turn.is_none() && self.wake.woken().now_or_never().is_some() {
            self.machine.woken();
        }
        if self.turn.is_none()
            && let Some(turn) = self.machine.next_turn(now)
        {
            let (outbox, applied) = (Arc::clone(&self.outbox), Arc::clone(&turn));
            // In a task of its own: its statements do not wait while many events are handed to the publisher.
            let applying = AbortOnDropHandle::new(tokio::spawn(async move { outbox.turn(&applied).await }));
            self.turn = Some(Box::pin(async move {
                // A bug of the store: what it left behind is not known, as after an unclear commit.
                let result = applying.await;
                (turn, result.unwrap_or_else(|_| Err(StoreError::CommitUnknown("the store panicked".into()))))
            }));
        }
        while let Some((ticket, outgoing)) = self.machine.next_call(now) {
            self.calls.push(self.publish(ticket, outgoing, now));
        }
        if self.lane_call.is_none()
            && let Some(call) = self.machine.next_lane_call(now)
        {
            self.lane_call = Some(self.ask(call, now));
        }
        now
    }

    /// The call itself takes the event's place in the broker's line, so it is made here and now.
    fn publish(&self, ticket: Ticket, outgoing: Outgoing, begun: Instant) -> BoxFuture<'static, Ended> {
        let panicked = || Err(PublishError::Refused("the publisher panicked".to_owned()));
        let call = std::panic::catch_unwind(AssertUnwindSafe(|| self.publisher.publish(outgoing)));
        let limit = self.options.publish_limit;
        Box::pin(async move {
            let Ok(call) = call else { return Ended { ticket, begun, result: panicked() } };
            let result = tokio::time::timeout(limit, AssertUnwindSafe(call).catch_unwind()).await;
            let result = match result {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => panicked(),
                Err(_) => Err(PublishError::Unavailable("no answer in time".to_owned())),
            };
            Ended { ticket, begun, result }
        })
    }

    fn ask(&self, call: LaneCall, begun: Instant) -> BoxFuture<'static, LaneAnswer> {
        let (outbox, queue, id, lease) = (Arc::clone(&self.outbox), self.queue.clone(), self.id, self.options.lease);
        let trouble = self.machine.trouble().map(Box::<str>::from);
        Box::pin(async move {
            match call {
                LaneCall::Lease(taking) => LaneAnswer::Leased {
                    begun,
                    result: outbox.lease(&queue, id, lease, taking, trouble.as_deref()).await,
                },
                LaneCall::Release(lanes) => {
                    let result = outbox.release(&queue, id, &lanes).await;
                    LaneAnswer::Released { lanes, result }
                }
                LaneCall::Retire => LaneAnswer::Retired { result: outbox.retire(&queue, id).await },
            }
        })
    }

    /// `now` is when it acted: what has become due since then is not slept over.
    async fn next(&mut self, now: Instant) -> Happened {
        let until = self.machine.next_time(now);
        // A wake is kept until it is of use: with a commit every millisecond, hearing of each costs more than events do.
        let hears = self.turn.is_none() && !self.machine.rests(now);
        // In this order: turns and lanes are answered seldom, and must not wait behind many confirms.
        tokio::select! {
            biased;
            (turn, result) = pending(&mut self.turn) => Happened::Turned(turn, result),
            answer = pending(&mut self.lane_call) => Happened::Answered(answer),
            Some(ended) = self.calls.next(), if !self.calls.is_empty() => Happened::Published(ended),
            () = self.wake.woken(), if hears => Happened::Woken,
            () = tokio::time::sleep_until(until) => Happened::TimePassed,
        }
    }

    fn published(&mut self, Ended { ticket, begun, result }: Ended) {
        let now = clock::now();
        self.meters.published(&result, begun, now);
        let change = self.machine.published(&ticket, result, now, chance::random());
        self.meters.changed(change, self.machine.trouble().unwrap_or_default());
    }

    fn turned(&mut self, turn: &Turn, result: Result<Turned, StoreError>) {
        self.turn = None;
        self.meters.turned(turn, &result);
        self.machine.turned(result, clock::now());
    }

    fn answered(&mut self, answer: LaneAnswer) {
        self.lane_call = None;
        let now = clock::now();
        match answer {
            LaneAnswer::Leased { begun, result: Ok(leased) } => self.machine.leased(&leased, begun, now),
            LaneAnswer::Leased { result: Err(error), .. } => {
                tracing::warn!(queue = %self.queue, %error, "the relay's lease was not renewed");
                self.machine.not_leased(now);
            }
            LaneAnswer::Released { lanes, result } => {
                if let Err(error) = result {
                    tracing::warn!(queue = %self.queue, %error, "lanes were not released; their lease runs out");
                }
                self.machine.released(&lanes);
            }
            LaneAnswer::Retired { result } => {
                if let Err(error) = result {
                    tracing::warn!(queue = %self.queue, %error, "lanes were not released; their lease runs out");
                }
                self.machine.retired();
            }
        }
        self.wake.set_alone(!self.machine.has_neighbours());
    }

    /// Who it is in the database.
    #[must_use]
    pub fn id(&self) -> RelayId {
        self.id
    }

    /// What it has in hand.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }
}

/// The future's end, once there is a future.
async fn pending<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
