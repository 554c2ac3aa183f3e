//! The engine on real stores: what requests are told, how often an upstream is reached, and what is on record
//! afterwards. Housekeeping is stepped by hand; executions wait on signals.

mod arrivals;
mod by_hand;
mod completion;
mod emission;
mod forward;
mod hints;
mod housekeeping;
mod lookup;
mod model;
mod observe;
mod outage;
mod outcomes;
mod ownership;
mod retention;
mod secrets;
mod upstream;
mod waiting;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use oncegate::clock;
use oncegate::committer::{Committer, Limits};
use oncegate::engine::marks::Marks;
use oncegate::engine::policy::{KeyKind, OnUnknown, Tombstones};
use oncegate::engine::{Arrival, Arrived, Engine, Housekeeping, OnEvents, Options, Parts, Policy, Verdict};
use oncegate::entry::fingerprint::{self, Meaning, Rules, Secrets};
use oncegate::entry::{Entry, EntryId, Identity, InstanceId, Key, Namespace, Scope, State};
use oncegate::marks::memory::MemoryMarks;
use oncegate::outbox::rule::EventRules;
use oncegate::storage::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::servers::database::{Database, Kind};

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
/// How long a test waits for what must happen; generous, since machines that test are busy.
const LIMIT: Duration = Duration::from_secs(30);
const SECRET: &str = "the secret of all tests";

/// What a caller of a test gets.
type Told = Arrived<&'static str>;

/// How a gateway of a test is set up.
struct Setup {
    options: Options,
    marks: Arc<dyn Marks>,
    secrets: Vec<&'static str>,
    policies: Vec<Arc<Policy>>,
    on_events: OnEvents,
    name: String,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            options: Options::default(),
            marks: memory(),
            secrets: vec![SECRET],
            policies: Vec::new(),
            on_events: OnEvents::default(),
            name: "test".to_owned(),
        }
    }
}

/// One process, as far as a test needs one.
struct Gateway {
    engine: Arc<Engine>,
    house: Housekeeping,
    store: Arc<Store>,
    _stop_committer: DropGuard,
}

impl Gateway {
    async fn begin(store: Store, setup: Setup) -> Self {
        let store = Arc::new(store);
        let committer = Committer::new(store.clone(), Limits::default());
        let stop = CancellationToken::new();
        tokio::spawn(committer.clone().run(stop.clone()));
        let parts = Parts {
            ledger: store.clone(),
            instances: store.clone(),
            marks: setup.marks,
            secrets: secrets(&setup.secrets),
            policies: setup
                .policies
                .into_iter()
                .map(|policy| (policy.route.clone(), policy))
                .collect::<HashMap<_, _>>(),
            on_events: setup.on_events,
            name: setup.name,
        };
        let engine = Engine::begin(parts, committer, setup.options).await.unwrap();
        Self { house: Housekeeping::new(engine.clone()), engine, store, _stop_committer: stop.drop_guard() }
    }

    async fn arrive(&self, arrival: Arrival, run: upstream::Run) -> Told {
        self.engine.arrive(arrival, run).await
    }

    /// The same in a task of its own.
    fn send(&self, arrival: Arrival, run: upstream::Run) -> JoinHandle<Told> {
        let engine = self.engine.clone();
        tokio::spawn(async move { engine.arrive(arrival, run).await })
    }

    async fn entry(&self, key: &str) -> Option<Entry> {
        self.engine.entry(id(key)).await.unwrap()
    }

    async fn state(&self, key: &str) -> State {
        self.entry(key).await.expect("an entry").state
    }

    async fn is_unknown(&self, key: &str) -> bool {
        matches!(self.entry(key).await.map(|entry| entry.state), Some(State::Unknown { .. }))
    }

    async fn is_completed(&self, key: &str) -> bool {
        matches!(self.entry(key).await.map(|entry| entry.state), Some(State::Completed { .. }))
    }
}

/// A database with one gateway on it.
async fn gateway(kind: Kind, setup: Setup) -> (Database, Gateway) {
    let database = Database::create(kind).await;
    let gateway = on(&database, setup).await;
    (database, gateway)
}

/// A database with two gateways on it, each set up by `setup`.
async fn two(kind: Kind, setup: impl Fn() -> Setup) -> (Database, Gateway, Gateway) {
    let (database, first) = gateway(kind, setup()).await;
    let second = on(&database, setup()).await;
    (database, first, second)
}

/// A gateway on `database`.
async fn on(database: &Database, setup: Setup) -> Gateway {
    let store = database.open();
    store.migrate().await.unwrap();
    Gateway::begin(store, setup).await
}

fn memory() -> Arc<dyn Marks> {
    Arc::new(MemoryMarks::new(1 << 20))
}

fn secrets(secrets: &[&str]) -> Secrets {
    Secrets::new(secrets.iter().map(|secret| secret.as_bytes().to_vec()).collect()).unwrap()
}

fn policy() -> Policy {
    Policy {
        route: "pay".into(),
        namespace: Namespace::new("pay").unwrap(),
        retention: HOUR,
        tombstones: Tombstones { header: Some(HOUR), business: None },
        on_unknown: OnUnknown::Hold,
        events: EventRules::default(),
        budget: SECOND,
    }
}

fn identity(key: &str) -> Identity {
    Identity { namespace: policy().namespace, scope: Scope::Global, key: Key::from_business(key).unwrap() }
}

fn id(key: &str) -> EntryId {
    identity(key).id()
}

/// A request of `key` that means `body`, under the plain policy.
fn request(key: &str, body: &'static str) -> Arrival {
    under(&Arc::new(policy()), key, body)
}

/// A request of `key` that means `body`, under `policy`.
fn under(policy: &Arc<Policy>, key: &str, body: &'static str) -> Arrival {
    let headers = HeaderMap::new();
    let body = Bytes::from_static(body.as_bytes());
    let parts = fingerprint::Parts { method: &Method::POST, path: "/pay", query: None, headers: &headers, body };
    let meaning = Meaning::of(parts, &Rules::default());
    let identity = Identity { namespace: policy.namespace.clone(), ..identity(key) };
    Arrival {
        id: identity.id(),
        identity,
        fingerprint: secrets(&[SECRET]).fingerprint(&meaning),
        meaning,
        kind: KeyKind::Header,
        seed: Arc::default(),
        policy: policy.clone(),
        wait: Duration::ZERO,
    }
}

/// The same request, ready to wait.
fn patient(arrival: Arrival) -> Arrival {
    Arrival { wait: LIMIT, ..arrival }
}

/// Polls until `ready` says so.
async fn until<R: Future<Output = bool>>(what: &str, mut ready: impl FnMut() -> R) {
    let deadline = clock::now() + LIMIT;
    while !ready().await {
        assert!(clock::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// `work`, which must not take for ever.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.expect("it takes for ever")
}

#[track_caller]
fn assert_in_progress(told: &Told) {
    assert!(matches!(told, Arrived::Told(Verdict::InProgress { .. })), "{told:?}");
}

#[track_caller]
fn assert_mismatch(told: &Told) {
    assert!(matches!(told, Arrived::Told(Verdict::Mismatch)), "{told:?}");
}

#[track_caller]
fn assert_held(told: &Told) {
    assert!(matches!(told, Arrived::Told(Verdict::Held { .. })), "{told:?}");
}

/// Replayed with `body`.
#[track_caller]
fn assert_replay(told: &Told, body: &str) {
    let Arrived::Told(Verdict::Replay { response, .. }) = told else { panic!("no replay: {told:?}") };
    assert_eq!(*response, Arc::new(upstream::response(body.to_owned())));
}

/// The instance that has `key` in progress.
async fn owner(gateway: &Gateway, key: &str) -> InstanceId {
    match gateway.state(key).await {
        State::InProgress { instance } => instance,
        state => panic!("not in progress: {state:?}"),
    }
}

/// Expires `instance` as a rescuer would that saw it stand still for a lease.
async fn expire(database: &Database, instance: InstanceId) {
    let instance = database.literal(&instance.0);
    let sql = format!("UPDATE instances SET state = 2, ended_at = 1 WHERE id = {instance} AND state = 1");
    assert_eq!(database.stranger().await.run(&sql).await, 1);
}
