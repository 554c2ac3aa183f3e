//! One process: the engine, its committer, its housekeeping and its relay, as they are, on a runtime and a clock of its
//! own. Dropped, every task of it ends wherever it is: a crash.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use oncegate::clock::Instant;
use oncegate::committer::{Committer, Limits};
use oncegate::engine::by_hand::{Settler, SettlerParts};
use oncegate::engine::{
    Arrived, Attempt, Engine, Executed, Housekeeping, LeaseTiming, OnEvents, Options, Parts, Recorded, Verdict,
};
use oncegate::entry::Outcome;
use oncegate::outbox::relay::{Backoff, Relay, RelayOptions, Wake};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::desk;
use crate::events::{BrokerClient, QUEUE};
use crate::ledger::Store;
use crate::marks::MarkStore;
use crate::requests::{Routes, TIMEOUT, answer, secrets};
use crate::upstream::{Heard, Plan};
use crate::world::Shared;

fn options(mark_response_limit: usize) -> Options {
    Options {
        lease: LeaseTiming { lease: Duration::from_secs(3), renew: Duration::from_secs(1) },
        mark_ttl: Duration::from_secs(3),
        mark_response_limit,
        late_window: Duration::from_secs(2),
        record_patience: Duration::from_millis(500),
        sweep_limit: 2,
        ..Options::default()
    }
}

fn relay_options() -> RelayOptions {
    let millis = Duration::from_millis;
    RelayOptions {
        window_events: 8,
        calls: 3,
        lease: millis(3000),
        renew: millis(1000),
        poll: millis(1000),
        retry: Backoff { first: millis(50), max: millis(400) },
        later: Backoff { first: millis(50), max: millis(400) },
        outage: Backoff { first: millis(20), max: millis(300) },
        publish_limit: millis(3000),
        crash_attempts: 100,
        ..RelayOptions::default()
    }
}

/// A request of the schedule, and what its execution is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) key: usize,
    pub(crate) variant: usize,
    /// How long it waits for another one of its key.
    pub(crate) wait: Duration,
    /// How long its execution stands still between the claim and the first byte.
    pub(crate) hesitates: Duration,
    /// How long the answer takes on its way back, beside what the schedule makes of it.
    pub(crate) slow: Duration,
    pub(crate) plan: Plan,
    pub(crate) manner: Manner,
}

/// What else an execution does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Plain,
    /// Its answer is passed on as it comes.
    Streams,
    PanicsBefore,
    PanicsAfter,
}

pub(crate) struct Process {
    pub(crate) number: u32,
    runtime: Runtime,
    world: Shared,
    routes: Routes,
    engine: Arc<Mutex<Option<Arc<Engine>>>>,
    stop: CancellationToken,
    settler: Settler,
    store: Store,
    callers: Vec<JoinHandle<()>>,
    /// Since when it gets no time, on the world's clock.
    pub(crate) stands_still: Option<i64>,
    ending: Option<JoinHandle<()>>,
}

impl Process {
    pub(crate) fn start(world: &Shared, number: u32, mark_response_limit: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let store = Store { world: world.clone(), process: number };
        let routes = Routes::new(world, number);
        let policies: HashMap<_, _> = routes.all().map(|policy| (policy.route.clone(), policy.clone())).collect();
        let wake = Wake::default();
        let woken = wake.clone();
        let on_events = OnEvents::new(move || woken.committed());
        let marks = Arc::new(MarkStore { world: world.clone(), process: number });
        let settler = Settler::new(SettlerParts {
            desk: Arc::new(store.clone()),
            marks: marks.clone(),
            policies: policies.clone(),
            on_events: on_events.clone(),
        });
        let process = Self {
            settler,
            store: store.clone(),
            number,
            runtime,
            world: world.clone(),
            routes,
            engine: Arc::default(),
            stop: CancellationToken::new(),
            callers: Vec::new(),
            stands_still: None,
            ending: None,
        };
        let (engine, stop) = (process.engine.clone(), process.stop.clone());
        let store = Arc::new(store);
        let (world, ordering) = (world.clone(), world.lock().events.ordering);
        process.runtime.spawn(async move {
            let committer = Committer::new(store.clone(), Limits::default());
            tokio::spawn(committer.clone().run(stop.child_token()));
            let parts = Parts {
                ledger: store.clone(),
                instances: store.clone(),
                marks,
                secrets: secrets(),
                policies,
                on_events,
                name: number.to_string(),
            };
            let begun = loop {
                match Engine::begin(parts.clone(), committer.clone(), options(mark_response_limit)).await {
                    Ok(engine) => break engine,
                    Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
                }
            };
            tokio::spawn(Housekeeping::new(begun.clone()).run(stop.child_token()));
            let publisher = Arc::new(BrokerClient { world, process: number, ordering });
            tokio::spawn(Relay::new(QUEUE, store, publisher, wake, relay_options()).run(stop.child_token()));
            *engine.lock().unwrap() = Some(begun);
        });
        process.run();
        process
    }

    /// Lets it do what it can do now.
    pub(crate) fn run(&self) {
        if self.stands_still.is_none() {
            self.runtime.block_on(async {
                for _ in 0..2 {
                    tokio::task::yield_now().await;
                }
            });
        }
    }

    /// Moves its clock on.
    pub(crate) fn pass(&self, time: Duration) {
        if self.stands_still.is_none() {
            self.runtime.block_on(async {
                tokio::time::advance(time).await;
                tokio::task::yield_now().await;
            });
        }
    }

    /// Goes on after it stood still: its clock has gone on meanwhile.
    pub(crate) fn go_on(&mut self, now: i64) {
        if let Some(since) = self.stands_still.take() {
            self.pass(Duration::from_millis(u64::try_from(now - since).unwrap()));
        }
    }

    /// Lives for so long, each call being made at once.
    pub(crate) fn live(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Whether it has answered all of its callers.
    pub(crate) fn has_answered(&self) -> bool {
        self.callers.iter().all(JoinHandle::is_finished)
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ending.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Takes in no more, records what is under way, and ends.
    pub(crate) fn end(&mut self) {
        let engine = self.engine.lock().unwrap().clone();
        if let Some(engine) = engine {
            let (stop, slot) = (self.stop.clone(), self.engine.clone());
            slot.lock().unwrap().take();
            self.ending = Some(self.runtime.spawn(async move {
                // What can't be written now is what a crash would leave.
                drop(engine.drain().await);
                stop.cancel();
            }));
            self.run();
        }
    }

    /// A client that hangs up.
    pub(crate) fn hang_up(&mut self, which: usize) {
        if !self.callers.is_empty() {
            let index = which % self.callers.len();
            self.callers.swap_remove(index).abort();
            self.run();
        }
    }

    /// A person decides about a key, here.
    pub(crate) fn decide(&mut self, key: usize, has_completed: bool) {
        let (store, settler) = (self.store.clone(), self.settler.clone());
        self.callers.push(self.runtime.spawn(desk::decide(store, settler, key, has_completed)));
        self.run();
    }

    pub(crate) fn arrive(&mut self, request: Request) {
        let Some(engine) = self.engine.lock().unwrap().clone() else { return };
        let Request { key, variant, wait, .. } = request;
        let (arrival, world) = (self.routes.arrival(key, variant, wait), self.world.clone());
        let execution = execution(world.clone(), self.number, request);
        let number = self.number;
        self.callers.push(self.runtime.spawn(async move {
            let arrived = engine.arrive(arrival, execution).await;
            let mut world = world.lock();
            let told = match arrived {
                Arrived::Executed { answer, recorded } => {
                    if let (Some(body), Recorded::Completed(_)) = (&answer, recorded) {
                        world.answered(key, variant, body);
                    }
                    format!("{recorded:?}")
                }
                Arrived::Told(Verdict::Replay { response, .. }) => {
                    world.answered(key, variant, &response.body);
                    "Replay".to_owned()
                }
                Arrived::Told(verdict) => format!("{verdict:?}"),
            };
            world.note(number, "caller", &told);
        }));
        self.run();
    }
}

/// What a request runs when it is admitted: what the gateway's own executions do, with another upstream.
fn execution(
    world: Shared,
    process: u32,
    request: Request,
) -> impl FnOnce(Attempt) -> BoxFuture<'static, Executed<Option<bytes::Bytes>>> + Send + 'static {
    move |attempt| {
        async move {
            let Request { key, variant, hesitates, slow, plan, manner, .. } = request;
            if !hesitates.is_zero() {
                tokio::time::sleep(hesitates).await;
            }
            if manner == Manner::PanicsBefore {
                std::panic::resume_unwind(Box::new("by the schedule"));
            }
            if attempt.dispatch().is_err() {
                return Executed::Finished { outcome: Outcome::NotExecuted, answer: None };
            }
            let send = world.lock().send(key, variant, attempt.number, attempt.nonce, process);
            let answered = world.call(process, "upstream", move |world| world.receive(key, send, plan));
            if manner == Manner::PanicsAfter {
                std::panic::resume_unwind(Box::new("by the schedule"));
            }
            let exchange = async move {
                if !slow.is_zero() {
                    tokio::time::sleep(slow).await;
                }
                let heard = answered.await.unwrap_or(Heard::Nothing);
                world.lock().upstream.stories[key].sends[send].heard = Some(heard.clone());
                heard
            };
            let mut exchange = exchange.boxed();
            if manner == Manner::Streams {
                return Executed::Streaming { answer: None, finish: exchange.map(|heard| outcome(&heard)).boxed() };
            }
            let deadline = oncegate::clock::now() + TIMEOUT;
            match timeout_at(deadline, &mut exchange).await {
                Some(heard) => {
                    let body = if let Heard::Completed(body) = &heard { Some(body.clone()) } else { None };
                    Executed::Finished { outcome: outcome(&heard), answer: body }
                }
                None => Executed::TimedOut { answer: None, late: exchange.map(|heard| outcome(&heard)).boxed() },
            }
        }
        .boxed()
    }
}

async fn timeout_at(deadline: Instant, exchange: &mut BoxFuture<'static, Heard>) -> Option<Heard> {
    tokio::time::timeout_at(deadline, exchange).await.ok()
}

fn outcome(heard: &Heard) -> Outcome {
    match heard {
        Heard::Completed(body) => Outcome::Completed(answer(body)),
        Heard::NotExecuted => Outcome::NotExecuted,
        Heard::Nothing => Outcome::Unknown,
    }
}
