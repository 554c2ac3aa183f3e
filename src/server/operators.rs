//! The operators' side of a gateway, and the same on a database without one.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;

use super::queues::lanes;
use super::subscriptions::policies_of;
use super::{ServeError, body_limits, open_store, options, problems, routes, sealer};
use crate::auth::Authenticator;
use crate::config::{Config, Route, Subscription};
use crate::engine::by_hand::{Settler, SettlerParts};
use crate::engine::switchboard::Switchboard;
use crate::engine::switches::Kind;
use crate::engine::{OnEvents, Parts, Policy};
use crate::http::admin::access::{Access, Token};
use crate::http::admin::routes::RouteShown;
use crate::http::admin::stats::Stats;
use crate::http::admin::subscriptions::SubscriptionShown;
use crate::http::admin::{self, Admin, AdminParts};
use crate::http::route::{Guard, Mode};
use crate::marks;
use crate::storage::Store;

/// The operators' endpoints of a gateway whose engine is made of `parts`.
pub(super) fn of_gateway(
    config: &Config,
    store: &Arc<Store>,
    parts: &Parts,
    senders: &Authenticator,
    switched: Switched<'_>,
) -> Result<Admin, ServeError> {
    let settling = SettlerParts {
        desk: store.clone(),
        marks: Arc::clone(&parts.marks),
        policies: parts.policies.clone(),
        on_events: parts.on_events.clone(),
    };
    Ok(build(config, store, settling, switched, access(config, senders)?))
}

/// What people switch, and the guards whose modes follow.
pub(super) struct Switched<'a> {
    pub(super) board: Arc<Switchboard>,
    pub(super) guards: &'a [Arc<Guard>],
}

/// The switches in `store`, which the modes of `guards` follow.
pub(super) fn switchboard(store: &Arc<Store>, guards: &[Arc<Guard>]) -> Switchboard {
    guards.iter().fold(Switchboard::new(store.clone()), |board, guard| {
        let (mode, route) = (Arc::clone(&guard.mode), guard.policy.route.clone());
        let act = move |setting: Option<&str>| match setting.map(Mode::read) {
            None => mode.switch(None),
            Some(Some(to)) => mode.switch(Some(to)),
            Some(None) => {
                tracing::error!(%route, setting, "switched to a mode that this version does not know: nothing changes here");
            }
        };
        board.watch(Kind::Route, &guard.policy.route, Box::new(act))
    })
}

/// Also where nobody has checked the configuration: an address that others reach is never without credentials.
fn access(config: &Config, senders: &Authenticator) -> Result<Access, ServeError> {
    let token = config.server.admin_token.as_ref().map(|token| Token::new(token.expose()));
    let issued = match senders {
        Authenticator::Jwt(_) => Some(Box::new(senders.clone())),
        // They say who pays, by no word of their own.
        Authenticator::Nobody | Authenticator::Header(_) => None,
    };
    match config.server.admin_listen {
        _ if token.is_some() || issued.is_some() => Ok(Access::Credentials { token, issued }),
        Some(listen) if !listen.get().ip().is_loopback() => Err(ServeError::OpenToAll(listen.get())),
        Some(_) | None => Ok(Access::Machine),
    }
}

/// The operators' endpoints for a command on the database of `config`, without a gateway.
#[derive(Debug)]
pub struct OnDatabase {
    /// Answers as the admin listener would.
    pub router: Router,
    store: Arc<Store>,
}

impl OnDatabase {
    /// Opens the store. Gateways may run meanwhile; they find what is done by their polls.
    ///
    /// # Errors
    /// If anything that the configuration names can't be used.
    pub async fn open(config: &Config) -> Result<Self, ServeError> {
        let store = open_store(config).await?;
        let routes = routes::build(config, &lanes(config, &store).await?)?;
        let subscribed = policies_of(config, &store, &routes)?;
        let board = Arc::new(switchboard(&store, &routes.guards));
        let policies: HashMap<Box<str>, Arc<Policy>> =
            routes.policies.iter().map(|(name, policy)| (name.clone(), Arc::clone(policy))).chain(subscribed).collect();
        let marks = marks::connect(&options::marks(config, sealer(config)?)?)?;
        let settling = SettlerParts { desk: store.clone(), marks, policies, on_events: OnEvents::default() };
        let switched = Switched { board, guards: &routes.guards };
        Ok(Self { router: admin::router(build(config, &store, settling, switched, Access::Database)), store })
    }

    /// Closes the store.
    pub async fn close(self) {
        self.store.close().await;
    }
}

fn build(
    config: &Config,
    store: &Arc<Store>,
    settling: SettlerParts,
    Switched { board, guards }: Switched<'_>,
    access: Access,
) -> Admin {
    Admin::new(AdminParts {
        entries: store.clone(),
        events: store.clone(),
        policies: settling.policies.clone(),
        settler: Settler::new(settling),
        switches: board,
        routes: config.routes.iter().map(|route| shown(route, guards)).collect(),
        subscriptions: config.subscriptions.iter().map(shown_subscription).collect(),
        stats: Stats::default(),
        access,
        body: body_limits(config),
        problems: problems(config).into(),
    })
}

fn shown(route: &Route, guards: &[Arc<Guard>]) -> RouteShown {
    let guard = guards.iter().find(|guard| *guard.policy.route == *route.name.as_str());
    RouteShown {
        name: route.name.as_str().into(),
        pattern: route.pattern.to_string().into(),
        upstream: route.upstream.as_str().into(),
        mode: guard.map(|guard| Arc::clone(&guard.mode)),
    }
}

fn shown_subscription(subscription: &Subscription) -> SubscriptionShown {
    SubscriptionShown {
        name: subscription.name.as_str().into(),
        queue: subscription.queue.as_str().into(),
        topic: (*subscription.topic).into(),
    }
}
