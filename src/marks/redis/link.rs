//! The connection that all calls share: opened by the first that needs it, replaced when it fails.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_redis::redis;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::timeout;

use crate::clock::{self, Instant};
use crate::engine::marks::Unavailable;
use crate::redis::dial::{Connection, DIAL_LIMIT, Dialer};

/// A connection is not blamed for a slow answer before this age; or an overloaded server would be asked for
/// connections on top.
const MIN_AGE: Duration = Duration::from_secs(1);

/// What the server said to a command: a value, or a refusal that says nothing of the server's health.
pub(super) type Reply = Result<Value, Refusal>;

/// A refusal that lies in the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The server does not know the script: it was restarted, or its scripts were flushed.
    NoScript,
    /// The key holds something that is no string.
    WrongType,
}

/// One connection for all callers, or the way to it.
pub(super) struct Link {
    dialer: Arc<Dialer>,
    /// How long a call may take, opening the connection included.
    time_limit: Duration,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    /// What calls use now.
    current: Option<Dial>,
    /// What takes its place once it is open, after a call on it timed out. Meanwhile calls go on using the
    /// old one: of a cluster perhaps one node hangs and the others answer.
    next: Option<Dial>,
}

/// A connection, open or being opened by a task of its own, so that no caller's patience ends it.
#[derive(Clone)]
struct Dial {
    connection: Shared<BoxFuture<'static, Result<Connection, Unavailable>>>,
    since: Instant,
}

enum Failure {
    NotConnected(Unavailable),
    Command(RedisError),
}

impl Link {
    pub(super) fn new(dialer: Dialer, time_limit: Duration) -> Self {
        Self { dialer: Arc::new(dialer), time_limit, slot: Mutex::default() }
    }

    /// Sends one command and waits for its answer, within the time limit.
    pub(super) async fn exchange(&self, command: &Cmd) -> Result<Reply, Unavailable> {
        let dial = self.dial();
        self.bounded(&dial, async {
            let mut connection = dial.connection.clone().await.map_err(Failure::NotConnected)?;
            connection.send(command).await.and_then(read).map_err(Failure::Command)
        })
        .await
    }

    /// Sends all commands at once and waits for their answers, within the time limit of one.
    pub(super) async fn exchange_all(&self, commands: &[Cmd]) -> Result<Vec<Reply>, Unavailable> {
        let dial = self.dial();
        self.bounded(&dial, async {
            let mut connection = dial.connection.clone().await.map_err(Failure::NotConnected)?;
            let values = connection.send_all(commands).await.map_err(Failure::Command)?;
            values.into_iter().map(read).collect::<Result<_, _>>().map_err(Failure::Command)
        })
        .await
    }

    async fn bounded<T>(
        &self,
        dial: &Dial,
        exchange: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Unavailable> {
        match timeout(self.time_limit, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Failure::NotConnected(unavailable))) => {
                self.drop_current(dial);
                Err(unavailable)
            }
            Ok(Err(Failure::Command(error))) => {
                match dial.connection.peek() {
                    Some(Ok(Connection::Node(_))) if is_lost(&error) => self.drop_current(dial),
                    // A cluster's other nodes may be well.
                    Some(Ok(Connection::Cluster(_))) if is_lost(&error) => self.replace_later(dial),
                    Some(_) | None => {}
                }
                Err(Unavailable(error.to_string()))
            }
            Err(_elapsed) => {
                self.replace_later(dial);
                Err(Unavailable(format!("no answer within {} ms", self.time_limit.as_millis())))
            }
        }
    }

    fn dial(&self) -> Dial {
        let mut slot = self.slot();
        match slot.next.as_ref().and_then(|next| next.connection.peek()) {
            Some(Ok(_)) => slot.current = slot.next.take(),
            Some(Err(_)) => slot.next = None,
            None => {}
        }
        slot.current.get_or_insert_with(|| Dial::start(&self.dialer)).clone()
    }

    fn drop_current(&self, failed: &Dial) {
        self.slot().current.take_if(|current| current.is(failed));
    }

    fn replace_later(&self, slow: &Dial) {
        let mut slot = self.slot();
        let blamed = slot.current.as_ref().is_some_and(|current| current.is(slow));
        let open = slow.connection.peek().is_some();
        if blamed && open && slot.next.is_none() && clock::now() - slow.since >= MIN_AGE {
            slot.next = Some(Dial::start(&self.dialer));
        }
    }

    /// The slot is whole after every step, so a panic elsewhere does not spoil it.
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dial {
    fn start(dialer: &Arc<Dialer>) -> Self {
        let dialer = Arc::clone(dialer);
        let opening = async move {
            // A panic (no TLS provider installed) must not reach every caller through the shared future.
            let dialing = AssertUnwindSafe(timeout(DIAL_LIMIT, dialer.dial())).catch_unwind().await;
            match dialing {
                Ok(Ok(Ok(connection))) => Ok(connection),
                Ok(Ok(Err(error))) => Err(Unavailable(format!("not connected: {error}"))),
                Ok(Err(_elapsed)) => Err(Unavailable("not connected: no answer in time".into())),
                Err(_panic) => Err(Unavailable("not connected: connecting panicked".into())),
            }
        };
        let connection = opening.boxed().shared();
        tokio::spawn(connection.clone());
        Self { connection, since: clock::now() }
    }

    fn is(&self, other: &Self) -> bool {
        self.connection.ptr_eq(&other.connection)
    }
}

/// Tells a refusal that lies in the command from an error of the server.
fn read(value: Value) -> Result<Reply, RedisError> {
    match value {
        Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript) => Ok(Err(Refusal::NoScript)),
        Value::ServerError(error) if error.code() == "WRONGTYPE" => Ok(Err(Refusal::WrongType)),
        Value::ServerError(error) => Err(error.into()),
        value => Ok(Ok(value)),
    }
}

/// Whether the connection is of no more use: it is gone, or leads to a master that has become a replica.
fn is_lost(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("dialer", &self.dialer)
            .field("time_limit", &self.time_limit)
            .finish_non_exhaustive()
    }
}
