//! The layer.

use std::sync::Arc;

use tower::Layer;

use super::operation::Operation;
use super::service::IdempotencyService;
use crate::engine::{Engine, Policy};
use crate::outbox::lane::{Lanes, UnknownQueue};
use crate::sealer::Sealer;

/// Makes the requests of one kind of operation safe to send twice: the first one reaches the inner service,
/// every other one gets the first one's answer.
///
/// 1. Safe methods (GET, HEAD, OPTIONS, TRACE) pass.
/// 2. Of anything else the body is read whole, within its bounds, before the inner service sees it.
/// 3. The inner service is called in a task of its own: a client that hangs up cancels nothing. A
///    time-out around this layer answers the client and leaves the execution alone; one inside cancels
///    the handler, whose outcome then is Unknown.
/// 4. Middleware inside this layer sees a request at most once per execution; middleware outside sees the
///    replays too.
///
/// Made by [`Oncegate::layer`](crate::Oncegate::layer), which also makes sure that the store's record of the
/// operation's identity is this one.
#[derive(Debug, Clone)]
pub struct IdempotencyLayer {
    shared: Arc<Shared>,
}

/// What all services of a layer share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) engine: Arc<Engine>,
    pub(super) operation: Operation,
    pub(super) policy: Arc<Policy>,
    pub(super) lanes: Lanes,
    pub(super) problems: Box<str>,
    /// The store's.
    pub(super) sealer: Arc<Sealer>,
}

impl IdempotencyLayer {
    /// The layer of `operation` over an engine that runs. `lanes` are of the queues that its events go to;
    /// `problems` is where the problem pages are, with a slash at its end; `sealer` is the store's.
    ///
    /// # Errors
    /// If an event goes to another queue.
    pub fn new(
        engine: Arc<Engine>,
        operation: Operation,
        lanes: Lanes,
        problems: impl Into<Box<str>>,
        sealer: Arc<Sealer>,
    ) -> Result<Self, UnknownQueue> {
        let policy = Arc::new(operation.policy(&lanes)?);
        let problems = problems.into();
        Ok(Self { shared: Arc::new(Shared { engine, operation, policy, lanes, problems, sealer }) })
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, Arc::clone(&self.shared))
    }
}
