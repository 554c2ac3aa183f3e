//! The processes, their database and the keys.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use oncegate::engine::marks::Marks;
use oncegate::engine::policy::{Found, Lookup, LookupPolicy, OnUnknown};
use oncegate::engine::{Arrival, Arrived, Executed, Policy, Recorded, Verdict};
use oncegate::entry::{EntryId, Identity, Outcome, State};
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::runtime::Runtime;
use tokio::sync::{RwLock, oneshot};
use tokio::task::JoinHandle;

use super::Shared;
use super::request::{KEYS, Request};
use super::story::{End, Rule, Story};
use crate::engine::upstream::{Run, answer, completed, not_executed, unknown};
use crate::engine::{Gateway, LIMIT, Setup, memory, on, policy, soon, under, until};
use crate::servers::database::{Database, Kind, fresh};

pub(super) const PROCESSES: usize = 3;

/// Comes when the schedule says so.
fn signal(pending: &Shared<Vec<oneshot::Sender<()>>>) -> oneshot::Receiver<()> {
    let (send, receive) = oneshot::channel();
    pending.lock().unwrap().push(send);
    receive
}

/// A gateway on a runtime of its own, so that killing it stops every task wherever it is.
struct Process {
    /// What its instances are registered as, one after the other.
    name: String,
    gateway: Gateway,
    runtime: Option<Runtime>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // At the end of a schedule, in the middle of another runtime: nobody may wait here.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// All there is.
pub(super) struct World {
    database: Database,
    marks: Arc<dyn Marks>,
    processes: Vec<Process>,
    stories: Arc<Vec<Shared<Story>>>,
    policies: Vec<Arc<Policy>>,
    /// Executions that wait for their end.
    pending: Shared<Vec<oneshot::Sender<()>>>,
    /// A lease is lost only while nobody begins: a real one is over well before anybody may take it away.
    leases: Arc<RwLock<()>>,
}

/// Answers from the stories.
struct Upstream {
    stories: Arc<Vec<Shared<Story>>>,
}

impl Lookup for Upstream {
    fn lookup<'a>(&'a self, _: EntryId, identity: &'a Identity) -> BoxFuture<'a, Found> {
        let key: usize = identity.key.as_str().parse().unwrap();
        let found = self.stories[key].lock().unwrap().look_up();
        std::future::ready(found).boxed()
    }
}

fn policies(stories: &Arc<Vec<Shared<Story>>>) -> Vec<Arc<Policy>> {
    let lookup = LookupPolicy {
        lookup: Arc::new(Upstream { stories: stories.clone() }),
        business_keys_only: false,
        absent_means_not_executed_after: Some(Duration::ZERO),
        first: Duration::ZERO,
        max: Duration::from_millis(20),
    };
    let rules = [("hold", OnUnknown::Hold), ("lookup", OnUnknown::Lookup(lookup)), ("forward", OnUnknown::Forward)];
    rules
        .into_iter()
        .map(|(route, on_unknown)| Arc::new(Policy { route: route.into(), on_unknown, ..policy() }))
        .collect()
}

impl World {
    pub(super) async fn new() -> Self {
        let (database, _) = fresh(Kind::Sqlite).await;
        let rules = [Rule::Hold, Rule::Lookup, Rule::Forward];
        let stories: Arc<Vec<_>> = Arc::new((0..KEYS).map(|key| Story::new(rules[key % rules.len()])).collect());
        let policies = policies(&stories);
        let (pending, leases) = (Arc::default(), Arc::default());
        let mut world = Self { database, marks: memory(), processes: Vec::new(), stories, policies, pending, leases };
        for _ in 0..PROCESSES {
            let process = world.start().await;
            world.processes.push(process);
        }
        world
    }

    async fn start(&self) -> Process {
        let name = format!("{:032x}", rand::random::<u128>());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (store, marks, policies) = (self.database.open(), self.marks.clone(), self.policies.clone());
        let its_name = name.clone();
        let begin =
            async move { Gateway::begin(store, Setup { marks, policies, name: its_name, ..Setup::default() }).await };

        let gateway = runtime.spawn(begin).await.unwrap();
        Process { name, gateway, runtime: Some(runtime) }
    }

    /// Runs `work` as `process` does.
    async fn run_on<T: Send + 'static>(&self, process: usize, work: impl Future<Output = T> + Send + 'static) -> T {
        self.processes[process].runtime.as_ref().unwrap().spawn(work).await.unwrap()
    }

    pub(super) fn arrive(&self, process: usize, request: Request) -> JoinHandle<()> {
        let Request { key, variant, wait, .. } = request;
        let arrival = under(&self.policies[key % self.policies.len()], &key.to_string(), variant);
        let (story, engine) = (self.stories[key].clone(), self.processes[process].gateway.engine.clone());
        let run = self.execution(story.clone(), request);
        self.processes[process].runtime.as_ref().unwrap().spawn(async move {
            match engine.arrive(Arrival { wait, ..arrival }, run).await {
                Arrived::Told(Verdict::Replay { response, .. }) => {
                    story.lock().unwrap().replayed(variant, &response.body);
                }
                Arrived::Executed { answer, recorded: Recorded::Completed(_) } => {
                    story.lock().unwrap().replayed(variant, answer.as_bytes());
                }
                Arrived::Executed { .. } | Arrived::Told(_) => {}
            }
        })
    }

    fn execution(&self, story: Shared<Story>, request: Request) -> Run {
        let Request { variant, hesitates, end, .. } = request;
        let (pending, leases) = (self.pending.clone(), self.leases.clone());
        Box::new(move |attempt| {
            async move {
                if hesitates {
                    signal(&pending).await.ok();
                }
                if end == End::PanicBefore {
                    std::panic::resume_unwind(Box::new("a panic of the schedule"));
                }
                let (running, body) = {
                    let _no_lease_is_lost_meanwhile = leases.read().await;
                    if attempt.dispatch().is_err() {
                        return not_executed();
                    }
                    Story::begin(&story, variant, attempt.number, end)
                };
                signal(&pending).await.ok();
                match end {
                    End::Late { effect } => {
                        let said = signal(&pending);
                        let late = async move {
                            said.await.ok();
                            running.over();
                            if effect { Outcome::Completed(answer(body)) } else { Outcome::Unknown }
                        };
                        Executed::TimedOut { answer: "timed out", late: late.boxed() }
                    }
                    End::PanicAfter { .. } | End::PanicBefore => {
                        drop(running);
                        std::panic::resume_unwind(Box::new("a panic of the schedule"))
                    }
                    End::Completed => {
                        running.over();
                        completed(body)
                    }
                    End::NotExecuted => {
                        running.over();
                        not_executed()
                    }
                    End::Unknown { .. } => {
                        running.over();
                        unknown()
                    }
                }
            }
            .boxed()
        })
    }

    pub(super) fn let_one_end(&self, rng: &mut StdRng) {
        let mut pending = self.pending.lock().unwrap();
        if !pending.is_empty() {
            let index = rng.random_range(0..pending.len());
            // Its process may have been killed.
            pending.swap_remove(index).send(()).ok();
        }
    }

    /// Somebody expires the process, which notices at its next renewal.
    pub(super) async fn lose_lease(&self, process: usize) {
        let _nobody_begins_meanwhile = self.leases.write().await;
        let name = &self.processes[process].name;
        let expire = format!("UPDATE instances SET state = 2, ended_at = 1 WHERE state = 1 AND name = '{name}'");
        assert_eq!(self.database.stranger().await.run(&expire).await, 1);
        let house = self.processes[process].gateway.house.clone();
        self.run_on(process, async move { house.lease_step().await.unwrap() }).await;
    }

    pub(super) async fn kill(&mut self, process: usize) {
        let next = self.start().await;
        let mut killed = std::mem::replace(&mut self.processes[process], next);
        let runtime = killed.runtime.take().unwrap();
        tokio::task::spawn_blocking(move || {
            runtime.shutdown_timeout(LIMIT);
            drop(killed);
        })
        .await
        .unwrap();
    }

    pub(super) async fn keep_house(&self, process: usize) {
        let house = self.processes[process].gateway.house.clone();
        self.run_on(process, async move {
            // The schedule shares one file, which may be busy for a moment.
            house.lease_step().await.ok();
            house.sweep_step().await.ok();
            house.lookup_step().await.ok();
        })
        .await;
    }

    /// Lets what was begun get somewhere.
    pub(super) async fn settle_down(&self, process: usize) {
        let store = self.processes[process].gateway.store.clone();
        self.run_on(process, async move { store.ping().await.ok() }).await;
    }

    /// Kills all, and sees what the next process makes of it.
    pub(super) async fn end(mut self) {
        for process in 0..PROCESSES {
            self.kill(process).await;
        }
        for process in 0..PROCESSES {
            self.keep_house(process).await;
        }
        let last = on(
            &self.database,
            Setup { marks: self.marks.clone(), policies: self.policies.clone(), ..Setup::default() },
        )
        .await;
        for (key, story) in self.stories.iter().enumerate() {
            let name = key.to_string();
            soon(until("nothing is in progress for ever", || async {
                last.house.lease_step().await.unwrap();
                last.house.sweep_step().await.unwrap();
                last.house.lookup_step().await.unwrap();
                let state = last.entry(&name).await.map(|entry| entry.state);
                let is_looked_up = story.lock().unwrap().rule == Rule::Lookup;
                match state {
                    Some(State::InProgress { .. }) => false,
                    Some(State::Unknown { .. }) => !is_looked_up,
                    Some(State::Completed { .. } | State::Tombstone { .. }) | None => true,
                }
            }))
            .await;
            let entry = last.entry(&name).await;
            let mut story = story.lock().unwrap();
            match entry.map(|entry| entry.state) {
                Some(State::Completed { answer: oncegate::entry::Answer::Response(response), .. }) => {
                    if let Some((variant, _)) = story.effect {
                        story.replayed(variant, &response.body);
                    } else {
                        story.replayed("nothing", &response.body);
                    }
                }
                Some(State::Unknown { .. }) => {}
                None => assert_eq!(story.effect, None, "what happened is forgotten: {story:?}"),
                other => panic!("{other:?}: {story:?}"),
            }
            assert!(story.wrongs.is_empty(), "key {key}: {:#?}", story.wrongs);
        }
    }
}
