//! Stops asking a mark store that does not answer, so that an outage costs a request nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::circuit::{Change, Circuit, CircuitOptions};
use crate::clock;
use crate::engine::marks::Unavailable;

/// A circuit breaker around the exchanges with a mark store.
///
/// It stands around exchanges and not around the whole of `Marks`, so that a value nobody can read, which
/// is told as [`Unavailable`] too, does not make the store look dead for all other keys.
#[derive(Debug)]
pub struct Breaker {
    circuit: Mutex<Circuit>,
}

impl Breaker {
    /// A closed breaker.
    #[must_use]
    pub fn new(options: CircuitOptions) -> Self {
        gauge(0.0);
        Self { circuit: Mutex::new(Circuit::new(options)) }
    }

    /// Runs `exchange`, which bounds its own time, unless the breaker is open.
    ///
    /// Dropping the call counts neither as success nor as failure.
    ///
    /// # Errors
    /// What `exchange` says, or at once if the breaker is open.
    pub async fn call<T>(&self, exchange: impl Future<Output = Result<T, Unavailable>>) -> Result<T, Unavailable> {
        let Some(pass) = self.circuit().admit(clock::now()) else {
            return Err(Unavailable("not asked, since it failed before".into()));
        };
        let result = exchange.await;
        let change = match &result {
            Ok(_) => self.circuit().succeeded(pass),
            Err(_) => {
                metrics::counter!("oncegate_marks_errors_total").increment(1);
                self.circuit().failed(pass, clock::now(), rand::random())
            }
        };
        if let Some(change) = change {
            tell(change, result.as_ref().err());
        }
        result
    }

    /// The circuit is whole after every step, so a panic elsewhere does not spoil it.
    fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(change: Change, error: Option<&Unavailable>) {
    match change {
        Change::Opened => {
            gauge(1.0);
            let error = error.map_or("", |Unavailable(reason)| reason);
            tracing::warn!(error, "the mark store does not answer; the database decides alone until it does");
        }
        Change::Closed => {
            gauge(0.0);
            tracing::info!("the mark store answers again");
        }
    }
}

fn gauge(open: f64) {
    metrics::gauge!("oncegate_marks_breaker_open").set(open);
}
