//! A handler of messages, which counts what it does. It behaves as the test says, per order.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tokio::net::TcpListener;

use super::eventually;
use crate::http::upstream::{Gate, Received, Step, Upstream, after, answer};

/// What it does with a message.
#[derive(Debug, Clone)]
pub(super) enum Behaviour {
    /// Its effect, unless it knows the key, and 204.
    Works,
    /// Nothing, and this status.
    Answers(&'static str),
    /// Its effect, unless it knows the key, and no answer: the connection is cut.
    Crashes,
    /// Its effect, unless it knows the key, and the answer once the gate is open.
    Waits(Gate),
}

/// A running handler.
#[derive(Debug, Clone)]
pub(super) struct Handler {
    pub(super) upstream: Upstream,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Behaviours to come, by order; the last of them stays.
    behaviours: HashMap<String, VecDeque<Behaviour>>,
    /// Those of all other orders.
    otherwise: VecDeque<Behaviour>,
    /// Keys whose effect is committed.
    known: BTreeSet<String>,
    /// Effects by order, in the order in which they were committed.
    effects: Vec<(String, Value)>,
    /// Their number, by order.
    applied: HashMap<String, usize>,
    /// Calls by order.
    calls: BTreeMap<String, usize>,
}

impl Handler {
    pub(super) async fn start() -> Self {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    pub(super) async fn start_on(address: SocketAddr) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let listener = TcpListener::bind(address).await.unwrap();
        let upstream = Upstream::on(listener, move |_, request| shared.lock().unwrap().handle(request));
        Self { upstream, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn url(&self) -> String {
        format!("{}/points", self.upstream.url())
    }

    /// From now on messages of `order` are met with these, one after the other, and then with the last one.
    pub(super) fn behave(&self, order: &str, behaviours: impl Into<VecDeque<Behaviour>>) {
        self.state().behaviours.insert(order.to_owned(), behaviours.into());
    }

    /// The same for all orders that nothing was said of.
    pub(super) fn behave_always(&self, behaviours: impl Into<VecDeque<Behaviour>>) {
        self.state().otherwise = behaviours.into();
    }

    /// How often it was called for `order`.
    pub(super) fn calls(&self, order: &str) -> usize {
        self.state().calls.get(order).copied().unwrap_or_default()
    }

    /// What was done, in order.
    pub(super) fn effects(&self) -> Vec<(String, Value)> {
        self.state().effects.clone()
    }

    /// Loses what it had committed for `order`.
    pub(super) fn lose(&self, order: &str) {
        self.state().effects.retain(|(done, _)| done != order);
    }

    /// How often the effect of `order` was committed.
    pub(super) fn applied(&self, order: &str) -> usize {
        self.state().applied.get(order).copied().unwrap_or_default()
    }

    /// Of how many orders the effect was committed.
    pub(super) fn done(&self) -> usize {
        self.state().applied.len()
    }

    /// The states that were committed for `order`, in order.
    pub(super) fn states(&self, order: &str) -> Vec<String> {
        let effects = self.effects().into_iter().filter(|(done, _)| done == order);
        effects.map(|(_, data)| data["state"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Waits until it was called so often for `order`.
    #[track_caller]
    pub(super) fn called(&self, order: &str, count: usize) -> impl Future<Output = usize> {
        let (handler, order) = (self.clone(), order.to_owned());
        eventually("the handler is called", async move || handler.calls(&order), move |calls| *calls >= count)
    }

    /// All requests for `order`.
    pub(super) fn requests(&self, order: &str) -> Vec<Received> {
        self.upstream.all().into_iter().filter(|request| order_of(request) == order).collect()
    }
}

fn order_of(request: &Received) -> String {
    let data: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    match &data["order_no"] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl State {
    fn handle(&mut self, request: &Received) -> Vec<Step> {
        if request.method == "GET" {
            return self.look_up(&request.target);
        }
        let order = order_of(request);
        *self.calls.entry(order.clone()).or_default() += 1;
        let left = self.behaviours.get_mut(&order).unwrap_or(&mut self.otherwise);
        let behaviour = if left.len() > 1 { left.pop_front() } else { left.front().cloned() };
        let behaviour = behaviour.unwrap_or(Behaviour::Works);
        let done = || answer("204 No Content", &[], "");
        match behaviour {
            Behaviour::Answers(status) => answer(status, &[], ""),
            Behaviour::Works => {
                self.commit(order, request);
                done()
            }
            Behaviour::Crashes => {
                self.commit(order, request);
                vec![Step::Close]
            }
            Behaviour::Waits(gate) => {
                self.commit(order, request);
                after(&gate, done())
            }
        }
    }

    fn commit(&mut self, order: String, request: &Received) {
        let key = request.field("idempotency-key").unwrap_or_default().to_owned();
        if self.known.insert(key) {
            *self.applied.entry(order.clone()).or_default() += 1;
            self.effects.push((order, serde_json::from_slice(&request.body).unwrap_or_default()));
        }
    }

    /// `GET /points/{order}`.
    fn look_up(&self, target: &str) -> Vec<Step> {
        let order = target.rsplit('/').next().unwrap_or_default();
        match self.effects.iter().find(|(done, _)| done == order) {
            Some((_, data)) => answer("200 OK", &[("content-type", "application/json")], data.to_string()),
            None => answer("404 Not Found", &[], ""),
        }
    }
}
