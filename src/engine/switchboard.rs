//! The switches as this process knows them.
//!
//! | | then |
//! |---|---|
//! | a gateway starts | it reads them before it serves, and does not start if it can't |
//! | somebody turns one here | it acts here once that is committed |
//! | somebody turns one elsewhere | it acts here after the next look, [`EVERY`] at most |
//! | the database does not answer | what was known last goes on |

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::ledger::StoreError;
use super::switches::{Kind, Order, Switch, Switches, Turn, Turned};

/// How often switches are read: a kill switch acts in about a second everywhere, for one small query.
pub const EVERY: Duration = Duration::from_millis(500);

/// What acts on a switch, each time that it is set otherwise: with `None` as configured.
pub type Act = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// Reads the switches again and again, and has them act.
pub struct Switchboard {
    store: Arc<dyn Switches>,
    watched: Vec<Watched>,
    known: RwLock<Vec<Switch>>,
    /// Held while switches are read and while one is turned: what was read before is never taken for what is true after.
    reading: tokio::sync::Mutex<()>,
}

/// A switch that something acts on.
struct Watched {
    kind: Kind,
    name: Box<str>,
    act: Act,
}

impl fmt::Debug for Switchboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switchboard").field("watched", &self.watched.len()).finish_non_exhaustive()
    }
}

impl Switchboard {
    /// Reads the switches of `store`; none yet.
    #[must_use]
    pub fn new(store: Arc<dyn Switches>) -> Self {
        Self { store, watched: Vec::new(), known: RwLock::default(), reading: tokio::sync::Mutex::default() }
    }

    /// Has `act` follow the switch of `name`.
    #[must_use]
    pub fn watch(mut self, kind: Kind, name: &str, act: Act) -> Self {
        self.watched.push(Watched { kind, name: name.into(), act });
        self
    }

    /// Reads them, and has those act that are set otherwise than before.
    ///
    /// # Errors
    /// If the database can't be asked; then all is as it was.
    pub async fn step(&self) -> Result<(), StoreError> {
        let _reading = self.reading.lock().await;
        let switched = self.store.switched().await?;
        self.follow(switched);
        Ok(())
    }

    /// As [`Self::step`] again and again, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut is_away = false;
        while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
            match stop.run_until_cancelled(self.step()).await {
                Some(Err(error)) if !is_away => {
                    is_away = true;
                    tracing::warn!(%error, "switches can't be read: what was known last goes on");
                }
                Some(Err(_)) => {}
                Some(Ok(())) => is_away = false,
                None => return,
            }
        }
    }

    /// Turns one. It acts here when this returns.
    ///
    /// # Errors
    /// As [`Switches::turn`].
    pub async fn turn(&self, order: &Order) -> Result<Turned, StoreError> {
        let _reading = self.reading.lock().await;
        let turned = self.store.turn(order).await?;
        let Order { kind, name, setting, by, reason } = order.clone();
        let (actor, was) = (&by.name, turned.was.as_deref().unwrap_or("configured"));
        let now = setting.as_deref().unwrap_or("configured");
        tracing::warn!(kind = kind.as_str(), %name, was, now, %actor, %reason, "a person turned a switch");
        let mut switched = self.known();
        switched.retain(|switch| switch.kind != kind || switch.name != name);
        switched.extend(setting.map(|setting| Switch { kind, name, setting, by, reason, at: turned.at }));
        self.follow(switched);
        Ok(turned)
    }

    /// As [`Switches::turns`].
    ///
    /// # Errors
    /// If the database can't be asked.
    pub async fn turns(&self, of: Option<Kind>, before: Option<i64>, limit: u32) -> Result<Vec<Turn>, StoreError> {
        self.store.turns(of, before, limit).await
    }

    /// All that are not as configured, as far as this process knows.
    #[must_use]
    pub fn known(&self) -> Vec<Switch> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The switch of `name`, if it is not as configured.
    #[must_use]
    pub fn of(&self, kind: Kind, name: &str) -> Option<Switch> {
        find(&self.known.read().unwrap_or_else(PoisonError::into_inner), kind, name).cloned()
    }

    fn follow(&self, switched: Vec<Switch>) {
        let before = self.known();
        let setting =
            |of: &'_ [Switch], one: &Watched| find(of, one.kind, &one.name).map(|switch| switch.setting.clone());
        let turned: Vec<_> = self
            .watched
            .iter()
            .map(|one| (one, setting(&switched, one)))
            .filter(|(one, now)| setting(&before, one) != *now)
            .collect();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = switched;
        for (one, now) in turned {
            tracing::info!(kind = one.kind.as_str(), name = %one.name, setting = now.as_deref().unwrap_or("configured"), "switched");
            let labels = [("kind", one.kind.as_str().to_owned()), ("name", one.name.to_string())];
            metrics::gauge!("oncegate_switched", &labels).set(if now.is_some() { 1.0 } else { 0.0 });
            (one.act)(now.as_deref());
        }
    }
}

fn find<'a>(switched: &'a [Switch], kind: Kind, name: &str) -> Option<&'a Switch> {
    switched.iter().find(|switch| switch.kind == kind && *switch.name == *name)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::{BoxFuture, FutureExt as _, ready};

    use super::*;
    use crate::clock::Timestamp;
    use crate::engine::desk::Actor;

    /// A table that can be away.
    #[derive(Default)]
    struct Table(Mutex<Option<Vec<Switch>>>);

    impl Switches for Table {
        fn switched(&self) -> BoxFuture<'_, Result<Vec<Switch>, StoreError>> {
            let found = self.0.lock().unwrap().clone();
            ready(found.ok_or_else(|| StoreError::Unavailable("away".into()))).boxed()
        }

        fn turn<'a>(&'a self, _: &'a Order) -> BoxFuture<'a, Result<Turned, StoreError>> {
            ready(Ok(Turned { was: None, at: Timestamp(7) })).boxed()
        }

        fn turns(&self, _: Option<Kind>, _: Option<i64>, _: u32) -> BoxFuture<'_, Result<Vec<Turn>, StoreError>> {
            ready(Ok(Vec::new())).boxed()
        }
    }

    fn nobody() -> Actor {
        Actor { name: "ann".into(), authority: "token".into() }
    }

    fn switch(name: &str, setting: &str) -> Switch {
        let (name, setting, reason) = (name.into(), setting.into(), "".into());
        Switch { kind: Kind::Route, name, setting, by: nobody(), reason, at: Timestamp(1) }
    }

    fn board(table: &Arc<Table>) -> (Switchboard, Arc<Mutex<Vec<String>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        let act = move |setting: Option<&str>| told.lock().unwrap().push(setting.unwrap_or("configured").to_owned());
        (Switchboard::new(table.clone()).watch(Kind::Route, "pay", Box::new(act)), seen)
    }

    #[tokio::test]
    async fn what_is_set_otherwise_acts_once_and_what_was_known_last_goes_on() {
        let table = Arc::new(Table(Mutex::new(Some(vec![switch("pay", "observe"), switch("other", "observe")]))));
        let (board, seen) = board(&table);
        board.step().await.unwrap();
        board.step().await.unwrap();
        assert_eq!(*seen.lock().unwrap(), ["observe"]);
        *table.0.lock().unwrap() = None;
        assert!(board.step().await.is_err());
        assert_eq!(board.of(Kind::Route, "pay"), Some(switch("pay", "observe")));
        *table.0.lock().unwrap() = Some(vec![switch("pay", "replay_only")]);
        board.step().await.unwrap();
        *table.0.lock().unwrap() = Some(Vec::new());
        board.step().await.unwrap();
        assert_eq!(*seen.lock().unwrap(), ["observe", "replay_only", "configured"]);
        assert_eq!((board.known(), board.of(Kind::Subscription, "pay")), (Vec::new(), None));
    }

    #[tokio::test]
    async fn who_turns_one_sees_it_act_at_once() {
        let table = Arc::new(Table(Mutex::new(None)));
        let (board, seen) = board(&table);
        let order = |setting: Option<&str>| Order {
            kind: Kind::Route,
            name: "pay".into(),
            setting: setting.map(Into::into),
            by: nobody(),
            reason: "".into(),
        };
        board.turn(&order(Some("replay_only"))).await.unwrap();
        assert_eq!(board.of(Kind::Route, "pay"), Some(Switch { at: Timestamp(7), ..switch("pay", "replay_only") }));
        board.turn(&order(None)).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), ["replay_only", "configured"]);
    }
}
