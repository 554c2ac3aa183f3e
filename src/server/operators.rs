//! The operators' side of a gateway, and the same on a database without one.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;

use super::queues::lanes;
use super::subscriptions::policies_of;
use super::{ServeError, body_limits, open_store, options, problems, routes, sealer};
use crate::auth::Authenticator;
use crate::config::Config;
use crate::engine::by_hand::{Settler, SettlerParts};
use crate::engine::{OnEvents, Parts, Policy};
use crate::http::admin::access::{Access, Token};
use crate::http::admin::{self, Admin, AdminParts};
use crate::marks;
use crate::storage::Store;

/// The operators' endpoints of a gateway whose engine is made of `parts`.
pub(super) fn of_gateway(
    config: &Config,
    store: &Arc<Store>,
    parts: &Parts,
    senders: &Authenticator,
) -> Result<Admin, ServeError> {
    let settling = SettlerParts {
        desk: store.clone(),
        marks: Arc::clone(&parts.marks),
        policies: parts.policies.clone(),
        on_events: parts.on_events.clone(),
    };
    Ok(build(config, store, settling, access(config, senders)?))
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
        let policies: HashMap<Box<str>, Arc<Policy>> = routes.policies.into_iter().chain(subscribed).collect();
        let marks = marks::connect(&options::marks(config, sealer(config)?)?)?;
        let settling = SettlerParts { desk: store.clone(), marks, policies, on_events: OnEvents::default() };
        Ok(Self { router: admin::router(build(config, &store, settling, Access::Database)), store })
    }

    /// Closes the store.
    pub async fn close(self) {
        self.store.close().await;
    }
}

fn build(config: &Config, store: &Arc<Store>, settling: SettlerParts, access: Access) -> Admin {
    Admin::new(AdminParts {
        entries: store.clone(),
        events: store.clone(),
        policies: settling.policies.clone(),
        settler: Settler::new(settling),
        access,
        body: body_limits(config),
        problems: problems(config).into(),
    })
}
