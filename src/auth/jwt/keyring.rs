//! The keys of now: fixed ones, or an issuer's key set that is fetched again and again.
//!
//! | when | what |
//! |---|---|
//! | `refresh` after a fetch | fetched again: a key that the issuer has withdrawn stops counting |
//! | `cooldown` after a failure | tried again; meanwhile the last good set counts |
//! | a token names a key that is not in the set | fetched at once, and the token waits for it; not within `cooldown` of the last try, or strangers could make us flood the issuer |

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{Algorithm, KeySet};
use crate::clock::{self, Instant};

/// Gets a key set, bounded in size and time; or says why not, for the log.
pub type Fetch = Box<dyn Fn() -> BoxFuture<'static, Result<Bytes, String>> + Send + Sync>;

/// When a key set is fetched.
#[derive(Debug, Clone, Copy)]
pub struct Refresh {
    /// How old it gets.
    pub every: Duration,
    /// The least time between two tries.
    pub cooldown: Duration,
    /// How long a token waits for a fetch.
    pub patience: Duration,
}

/// The keys of now.
pub struct Keyring {
    state: watch::Sender<Keys>,
    issuer: Option<Issuer>,
}

/// Where sets come from.
struct Issuer {
    fetch: Fetch,
    algorithms: Arc<[Algorithm]>,
    refresh: Refresh,
    /// That a token has named a key that nobody knows.
    asked: Notify,
}

/// What is known at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    pub(super) set: Option<Arc<KeySet>>,
    /// Fetches that have ended, well or not.
    fetches: u64,
    is_fetching: bool,
    last_try: Option<Instant>,
}

impl Keyring {
    /// Keys that never change.
    #[must_use]
    pub fn fixed(set: KeySet) -> Self {
        Self { state: watch::Sender::new(Keys { set: Some(Arc::new(set)), ..Keys::default() }), issuer: None }
    }

    /// An issuer's key set; empty until [`Keyring::step`] has fetched it.
    #[must_use]
    pub fn fetched(fetch: Fetch, algorithms: Arc<[Algorithm]>, refresh: Refresh) -> Self {
        let issuer = Issuer { fetch, algorithms, refresh, asked: Notify::new() };
        Self { state: watch::Sender::new(Keys::default()), issuer: Some(issuer) }
    }

    pub(super) fn current(&self) -> Keys {
        self.state.borrow().clone()
    }

    /// Whether there are, or come in time, keys that `seen` had not.
    pub(super) async fn renewed(&self, seen: &Keys) -> bool {
        let Some(issuer) = &self.issuer else { return false };
        let mut state = self.state.subscribe();
        {
            let now = state.borrow_and_update();
            if now.fetches > seen.fetches {
                return true;
            }
            if !now.is_fetching && !now.may_try(issuer.refresh.cooldown) {
                return false;
            }
        }
        issuer.asked.notify_one();
        let renewed = timeout(issuer.refresh.patience, state.wait_for(|now| now.fetches > seen.fetches)).await;
        matches!(renewed, Ok(Ok(_)))
    }

    /// Fetches the set. Whatever goes wrong, the last good one stays. Whether the set is a fresh one.
    pub async fn step(&self) -> bool {
        let Some(issuer) = &self.issuer else { return true };
        self.state.send_modify(|keys| {
            keys.is_fetching = true;
            keys.last_try = Some(clock::now());
        });
        let fetched = (issuer.fetch)().await;
        let set =
            fetched.and_then(|json| KeySet::of_jwks(&json, &issuer.algorithms).map_err(|error| error.to_string()));
        let set = match set {
            Ok(set) => {
                counted("ok");
                #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
                metrics::gauge!("oncegate_jwks_fetched_timestamp_seconds").set(clock::wall().0 as f64 / 1000.0);
                Some(Arc::new(set))
            }
            Err(error) => {
                counted("failed");
                let kept = self.state.borrow().set.is_some();
                tracing::warn!(error, kept, "key set of the tokens' issuer could not be fetched");
                None
            }
        };
        let is_fresh = set.is_some();
        self.state.send_modify(|keys| {
            keys.is_fetching = false;
            keys.fetches += 1;
            // Counted from the end of a try: a slow issuer is not asked without a pause.
            keys.last_try = Some(clock::now());
            keys.set = set.or(keys.set.take());
        });
        is_fresh
    }

    /// Fetches when it is time, until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let Some(issuer) = &self.issuer else { return };
        let mut is_fresh = self.state.borrow().set.is_some();
        loop {
            let pause = if is_fresh { issuer.refresh.every } else { issuer.refresh.cooldown };
            let due = self.state.borrow().last_try.map_or_else(clock::now, |last| last + pause);
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(due) => {}
                () = self.asked(issuer) => {}
            }
            match stop.run_until_cancelled(self.step()).await {
                Some(fetched) => is_fresh = fetched,
                None => return,
            }
        }
    }

    /// Ready when somebody asks, and may.
    async fn asked(&self, issuer: &Issuer) {
        loop {
            issuer.asked.notified().await;
            if self.state.borrow().may_try(issuer.refresh.cooldown) {
                return;
            }
        }
    }
}

impl Keys {
    fn may_try(&self, cooldown: Duration) -> bool {
        self.last_try.is_none_or(|last| last + cooldown <= clock::now())
    }
}

fn counted(result: &'static str) {
    metrics::counter!("oncegate_jwks_fetches_total", "result" => result).increment(1);
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("keys", &*self.state.borrow()).finish_non_exhaustive()
    }
}
