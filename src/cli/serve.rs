//! `oncegate serve` and `oncegate migrate`.

use oncegate::config::Config;
use oncegate::server::{self, Server};
use oncegate::telemetry;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::out::say;
use super::{Failure, files};

/// A runtime for commands, with its failures in words.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::Failed(format!("no runtime: {error}")))?.block_on(work)
}

/// Runs the gateway until it is told to stop.
pub(super) fn run(config: &Config) -> Result<(), Failure> {
    telemetry::init();
    files::raise_limit(config.server.max_connections.get());
    block_on(async {
        // Listened for before anything is begun, so that an early signal is not lost.
        let mut signals = StopSignals::listen()?;
        let server = tokio::select! {
            server = Server::start(config) => server.map_err(|error| Failure::Failed(error.to_string()))?,
            () = signals.next() => return Ok(()),
        };
        tracing::info!(address = %server.address(), "listening");
        signals.next().await;
        tracing::info!("finishing what is in flight");
        tokio::select! {
            () = server.stop() => Ok(()),
            () = signals.interrupted() => {
                Err(Failure::Failed("interrupted while stopping: what was in flight becomes unknown".to_owned()))
            }
        }
    })
}

/// SIGTERM and SIGINT.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// From now on none is lost.
    pub(super) fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::Failed(format!("signals can't be listened for: {error}")));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Ready at the next SIGINT: somebody at a terminal will not wait any longer. A SIGTERM that comes again says no
    /// more than the first, and supervisors do send several.
    async fn interrupted(&mut self) {
        self.interrupt.recv().await;
    }

    /// Ready at the next one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Brings the schema up to date.
pub(super) fn migrate(config: &Config) -> Result<(), Failure> {
    telemetry::init();
    block_on(async {
        let store = server::open_store(config).await.map_err(|error| Failure::Failed(error.to_string()))?;
        store.close().await;
        say!("the schema is up to date");
        Ok(())
    })
}
