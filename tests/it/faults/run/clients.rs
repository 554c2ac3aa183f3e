//! Clients that pay as SDKs do: with the same key, back-off and jitter, until they are told something final; and that
//! hang up now and then.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use oncegate::clock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::faults::client::{Answer, Client};

/// Clients at a time.
const CLIENTS: usize = 12;

/// One in so many tries is hung up on.
const HANG_UPS: u32 = 10;

/// How long a payment is tried for before its client goes on to the next one.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a payment is asked about when everything works again.
const LAST_PATIENCE: Duration = Duration::from_secs(60);

/// Back-off between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(40);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What becomes of an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Route {
    /// A person settles it.
    Hold,
    /// The service is asked, and says when it has not seen the key.
    Lookup,
    /// It is sent again: the service honours the key.
    Forward,
}

impl Route {
    pub(super) const ALL: [Self; 3] = [Self::Hold, Self::Lookup, Self::Forward];

    /// Its name, and its path without the slash.
    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Lookup => "lookup",
            Self::Forward => "forward",
        }
    }
}

/// A payment: `c7-12-hold` is the twelfth of client 7, on the route `hold`. Its event's key is the client.
pub(super) fn key(client: usize, number: usize, route: Route) -> String {
    format!("c{client}-{number}-{}", route.path())
}

/// Whose payment it is, which one of theirs, and on which route.
pub(super) fn parts(key: &str) -> Option<(&str, usize, Route)> {
    let mut parts = key.split('-');
    let (client, number, path) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
    Some((client, number, Route::ALL.into_iter().find(|route| route.path() == path)?))
}

/// What a payment came to for its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The service's answer, or its replay.
    Paid {
        body: String,
        /// Whether the gateway did not say that it is not on record.
        recorded: bool,
    },
    /// It is done, and its answer was cut on its way to the gateway.
    NotKept,
    /// Nobody knows.
    Held,
    /// The client went on without having been told.
    Open,
    /// What no client should be told.
    Wrong(String),
}

/// What each payment's callers were told.
pub(super) type History = BTreeMap<String, Vec<End>>;

/// What the clients did.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: AtomicU64,
    pub(super) hang_ups: AtomicU64,
}

/// Clients at work.
#[derive(Debug)]
pub(super) struct Clients {
    running: JoinSet<History>,
    stop: CancellationToken,
    caller: Caller,
}

impl Clients {
    /// Starts clients that pay at any of `gateways`.
    pub(super) fn start(gateways: Vec<SocketAddr>) -> Self {
        let caller = Caller { client: Client::new(), gateways: gateways.into(), tally: Arc::default() };
        let (mut running, stop) = (JoinSet::new(), CancellationToken::new());
        for number in 0..CLIENTS {
            running.spawn(one(caller.clone(), number, stop.clone()));
        }
        Self { running, stop, caller }
    }

    /// Begins no more payments, and returns what became of all.
    pub(super) async fn stop(mut self) -> (History, Caller) {
        self.stop.cancel();
        let mut history = History::new();
        while let Some(client) = self.running.join_next().await {
            history.extend(client.unwrap());
        }
        (history, self.caller)
    }
}

/// Who calls the gateways.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    client: Client,
    gateways: Arc<[SocketAddr]>,
    pub(super) tally: Arc<Tally>,
}

impl Caller {
    /// Asks about `payments` once more, now that nothing is broken.
    pub(super) async fn ask_again(&self, payments: impl Iterator<Item = (&String, &mut Vec<End>)>) {
        let asked = payments.map(|(key, ends)| async move {
            let (_, _, route) = parts(key).unwrap();
            ends.push(self.pay(route, key, false, LAST_PATIENCE).await);
        });
        stream::iter(asked).buffer_unordered(CLIENTS).collect::<()>().await;
    }

    async fn pay(&self, route: Route, key: &str, hangs_up: bool, patience: Duration) -> End {
        let (deadline, mut pause) = (clock::now() + patience, FIRST_PAUSE);
        loop {
            if let Some(end) = self.attempt(route, key, hangs_up).await {
                return end;
            }
            if clock::now() > deadline {
                return End::Open;
            }
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One try; `None`: it is to be tried again.
    async fn attempt(&self, route: Route, key: &str, hangs_up: bool) -> Option<End> {
        self.tally.requests.fetch_add(1, Ordering::Relaxed);
        let gateway = self.gateways[rand::random_range(0..self.gateways.len())];
        let call = self.client.post_to(gateway, route.path(), key);
        if hangs_up && rand::random_range(0..HANG_UPS) == 0 {
            self.tally.hang_ups.fetch_add(1, Ordering::Relaxed);
            let patience = Duration::from_millis(rand::random_range(1..50));
            drop(tokio::time::timeout(patience, call).await);
            return None;
        }
        end(route, call.await?)
    }
}

/// What an answer means to a client.
fn end(route: Route, answer: Answer) -> Option<End> {
    let is = |slugs: &[&str]| slugs.iter().any(|slug| answer.is_problem(slug));
    if answer.status.is_success() {
        Some(End::Paid { body: answer.body, recorded: answer.recorded })
    } else if is(&["response-not-kept"]) {
        Some(End::NotKept)
    } else if is(&["outcome-unknown"]) {
        (route == Route::Hold).then_some(End::Held)
    } else if is(&["processing", "unavailable", "upstream-timeout", "upstream-failed", "upstream-unreachable"]) {
        None
    } else {
        Some(End::Wrong(format!("{} {}", answer.status, answer.body)))
    }
}

/// Pays one after the other, on each route in turn. Some are sent twice at once, and some again later.
async fn one(caller: Caller, number: usize, stop: CancellationToken) -> History {
    let mut history = History::new();
    let pay = |route, key: String| {
        let caller = caller.clone();
        async move { caller.pay(route, &key, true, PATIENCE).await }
    };
    for count in 0.. {
        if stop.is_cancelled() {
            break;
        }
        let route = Route::ALL[count % Route::ALL.len()];
        let key = key(number, count, route);
        let ends = if rand::random_range(0..4) == 0 {
            let twice = tokio::join!(pay(route, key.clone()), pay(route, key.clone()));
            vec![twice.0, twice.1]
        } else {
            vec![pay(route, key.clone()).await]
        };
        history.insert(key, ends);
        if count % 5 == 4 {
            let earlier = rand::random_range(0..count);
            let route = Route::ALL[earlier % Route::ALL.len()];
            let earlier = self::key(number, earlier, route);
            let end = pay(route, earlier.clone()).await;
            history.get_mut(&earlier).unwrap().push(end);
        }
    }
    history
}
